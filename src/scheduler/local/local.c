#include "scheduler/local/local.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/paths.h"

enum {
    DIAL_LIMIT_MS = 10000, /* the keeper begins when we do; one that never listens */
    DIAL_PAUSE_MS = 1,
    FINISH_POLL_MS = 2, /* how often we look whether the keeper's socket has taken our last word */
};

struct local {
    const struct sched_ops *ops; /* first: struct sched is this */
    struct sched_config cfg;
    struct conn *conn;
    char *path;                    /* of the keeper's socket */
    struct loop_timer *dial_timer; /* the next try */
    int64_t dial_until_ms;
    bool registered;
    bool finishing; /* the keeper may go now: that is no breakage */
    struct loop_timer *finish_timer;
    void (*finish_done)(void *arg);
};

static struct local *local_of(struct sched *s)
{
    return (struct local *)(void *)s;
}

static void emit(struct local *l, const struct sched_event *ev)
{
    l->cfg.on_event(ev, l->cfg.arg);
}

static void broken(struct local *l, const char *text)
{
    emit(l, &(struct sched_event){ .type = SE_BROKEN, .text = text });
}

static int send_frame(struct local *l, const Tony__Frame *f, const char *what, struct err *e)
{
    if (!l->conn)
        return err_set(e, EPIPE, "cannot %s: the job's keeper is gone", what);
    int rc = conn_send(l->conn, f);
    return rc < 0 ? err_set(e, -rc, "cannot %s: the job's keeper: %m", what) : 0;
}

/* ---- from the keeper ---- */

/* The wire's container as the interface's; gpus lists the devices as text, which `texts` keeps. */
static int container_read(const Tony__Container *from, struct sched_container *to,
                          struct strv *texts)
{
    const char *gpus = "";
    if (from->n_gpus > 0) {
        struct buf b = { 0 };
        for (size_t i = 0; i < from->n_gpus; i++)
            (void)buf_addf(&b, i ? ",%u" : "%u", from->gpus[i]); /* a failure sticks to b */
        char *text = b.failed ? NULL : buf_steal(&b);
        buf_done(&b);
        if (strv_take(texts, text) < 0)
            return -ENOMEM;
        gpus = texts->v[texts->n - 1];
    }
    unsigned reason = (unsigned)from->reason;
    *to = (struct sched_container){
        .id = from->id,
        .slot = from->slot,
        .gpus = gpus,
        .launched = from->launched,
        .completed = from->completed,
        .exit_code = from->exit_status,
        .reason = reason < END_COUNT ? (enum end_reason)reason : END_UNKNOWN,
        .age_us = from->age_us,
        .ended_mono_us = from->ended_mono_us,
        .detail = from->detail && *from->detail ? from->detail : NULL,
    };
    return 0;
}

static void emit_containers(struct local *l, enum sched_event_type type, Tony__Container **v,
                            size_t n)
{
    struct strv texts = { 0 };
    struct sched_container *list = calloc(n ? n : 1, sizeof *list);
    int rc = list ? 0 : -ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = container_read(v[i], &list[i], &texts);
    if (rc == 0)
        emit(l, &(struct sched_event){ .type = type, .containers = list, .n = n });
    else /* what the keeper said is lost to us: the next master asks again */
        broken(l, "no memory for what the keeper said");
    free(list);
    strv_done(&texts);
}

static void on_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct local *l = arg;
    (void)c; /* there is one connection only */
    switch ((int)f->body_case) {
    case TONY__FRAME__BODY_REGISTERED:
        l->registered = true;
        emit_containers(l, SE_REGISTERED, f->registered->containers, f->registered->n_containers);
        break;
    case TONY__FRAME__BODY_CONTAINERS_ALLOCATED: {
        const Tony__ContainersAllocated *a = f->containers_allocated;
        if (a->n_containers > 0)
            emit_containers(l, SE_ALLOCATED, a->containers, a->n_containers);
        for (size_t i = 0; i < a->n_refused_slots; i++)
            emit(l, &(struct sched_event){
                        .type = SE_REFUSED, .slot = a->refused_slots[i], .text = a->why });
        break;
    }
    case TONY__FRAME__BODY_CONTAINERS_COMPLETED:
        emit_containers(l, SE_COMPLETED, f->containers_completed->containers,
                        f->containers_completed->n_containers);
        break;
    case TONY__FRAME__BODY_SHRINK_NOTICE:
        emit(l, &(struct sched_event){ .type = SE_SHRINK,
                                       .n = f->shrink_notice->n_containers,
                                       .deadline_ms = (int64_t)f->shrink_notice->deadline_ms });
        break;
    case TONY__FRAME__BODY_REFUSED:
        if (l->registered) /* one request failed; its slots would have been named */
            log_event(LOG_WARN, "keeper.refused", f_str("why", f->refused->message));
        else
            broken(l, f->refused->message);
        break;
    default: /* a later keeper may say more than we know */
        log_event(LOG_DEBUG, "keeper.unknown_frame", f_int("body", (int)f->body_case));
    }
}

