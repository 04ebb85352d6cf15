/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a server's challenge, its final answer, and a protected packet, one per line. */
#include "base/base.h"
#include "hadoop/sasl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sasl_config cfg = {
        .user = SPAN("u"), .password = SPAN("p"), .server_id = "default", .cnonce = "c"
    };
    struct span rest = span_mem(data, size), part[3] = { { 0 } };
    struct sasl *s = NULL;
    struct buf out = { 0 };
    struct err e = { 0 };
    if (sasl_new("DIGEST-MD5", &cfg, &s, &e) < 0)
        return 0;
    for (int i = 0; i < 3 && rest.p; i++)
        (void)span_split(&rest, '\n', &part[i]);
    if (sasl_step(s, part[0], &out, &e) == 0 && sasl_finish(s, part[1], &e) == 0)
        (void)sasl_unwrap(s, part[2], &out, &e);
    buf_done(&out);
    sasl_free(s);
    return 0;
}
