/*
 * What begins again is on its way back: it asks for a container or takes a spare's, waits for its
 * pause to end and for whom it begins with, and starts. While j->mending, mend_run() looks at all
 * slots after each event.
 */
#include <errno.h>
#include <stdlib.h>

#include "job/job_int.h"

static bool on_its_way(enum slot_state s)
{
    return s == SLOT_HELD || s == SLOT_ASKED || s == SLOT_PLACED || s == SLOT_HALTING ||
           s == SLOT_RENEWING || s == SLOT_REPLACING;
}

/* The spare's container, executor and all, becomes the slot's. */
static bool take_spare(struct job *j, uint32_t slot)
{
    struct slot *s = &j->slots[slot], *spare = NULL;
    struct slot_end end = { .reason = END_KILLED_BY_MASTER, .at_us = j->now_ms * 1000 };
    uint32_t i = j->n_tasks;

    while (i < j->n_slots &&
           (j->roles[j->slots[i].role].of != s->role || j->slots[i].state != SLOT_REGISTERED))
        i++;
    if (i == j->n_slots)
        return false;
    spare = &j->slots[i];
    free(s->container);
    free(s->address);
    free(s->gpus);
    s->container = TAKE(spare->container);
    s->address = TAKE(spare->address);
    s->gpus = TAKE(spare->gpus);
    s->node = spare->node;
    s->tb_port = spare->tb_port;
    s->pid = spare->pid;
    s->beat_ms = spare->beat_ms;
    s->seen = s->moved = true;
    s->elsewhere = s->attempt;
    spare->lent_to = slot;
    bool connected = spare->connected;
    (void)slot_step(j, i, IN_LEND, &end, NULL);
    (void)slot_step(j, slot, IN_TAKE, NULL, NULL);
    s->connected = connected;
    struct job_action *a = job_act(j, ACT_TAKE, slot);
    a->from = i;
    a->container = s->container;
    return true;
}

static void ask_again(struct job *j)
{
    if (j->pause_due_ms != INT64_MAX)
        return;
    for (uint32_t i = 0; i < j->n_tasks; i++) {
        if (j->slots[i].state == SLOT_HELD && job_is_wanted(j, &j->slots[i]) && !take_spare(j, i))
            (void)slot_step(j, i, IN_WANT, NULL, NULL);
    }
}

/* What one pass over the slots finds, or does. */
struct mend {
    uint32_t left;             /* on their way, or waiting for a time or for others */
    uint32_t waiting, n_ready; /* of those that begin together */
    int64_t due_ms;            /* when they may */
    int64_t next_ms;           /* the next pause's end */
    bool old;                  /* an attempt of an older generation may still live */
    bool synced, peers;
    uint32_t role; /* that `open` is about, plus 1 */
    bool open;
};

/* Need its tasks not wait for others? Slots come in the order of their roles. */
static bool is_open(const struct job *j, const struct slot *s, struct mend *m)
{
    if (m->role != s->role + 1)
        m->open = depends_open(j, s->role);
    m->role = s->role + 1;
    return m->open;
}

static void start(struct job *j, uint32_t slot, struct mend *m)
{
    if (!m->synced && j->gives_back) /* what a later master does not know of must not run */
        (void)job_act(j, ACT_SYNC, 0);
    m->synced = true;
    (void)slot_step(j, slot, IN_START, NULL, NULL);
}

static bool is_due(const struct job *j, int64_t due_ms, struct mend *m)
{
    if (due_ms <= j->paused_ms)
        return true;
    m->next_ms = MIN(m->next_ms, due_ms);
    m->left++;
    return false;
}

static void start_alone(struct job *j, uint32_t slot, struct mend *m)
{
    const struct slot *s = &j->slots[slot];

    if (s->state != SLOT_REGISTERED || !is_due(j, s->due_ms, m))
        return;
    if (!is_open(j, s, m)) {
        m->left++;
        return;
    }
    m->peers = true;
    start(j, slot, m);
}

enum { WHOLE_GANG = -1 };