static void on_open(struct conn *c, void *arg)
{
    struct local *l = arg;
    Tony__RegisterMaster m = TONY__REGISTER_MASTER__INIT;
    m.version = TONY__VERSION__PROTOCOL_VERSION;
    m.epoch = l->cfg.epoch;
    m.pid = getpid();
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_REGISTER_MASTER;
    f.register_master = &m;
    if (conn_send(c, &f) < 0)
        broken(l, "cannot register with the job's keeper");
}

static void on_close(struct conn *c, const struct err *e, void *arg)
{
    struct local *l = arg;
    (void)c; /* freed by the loop after this */
    l->conn = NULL;
    if (!l->finishing)
        broken(l, e->num ? e->msg : "the job's keeper is gone");
}

static const struct conn_ops keeper_ops = {
    .on_open = on_open,
    .on_frame = on_frame,
    .on_close = on_close,
};

/* ---- the table ---- */

static void local_close(struct sched *s)
{
    struct local *l = local_of(s);
    if (!l)
        return;
    conn_close(l->conn);
    loop_timer_free(l->dial_timer);
    loop_timer_free(l->finish_timer);
    free(l->path);
    free(l);
}

/* 0 also when the keeper does not listen yet: it is dialled again. */
static int dial(struct local *l, struct err *e)
{
    int64_t now = clock_mono_ms();
    int rc = conn_dial_unix(l->cfg.loop, l->path, &keeper_ops, l, &l->conn, e);
    if ((rc != -ENOENT && rc != -ECONNREFUSED) || now >= l->dial_until_ms)
        return rc < 0 ? err_wrap(e, rc, "cannot reach the job's keeper") : 0;
    loop_timer_set(l->dial_timer, now + DIAL_PAUSE_MS);
    return 0;
}

static void dial_again(void *arg)
{
    struct local *l = arg;
    struct err e = { 0 };
    if (dial(l, &e) < 0)
        broken(l, e.msg);
}

static int local_open(const struct sched_config *cfg, struct sched **out, struct err *e)
{
    struct paths p = { .runtime = (char *)(uintptr_t)cfg->runtime_dir };
    struct local *l = calloc(1, sizeof *l);
    if (l) {
        l->ops = &sched_local;
        l->cfg = *cfg;
        l->path = paths_socket(&p, cfg->application_id, "k");
        l->dial_timer = loop_timer_new(cfg->loop, dial_again, l);
        /* only the first master may be there before its keeper */
        l->dial_until_ms = clock_mono_ms() + (cfg->epoch == 1 ? DIAL_LIMIT_MS : 0);
    }
    int rc = l && l->path && l->dial_timer
                 ? dial(l, e)
                 : err_set(e, ENOMEM, "no memory to reach the job's keeper");
    if (rc < 0) {
        local_close((struct sched *)(void *)l);
        return rc;
    }
    *out = (struct sched *)(void *)l;
    return 0;
}

static int local_request(struct sched *s, const struct sched_ask *asks, size_t n, struct err *e)
{
    Tony__Ask *v = calloc(n ? n : 1, sizeof *v);
    Tony__Ask **list = calloc(n ? n : 1, sizeof *list);
    int rc = v && list ? 0 : err_set(e, ENOMEM, "no memory to ask for %zu containers", n);
    if (rc == 0) {
        for (size_t i = 0; i < n; i++) {
            tony__ask__init(&v[i]);
            v[i].slot = asks[i].slot;
            v[i].memory_mib = asks[i].memory_mib;
            v[i].vcores = asks[i].vcores;
            v[i].gpus = asks[i].gpus;
            list[i] = &v[i];
        }
        Tony__RequestContainers m = TONY__REQUEST_CONTAINERS__INIT;
        m.n_asks = n;
        m.asks = list;
        Tony__Frame f = TONY__FRAME__INIT;
        f.body_case = TONY__FRAME__BODY_REQUEST_CONTAINERS;
        f.request_containers = &m;
        rc = send_frame(local_of(s), &f, "ask for containers", e);
    }
    free(v);
    free(list);
    return rc;
}

static int local_release(struct sched *s, const char *const *ids, size_t n, struct err *e)
{
    Tony__ReleaseContainers m = TONY__RELEASE_CONTAINERS__INIT;
    m.n_ids = n;
    m.ids =
        (char **)(uintptr_t)ids; /* protobuf-c's structs know no const; packing writes nothing */
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

static int local_resize(struct sched *s, uint32_t n_containers, struct err *e)
{
    (void)s;
    return err_set(e, EOPNOTSUPP, "a job of the local pool cannot be resized to %u containers",
                   n_containers);
}

/* Once the socket has taken all bytes the keeper will read them, whether we live or not. */
static void finish_look(void *arg)
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
    (void)diagnostics; /* the keeper keeps none: it stands in the journal */
    if (!l->finish_timer)
        l->finish_timer = loop_timer_new(l->cfg.loop, finish_look, l);
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
    .release = local_release,
    .launch = local_launch,
    .stop = local_stop,
    .resize_wanted = local_resize,
    .finish = local_finish,
    .close = local_close,
};
