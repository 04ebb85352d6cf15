/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/slurm/slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "loop/tcp.h"
#include "scheduler/keeper_frames.h"
#include "scheduler/slots.h"
#include "scheduler/slurm/slurm_int.h"
#include "slurm/commands.h"
#include "storage/paths.h"

enum {
    TICK_MS = 1000,
    /* A new master waits this long for the keepers of all nodes, before it reports the containers.
     * Those of a node that connects later count as out of sight. */
    REGISTER_MS = 10000,
    /* A request that does not fit into the nodes that are there is refused after this time. A node
     * may return until then. */
    MISSING_NODE_MS = 60000,
    /* Nothing is placed until all nodes are ready, or one was ready for this time: so that the
     * first node does not get everything. */
    GATHER_MS = 2000,
    FINISH_POLL_MS = 5,
    FINISH_NODES_MS = 3000, /* for the keepers of the nodes to end */
};

static struct slurm *slurm_of(struct sched *s)
{
    return (struct slurm *)(void *)s;
}

void slurm_emit(struct slurm *s, const struct sched_event *ev)
{
    s->cfg.on_event(ev, s->cfg.arg);
}

void slurm_broken(struct slurm *s, const char *why)
{
    slurm_emit(s, &(struct sched_event){ .type = SE_BROKEN, .text = why });
}

void slurm_turn_soon(struct slurm *s)
{
    loop_timer_set(s->turn, clock_mono_ms());
}

/* ---- the requested slots ---- */

struct hold *hold_find(struct slurm *s, uint32_t slot)
{
    size_t at = slots_place(s->holds.v, s->holds.n, sizeof *s->holds.v, slot);
    return at < s->holds.n && s->holds.v[at].slot == slot ? &s->holds.v[at] : NULL;
}

struct hold *hold_by_id(struct slurm *s, const char *id)
{
    for (size_t i = 0; i < s->holds.n; i++)
        if (s->holds.v[i].id && str_eq(s->holds.v[i].id, id))
            return &s->holds.v[i];
    return NULL;
}

int hold_add(struct slurm *s, uint32_t slot, struct hold **out)
{
    size_t at = slots_place(s->holds.v, s->holds.n, sizeof *s->holds.v, slot);
    if (at < s->holds.n && s->holds.v[at].slot == slot) {
        *out = &s->holds.v[at];
        return -EEXIST;
    }
    if (vec_push(&s->holds, (struct hold){ 0 }) < 0)
        return -ENOMEM;
    memmove(&s->holds.v[at + 1], &s->holds.v[at], (s->holds.n - 1 - at) * sizeof *s->holds.v);
    s->holds.v[at] = (struct hold){ .slot = slot };
    *out = &s->holds.v[at];
    return 0;
}

void hold_remove(struct slurm *s, struct hold *h)
{
    size_t at = (size_t)(h - s->holds.v);
    free(h->id);
    memmove(h, h + 1, (s->holds.n - 1 - at) * sizeof *h);
    s->holds.n--;
}

/* ---- refusals ---- */

static size_t n_ready(const struct slurm *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->nodes.n; i++)
        n += s->nodes.v[i]->state == NODE_READY;
    return n;
}

/* Are as many nodes ready as the first allocation has? */
static bool nodes_are_settled(const struct slurm *s)
{
    return n_ready(s) >= s->n_nodes;
}

static bool fits_a_node(const struct slurm *s, const struct room *room)
{
    for (size_t i = 0; i < s->nodes.n; i++)
        if (s->nodes.v[i]->state == NODE_READY && room_fits(room, &s->nodes.v[i]->has))
            return true;
    return false;
}

bool slurm_all_fit(struct slurm *s)
{
    AUTO(free_p) struct room *v = calloc(s->holds.n + 1, sizeof *v);
    size_t n = 0;
    for (size_t i = 0; v && i < s->holds.n; i++)
        if (!s->holds.v[i].withdrawn)
            v[n++] = s->holds.v[i].room;
    return !v || place_fits(s, v, n);
}

/* The names of nodes that have never connected, at most NAMES_MAX, and the last words of the first
 * of them, if it could write them. A job with components has several lists of nodes: then no name
 * is known here. */
