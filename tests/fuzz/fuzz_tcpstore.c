/* SPDX-License-Identifier: Apache-2.0 */
/* Input: messages of two clients of torch's store, in pieces. The first byte says where they are
 * cut, the second which client sends each. */
#include <stdint.h>
#include <stdlib.h>

#include "base/util.h"
#include "rendezvous/tcpstore.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES_MAX = 1 << 20, CLIENTS = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tcpstore *s = tcpstore_new(BYTES_MAX, 1);
    struct tcpstore_client *c[CLIENTS] = { 0 };
    if (size < 2 || !s) {
        tcpstore_free(s);
        return 0;
    }
    size_t step = data[0] % 64 + 1, turn = data[1];
    for (size_t at = 2; at < size; at += step, turn = turn * 5 + 1) {
        struct tcpstore_client **x = &c[turn >> 2 & 1];
        if (!*x && !(*x = tcpstore_join(s, NULL)))
            abort();
        if (tcpstore_paused(*x))
            tcpstore_sent(*x, tcpstore_out(*x).len);
        if (tcpstore_feed(*x, (const char *)data + at, MIN(step, size - at), turn & 1, NULL) < 0) {
            tcpstore_leave(*x);
            *x = NULL;
        }
        for (struct tcpstore_client *r; (r = tcpstore_ready(s));) {
            if (r != c[0] && r != c[1])
                abort();
            tcpstore_sent(r, tcpstore_out(r).len / 2);
        }
        if (tcpstore_used(s) > 2 * BYTES_MAX + 4096) /* a buffer grows by doubling */
            abort();
    }
    tcpstore_free(s);
    return 0;
}
