/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/local/local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "scheduler/keeper_frames.h"
#include "scheduler/slots.h"
#include "storage/paths.h"

enum {
    /* How long the first master tries to connect. It starts together with the keeper, which may not
     * listen yet. */
    CONNECT_TIMEOUT_MS = 10000,
    CONNECT_RETRY_MS = 1, /* pause between two attempts */
    FINISH_POLL_MS = 2,   /* pause between two checks whether the last frame has been sent */
    /* Pause before the ends of containers are acknowledged: one message covers all ends of that
     * time. It is also the pause before the next check if the journal does not have the ends
     * yet. */
    ACK_MS = 200,
};

/* A request for a container that this master has made. */
struct asked {
    uint32_t slot;         /* must be the first member: scheduler/slots.h */
    bool open;             /* the keeper has not answered */
    uint32_t cancelled_by; /* the number of the CancelAsks that withdrew it; 0 = none did */
    struct sched_ask ask;
};

struct local {
    const struct sched_ops *ops; /* must be the first member: every struct sched begins with it */
    struct sched_config cfg;
    struct conn *conn;                /* to the keeper; NULL once the connection is lost */
    char *path;                       /* of the keeper's socket */
    struct loop_timer *connect_timer; /* fires at the next attempt to connect */
    int64_t connect_deadline_ms;
    bool registered;
    bool finishing; /* local_finish() was called: if the keeper closes now, that is no error */
    struct loop_timer *finish_timer;
    void (*finish_done)(void *arg);
    /* Registered comes in parts. These are the containers of the parts that have come. */
    VEC(struct sched_container) parts;
    struct strv parts_texts; /* owns the strings of `parts` */
    /* ends that the keeper has reported; ends that were acknowledged to it */
    uint64_t n_ends, n_acked;
    bool ack_due; /* ack_timer is set */
    struct loop_timer *ack_timer;
    VEC(struct asked) asked;   /* all requests of this master, sorted by slot */
    uint32_t last_cancel;      /* number of the last CancelAsks that was sent */
    uint32_t confirmed_cancel; /* number of the last CancelAsks that the keeper has confirmed */
    uint32_t last_want;        /* number of the last WantContainers that was sent */
};

static int local_request(struct sched *s, const struct sched_ask *asks, size_t n, struct err *e);

static struct local *local_of(struct sched *s)
{
    return (struct local *)(void *)s;
}

static void emit(struct local *l, const struct sched_event *ev)
{
    l->cfg.on_event(ev, l->cfg.arg);
}

static void emit_broken(struct local *l, const char *text)
{
    emit(l, &(struct sched_event){ .type = SE_BROKEN, .text = text });
}

static int send_frame(struct local *l, const Tony__Frame *f, const char *what, struct err *e)
{
    if (!l->conn)
        return err_set(e, EPIPE, "cannot %s: the connection to the job's keeper is closed", what);
    int rc = conn_send(l->conn, f);
    return rc < 0 ? err_set(e, -rc, "cannot %s: cannot send to the job's keeper: %m", what) : 0;
}

/* ---- frames from the keeper ---- */

static struct asked *asked_find(struct local *l, uint32_t slot)
{
    size_t at = slots_place(l->asked.v, l->asked.n, sizeof *l->asked.v, slot);
    return at < l->asked.n && l->asked.v[at].slot == slot ? &l->asked.v[at] : NULL;
}

static int asked_add(struct local *l, const struct sched_ask *ask)
{
    uint32_t slot = ask->slot;
    size_t at = slots_place(l->asked.v, l->asked.n, sizeof *l->asked.v, slot);
    if (at == l->asked.n || l->asked.v[at].slot != slot) {
        if (vec_push(&l->asked, (struct asked){ 0 }) < 0)
            return -ENOMEM;
        memmove(&l->asked.v[at + 1], &l->asked.v[at], (l->asked.n - 1 - at) * sizeof *l->asked.v);
        l->asked.v[at] = (struct asked){ .slot = slot };
    }
    l->asked.v[at].open = true;
    l->asked.v[at].ask = *ask;
    return 0;
}

/*
 * The keeper has answered the request for this slot. false: ignore the answer, because the keeper
 * sent it before it received the withdrawal of the request. On the withdrawal, the keeper takes the
 * container back and confirms the CancelAsks. So an answer that comes before the confirmation
 * belongs to the withdrawn request.
 */
