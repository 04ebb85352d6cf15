/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/slurm/further.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/json.h"
#include "loop/loop.h"
#include "scheduler/slurm/slurm_int.h"

enum {
    FILE_MAX = 256 << 10,
    /* A request that is withdrawn may come again at once, when the gang restarts. So what is too
     * much is given up only after this time. */
    SURPLUS_MS = 10000,
    IDLE_MS = 20000,         /* an allocation whose nodes were all free for this time goes back */
    MISSING_NODE_MS = 60000, /* a node whose keeper has not connected in this time is lost */
    GATHER_MS = 500,         /* the requests of a job that grows come one by one */
};

static const char *const state_names[] = {
    [FURTHER_ASKING] = "asking",
    [FURTHER_QUEUED] = "queued",
    [FURTHER_JOINED] = "joined",
    [FURTHER_LEAVING] = "leaving",
};

/* ---- the file ---- */

int further_save(struct slurm *s, struct err *e)
{
    struct furthers *all = &s->further;
    json_t *list = json_array();
    for (size_t i = 0; i < all->v.n; i++) {
        const struct further *f = &all->v.v[i];
        (void)json_array_append_new(
            list, json_pack("{s:s, s:I, s:I, s:s}", "state", state_names[f->state], "base",
                            (json_int_t)f->base, "nodes", (json_int_t)f->n, "job", f->number));
    }
    json_t *doc = json_pack("{s:I, s:I, s:o}", "run", (json_int_t)s->run, "next",
                            (json_int_t)all->next, "list", list);
    AUTO(free_p) char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    AUTO(free_p) char *path = fs_join(s->cfg.job_dir, "further.json");
    json_decref(doc);
    if (!text || !path)
        return err_set(e, ENOMEM, "no memory for a further allocation");
    return fs_write_atomic(AT_FDCWD, path, span_of(text), 0600, true, e);
}

static void save_or_log(struct slurm *s)
{
    struct err e = { 0 };
    if (further_save(s, &e) < 0) /* the next change writes all again */
        log_err(LOG_WARN, "further.save", &e);
}

static enum further_state state_of(const char *name)
{
    for (int i = FURTHER_ASKING; i <= FURTHER_LEAVING; i++)
        if (str_eq(state_names[i], name))
            return (enum further_state)i;
    return FURTHER_LEAVING;
}

static int load(struct slurm *s, const json_t *doc)
{
    struct furthers *all = &s->further;
    bool earlier = (uint32_t)json_int(doc, "run", 0) != s->run;
    size_t i;
    json_t *x;
    all->next = (uint32_t)MAX(json_int(doc, "next", 0), (int64_t)s->n_nodes);
    json_array_foreach(json_object_get(doc, "list"), i, x)
    {
        struct further f = { .state = state_of(json_str(x, "state", "")),
                             .base = (uint32_t)json_int(x, "base", 0),
                             .n = (uint32_t)json_int(x, "nodes", 0) };
        (void)str_copy(f.number, sizeof f.number, json_str(x, "job", ""));
        all->find = all->find || !f.number[0];
        if (earlier) { /* its keepers know only the master of their run */
            all->of_earlier_run = all->of_earlier_run || f.state == FURTHER_JOINED;
            f.state = f.number[0] ? FURTHER_LEAVING : FURTHER_ASKING;
        }
        if (vec_push(&all->v, f) < 0)
            return -ENOMEM;
    }
    /* The earlier master may have died before it wrote down what it had submitted. */
    all->find = all->find || earlier;
    all->cancel_found = earlier;
    return 0;
}