/* Has it a place in what forms together: a role, or all that are not yet in this generation? */
static bool belongs(const struct job *j, const struct slot *s, int64_t role)
{
    if (!job_is_wanted(j, s))
        return false;
    if (role >= 0)
        return s->role == role;
    bool alone = s->attempt && (job_is_sidecar(j, s->role) || s->generation == j->generation);
    return !alone && !j->roles[s->role].forming;
}

static void start_together(struct job *j, uint32_t from, uint32_t n, int64_t role, struct mend *m)
{
    m->waiting = m->n_ready = 0;
    m->due_ms = 0;
    for (uint32_t i = from; i < from + n; i++) {
        const struct slot *s = &j->slots[i];
        if (!belongs(j, s, role))
            continue;
        m->waiting += on_its_way(s->state);
        if (s->state != SLOT_REGISTERED)
            continue;
        if (!is_open(j, s, m)) {
            m->left++;
            continue;
        }
        m->n_ready++;
        m->due_ms = MAX(m->due_ms, s->due_ms);
    }
    m->left += m->n_ready && m->waiting;
    if (!m->n_ready || m->waiting || !is_due(j, m->due_ms, m))
        return;
    if (role >= 0) {
        j->roles[role].forming = false;
        m->peers = true;
    } else {
        j->round = 0;
    }
    for (uint32_t i = from; i < from + n; i++) {
        const struct slot *s = &j->slots[i];
        if (s->state == SLOT_REGISTERED && (role >= 0 || belongs(j, s, role)) && is_open(j, s, m))
            start(j, i, m);
    }
}

/* Without a gang each starts when it can, but none beside what is left of an older generation. */
static void start_apart(struct job *j, struct mend *m)
{
    for (uint32_t i = 0; i < j->n_tasks; i++) {
        if (!belongs(j, &j->slots[i], WHOLE_GANG) || j->slots[i].state != SLOT_REGISTERED)
            continue;
        if (m->old)
            m->left++;
        else
            start_alone(j, i, m);
    }
}

static void mend_once(struct job *j, struct mend *m)
{
    for (uint32_t i = 0; i < j->n_tasks; i++) {
        const struct slot *s = &j->slots[i];
        m->left += on_its_way(s->state) && job_is_wanted(j, s);
        m->old |= s->state == SLOT_HALTING || s->state == SLOT_REPLACING;
        if (job_is_wanted(j, s) && !j->roles[s->role].forming && !belongs(j, s, WHOLE_GANG))
            start_alone(j, i, m);
    }
    for (uint32_t r = 0; r < j->n_roles; r++) {
        if (j->roles[r].forming)
            start_together(j, j->roles[r].first, j->roles[r].n, r, m);
    }
    if (j->spec->gang)
        start_together(j, 0, j->n_tasks, WHOLE_GANG, m);
    else
        start_apart(j, m);
}

void mend_run(struct job *j)
{
    struct mend m = { 0 };

    ask_again(j);
    do { /* what has begun may let others begin */
        m = (struct mend){ .next_ms = INT64_MAX, .synced = m.synced, .peers = m.peers };
        j->gates_moved = false;
        mend_once(j, &m);
    } while (j->has_gates && j->gates_moved);
    if (m.peers)
        (void)job_act(j, ACT_PEERS, 0);
    j->mending = m.left > 0;
    if (j->restart_due_ms != m.next_ms) {
        j->restart_due_ms = m.next_ms;
        limits_job(j);
    }
}

int mend_fired(struct job *j, struct err *e)
{
    if (!j->mending || j->restart_due_ms > j->now_ms)
        return err_set(e, EPROTO, "nothing pauses before it begins again"), 1;
    j->paused_ms = j->now_ms; /* policy_run() starts what may */
    return 0;
}

void mend_spares(struct job *j)
{
    if (j->mending || !j->n_state[SLOT_RUNNING] || j->n_state[SLOT_ASKED] ||
        j->n_state[SLOT_PLACED] || j->n_state[SLOT_REGISTERED])
        return;
    for (uint32_t i = j->n_tasks; i < j->n_slots; i++) {
        if (j->slots[i].state == SLOT_HELD &&
            j->roles[j->roles[j->slots[i].role].of].n_state[SLOT_RUNNING])
            (void)slot_step(j, i, IN_WANT, NULL, NULL);
    }
}