static bool take_answer(struct local *l, uint32_t slot)
{
    struct asked *a = asked_find(l, slot);
    if (a && a->cancelled_by > l->confirmed_cancel)
        return false;
    if (a)
        a->open = false;
    return true;
}

/* not_asked: the keeper refuses the whole demand and names a slot for which it had no request. If
 * that request is on its way, ignore the refusal: the keeper answers the request, and names another
 * slot if there is one that has no request. */
static bool take_refusal(struct local *l, uint32_t slot, bool not_asked)
{
    const struct asked *a = asked_find(l, slot);
    return not_asked ? !a || !a->open : take_answer(l, slot);
}

/* Count the ends in this frame, which the keeper forgets once the journal has them. */
static void count_ends(struct local *l, Tony__Container *const *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        l->n_ends += v[i]->completed ? 1 : 0;
    if (l->n_ends > l->n_acked && !l->ack_due)
        loop_timer_set(l->ack_timer, clock_mono_ms() + ACK_MS);
    l->ack_due = l->n_ends > l->n_acked;
}

static void on_ack_timer(void *arg)
{
    struct local *l = arg;
    if (l->finishing || !l->conn)
        return;
    if (l->cfg.stored && !l->cfg.stored(l->cfg.arg)) {
        loop_timer_set(l->ack_timer, clock_mono_ms() + ACK_MS);
        return;
    }
    l->ack_due = false;
    Tony__AckCompleted m = TONY__ACK_COMPLETED__INIT;
    m.n = l->n_acked = l->n_ends;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_ACK_COMPLETED;
    f.ack_completed = &m;
    (void)conn_send(l->conn, &f); /* on_close() handles a broken connection */
}

static void emit_containers(struct local *l, enum sched_event_type type, Tony__Container **v,
                            size_t n)
{
    struct strv texts = { 0 };
    struct sched_container *list = calloc(n ? n : 1, sizeof *list);
    int rc = list ? 0 : -ENOMEM;
    size_t n_reported = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        if (type != SE_ALLOCATED || take_answer(l, v[i]->slot))
            rc = keeper_container_read(v[i], &list[n_reported++], &texts);
    if (rc == 0 && n_reported > 0)
        emit(l, &(struct sched_event){ .type = type, .containers = list, .n = n_reported });
    else if (rc == 0)
        log_event(LOG_DEBUG, "keeper.cancelled", f_int("containers", (int64_t)n));
    else /* this report is lost; the next master gets all containers when it registers */
        emit_broken(l, "no memory for a report of the job's keeper");
    free(list);
    strv_done(&texts);
}

static void parts_clear(struct local *l)
{
    vec_done(&l->parts);
    strv_done(&l->parts_texts);
}

/* Keep the containers of each part, and report all when the last part has come. */
static void on_registered(struct local *l, const Tony__Registered *r)
{
    int rc = vec_reserve(&l->parts, l->parts.n + r->n_containers);
    for (size_t i = 0; i < r->n_containers && rc == 0; i++) {
        struct sched_container *to = &l->parts.v[l->parts.n++];
        rc = keeper_container_read(r->containers[i], to, &l->parts_texts);
        if (rc == 0)
            rc = keeper_container_copy_texts(to, &l->parts_texts);
    }
    if (rc < 0) {
        emit_broken(l, "no memory for a report of the job's keeper");
        return;
    }
    count_ends(l, r->containers, r->n_containers);
    if (r->more)
        return;
    l->registered = true;
    emit(l,
         &(struct sched_event){ .type = SE_REGISTERED, .containers = l->parts.v, .n = l->parts.n });
    parts_clear(l);
}

/* The keeper refused these requests before it received the newest demand of the job, which may be
 * smaller. It forgets requests that it refuses, so repeat them: the keeper then checks them against
 * the newest demand. A refused demand need not be repeated: the keeper checks each new demand. */
static void repeat_refused(struct local *l, const Tony__ContainersAllocated *a)
{
    VEC(struct sched_ask) again = { 0 };
    struct err e = { 0 };
    int rc = 0;
    for (size_t i = 0; i < a->n_refused_slots && !a->not_asked && rc == 0; i++)
        if (take_answer(l, a->refused_slots[i]) && asked_find(l, a->refused_slots[i]))
            rc = vec_push(&again, asked_find(l, a->refused_slots[i])->ask);
    log_event(LOG_DEBUG, "keeper.old_refusal", f_int("slots", (int64_t)a->n_refused_slots));
    if (rc == 0 && again.n)
        rc = local_request((struct sched *)(void *)l, again.v, again.n, &e);
    vec_done(&again);
    if (rc < 0)
        emit_broken(l, e.num ? e.msg : "no memory to repeat requests");
}