static void find_absent(const struct slurm *s, struct buf *names, struct buf *words)
{
    enum { NAMES_MAX = 3, WORDS_MAX = 120 };
    const char *list = getenv("SLURM_JOB_NODELIST");
    struct strv all = { 0 };
    struct err unread = { 0 };
    unsigned n = 0;
    if (s->n_parts || !list || slurm_expand_nodes(span_of(list), &all) < 0)
        all.n = 0;
    for (size_t i = 0; i < all.n && i < s->n_nodes; i++) {
        bool known = false;
        for (size_t k = 0; k < s->nodes.n; k++)
            known = known || s->nodes.v[k]->index == i;
        if (known || n == NAMES_MAX)
            continue;
        (void)buf_addf(names, "%s%s", n++ ? ", " : "", all.v[i]);
        AUTO(free_p) char *log = str_printf("%s/nodes/%zu.log", s->cfg.job_dir, i);
        if (log && !words->len)
            (void)fs_tail(AT_FDCWD, log, 1, WORDS_MAX, words, &unread);
    }
    strv_done(&all);
}

/* Why a job has no room if some nodes of its allocation have never connected. */
static char *absence(const struct slurm *s, uint32_t absent)
{
    AUTO(buf_done) struct buf names = { 0 }, words = { 0 };
    find_absent(s, &names, &words);
    struct span said = span_trim(buf_span(&words));
    return str_printf("%u of the %u nodes of the allocation have never connected%s%s%s, and the "
                      "others have no room for it%s%.*s; %sbatch.log and nodes/ in the job's "
                      "directory may say more",
                      absent, s->n_nodes, names.len ? " (" : "", buf_cstr(&names),
                      names.len ? ")" : "", said.len ? ": " : "", (int)said.len,
                      said.len ? said.p : "",
                      said.len ? ""
                               : "nodes must reach the first one, and those without TONY_HOME "
                                 "need tar and room in /tmp; ");
}

/* The sentence for a request that the allocation cannot hold. The caller frees it. */
static char *refusal(const struct slurm *s, const struct room *room)
{
    size_t ready = n_ready(s);
    uint32_t absent = further_n_absent(s);
    if (absent && s->cfg.epoch == 1)
        return absence(s, absent);
    if (s->further.failed)
        return str_printf("the nodes of the job have no room for it: %s", s->further.failed);
    if (ready < s->n_nodes)
        return str_printf("%zu of the %u nodes of the allocation are lost, and the others have no "
                          "room for it; tony.slurm.spare-nodes asks for nodes in reserve",
                          s->n_nodes - ready, s->n_nodes);
    return str_printf("no node of the allocation has room for %" PRIu64
                      " MiB, %u cores and %u GPUs besides the other tasks",
                      room->memory_mib, room->vcores, room->gpus);
}

/* Does the batch script still send something to a node that does not see TONY_HOME? */
static bool node_is_awaited(const struct slurm *s)
{
    AUTO(free_p) char *path = fs_join(s->cfg.job_dir, "nodes");
    return path && fs_any_named(path, "sending-");
}

static void refuse(struct slurm *s, uint32_t slot, const char *text)
{
    slurm_emit(s, &(struct sched_event){ .type = SE_REFUSED, .slot = slot, .text = text });
}

/* Refuse the first waiting request that can never be granted. Returns true if there was one: the
 * event may have changed everything, so the caller looks again. */
