/*
 * A master that was started in another's place calls the executors that it finds: they know only
 * where their old one was. Each listens at one of a few ports that follow from its key
 * (storage/jobkey.h), which are tried in turn until it is there, whichever side came first.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "loop/tcp.h"
#include "master/master_int.h"
#include "scheduler/scheduler.h"
#include "storage/jobkey.h"

enum {
    CALL_DIAL_MS = 3000,
    CALL_PAUSE_MIN_MS = 50, /* between two rounds through the ports; doubles */
    CALL_PAUSE_MAX_MS = 2000,
};

struct call {
    struct master *m;
    uint32_t slot;
    char *container, host[TCP_HOST_MAX + 1], identity[TLS_IDENTITY_MAX];
    uint16_t ports[JOB_KEY_PORTS];
    unsigned next, rounds;
    struct conn *conn;
    struct loop_timer *timer;
    struct call *next_call;
};

static void call_free(struct call *c)
{
    conn_close(c->conn);
    loop_timer_free(c->timer);
    free(c->container);
    free(c);
}

void calls_close(struct master *m)
{
    while (m->calls) {
        struct call *c = m->calls;
        m->calls = c->next_call;
        call_free(c);
    }
}

static void forget(struct call *c)
{
    for (struct call **at = &c->m->calls; *at; at = &(*at)->next_call)
        if (*at == c) {
            *at = c->next_call;
            break;
        }
    call_free(c);
}

/* Is it still to be found? */
static bool wanted(const struct call *c)
{
    const struct master *m = c->m;
    struct slot_view v;
    if (m->phase != MP_RUNNING || m->executors[c->slot])
        return false;
    job_slot(m->job, c->slot, &v);
    return v.state != SLOT_ENDED && v.container && str_eq(v.container, c->container);
}

/* The next port, or all of them again after a pause. Never from within a callback of the
 * connection that failed. */
static void again(struct call *c)
{
    int64_t pause = 0;
    if (++c->next == JOB_KEY_PORTS) {
        c->next = 0;
        pause = MIN((int64_t)CALL_PAUSE_MIN_MS << MIN(c->rounds, 16u), (int64_t)CALL_PAUSE_MAX_MS);
        c->rounds++;
    }
    loop_timer_set(c->timer, clock_mono_ms() + pause);
}

static void on_open(struct conn *conn, void *arg)
{
    struct call *c = arg;
    struct master *m = c->m;
    c->conn = NULL;
    peer_take(m, conn); /* it says hello, as if it had dialled */
    forget(c);
}

static void on_frame(struct conn *conn, const Tony__Frame *f, void *arg)
{
    (void)conn;
    (void)f;
    (void)arg;
}

static void on_close(struct conn *conn, const struct err *e, void *arg)
{
    struct call *c = arg;
    (void)conn;
    c->conn = NULL;
    if (c->rounds == 0 && e->num != ECONNREFUSED && e->num != EACCES)
        log_err(LOG_DEBUG, "call.failed", e);
    again(c);
}

static const struct conn_ops call_ops = { .on_open = on_open,
                                          .on_frame = on_frame,
                                          .on_close = on_close };

static void on_timer(void *arg)
{
    struct call *c = arg;
    struct tls_key key;
    if (!wanted(c)) {
        forget(c);
        return;
    }
    job_key_container(c->m->remote->key, c->container, &key);
    const struct conn_target to = { .host = c->host,
                                    .port = c->ports[c->next],
                                    .identity = c->identity,
                                    .key = &key,
                                    .deadline_ms = clock_mono_ms() + CALL_DIAL_MS };
    if (conn_dial_tls(c->m->loop, &to, &call_ops, c, &c->conn, NULL) < 0)
        again(c);
    job_key_wipe(&key, sizeof key);
}

void calls_begin(struct master *m, const struct sched_container *from)
{
    struct tls_key key;
    uint16_t port;
    if (!m->remote || m->epoch < 2 || !from->launched || from->completed || !from->node ||
        from->slot >= job_n_slots(m->job))
        return;
    struct call *c = calloc(1, sizeof *c);
    if (c) {
        *c = (struct call){ .m = m,
                            .slot = job_slot_now(m->job, from->slot),
                            .container = str_dup(from->id) };
        c->timer = loop_timer_new(m->loop, on_timer, c);
    }
    if (!c || !c->container || !c->timer || !job_key_identity(c->container, c->identity) ||
        tcp_split(from->node, 1, c->host, &port, NULL) < 0) {
        log_event(LOG_ERROR, "call.impossible", f_str("container", from->id));
        if (c)
            call_free(c);
        return; /* it is silent then, and the job's rules count that */
    }
    job_key_container(m->remote->key, c->container, &key);
    job_key_ports(&key, c->ports);
    job_key_wipe(&key, sizeof key);
    c->next_call = m->calls;
    m->calls = c;
    loop_timer_set(c->timer, clock_mono_ms());
}
