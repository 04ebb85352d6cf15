/* SPDX-License-Identifier: Apache-2.0 */
/* Input: messages to the PMI server on three connections. The first byte of each piece selects the
 * connection. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "rendezvous/pmi.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pmi p;
    struct pmi_rank r[RANKS];
    if (pmi_init(&p, "app", RANKS, NULL) < 0)
        return 0;
    for (size_t i = 0; i < RANKS; i++)
        pmi_rank_init(&r[i]);
    for (size_t at = 0, n; at < size; at += n + 1) {
        struct buf out = { 0 };
        struct pmi_rank *x = &r[data[at] % RANKS];
        int code = 0;
        n = (size_t)data[at] / 2;
        n = n < size - at - 1 ? n : size - at - 1;
        enum pmi_what what = pmi_feed(&p, x, span_mem(data + at + 1, n), &out, &code);
        if (what == PMI_BAD || what == PMI_ABORT) {
            pmi_rank_done(&p, x);
            pmi_rank_init(x);
        }
        if (p.n_waiting >= RANKS || (what == PMI_BARRIER && p.n_waiting))
            abort();
        buf_done(&out);
    }
    for (size_t i = 0; i < RANKS; i++)
        pmi_rank_done(&p, &r[i]);
    if (p.n_waiting)
        abort();
    pmi_done(&p);
    return 0;
}