static bool refuse_one(struct slurm *s, int64_t now_ms)
{
    /* A further allocation is submitted, and can fail, only when it is certain which nodes are
     * there. */
    bool settled = nodes_are_settled(s) || s->further.failed, fits = settled && slurm_all_fit(s);
    for (size_t i = 0; i < s->holds.n; i++) {
        struct hold *h = &s->holds.v[i];
        bool over = now_ms - h->waits_since >= MISSING_NODE_MS;
        if (h->state != HOLD_WAITING)
            continue;
        bool never = s->refused_demand != NULL ||
                     (settled ? !fits || !fits_a_node(s, &h->room)
                              : over && !slurm_all_fit(s) && !node_is_awaited(s));
        if (!never || (!s->refused_demand && further_can_hold(s, &h->room)))
            continue;
        uint32_t slot = h->slot;
        AUTO(free_p)
        char *text = s->refused_demand ? str_dup(s->refused_demand) : refusal(s, &h->room);
        hold_remove(s, h);
        s->refused_slot = SCHED_NO_SLOT;
        refuse(s, slot, text ? text : "the allocation has no room for it");
        return true;
    }
    if (s->refused_demand && s->refused_slot != SCHED_NO_SLOT) {
        uint32_t slot = s->refused_slot;
        AUTO(free_p) char *text = str_dup(s->refused_demand);
        s->refused_slot = SCHED_NO_SLOT;
        refuse(s, slot, text ? text : "the allocation has no room for it");
        return true;
    }
    return false;
}

/* ---- timers ---- */

static void acknowledge(struct slurm *s, int64_t now_ms)
{
    if (!s->ack_due || now_ms < s->ack_at_ms)
        return;
    if (s->cfg.stored && !s->cfg.stored(s->cfg.arg)) {
        s->ack_at_ms = now_ms + TICK_MS;
        return;
    }
    s->ack_due = false;
    nodes_acknowledge(s);
}

static void on_turn(void *arg)
{
    struct slurm *s = arg;
    int64_t now = clock_mono_ms();
    if (s->finishing != NOT_FINISHING)
        return;
    nodes_register(s, now);
    if (!s->registered)
        return;
    acknowledge(s, now);
    if (s->notice.leaving) {
        notice_turn(s);
        return;
    }
    if (n_ready(s) > 0 && !s->gather_until_ms)
        s->gather_until_ms = now + GATHER_MS;
    if (nodes_are_settled(s) || (s->gather_until_ms && now >= s->gather_until_ms))
        place_waiting(s);
    further_turn(s, now);
    if (refuse_one(s, now))
        slurm_turn_soon(s);
    else if (s->ack_due)
        loop_timer_set(s->turn, s->ack_at_ms);
}

/* If the timer fires late, this process did not run for a while: Slurm has suspended the job, or
 * the node is overloaded. What the keepers have sent meanwhile may still be unread. */
static void forgive_stall(struct slurm *s, int64_t now_ms)
{
    int64_t late = s->tick_due_ms ? now_ms - s->tick_due_ms : 0;
    if (late > TICK_MS)
        nodes_forgive(s, late, now_ms);
    s->tick_due_ms = now_ms + TICK_MS;
    loop_timer_set(s->tick, s->tick_due_ms);
}

static void on_tick(void *arg)
{
    struct slurm *s = arg;
    int64_t now = clock_mono_ms();
    forgive_stall(s, now);
    if (s->finishing != NOT_FINISHING)
        return;
    nodes_tick(s, now);
    notice_tick(s, now);
    if (s->further.v.n || s->further.find)
        slurm_turn_soon(s);
    for (size_t i = 0; i < s->holds.n; i++)
        if (s->holds.v[i].state == HOLD_WAITING) {
            slurm_turn_soon(s);
            return;
        }
    if (!s->registered)
        slurm_turn_soon(s);
}

/* ---- the head keeper ---- */

static void on_head_open(struct conn *c, void *arg)
{
    struct slurm *s = arg;
    if (keeper_send_register(c, s->cfg.epoch) < 0)
        slurm_broken(s, "cannot register with the head keeper");
}

static void on_head_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    (void)c;
    if (f->body_case == TONY__FRAME__BODY_REFUSED)
        slurm_broken(arg, f->refused->message);
}

static void on_head_close(struct conn *c, const struct err *e, void *arg)
{
    struct slurm *s = arg;
    (void)c; /* the loop frees it */
    s->head = NULL;
    if (s->finishing == NOT_FINISHING)
        slurm_broken(s, e->num ? e->msg : "the head keeper has closed the connection");
}

static const struct conn_ops head_ops = {
    .on_open = on_head_open,
    .on_frame = on_head_frame,
    .on_close = on_head_close,
};