static void emit_refused(struct local *l, const Tony__ContainersAllocated *a)
{
    if (a->demand && a->demand != l->last_want + 1) {
        repeat_refused(l, a);
        return;
    }
    for (size_t i = 0; i < a->n_refused_slots; i++)
        if (take_refusal(l, a->refused_slots[i], a->not_asked))
            emit(l, &(struct sched_event){
                        .type = SE_REFUSED, .slot = a->refused_slots[i], .text = a->why });
}

static void on_allocated(struct local *l, const Tony__ContainersAllocated *a)
{
    if (a->n_containers > 0)
        emit_containers(l, SE_ALLOCATED, a->containers, a->n_containers);
    if (a->n_refused_slots)
        emit_refused(l, a);
    if (a->cancelled)
        l->confirmed_cancel = a->cancelled;
}

static void on_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct local *l = arg;
    (void)c; /* the only connection of l */
    switch ((int)f->body_case) {
    case TONY__FRAME__BODY_REGISTERED:
        on_registered(l, f->registered);
        break;
    case TONY__FRAME__BODY_CONTAINERS_ALLOCATED:
        on_allocated(l, f->containers_allocated);
        break;
    case TONY__FRAME__BODY_CONTAINERS_COMPLETED:
        emit_containers(l, SE_COMPLETED, f->containers_completed->containers,
                        f->containers_completed->n_containers);
        count_ends(l, f->containers_completed->containers, f->containers_completed->n_containers);
        break;
    case TONY__FRAME__BODY_SIZE_WISH:
        emit(l, &(struct sched_event){ .type = f->size_wish->grow ? SE_GROW : SE_SHRINK,
                                       .n = f->size_wish->n_containers,
                                       .deadline_ms = (int64_t)f->size_wish->deadline_ms,
                                       .saved = f->size_wish->saved,
                                       .text = f->size_wish->why });
        break;
    case TONY__FRAME__BODY_ALIVE:
        emit(l, &(struct sched_event){
                    .type = SE_ALIVE, .slots = f->alive->slots, .n = f->alive->n_slots });
        break;
    case TONY__FRAME__BODY_SOCKETS_RENEWED:
        if (l->cfg.on_sockets)
            l->cfg.on_sockets(l->cfg.arg);
        break;
    case TONY__FRAME__BODY_REFUSED:
        /* After registration, Refused answers one frame of the master. Refused requests for
         * containers come in CONTAINERS_ALLOCATED instead, which names the slots. */
        if (l->registered)
            log_event(LOG_WARN, "keeper.refused", f_str("why", f->refused->message));
        else
            emit_broken(l, f->refused->message);
        break;
    default: /* a keeper of a later version may send frames that this master does not know */
        log_event(LOG_DEBUG, "keeper.unknown_frame", f_int("body", (int)f->body_case));
    }
}

static void on_open(struct conn *c, void *arg)
{
    struct local *l = arg;
    if (keeper_send_register(c, l->cfg.epoch) < 0)
        emit_broken(l, "cannot register with the job's keeper");
}

static void on_close(struct conn *c, const struct err *e, void *arg)
{
    struct local *l = arg;
    (void)c; /* the loop frees it after this callback */
    l->conn = NULL;
    if (!l->finishing)
        emit_broken(l, e->num ? e->msg : "the job's keeper has closed the connection");
}

static const struct conn_ops keeper_ops = {
    .on_open = on_open,
    .on_frame = on_frame,
    .on_close = on_close,
};

/* ---- the functions of struct sched_ops ---- */

static void local_close(struct sched *s)
{
    struct local *l = local_of(s);
    if (!l)
        return;
    conn_close(l->conn);
    loop_timer_free(l->connect_timer);
    loop_timer_free(l->finish_timer);
    loop_timer_free(l->ack_timer);
    parts_clear(l);
    vec_done(&l->asked);
    free(l->path);
    free(l);
}

