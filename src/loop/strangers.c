/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers of a TLS listener that have not proved their identity: how many handshakes they get. An
 * address has STRANGER_BURST handshakes, and gets one more each second; all addresses together have
 * STRANGERS_BURST, and get STRANGERS_PER_S more each second.
 */
#include "loop/loop_int.h"

#include "base/util.h"

enum { STRANGER_BURST = 10, STRANGERS_BURST = 100, STRANGERS_PER_S = 20 };

/* Take one from a bucket that holds at most `burst` and gets per_s each second. false: it is empty.
 */
static bool bucket_take(struct bucket *b, unsigned burst, unsigned per_s, int64_t now_ms)
{
    double more = (double)(now_ms - b->at_ms) * per_s / 1000;
    b->level = b->used ? MIN(b->level + more, (double)burst) : burst;
    b->used = true;
    b->at_ms = now_ms;
    if (b->level < 1)
        return false;
    b->level--;
    return true;
}

/* The bucket of the address; else that which was used least recently. */
static struct bucket *bucket_of(struct strangers *s, uint64_t from)
{
    struct bucket *oldest = &s->by_address[0];
    for (size_t i = 0; i < ARRAY_LEN(s->by_address); i++) {
        struct bucket *b = &s->by_address[i];
        if (b->used && b->from == from)
            return b;
        if (!b->used || (oldest->used && b->at_ms < oldest->at_ms))
            oldest = b;
    }
    *oldest = (struct bucket){ .from = from };
    return oldest;
}

bool strangers_admit(struct strangers *s, uint64_t from, int64_t now_ms)
{
    return bucket_take(bucket_of(s, from), STRANGER_BURST, 1, now_ms) &&
           bucket_take(&s->all, STRANGERS_BURST, STRANGERS_PER_S, now_ms);
}