static int connect_head(struct slurm *s, struct err *e)
{
    struct paths p = { .runtime = (char *)(uintptr_t)s->cfg.runtime_dir };
    AUTO(free_p) char *path = paths_socket(&p, s->cfg.application_id, "k");
    int rc = path ? conn_dial_unix(s->cfg.loop, path, &head_ops, s, &s->head, e)
                  : err_set(e, ENOMEM, "no memory to start the master");
    return rc < 0 ? err_wrap(e, rc, "cannot connect to the head keeper") : 0;
}

/* ---- the functions of struct sched_ops ---- */

static void slurm_close(struct sched *sched)
{
    struct slurm *s = slurm_of(sched);
    if (!s)
        return;
    notice_close(s);
    parts_done(s);
    further_close(s);
    nodes_close(s);
    conn_close(s->head);
    loop_timer_free(s->turn);
    loop_timer_free(s->tick);
    loop_timer_free(s->finish);
    for (size_t i = 0; i < s->holds.n; i++)
        free(s->holds.v[i].id);
    vec_done(&s->holds);
    free(s->refused_demand);
    free(s->final_state);
    free(s);
}

/* Keepers, executors and clients find this master by the file. */
static int write_address(const struct slurm *s, struct err *e)
{
    char host[65] = "";
    (void)gethostname(host, sizeof host - 1);
    const char *node = getenv("SLURMD_NODENAME");
    AUTO(free_p) char *path = fs_join(s->cfg.job_dir, "master.json");
    AUTO(buf_done) struct buf text = { 0 };
    (void)buf_addf(&text,
                   "{\"epoch\":%u,\"host\":\"%s\",\"node\":\"%s\",\"port\":%u,"
                   "\"keepers_port\":%u}\n",
                   s->cfg.epoch, host, node ? node : "", s->cfg.master_port,
                   listener_port(s->listener));
    if (!path || text.failed)
        return err_set(e, ENOMEM, "no memory to start the master");
    return fs_write_atomic(AT_FDCWD, path, buf_span(&text), 0600, false, e);
}

/* A number that Slurm has put into the environment of the batch script. */
static uint32_t number_of(const char *variable, uint32_t unset)
{
    const char *text = getenv(variable);
    int64_t n;
    if (!text || str_i64(span_of(text), 0, 1 << 20, variable, &n, NULL) < 0)
        return unset;
    return (uint32_t)n;
}

static int slurm_open(const struct sched_config *cfg, struct sched **out, struct err *e)
{
    struct slurm *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ENOMEM, "no memory to start the master");
    int64_t now = clock_mono_ms();
    struct job_demand demand = { 0 };
    if (cfg->spec)
        job_spec_demand(cfg->spec, &demand);
    s->ops = &sched_slurm;
    s->cfg = *cfg;
    s->opened_ms = now;
    s->n_nodes = MAX(number_of("SLURM_JOB_NUM_NODES", 1), 1u);
    s->run = number_of("SLURM_RESTART_COUNT", 0);
    s->refused_slot = SCHED_NO_SLOT;
    s->demand_n = demand.n_containers;
    /* The first master has no containers to wait for. */
    s->register_by_ms = now + (cfg->epoch > 1 ? REGISTER_MS : 0);
    s->turn = loop_timer_new(cfg->loop, on_turn, s);
    s->tick = loop_timer_new(cfg->loop, on_tick, s);
    const char *components = getenv("TONY_SLURM_COMPONENTS");
    int rc = s->turn && s->tick ? 0 : err_set(e, ENOMEM, "no memory to start the master");
    if (rc == 0)
        rc = parts_read(s, components ? components : "", e);
    if (rc == 0)
        rc = notice_open(s, e);
    if (rc == 0)
        rc = further_open(s, e);
    if (rc == 0)
        rc = nodes_listen(s, e);
    if (rc == 0)
        rc = write_address(s, e);
    if (rc == 0)
        rc = connect_head(s, e);
    if (rc < 0) {
        slurm_close((struct sched *)(void *)s);
        return rc;
    }
    slurm_turn_soon(s);
    forgive_stall(s, now);
    *out = (struct sched *)(void *)s;
    return 0;
}

