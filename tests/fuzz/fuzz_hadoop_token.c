/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a token storage. Accepted tokens can be written and read back. */
#include "base/base.h"
#include "hadoop/token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct credentials c = { 0 }, again = { 0 };
    struct buf out = { 0 };
    struct err e = { 0 };
    if (credentials_read(span_mem(data, size), &c, &e) == 0) {
        if (credentials_write(&c, &out) < 0 || credentials_read(buf_span(&out), &again, &e) < 0 ||
            again.tokens.n != c.tokens.n || again.secrets.n != c.secrets.n)
            abort();
    }
    credentials_done(&c);
    credentials_done(&again);
    buf_done(&out);
    return 0;
}
