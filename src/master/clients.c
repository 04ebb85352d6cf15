#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "history/history.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"
#include "storage/jobkey.h"
#include "storage/paths.h"

enum {
    NOTIFY_MS = 50,        /* followers get at most 20 updates a second */
    STATUS_MAX = 24 << 20, /* a frame must hold it */
};

#define MUTABLE(p) ((char *)(uintptr_t)(p))

/* ---- peers ---- */

static void peer_unlink(struct peer *p)
{
    struct master *m = p->m;
    if (p->prev)
        p->prev->next = p->next;
    else
        m->peers = p->next;
    if (p->next)
        p->next->prev = p->prev;
    if (p->kind == PEER_EXECUTOR && m->executors[p->slot] == p)
        m->executors[p->slot] = NULL;
    if (p->kind == PEER_CLIENT)
        logs_client_gone(p);
    free(p);
}

void peer_refuse(struct peer *p, int num, const char *message)
{
    if (message) {
        Tony__Refused r = TONY__REFUSED__INIT;
        r.num = (uint32_t)num;
        r.message = MUTABLE(message);
        Tony__Frame f = TONY__FRAME__INIT;
        f.body_case = TONY__FRAME__BODY_REFUSED;
        f.refused = &r;
        (void)conn_send(p->conn, &f); /* it is closed anyway */
        conn_finish(p->conn);
    } else {
        conn_close(p->conn);
    }
    peer_unlink(p);
}

void peers_close(struct master *m)
{
    while (m->peers) {
        conn_close(m->peers->conn);
        peer_unlink(m->peers);
    }
}

/* ---- updates ---- */

static const struct job *shown(const struct master *m)
{
    return m->stands ? m->stands->job : m->job;
}

static struct packed *update_pack(struct master *m)
{
    const struct job *job = shown(m);
    AUTO(buf_done) struct buf json = { .max = STATUS_MAX };
    if (master_status_json(m, false, false, &json) < 0)
        return NULL;
    struct job_verdict v;
    job_verdict(job, &v);
    Tony__JobUpdate u = TONY__JOB_UPDATE__INIT;
    u.application_id = m->application_id;
    u.state = MUTABLE(job_state_name(job_state(job)));
    u.json.data = (uint8_t *)json.p;
    u.json.len = json.len;
    u.finished = m->phase == MP_ENDING;
    u.exit_code = u.finished ? v.exit_code : 0;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_JOB_UPDATE;
    f.job_update = &u;
    return packed_new(&f);
}

static void update_all(struct master *m)
{
    struct packed *frame = NULL;
    for (struct peer *p = m->peers; p; p = p->next) {
        if (!p->follows)
            continue;
        if (!frame && !(frame = update_pack(m)))
            return;                             /* no memory: the next change tries again */
        (void)conn_send_packed(p->conn, frame); /* a broken one is told by its on_close */
    }
    packed_unref(frame);
}

void clients_notify(void *arg)
{
    struct master *m = arg;
    int64_t now = clock_mono_ms(), due = m->notified_ms + NOTIFY_MS;
    if (!m->dirty || m->phase != MP_RUNNING)
        return;
    if (now < due) {
        loop_timer_set(m->notify, due);
        return;
    }
    m->dirty = false;
    m->notified_ms = now;
    update_all(m);
}

void clients_tell_end(struct master *m)
{
    m->dirty = false;
    loop_timer_stop(m->notify);
    update_all(m);
}

void clients_let_go(struct master *m)
{
    for (struct peer *p = m->peers, *next; p; p = next) {
        next = p->next;
        if (!p->follows || conn_queued(p->conn)) /* its connection breaks when the master ends */
            continue;
        conn_finish(p->conn);
        peer_unlink(p);
    }
}

size_t clients_queued(const struct master *m)
{
    size_t n = 0;
    for (const struct peer *p = m->peers; p; p = p->next)
        if (p->follows)
            n += conn_queued(p->conn);
    return n;
}

/* ---- what clients ask ---- */

static void answer(struct peer *p, const struct buf *json)
{
    Tony__Answer a = TONY__ANSWER__INIT;
    a.json.data = (uint8_t *)json->p;
    a.json.len = json->len;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_ANSWER;
    f.answer = &a;
    (void)conn_send(p->conn, &f); /* a broken one is told by its on_close */
}

static void ask_status(struct peer *p)
{
    AUTO(buf_done) struct buf json = { .max = STATUS_MAX };
    if (master_status_json(p->m, true, false, &json) < 0)
        peer_refuse(p, ENOMEM, "no memory for the job's status");
    else
        answer(p, &json);
}

static void ask_follow(struct peer *p, bool own)
{
    struct master *m = p->m;
    p->follows = true;
    struct packed *frame = update_pack(m);
    if (frame)
        (void)conn_send_packed(p->conn, frame);
    packed_unref(frame);
    if (!own || p->owns)
        return;
    p->owns = true;
    if (m->n_owners++ == 0)
        (void)master_feed(m, &(struct job_event){ .type = EV_CLIENT_OWNS });
}

static void ask_stop(struct peer *p, const Tony__ClientAsk *a)
{
    struct master *m = p->m;
    log_event(LOG_INFO, "client.stop", f_str("who", a->who), f_str("reason", a->reason));
    (void)master_feed(m, &(struct job_event){
                             .type = EV_STOP,
                             .who = *a->who ? a->who : "a client",
                             .text = *a->reason ? a->reason : NULL,
                             .value_ms = a->checkpoint ? m->spec->checkpoint_grace_ms : 0,
                         });
    p->stop_asked = m->stop_answers = true;
}

