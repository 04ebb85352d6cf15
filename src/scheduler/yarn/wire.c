/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/yarn/yarn_int.h"

const struct yarn_wire yarn_wire_real = { .client_new = rpc_client_new,
                                          .client_free = rpc_client_free,
                                          .client_retire = rpc_client_retire,
                                          .client_local = rpc_client_local,
                                          .call_cancel = rpc_call_cancel,
                                          .end_of = yarn_end_of,
#define X(fn, M) .fn = yarn_##fn,
                                          YARN_WIRE(X)
#undef X
};