static int slurm_request(struct sched *sched, const struct sched_ask *asks, size_t n, struct err *e)
{
    struct slurm *s = slurm_of(sched);
    for (size_t i = 0; i < n; i++) {
        struct hold *h;
        int rc = hold_add(s, asks[i].slot, &h);
        if (rc == -ENOMEM)
            return err_set(e, ENOMEM, "no memory to ask for %zu containers", n);
        h->withdrawn = false;
        if (rc == -EEXIST)
            continue;
        h->state = HOLD_WAITING;
        h->room = (struct room){ asks[i].memory_mib, asks[i].vcores, asks[i].gpus,
                                 part_of_role(s, asks[i].role) };
        h->waits_since = clock_mono_ms();
    }
    slurm_turn_soon(s);
    return 0;
}

static int slurm_cancel(struct sched *sched, const uint32_t *slots, size_t n, struct err *e)
{
    struct slurm *s = slurm_of(sched);
    (void)e; /* nothing can fail */
    for (size_t i = 0; i < n; i++) {
        struct hold *h = hold_find(s, slots[i]);
        if (h && h->state == HOLD_WAITING)
            hold_remove(s, h);
        else if (h && h->state == HOLD_ASKED)
            h->withdrawn = true;
    }
    return 0;
}

static int slurm_release(struct sched *sched, const char *const *ids, size_t n, struct err *e)
{
    struct slurm *s = slurm_of(sched);
    (void)e; /* nothing can fail */
    for (size_t i = 0; i < n; i++) {
        struct hold *h = hold_by_id(s, ids[i]);
        if (!h)
            continue;
        node_send_release(h->node, h->id);
        hold_remove(s, h);
    }
    slurm_turn_soon(s);
    return 0;
}

static int slurm_launch(struct sched *sched, const struct sched_container *c, size_t n,
                        struct err *e)
{
    struct slurm *s = slurm_of(sched);
    (void)e; /* if the keeper is away, it gets the frame when it reconnects */
    for (size_t i = 0; i < n; i++) {
        struct hold *h = hold_by_id(s, c[i].id);
        if (!h)
            continue;
        h->launch = true;
        node_send_launch(h->node, h);
    }
    return 0;
}

static int slurm_stop(struct sched *sched, const char *id, uint32_t grace_ms, struct err *e)
{
    struct slurm *s = slurm_of(sched);
    struct hold *h = hold_by_id(s, id);
    (void)e; /* if the keeper is away, it gets the frame when it reconnects */
    if (!h)
        return 0;
    h->stop = true;
    h->grace_ms = grace_ms;
    node_send_stop(h->node, id, grace_ms);
    if (!h->launch) { /* the keeper forgets a container that was never launched */
        hold_remove(s, h);
        slurm_turn_soon(s);
    }
    return 0;
}

static void slurm_avoid(struct sched *sched, const char *node, bool avoid)
{
    struct slurm *s = slurm_of(sched);
    for (size_t i = 0; i < s->nodes.n; i++)
        if (str_eq(s->nodes.v[i]->name, node))
            s->nodes.v[i]->avoid = avoid;
}

static bool further_can_hold_all(const struct slurm *s, const struct room *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!further_can_hold(s, &v[i]))
            return false;
    return true;
}

/* A larger demand has to fit into the nodes of the job, or into nodes of a further allocation. A
 * smaller demand always fits. */