int further_open(struct slurm *s, struct err *e)
{
    struct furthers *all = &s->further;
    AUTO(free_p) char *script = fs_join(s->cfg.job_dir, "script.further");
    AUTO(free_p) char *path = fs_join(s->cfg.job_dir, "further.json");
    AUTO(buf_done) struct buf text = { .max = FILE_MAX };
    if (!script || !path)
        return err_set(e, ENOMEM, "no memory to start the master");
    all->allowed = access(script, R_OK) == 0;
    all->next = s->n_nodes;
    if (access(path, F_OK) == -1)
        return 0;
    int rc = fs_read(AT_FDCWD, path, &text, e);
    json_t *doc = rc == 0 ? json_loadb(text.p, text.len, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (rc == 0)
        rc = doc ? load(s, doc) : -EBADMSG;
    json_decref(doc);
    return rc == 0 ? 0 : err_set(e, -rc, "cannot read '%s': %m", path);
}

void further_close(struct slurm *s)
{
    further_forget_question(s);
    vec_done(&s->further.v);
    free(s->further.failed);
    free(s->further.awaits);
}

/* ---- the list ---- */

struct further *further_of_node(struct slurm *s, uint32_t index)
{
    for (size_t i = 0; i < s->further.v.n; i++) {
        struct further *f = &s->further.v.v[i];
        if (index >= f->base && index - f->base < f->n)
            return f->state == FURTHER_LEAVING ? NULL : f;
    }
    return NULL;
}

void further_remove(struct slurm *s, struct further *f)
{
    size_t at = (size_t)(f - s->further.v.v);
    memmove(f, f + 1, (s->further.v.n - 1 - at) * sizeof *f);
    s->further.v.n--;
    save_or_log(s);
}

bool further_has_node(const struct further *f, const struct node *n)
{
    return n->index >= f->base && n->index - f->base < f->n;
}

void further_leave(struct slurm *s, struct further *f)
{
    log_event(LOG_INFO, "further.leaves", f_str("slurm_job", f->number), f_int("nodes", f->n));
    f->state = FURTHER_LEAVING;
    for (size_t i = 0; i < s->nodes.n; i++)
        if (further_has_node(f, s->nodes.v[i]))
            s->nodes.v[i]->state = NODE_LOST; /* it has no containers; none is placed there */
    save_or_log(s);
    slurm_turn_soon(s);
}

void further_joins(struct slurm *s, struct further *f)
{
    if (f->state == FURTHER_JOINED)
        return;
    log_event(LOG_INFO, "further.joins", f_str("slurm_job", f->number), f_int("nodes", f->n));
    f->state = FURTHER_JOINED;
    save_or_log(s);
}

uint32_t further_nodes(const struct slurm *s)
{
    uint32_t n = 0;
    for (size_t i = 0; i < s->further.v.n; i++)
        n += s->further.v.v[i].state == FURTHER_JOINED ? s->further.v.v[i].n : 0;
    return n;
}

void further_fails(struct slurm *s, char *why)
{
    log_event(LOG_WARN, "further.fails",
              f_str("why", why ? why : "no memory to ask Slurm for a further allocation"));
    free(s->further.failed);
    s->further.failed = why ? why : str_dup("no memory to ask Slurm for a further allocation");
    slurm_turn_soon(s);
}

/* ---- what is needed ---- */

/* What a node of a further allocation has: the same as those of the first one. */
static const struct room *node_room(const struct slurm *s)
{
    for (size_t i = 0; i < s->nodes.n; i++)
        if (s->nodes.v[i]->index < s->n_nodes && s->nodes.v[i]->state == NODE_READY)
            return &s->nodes.v[i]->has;
    return NULL;
}

uint32_t further_n_absent(const struct slurm *s)
{
    uint32_t n = s->n_nodes;
    for (size_t i = 0; i < s->nodes.n; i++)
        n -= s->nodes.v[i]->index < s->n_nodes;
    return n;
}

bool further_can_hold(const struct slurm *s, const struct room *room)
{
    const struct room *has = node_room(s);
    bool is_first = s->cfg.epoch == 1; /* to a later master, an absent node may be a lost one */
    return s->further.allowed && !s->further.failed && has && room_fits(room, has) &&
           !(is_first && further_n_absent(s));
}

/* Is it certain which nodes are there? A node that is away for a moment reconnects, or is lost. If
 * nodes have not connected to the first master, nodes of a further allocation would not either
 * (refusal() in slurm.c has the text). */
static bool nodes_are_known(const struct slurm *s, int64_t now_ms)
{
    int64_t since = now_ms;
    for (size_t i = 0; i < s->nodes.n; i++) {
        const struct node *n = s->nodes.v[i];
        if ((n->state != NODE_READY && n->state != NODE_LOST) || n->n_unknown)
            return false;
    }
    for (size_t i = 0; i < s->holds.n; i++)
        if (s->holds.v[i].state == HOLD_WAITING)
            since = MIN(since, s->holds.v[i].waits_since);
    return further_n_absent(s) == 0 || (s->cfg.epoch > 1 && now_ms - since >= MISSING_NODE_MS);
}

/* The number of further nodes for what waits. false: it is not certain now. */
static bool count_needed(struct slurm *s, int64_t now_ms, uint32_t *out)
{
    bool waits = false;
    *out = 0;
    for (size_t i = 0; i < s->holds.n; i++)
        waits = waits || s->holds.v[i].state == HOLD_WAITING;
    if (!waits)
        return true;
    const struct room *room = node_room(s);
    if (!room || !nodes_are_known(s, now_ms) || notice_explains_lost_nodes(s))
        return false;
    *out = slurm_all_fit(s) ? 0 : place_missing(s, room);
    return true;
}

/* ---- asking, and giving up ---- */

/* Submit one allocation with n nodes, if n was the same for GATHER_MS. */
static void submit(struct slurm *s, uint32_t n, int64_t now_ms)
{
    struct furthers *all = &s->further;
    if (n != all->lacks) {
        all->lacks = n;
        all->lacks_since_ms = now_ms;
    }
    if (now_ms - all->lacks_since_ms < GATHER_MS) {
        loop_timer_set(s->turn, all->lacks_since_ms + GATHER_MS);
        return;
    }
    all->lacks = 0;
    struct further f = { .state = FURTHER_ASKING, .base = all->next, .n = n };
    struct err e = { 0 };
    if (vec_push(&all->v, f) < 0)
        return; /* tried again with the next tick */
    all->next += n;
    if (further_save(s, &e) == 0)
        return; /* further_ask() runs sbatch */
    all->v.n--;
    further_fails(s, str_dup(e.msg));
}

/* Give up what waits in the queue and is not needed any more. */
static void give_up_surplus(struct slurm *s, uint32_t asked, uint32_t needed, int64_t now_ms)
{
    struct furthers *all = &s->further;
    if (asked <= needed) {
        all->surplus_since_ms = 0;
        return;
    }
    if (!all->surplus_since_ms)
        all->surplus_since_ms = now_ms;
    if (now_ms - all->surplus_since_ms < SURPLUS_MS)
        return;
    for (size_t i = all->v.n; i-- > 0;) {
        struct further *f = &all->v.v[i];
        if (f->state != FURTHER_QUEUED || asked - f->n < needed)
            continue;
        asked -= f->n;
        further_leave(s, f);
    }
}

static bool is_used(const struct slurm *s, const struct further *f)
{
    for (size_t i = 0; i < s->holds.n; i++)
        if (s->holds.v[i].state != HOLD_WAITING && further_has_node(f, s->holds.v[i].node))
            return true;
    return false;
}

/* Have all nodes that it can have been lost? */
static bool is_lost(const struct slurm *s, const struct further *f)
{
    uint32_t n_lost = 0;
    for (size_t i = 0; i < s->nodes.n; i++) {
        if (!further_has_node(f, s->nodes.v[i]))
            continue;
        if (s->nodes.v[i]->state != NODE_LOST)
            return false;
        n_lost++;
    }
    return n_lost > 0;
}

/* Give back those that have joined, and whose nodes are all free. */
static void give_back_idle(struct slurm *s, uint32_t needed, int64_t now_ms)
{
    for (size_t i = 0; i < s->further.v.n; i++) {
        struct further *f = &s->further.v.v[i];
        if (f->state != FURTHER_JOINED)
            continue;
        if (is_lost(s, f)) {
            further_leave(s, f);
            continue;
        }
        if (needed > 0 || is_used(s, f))
            f->idle_since_ms = 0;
        else if (!f->idle_since_ms)
            f->idle_since_ms = now_ms;
        else if (now_ms - f->idle_since_ms >= IDLE_MS)
            further_leave(s, f);
    }
}

static void set_awaits(struct slurm *s)
{
    struct furthers *all = &s->further;
    AUTO(buf_done) struct buf text = { 0 };
    for (size_t i = 0; i < all->v.n; i++) {
        const struct further *f = &all->v.v[i];
        bool never;
        if (f->state != FURTHER_ASKING && f->state != FURTHER_QUEUED)
            continue;
        (void)buf_addf(&text, "%s%u further node%s", text.len ? "; " : "", f->n,
                       f->n == 1 ? "" : "s");
        if (f->number[0])
            (void)buf_addf(&text, ", job %s of Slurm", f->number);
        AUTO(free_p)
        char *why = str_eq(f->is.state, "PENDING") ? slurm_why(&f->is, &never) : NULL;
        if (why)
            (void)buf_addf(&text, ": %s", why);
    }
    free(all->awaits);
    all->awaits = text.len && !text.failed ? str_dup(buf_cstr(&text)) : NULL;
}

void further_turn(struct slurm *s, int64_t now_ms)
{
    struct furthers *all = &s->further;
    uint32_t needed, asked = 0;
    bool asking = all->find;
    if (!all->allowed)
        return;
    for (size_t i = 0; i < all->v.n; i++) {
        const struct further *f = &all->v.v[i];
        bool waits = f->state == FURTHER_ASKING || f->state == FURTHER_QUEUED;
        asked += waits ? f->n : 0;
        asking = asking || f->state == FURTHER_ASKING;
    }
    if (count_needed(s, now_ms, &needed)) {
        if (needed == 0)
            free(TAKE(all->failed));
        if (needed > asked && !asking && !all->failed)
            submit(s, needed - asked, now_ms);
        else
            all->lacks = 0;
        give_up_surplus(s, asked, needed, now_ms);
        give_back_idle(s, needed, now_ms);
    }
    set_awaits(s);
    further_ask(s, now_ms);
}
