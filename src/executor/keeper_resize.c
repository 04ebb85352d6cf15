/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that is resized while it runs.
 *
 * The master tells the keeper which containers the job wants to hold in all. The keeper continues
 * to grant within the limits that the pool has admitted. If the job wants more, each KeeperState
 * says so, and the pool answers with an Admit when memory and GPUs are free. Asks that do not fit
 * wait for that Admit.
 *
 * If the job wants less, the keeper lowers its limits to what is in use, now and at each end of a
 * container, and tells the pool each time.
 *
 * One rule makes this safe if the pool, the keeper or the master dies: the keeper never uses more
 * than the limits that it has last told the pool. It raises them only for an Admit, and answers
 * that Admit before it grants anything.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/keeper_int.h"
#include "executor/keeper_start.h"
#include "storage/gpulock.h"

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static bool is_in(const uint32_t *sorted, size_t n, uint32_t slot)
{
    return n > 0 && bsearch(&slot, sorted, n, sizeof *sorted, by_number);
}

/* ---- more ---- */

/* A sum that does not fit into 64 bits becomes the largest number, which the pool refuses. */
static void add_capped(uint64_t *sum, uint64_t more)
{
    if (__builtin_add_overflow(*sum, more, sum))
        *sum = UINT64_MAX;
}

static int sum_up(const Tony__WantContainers *m, struct wanted *out)
{
    uint64_t vcores = 0, gpus = 0;
    *out = (struct wanted){ .n = (uint32_t)m->n_whole };
    out->slots = calloc(m->n_whole, sizeof *out->slots);
    if (!out->slots)
        return -ENOMEM;
    for (size_t i = 0; i < m->n_whole; i++) {
        add_capped(&out->memory_mib, m->whole[i]->memory_mib);
        add_capped(&vcores, m->whole[i]->vcores);
        add_capped(&gpus, m->whole[i]->gpus);
        out->slots[i] = m->whole[i]->slot;
    }
    qsort(out->slots, out->n, sizeof *out->slots, by_number);
    out->vcores = (uint32_t)MIN(vcores, (uint64_t)UINT32_MAX);
    out->gpus = (uint32_t)MIN(gpus, (uint64_t)UINT32_MAX);
    return 0;
}

static void wanted_done(struct wanted *w)
{
    free(w->slots);
    free(w->refused);
    *w = (struct wanted){ 0 };
}

void resize_want(struct keeper *k, const Tony__WantContainers *m)
{
    struct wanted now;
    k->demand = m->number;
    if (k->state != KEEPER_RUNNING || !k->memory_mib || m->n_whole == 0)
        return; /* the job is ending, or has no limits */
    if (sum_up(m, &now) < 0)
        return; /* no memory: the new asks wait until the master cancels them */
    uint64_t before_mib = k->want.n ? k->want.memory_mib : k->memory_mib;
    uint32_t before_gpus = k->want.n ? k->want.gpus : k->n_gpus;
    /* If the job wants more than before, it goes to the end of the pool's queue. */
    bool more = now.memory_mib > before_mib || now.gpus > before_gpus;
    now.since_ms = more || !k->want.n ? clock_wall_ms() : k->want.since_ms;
    now.number = k->want.number + 1;
    now.named_slot = UINT32_MAX;
    wanted_done(&k->want);
    k->want = now;
    k->wish.set = false; /* the master has decided */
    log_event(LOG_INFO, "keeper.resize", f_int("containers", now.n),
              f_int("memory_mib", (int64_t)now.memory_mib), f_int("gpus", now.gpus));
    if (!resize_give_back(k))
        pool_tell(k, false);
}

static bool holds_gpu(const struct keeper *k, uint32_t device)
{
    for (uint32_t i = 0; i < k->n_gpus; i++)
        if (k->gpus[i] == device)
            return true;
    return false;
}

/* If the pool of another user has locked this GPU meanwhile, leave it out. The pool sees that in
 * the next KeeperState, and tries again later. */
static void take_gpu(struct keeper *k, uint32_t device)
{
    struct err e = { 0 };
    int fd = keeper_lock_gpu(k, device, &e);
    if (fd < 0) {
        log_err(LOG_WARN, "keeper.gpu_taken", &e);
        return;
    }
    k->gpus[k->n_gpus] = device;
    k->gpu_used[k->n_gpus] = false;
    k->gpu_fd[k->n_gpus++] = fd;
    k->machine_has_gpus = true;
}