/* Connect to the keeper. If it does not listen yet, set the timer for a retry and return 0. */
static int connect_keeper(struct local *l, struct err *e)
{
    int64_t now = clock_mono_ms();
    int rc = conn_dial_unix(l->cfg.loop, l->path, &keeper_ops, l, &l->conn, e);
    if ((rc != -ENOENT && rc != -ECONNREFUSED) || now >= l->connect_deadline_ms)
        return rc < 0 ? err_wrap(e, rc, "cannot connect to the job's keeper") : 0;
    loop_timer_set(l->connect_timer, now + CONNECT_RETRY_MS);
    return 0;
}

static void on_connect_timer(void *arg)
{
    struct local *l = arg;
    struct err e = { 0 };
    if (connect_keeper(l, &e) < 0)
        emit_broken(l, e.msg);
}

static int local_open(const struct sched_config *cfg, struct sched **out, struct err *e)
{
    struct paths p = { .runtime = (char *)(uintptr_t)cfg->runtime_dir };
    struct local *l = calloc(1, sizeof *l);
    if (l) {
        l->ops = &sched_local;
        l->cfg = *cfg;
        l->path = paths_socket(&p, cfg->application_id, "k");
        l->connect_timer = loop_timer_new(cfg->loop, on_connect_timer, l);
        l->ack_timer = loop_timer_new(cfg->loop, on_ack_timer, l);
        /* Only the first master may start before the keeper listens. The keeper itself starts the
         * later ones, so they make one attempt. */
        l->connect_deadline_ms = clock_mono_ms() + (cfg->epoch == 1 ? CONNECT_TIMEOUT_MS : 0);
    }
    int rc = l && l->path && l->connect_timer && l->ack_timer
                 ? connect_keeper(l, e)
                 : err_set(e, ENOMEM, "no memory to connect to the job's keeper");
    if (rc < 0) {
        local_close((struct sched *)(void *)l);
        return rc;
    }
    *out = (struct sched *)(void *)l;
    return 0;
}

static int local_request(struct sched *s, const struct sched_ask *asks, size_t n, struct err *e)
{
    AUTO(asks_message_done) struct asks_message w = { 0 };
    int rc = asks_message_fill(&w, asks, n, e);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (asked_add(local_of(s), &asks[i]) < 0)
            rc = err_set(e, ENOMEM, "no memory to ask for %zu containers", n);
    if (rc < 0)
        return rc;
    Tony__RequestContainers m = TONY__REQUEST_CONTAINERS__INIT;
    m.n_asks = n;
    m.asks = w.list;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_REQUEST_CONTAINERS;
    f.request_containers = &m;
    return send_frame(local_of(s), &f, "ask for containers", e);
}

static int local_resize(struct sched *s, const struct sched_ask *whole, size_t n, struct err *e)
{
    AUTO(asks_message_done) struct asks_message w = { 0 };
    int rc = asks_message_fill(&w, whole, n, e);
    if (rc < 0)
        return rc;
    Tony__WantContainers m = TONY__WANT_CONTAINERS__INIT;
    m.n_whole = n;
    m.whole = w.list;
    m.number = ++local_of(s)->last_want;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_WANT_CONTAINERS;
    f.want_containers = &m;
    return send_frame(local_of(s), &f, "resize the job", e);
}

static int local_bounds(struct sched *s, uint32_t min, uint32_t max, int64_t cost_ms, struct err *e)
{
    Tony__SizeBounds m = TONY__SIZE_BOUNDS__INIT;
    m.min_containers = min;
    m.max_containers = max;
    m.cost_known = cost_ms >= 0;
    m.cost_ms = cost_ms >= 0 ? (uint64_t)cost_ms : 0;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_SIZE_BOUNDS;
    f.size_bounds = &m;
    return send_frame(local_of(s), &f, "tell how the job may be resized", e);
}

static int local_outlook(struct sched *s, int64_t left_min_ms, int64_t left_max_ms, struct err *e)
{
    Tony__Outlook m = TONY__OUTLOOK__INIT;
    m.known = left_max_ms >= 0;
    m.left_min_ms = m.known ? (uint64_t)left_min_ms : 0;
    m.left_max_ms = m.known ? (uint64_t)left_max_ms : 0;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_OUTLOOK;
    f.outlook = &m;
    return send_frame(local_of(s), &f, "tell when the job will end", e);
}