void clients_answer_stops(struct master *m)
{
    m->stop_answers = false;
    AUTO(buf_done) struct buf json = { 0 };
    (void)buf_addf(&json, "{\"application_id\":\"%s\",\"state\":\"%s\"}", m->application_id,
                   job_state_name(job_state(m->job))); /* short: answer() sends what there is */
    for (struct peer *p = m->peers; p; p = p->next) {
        if (p->stop_asked)
            answer(p, &json);
        p->stop_asked = false;
    }
}

static void client_ask(struct peer *p, const Tony__ClientAsk *a)
{
    if (*a->application_id && !str_eq(a->application_id, p->m->application_id)) {
        peer_refuse(p, ENOENT, "this is the master of another job");
        return;
    }
    switch ((int)a->what) {
    case TONY__CLIENT_ASK__WHAT__STATUS:
        ask_status(p);
        break;
    case TONY__CLIENT_ASK__WHAT__FOLLOW:
        ask_follow(p, false);
        break;
    case TONY__CLIENT_ASK__WHAT__OWN:
        ask_follow(p, true);
        break;
    case TONY__CLIENT_ASK__WHAT__STOP:
        ask_stop(p, a);
        break;
    default:
        peer_refuse(p, EPROTO, "a master cannot answer this question: ask the pool");
    }
}

/* ---- connections ---- */

bool peer_may(const struct peer *p, const char *container)
{
    const char *who = conn_identity(p->conn);
    if (!*who) /* a unix socket: a process of ours */
        return true;
    if (!container)
        return str_eq(who, JOB_KEY_CLIENT);
    const char *its = job_key_container_of(who);
    return its && str_eq(its, container);
}

/* A key opens one door only: an executor's none of a client's, and no other executor's. */
static bool known(struct peer *p, const Tony__Frame *f)
{
    bool executor = f->body_case == TONY__FRAME__BODY_EXECUTOR_HELLO;
    if (peer_may(p, executor ? f->executor_hello->container_id : NULL))
        return true;
    log_event(LOG_WARN, "peer.refused", f_str("who", conn_identity(p->conn)),
              f_str("as", executor ? f->executor_hello->container_id : "a client"));
    peer_refuse(p, EACCES, "this key is not for that");
    return false;
}

static void on_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct peer *p = arg;
    (void)c; /* p->conn */
    if (p->m->phase == MP_GONE)
        return; /* whatever it is, it is the next master's to answer */
    if (p->kind == PEER_EXECUTOR) {
        executor_frame(p, f);
        return;
    }
    if (!known(p, f))
        return;
    switch ((int)f->body_case) {
    case TONY__FRAME__BODY_EXECUTOR_HELLO:
        if (p->kind == PEER_NEW)
            executor_hello(p, f);
        else
            peer_refuse(p, EPROTO, "a client is no executor");
        break;
    case TONY__FRAME__BODY_CLIENT_HELLO:
        if (f->client_hello->version != TONY__VERSION__PROTOCOL_VERSION)
            peer_refuse(p, EPROTO, "the client speaks another version of the protocol");
        else
            p->kind = PEER_CLIENT;
        break;
    case TONY__FRAME__BODY_CLIENT_ASK:
        p->kind = PEER_CLIENT;
        client_ask(p, f->client_ask);
        break;
    case TONY__FRAME__BODY_READ_LOG:
        p->kind = PEER_CLIENT;
        logs_ask(p, f->read_log);
        break;
    default:
        peer_refuse(p, EPROTO, "the first frame must be a hello");
    }
}

static void on_close(struct conn *c, const struct err *e, void *arg)
{
    struct peer *p = arg;
    struct master *m = p->m;
    (void)c; /* freed by the loop */
    if (e->num)
        log_event(LOG_DEBUG, "peer.broken", f_int("kind", p->kind), f_str("why", e->msg));
    if (p->kind == PEER_EXECUTOR)
        executor_gone(p, e->num && e->num != ESHUTDOWN);
    bool last_owner = p->owns && --m->n_owners == 0;
    peer_unlink(p);
    if (last_owner)
        (void)master_feed(m, &(struct job_event){ .type = EV_CLIENT_AWAY });
}

static const struct conn_ops peer_ops = { .on_frame = on_frame, .on_close = on_close };

void peer_take(struct master *m, struct conn *c)
{
    struct peer *p = calloc(1, sizeof *p);
    if (!p) {
        conn_close(c); /* it dials again */
        return;
    }
    *p = (struct peer){ .m = m, .conn = c, .kind = PEER_NEW, .next = m->peers };
    if (m->peers)
        m->peers->prev = p;
    m->peers = p;
    conn_set_arg(c, &peer_ops, p);
}

static void on_accept(struct conn *c, void *arg)
{
    peer_take(arg, c);
}

static bool key_of(const char *identity, struct tls_key *out, void *arg)
{
    const struct master *m = arg;
    const char *container = job_key_container_of(identity);
    if (container)
        job_key_container(m->remote->key, container, out);
    else if (str_eq(identity, JOB_KEY_CLIENT))
        *out = m->client_key;
    else
        return false;
    return out->len > 0;
}

int clients_listen(struct master *m, struct err *e)
{
    if (m->remote)
        return listener_open_tls(m->loop, m->remote->address, 0, key_of, on_accept, m, &m->listener,
                                 e);
    AUTO(free_p) char *path = paths_socket(m->paths, m->application_id, "m");
    if (!path)
        return err_set(e, errno ? errno : ENOMEM, "cannot name the master's socket: %m");
    return listener_open_unix(m->loop, path, on_accept, m, &m->listener, e);
}