static void raise_limits(struct keeper *k, const Tony__Admit *m)
{
    uint64_t wants = MAX(k->want.memory_mib, k->used_mib);
    k->memory_mib = MAX(k->memory_mib, MIN(m->memory_mib, wants));
    for (size_t i = 0; i < m->n_gpus && k->n_gpus < MIN(k->want.gpus, (uint32_t)GPUS_MAX); i++)
        if (!holds_gpu(k, m->gpus[i]))
            take_gpu(k, m->gpus[i]);
}

void resize_admitted(struct keeper *k, const struct peer *p, const Tony__Admit *m)
{
    if (p->pool_number != k->n_pools)
        return; /* from an earlier connection: the newest pool does not know of this Admit */
    k->admit_heard = m->number;
    if (k->want.n && k->state == KEEPER_RUNNING) {
        raise_limits(k, m);
        if (m->refused[0] && m->wants_number == k->want.number) {
            free(k->want.refused);
            k->want.refused = str_dup(m->refused); /* NULL without memory: the asks wait */
        }
    }
    pool_tell(k, false);
    resize_refuse(k);
    containers_grant(k);
}

/* ---- refusals ---- */

/* Sum the memory and GPUs of the containers that stay: those in the master's last
 * WantContainers. */
static void sum_staying(const struct keeper *k, uint64_t *out_mib, uint32_t *out_gpus)
{
    *out_mib = 0;
    *out_gpus = 0;
    for (const struct container *c = k->live.first; c; c = c->after) {
        if (!is_in(k->want.slots, k->want.n, c->slot))
            continue;
        *out_mib += c->memory_mib;
        *out_gpus += c->n_gpus;
    }
}

/* The highest wanted slot that has neither a container nor an ask, and never had a container;
 * UINT32_MAX = there is none. */
static uint32_t find_unasked(const struct keeper *k)
{
    for (uint32_t i = k->want.n; i-- > 0;) {
        const struct slot_use *use = slots_find(k, k->want.slots[i]);
        if (!use || !(use->container || use->asked || use->ended))
            return k->want.slots[i];
    }
    return UINT32_MAX;
}

/* If the job wants too much for a stage that has not come, the master asks for those containers
 * later. To tell the master now, send the refusal for one of their slots. */
static void refuse_unasked(struct keeper *k)
{
    uint32_t slot = find_unasked(k);
    if (slot != UINT32_MAX)
        master_tell_unasked(k, slot, k->want.refused);
    k->want.named_slot = slot;
}

/* Refuse the asks that would not fit even when all containers that leave have ended. If there is no
 * such ask, send the refusal once, for a slot that the master has not asked for. The ask for that
 * slot may have been on its way: then the master has ignored the refusal, so send it again. */
void resize_refuse(struct keeper *k)
{
    AUTO(free_p) uint32_t *refused = NULL;
    size_t n = 0, kept = 0;
    uint64_t mib;
    uint32_t gpus;
    if (!k->want.refused || !(refused = calloc(k->asks.n + 1, sizeof *refused)))
        return;
    sum_staying(k, &mib, &gpus);
    bool tell = !k->want.refusal_sent;
    for (size_t i = 0; i < k->asks.n; i++) {
        const struct ask a = k->asks.v[i];
        tell |= k->want.refusal_sent && a.slot == k->want.named_slot;
        if (mib + a.memory_mib > k->memory_mib || gpus + a.gpus > k->n_gpus) {
            refused[n++] = a.slot;
            slots_find(k, a.slot)->asked = false;
            continue;
        }
        mib += a.memory_mib;
        gpus += a.gpus;
        k->asks.v[kept++] = a;
    }
    k->asks.n = kept;
    if (n)
        master_tell_granted(k, NULL, 0, refused, n, k->want.refused);
    else if (tell)
        refuse_unasked(k);
    k->want.refusal_sent = true;
}

/* ---- less ---- */

static bool drop_free_gpu(struct keeper *k)
{
    for (uint32_t i = k->n_gpus; i-- > 0;) {
        if (k->gpu_used[i])
            continue;
        gpulock_release(&k->gpu_fd[i]);
        k->n_gpus--;
        k->gpus[i] = k->gpus[k->n_gpus];
        k->gpu_used[i] = k->gpu_used[k->n_gpus];
        k->gpu_fd[i] = k->gpu_fd[k->n_gpus];
        return true;
    }
    return false;
}