static int local_cancel(struct sched *s, const uint32_t *slots, size_t n, struct err *e)
{
    struct local *l = local_of(s);
    AUTO(free_p) uint32_t *open = calloc(n ? n : 1, sizeof *open);
    if (!open)
        return err_set(e, ENOMEM, "no memory to withdraw %zu requests", n);
    Tony__CancelAsks m = TONY__CANCEL_ASKS__INIT;
    m.slots = open;
    m.number = l->last_cancel + 1;
    for (size_t i = 0; i < n; i++) {
        struct asked *a = asked_find(l, slots[i]);
        if (!a || !a->open)
            continue;
        a->open = false;
        a->cancelled_by = m.number;
        open[m.n_slots++] = a->slot;
    }
    if (m.n_slots == 0)
        return 0;
    l->last_cancel = m.number;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_CANCEL_ASKS;
    f.cancel_asks = &m;
    return send_frame(l, &f, "withdraw requests", e);
}

static int local_release(struct sched *s, const char *const *ids, size_t n, struct err *e)
{
    Tony__ReleaseContainers m = TONY__RELEASE_CONTAINERS__INIT;
    m.n_ids = n;
    /* The struct of protobuf-c has no const, but packing does not write to the strings. */
    m.ids = (char **)(uintptr_t)ids;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_RELEASE_CONTAINERS;
    f.release_containers = &m;
    return send_frame(local_of(s), &f, "release containers", e);
}

static int local_launch(struct sched *s, const struct sched_container *c, size_t n, struct err *e)
{
    Tony__Container *v = calloc(n ? n : 1, sizeof *v);
    Tony__Container **list = calloc(n ? n : 1, sizeof *list);
    int rc = v && list ? 0 : err_set(e, ENOMEM, "no memory to launch %zu containers", n);
    if (rc == 0) {
        for (size_t i = 0; i < n; i++) {
            tony__container__init(&v[i]);
            v[i].id = (char *)(uintptr_t)c[i].id;
            v[i].slot = c[i].slot;
            v[i].plain = c[i].plain;
            list[i] = &v[i];
        }
        Tony__LaunchContainers m = TONY__LAUNCH_CONTAINERS__INIT;
        m.n_containers = n;
        m.containers = list;
        Tony__Frame f = TONY__FRAME__INIT;
        f.body_case = TONY__FRAME__BODY_LAUNCH_CONTAINERS;
        f.launch_containers = &m;
        rc = send_frame(local_of(s), &f, "launch containers", e);
    }
    free(v);
    free(list);
    return rc;
}

static int local_stop(struct sched *s, const char *id, uint32_t grace_ms, struct err *e)
{
    Tony__StopContainer m = TONY__STOP_CONTAINER__INIT;
    m.id = (char *)(uintptr_t)id;
    m.grace_ms = grace_ms;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_STOP_CONTAINER;
    f.stop_container = &m;
    return send_frame(local_of(s), &f, "stop a container", e);
}

/* Wait until the kernel's socket buffer has all bytes. From then on the keeper can read them even
 * if this master has exited. */
static void on_finish_timer(void *arg)
{
    struct local *l = arg;
    if (l->conn && conn_queued(l->conn) > 0)
        loop_timer_set(l->finish_timer, clock_mono_ms() + FINISH_POLL_MS);
    else
        l->finish_done(l->cfg.arg);
}

static int local_finish(struct sched *s, const char *state, const char *diagnostics,
                        void (*done)(void *arg), struct err *e)
{
    struct local *l = local_of(s);
    (void)diagnostics; /* the keeper does not store the diagnostics, because the journal has them */
    if (!l->finish_timer)
        l->finish_timer = loop_timer_new(l->cfg.loop, on_finish_timer, l);
    if (!l->finish_timer)
        return err_set(e, ENOMEM, "no memory to end the job");
    Tony__FinishJob m = TONY__FINISH_JOB__INIT;
    m.state = (char *)(uintptr_t)state;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_FINISH_JOB;
    f.finish_job = &m;
    int rc = send_frame(l, &f, "end the job", e);
    if (rc < 0)
        return rc;
    l->finishing = true;
    l->finish_done = done;
    loop_timer_set(l->finish_timer, clock_mono_ms());
    return 0;
}

const struct sched_ops sched_local = {
    .name = "local",
    .open = local_open,
    .request = local_request,
    .cancel = local_cancel,
    .release = local_release,
    .launch = local_launch,
    .stop = local_stop,
    .resize = local_resize,
    .bounds = local_bounds,
    .outlook = local_outlook,
    .finish = local_finish,
    .close = local_close,
};