static int slurm_resize(struct sched *sched, const struct sched_ask *whole, size_t n, struct err *e)
{
    struct slurm *s = slurm_of(sched);
    AUTO(free_p) struct room *v = calloc(n + 1, sizeof *v);
    if (!v)
        return err_set(e, ENOMEM, "no memory to resize the job");
    free(TAKE(s->refused_demand));
    s->refused_slot = SCHED_NO_SLOT;
    for (size_t i = 0; i < n; i++)
        v[i] = (struct room){ whole[i].memory_mib, whole[i].vcores, whole[i].gpus,
                              part_of_role(s, whole[i].role) };
    free(TAKE(s->further.failed));
    if (n > s->demand_n && nodes_are_settled(s) && !place_fits(s, v, n) &&
        !further_can_hold_all(s, v, n)) {
        s->refused_demand =
            str_printf("the allocation of %u nodes has no room for %zu containers, and Slurm does "
                       "not enlarge an allocation",
                       s->n_nodes, n);
        for (size_t i = n; i-- > 0;)
            if (!hold_find(s, whole[i].slot))
                s->refused_slot = whole[i].slot;
        slurm_turn_soon(s);
        return s->refused_demand ? 0 : err_set(e, ENOMEM, "no memory to resize the job");
    }
    s->demand_n = (uint32_t)n;
    return 0;
}

static const char *slurm_awaits(const struct sched *sched)
{
    return ((const struct slurm *)(const void *)sched)->further.awaits;
}

/* ---- the end ---- */

/* Slurm sends TERM to all processes of a job that it ends, or puts back into its queue. */
static int slurm_fate(struct sched *sched, int64_t within_ms,
                      void (*done)(bool over, const char *who, const char *text, void *arg),
                      void *arg)
{
    (void)within_ms; /* KillWait is at least some seconds */
    (void)arg;       /* the same as that of the events */
    return notice_fate(slurm_of(sched), done);
}

static bool nodes_are_gone(const struct slurm *s)
{
    for (size_t i = 0; i < s->nodes.n; i++)
        if (s->nodes.v[i]->conn)
            return false;
    return true;
}

/* First the keepers of the nodes end, and the job leaves Slurm's queue, if it is there. Then the
 * head keeper moves the job's directory, to which the others write. */
static void on_finish(void *arg)
{
    struct slurm *s = arg;
    int64_t now = clock_mono_ms();
    bool cancels = s->finishing == NODES_FINISH && notice_cancels(s);
    bool nodes_end = !nodes_are_gone(s) && now < s->finish_by_ms;
    if (s->finishing == NODES_FINISH && (nodes_end || cancels)) {
        loop_timer_set(s->finish, now + FINISH_POLL_MS);
        return;
    }
    if (s->finishing == NODES_FINISH && s->head) {
        Tony__FinishJob m = TONY__FINISH_JOB__INIT;
        Tony__Frame f = TONY__FRAME__INIT;
        m.state = s->final_state;
        f.body_case = TONY__FRAME__BODY_FINISH_JOB;
        f.finish_job = &m;
        (void)conn_send(s->head, &f); /* if it fails, the head keeper has died: the next one asks */
    }
    s->finishing = HEAD_FINISHES;
    if (s->head && conn_queued(s->head) > 0)
        loop_timer_set(s->finish, now + FINISH_POLL_MS);
    else
        s->finish_done(s->cfg.arg);
}

static int slurm_finish(struct sched *sched, const char *state, const char *diagnostics,
                        void (*done)(void *arg), struct err *e)
{
    struct slurm *s = slurm_of(sched);
    (void)diagnostics; /* they are in the journal */
    if (!s->finish)
        s->finish = loop_timer_new(s->cfg.loop, on_finish, s);
    if (!s->final_state)
        s->final_state = str_dup(state);
    if (!s->finish || !s->final_state)
        return err_set(e, ENOMEM, "no memory to end the job");
    if (s->finishing == NOT_FINISHING)
        s->finishing = NODES_FINISH;
    s->finish_done = done;
    s->finish_by_ms = clock_mono_ms() + FINISH_NODES_MS;
    for (size_t i = 0; i < s->nodes.n; i++)
        node_send_finish(s->nodes.v[i], state);
    loop_timer_set(s->finish, clock_mono_ms());
    return 0;
}

const struct sched_ops sched_slurm = {
    .name = "slurm",
    .open = slurm_open,
    .request = slurm_request,
    .cancel = slurm_cancel,
    .release = slurm_release,
    .launch = slurm_launch,
    .stop = slurm_stop,
    .avoid = slurm_avoid,
    .resize = slurm_resize,
    .awaits = slurm_awaits,
    .fate = slurm_fate,
    .finish = slurm_finish,
    .close = slurm_close,
};