bool resize_give_back(struct keeper *k)
{
    if (!k->want.n)
        return false;
    uint64_t needed = MAX(MAX(k->want.memory_mib, k->used_mib), (uint64_t)1); /* 0 = no limit */
    bool less = needed < k->memory_mib;
    k->memory_mib = MIN(k->memory_mib, needed);
    while (k->n_gpus > k->want.gpus && drop_free_gpu(k))
        less = true;
    if (less)
        pool_tell(k, false);
    return less;
}

/* ---- cancelled asks ---- */

static void release_granted(struct keeper *k, const uint32_t *slots, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct slot_use *use = slots_find(k, slots[i]);
        if (use && use->container)
            container_release(k, use->container);
    }
}

/* A container of these slots that was granted and not launched is taken back as well: the master
 * ignores its grant. */
void resize_cancel(struct keeper *k, const Tony__CancelAsks *m)
{
    AUTO(free_p) uint32_t *slots = calloc(m->n_slots + 1, sizeof *slots);
    size_t kept = 0;
    for (size_t i = 0; slots && i < m->n_slots; i++)
        slots[i] = m->slots[i];
    if (slots)
        qsort(slots, m->n_slots, sizeof *slots, by_number);
    for (size_t i = 0; slots && i < k->asks.n; i++)
        if (is_in(slots, m->n_slots, k->asks.v[i].slot))
            slots_find(k, k->asks.v[i].slot)->asked = false;
        else
            k->asks.v[kept++] = k->asks.v[i];
    if (slots) {
        k->asks.n = kept;
        release_granted(k, slots, m->n_slots);
    }
    master_tell_cancelled(k, slots ? m->number : 0); /* no memory: nothing was cancelled */
    containers_grant(k); /* a cancelled ask may have blocked the asks behind it */
}

/* ---- how far the pool may resize the job ---- */

/* The bounds are stored, so that each KeeperState to a new pool has them. A new master sends
 * them again. */
void resize_bounds(struct keeper *k, const Tony__SizeBounds *m)
{
    if (k->min_containers == m->min_containers && k->max_containers == m->max_containers &&
        k->cost_known == m->cost_known && k->cost_ms == m->cost_ms)
        return;
    k->min_containers = m->min_containers;
    k->max_containers = m->max_containers;
    k->cost_known = m->cost_known;
    k->cost_ms = m->cost_ms;
    pool_tell(k, false);
}

/* ---- when the job will end ---- */

/* Store the times as times of the monotonic clock, so that they can be sent to a new pool later. */
void resize_outlook(struct keeper *k, const Tony__Outlook *m)
{
    enum { LONGEST_MS = INT32_MAX };
    int64_t now = clock_mono_ms();
    bool known = m->known && m->left_min_ms <= m->left_max_ms;
    k->ends_early_ms = known ? now + (int64_t)MIN(m->left_min_ms, (uint64_t)LONGEST_MS) : 0;
    k->ends_late_ms = known ? now + (int64_t)MIN(m->left_max_ms, (uint64_t)LONGEST_MS) : 0;
    pool_tell(k, false);
}

/* ---- the pool's wish ---- */

/* The wish is kept for a master that is being restarted, until its deadline or a resize. */
void resize_tell_wish(struct keeper *k)
{
    struct peer *p = keeper_peer(k, PEER_MASTER);
    int64_t left_ms = k->wish.until_ms - clock_mono_ms();
    if (!k->wish.set || left_ms < 0 || !p)
        return;
    Tony__SizeWish m = TONY__SIZE_WISH__INIT;
    m.n_containers = k->wish.n_containers;
    m.deadline_ms = (uint64_t)left_ms;
    m.grow = k->wish.grow;
    m.saved = k->wish.saved;
    m.why = k->wish.why;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_SIZE_WISH;
    f.size_wish = &m;
    keeper_send(k, p, &f);
}

void resize_wish(struct keeper *k, const Tony__SizeWish *m)
{
    enum { LONGEST_MS = 7 * 24 * 3600 * 1000 }; /* no overflow when added to a clock */
    k->wish.set = true;
    k->wish.grow = m->grow;
    k->wish.saved = m->saved;
    k->wish.n_containers = m->n_containers;
    k->wish.until_ms = clock_mono_ms() + (int64_t)MIN(m->deadline_ms, (uint64_t)LONGEST_MS);
    (void)str_copy(k->wish.why, sizeof k->wish.why, m->why); /* a long text is cut */
    log_event(LOG_INFO, "keeper.wish", f_str("to", m->grow ? "grow" : "shrink"),
              f_int("containers", m->n_containers), f_str("why", m->why));
    resize_tell_wish(k);
}

void resize_done(struct keeper *k)
{
    wanted_done(&k->want);
}
