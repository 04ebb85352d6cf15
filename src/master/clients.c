/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connections of a master, and the requests of clients on them. The first frame of a connection
 * says whether its peer is an executor (executors.c) or a client.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "history/history.h"
#include "loop/tcp.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"
#include "storage/jobkey.h"
#include "storage/paths.h"
#include "storage/resizekey.h"

enum {
    NOTIFY_MS = 50,        /* a client that follows the job gets at most 20 updates a second */
    UPDATE_MAX = 24 << 20, /* bytes of a status document without tasks; it must fit into a frame */
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
    if (p->kind == PEER_CLIENT)
        log_watch_client_gone(p);
    vec_done(&p->metric_names);
    free(p);
}

/* The connection has ended. If the client was the last one that owns the job, the job has no owner
 * now. */
static void peer_gone(struct peer *p)
{
    struct master *m = p->m;
    bool last_owner = p->owns && --m->n_owners == 0;
    peer_unlink(p);
    if (last_owner)
        (void)master_feed(m, &(struct job_event){ .type = EV_CLIENT_AWAY });
}

/* End the connection, and free p. message: sent before; may be NULL. */
static void refuse(struct peer *p, int num, const char *message, const char *hint)
{
    if (message) {
        Tony__Refused r = TONY__REFUSED__INIT;
        r.num = (uint32_t)num;
        r.message = MUTABLE(message);
        r.hint = MUTABLE(hint);
        Tony__Frame f = TONY__FRAME__INIT;
        f.body_case = TONY__FRAME__BODY_REFUSED;
        f.refused = &r;
        (void)conn_send(p->conn, &f); /* an error does not matter: conn_finish() follows */
        conn_finish(p->conn);
    } else {
        conn_close(p->conn);
    }
    peer_gone(p);
}

struct conn *peer_detach(struct peer *p)
{
    struct conn *conn = p->conn;
    peer_gone(p);
    return conn;
}

void peer_refuse(struct peer *p, int num, const char *message)
{
    refuse(p, num, message, "");
}

void peers_close(struct master *m)
{
    while (m->peers) {
        conn_close(m->peers->conn);
        peer_unlink(m->peers);
    }
}

/* ---- updates ---- */

/* The job that clients are shown. A verdict must be in the journal before anybody is told of it. So
 * if the verdict cannot be written, clients are shown the job that the journal on disk describes
 * (blocked_load_job_on_disk()). */
static const struct job *shown_job(const struct master *m)
{
    return m->job_on_disk ? m->job_on_disk->job : m->job;
}

static struct packed *update_pack(struct master *m)
{
    const struct job *job = shown_job(m);
    AUTO(buf_done) struct buf json = { .max = UPDATE_MAX };
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
        (void)conn_send_packed(p->conn, frame); /* on_close() handles a broken connection */
    }
    packed_unref(frame);
}

void clients_notify(void *arg)
{
    struct master *m = arg;
    int64_t now = clock_mono_ms(), due = m->notified_ms + NOTIFY_MS;
    if (!m->update_due || m->phase != MP_RUNNING)
        return;
    if (now < due) {
        loop_timer_set(m->notify_timer, due);
        return;
    }
    m->update_due = false;
    m->notified_ms = now;
    /* If the timer is due between an event and master_flush(), the job in memory may have a verdict
     * that is not in the journal yet. */
    blocked_load_job_on_disk(m);
    update_all(m);
}

void clients_send_final_update(struct master *m)
{
    m->update_due = false;
    loop_timer_stop(m->notify_timer);
    update_all(m);
}

void clients_disconnect_followers(struct master *m)
{
    for (struct peer *p = m->peers, *next; p; p = next) {
        next = p->next;
        if (!p->follows || conn_queued(p->conn)) /* master_close() closes the others */
            continue;
        conn_finish(p->conn);
        peer_unlink(p);
    }
}

size_t clients_unsent_bytes(const struct master *m)
{
    size_t n = 0;
    for (const struct peer *p = m->peers; p; p = p->next)
        if (p->follows)
            n += conn_queued(p->conn);
    return n;
}

/* ---- requests of clients ---- */

static void answer(struct peer *p, const struct buf *json)
{
    (void)conn_send_answer(p->conn, buf_span(json)); /* on_close() handles a broken connection */
}

static void ask_status(struct peer *p)
{
    AUTO(buf_done) struct buf json = { .max = JOB_STATUS_MAX };
    int rc = master_status_json(p->m, true, false, &json);
    if (rc == -EMSGSIZE)
        refuse(p, EMSGSIZE,
               "the status of all tasks of this job is longer than tony sends (192 MiB)",
               "'tony list' shows the job without its tasks");
    else if (rc < 0)
        peer_refuse(p, ENOMEM, "no memory for the job's status");
    else
        answer(p, &json);
}

/* as_owner: if this client and all other owners disconnect, the core stops the job after a time. */
static void ask_follow(struct peer *p, bool as_owner)
{
    struct master *m = p->m;
    p->follows = true;
    struct packed *frame = update_pack(m);
    if (frame)
        (void)conn_send_packed(p->conn, frame);
    packed_unref(frame);
    if (!as_owner || p->owns)
        return;
    p->owns = true;
    if (m->n_owners++ == 0)
        (void)master_feed(m, &(struct job_event){ .type = EV_CLIENT_OWNS });
}

static void ask_stop(struct peer *p, const Tony__ClientAsk *a)
{
    struct master *m = p->m;
    log_event(LOG_INFO, "client.stop", f_str("who", a->who), f_str("reason", a->reason));
    (void)master_feed(
        m, &(struct job_event){
               .type = EV_STOP,
               .stop = { .who = *a->who ? a->who : "a client",
                         .why = *a->reason ? a->reason : NULL,
                         .save_ms = a->checkpoint ? m->spec->checkpoint_grace_ms : 0 } });
    p->stop_answer_due = m->stop_answers_due = true;
}

void clients_answer_stops(struct master *m)
{
    m->stop_answers_due = false;
    AUTO(buf_done) struct buf json = { 0 };
    (void)buf_addf(&json, "{\"application_id\":\"%s\",\"state\":\"%s\"}", m->application_id,
                   job_state_name(job_state(m->job))); /* no memory: an empty answer is sent */
    for (struct peer *p = m->peers; p; p = p->next) {
        if (p->stop_answer_due)
            answer(p, &json);
        p->stop_answer_due = false;
    }
}

static bool is_this_job(struct peer *p, const char *application_id)
{
    if (!*application_id || str_eq(application_id, p->m->application_id))
        return true;
    peer_refuse(p, ENOENT, "this is the master of another job");
    return false;
}

/* ---- a resize ---- */

static int refuse_role(const struct job_spec *s, const char *name, struct err *e)
{
    const char *names[64];
    size_t n = MIN(s->n_roles, ARRAY_LEN(names));
    for (size_t i = 0; i < n; i++)
        names[i] = s->roles[i].name;
    const char *near = str_nearest(name, names, n);
    (void)err_set(e, ENOENT, "the job has no role '%.64s'", name);
    if (near)
        err_hint(e, "did you mean '%s'?", near);
    return -ENOENT;
}

/* Write the targets as the core reads them: worker=8,ps=2. The client may be a foreign program, so
 * all of the request is checked. */
static int resize_targets(const struct job_spec *s, const Tony__ResizeJob *a, struct buf *out,
                          struct err *e)
{
    int rc = 0;
    if (a->n_roles == 0)
        return err_set(e, EINVAL, "the request for a resize names no role");
    if (s->single_node)
        return err_set(e, EINVAL, "a job without roles has one task and cannot be resized");
    for (size_t i = 0; i < a->n_roles && rc == 0; i++) {
        const Tony__RoleSize *r = a->roles[i];
        const struct role_spec *role = job_spec_role(s, r->role);
        if (!role || role == &s->am)
            return refuse_role(s, r->role, e);
        for (size_t k = 0; k < i; k++)
            if (str_eq(a->roles[k]->role, r->role))
                return err_set(e, EINVAL, "the request for a resize names role '%s' twice",
                               r->role);
        rc = buf_addf(out, "%s%s=%u", i ? "," : "", r->role, r->instances);
    }
    return rc < 0 ? err_set(e, -rc, "no memory to resize the job") : 0;
}

int clients_feed_resize(struct master *m, const Tony__ResizeJob *a, struct err *e)
{
    AUTO(buf_done) struct buf targets = { 0 };
    int rc = resize_targets(m->spec, a, &targets, e);
    if (rc < 0)
        return rc;
    struct job_event ev = { .type = EV_RESIZE,
                            .resize = { .who = *a->who ? a->who : "a client",
                                        .why = *a->reason ? a->reason : NULL,
                                        .targets = buf_cstr(&targets),
                                        .within_ms = (int64_t)MIN(a->within_ms,
                                                                  (uint64_t)INT32_MAX * 1000) } };
    rc = master_feed_asked(m, &ev, e);
    return rc == 1 ? -(e->num ? e->num : EINVAL) : rc;
}

static int check_may_resize(const struct master *m, struct err *e)
{
    if (m->phase == MP_STARTING)
        return err_set(e, EAGAIN, "the job's master is starting; ask again");
    if (m->blocked_why)
        return err_set(e, EAGAIN, "the job cannot be resized now: %s", m->blocked_why);
    return 0;
}

static int feed_resize(struct master *m, const Tony__ResizeJob *a, struct err *e)
{
    int rc = check_may_resize(m, e);
    return rc < 0 ? rc : clients_feed_resize(m, a, e);
}

static void ask_resize(struct peer *p, const Tony__ResizeJob *a)
{
    struct err e = { 0 };
    log_event(LOG_INFO, "client.resize", f_str("who", a->who), f_str("reason", a->reason));
    if (feed_resize(p->m, a, &e) < 0) {
        log_err(LOG_INFO, "resize.refused", &e);
        refuse(p, e.num ? e.num : EIO, e.msg, e.hint);
        return;
    }
    p->resize_answer_due = p->m->resize_answers_due = true;
}

void clients_answer_resizes(struct master *m)
{
    m->resize_answers_due = false;
    AUTO(buf_done) struct buf json = { 0 };
    int rc = job_resize_json(shown_job(m), &json);
    for (struct peer *p = m->peers, *next; p; p = next) {
        next = p->next;
        bool asked = p->resize_answer_due;
        p->resize_answer_due = false;
        if (asked && rc < 0)
            peer_refuse(p, ENOMEM, "no memory for the job's status");
        else if (asked)
            answer(p, &json);
    }
}

/* ---- an arbiter ---- */

static void ask_share(struct peer *p)
{
    AUTO(buf_done) struct buf json = { .max = UPDATE_MAX };
    if (share_json(p->m, &json) < 0)
        peer_refuse(p, ENOMEM, "no memory for the share of the job");
    else
        answer(p, &json);
}

/* An arbiter asks the job to have fewer containers, or allows it to have more. */
static void ask_wish(struct peer *p, const Tony__SizeWish *a)
{
    struct err e = { 0 };
    AUTO(buf_done) struct buf json = { 0 };
    if (!a) {
        peer_refuse(p, EPROTO, "the request names no number of containers");
        return;
    }
    int rc = check_may_resize(p->m, &e);
    if (rc == 0)
        rc = share_wish(p->m, a, &e);
    if (rc < 0) {
        refuse(p, e.num ? e.num : EIO, e.msg, e.hint);
        return;
    }
    (void)buf_addf(&json, "{\"application_id\":\"%s\"}", p->m->application_id);
    answer(p, &json);
}

static void ask_metrics(struct peer *p)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct err e = { 0 };
    if (metrics_file_text(p->m, &text, &e) < 0)
        refuse(p, e.num ? e.num : EIO, e.msg, e.hint);
    else
        answer(p, &text);
}

static void ask_metrics_text(struct peer *p)
{
    AUTO(buf_done) struct buf text = { .max = JOB_STATUS_MAX };
    if (metrics_text(p->m, true, &text) < 0)
        peer_refuse(p, ENOMEM, "no memory for the metrics of the job");
    else
        answer(p, &text);
}

static void ask_journal(struct peer *p, const Tony__ClientAsk *a)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct err e = { 0 };
    if (events_answer(p->m, a, &text, &e) < 0)
        refuse(p, e.num ? e.num : EIO, e.msg, e.hint);
    else
        answer(p, &text);
}

static void client_ask(struct peer *p, const Tony__ClientAsk *a)
{
    if (!is_this_job(p, a->application_id))
        return;
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
    case TONY__CLIENT_ASK__WHAT__WISH:
        ask_wish(p, a->wish);
        break;
    case TONY__CLIENT_ASK__WHAT__METRICS:
        ask_metrics(p);
        break;
    case TONY__CLIENT_ASK__WHAT__METRICS_TEXT:
        ask_metrics_text(p);
        break;
    case TONY__CLIENT_ASK__WHAT__JOURNAL:
        ask_journal(p, a);
        break;
    case TONY__CLIENT_ASK__WHAT__SHARE:
        ask_share(p);
        break;
    default:
        peer_refuse(p, EPROTO, "a master cannot answer this request; only the pool can");
    }
}

/* ---- connections ---- */

/* Is this frame one of those that a holder of the resize key may send? */
static bool is_of_arbiter(const Tony__Frame *f)
{
    if (f->body_case == TONY__FRAME__BODY_CLIENT_HELLO)
        return true;
    return f->body_case == TONY__FRAME__BODY_CLIENT_ASK &&
           (f->client_ask->what == TONY__CLIENT_ASK__WHAT__SHARE ||
            f->client_ask->what == TONY__CLIENT_ASK__WHAT__WISH);
}

/* May the peer send this frame? The key of an executor allows it only to speak for its own
 * container. The key of the client allows its holder only to act as a client. The resize key allows
 * only the two requests of an arbiter. */
static bool is_allowed(const char *identity, const Tony__Frame *f)
{
    const char *proved = job_key_container_of(identity);
    if (!*identity) /* a unix socket: only processes of this user can connect */
        return true;
    if (f->body_case == TONY__FRAME__BODY_EXECUTOR_HELLO)
        return proved && str_eq(proved, f->executor_hello->container_id);
    if (f->body_case == TONY__FRAME__BODY_STREAM_HELLO)
        return proved && str_eq(proved, f->stream_hello->container_id);
    return str_eq(identity, JOB_KEY_CLIENT) ||
           (str_eq(identity, RESIZE_KEY_ARBITER) && is_of_arbiter(f));
}

static bool check_allowed(struct peer *p, const Tony__Frame *f)
{
    bool executor = f->body_case == TONY__FRAME__BODY_EXECUTOR_HELLO;
    if (is_allowed(conn_identity(p->conn), f))
        return true;
    log_event(LOG_WARN, "peer.refused", f_str("who", conn_identity(p->conn)),
              f_str("as", executor ? f->executor_hello->container_id : "a client"));
    peer_refuse(p, EACCES, "the key of this connection does not allow that");
    return false;
}

static void on_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct peer *p = arg;
    (void)c; /* p->conn */
    if (p->m->phase == MP_EXITING)
        return; /* the peer repeats it to the next master, if there is one */
    if (p->kind == PEER_EXECUTOR) {
        executor_frame(p, f);
        return;
    }
    if (!check_allowed(p, f))
        return;
    switch ((int)f->body_case) {
    case TONY__FRAME__BODY_EXECUTOR_HELLO:
        if (p->kind == PEER_NEW)
            executor_hello(p, f);
        else
            peer_refuse(p, EPROTO, "a client cannot become an executor on the same connection");
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
    case TONY__FRAME__BODY_RESIZE_JOB:
        p->kind = PEER_CLIENT;
        if (is_this_job(p, f->resize_job->application_id))
            ask_resize(p, f->resize_job);
        break;
    case TONY__FRAME__BODY_READ_LOG:
        p->kind = PEER_CLIENT;
        logs_ask(p, f->read_log);
        break;
    case TONY__FRAME__BODY_WATCH_LOGS:
        p->kind = PEER_CLIENT;
        log_watch_begin(p, f->watch_logs);
        break;
    case TONY__FRAME__BODY_OPEN_STREAM:
        p->kind = PEER_CLIENT;
        if (is_this_job(p, f->open_stream->application_id))
            streams_open(p, f->open_stream);
        break;
    case TONY__FRAME__BODY_STREAM_HELLO:
        if (p->kind == PEER_NEW)
            streams_hello(p, f->stream_hello);
        else
            peer_refuse(p, EPROTO, "a client cannot become a stream on the same connection");
        break;
    default:
        peer_refuse(p, EPROTO, "the first frame must be a hello");
    }
}

static void on_close(struct conn *c, const struct err *e, void *arg)
{
    struct peer *p = arg;
    (void)c; /* the loop frees it */
    if (e->num)
        log_event(LOG_DEBUG, "peer.broken", f_int("kind", p->kind), f_str("why", e->msg));
    if (p->kind == PEER_EXECUTOR)
        executor_disconnected(p, e->num && e->num != ESHUTDOWN);
    peer_gone(p);
}

static const struct conn_ops peer_ops = { .on_frame = on_frame, .on_close = on_close };

void peer_new(struct master *m, struct conn *c)
{
    struct peer *p = calloc(1, sizeof *p);
    if (!p) {
        conn_close(c); /* the peer reconnects */
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
    peer_new(arg, c);
}

/* The key that a peer with this TLS identity must prove. */
static bool find_key(const char *identity, struct tls_key *out, void *arg)
{
    const struct master *m = arg;
    const char *container = job_key_container_of(identity);
    if (container)
        job_key_container(m->remote->key, container, out);
    else if (str_eq(identity, JOB_KEY_CLIENT))
        *out = m->client_key;
    else if (str_eq(identity, RESIZE_KEY_ARBITER))
        *out = m->remote->resize_key;
    else
        return false;
    return out->len > 0;
}

static int open_at(void *arg, uint16_t port, struct err *e)
{
    struct master *m = arg;
    return listener_open_tls(m->loop, m->remote->address, port, find_key, on_accept, m,
                             &m->listener, e);
}

int clients_listen(struct master *m, struct err *e)
{
    if (m->remote)
        return tcp_open_among(m->spec->port_first, m->spec->port_last, open_at, m, e);
    AUTO(free_p) char *path = paths_socket(m->paths, m->application_id, "m");
    if (!path)
        return err_set(e, errno ? errno : ENOMEM, "cannot name the master's socket: %m");
    return listener_open_unix(m->loop, path, on_accept, m, &m->listener, e);
}

void clients_listen_again(void *arg)
{
    struct master *m = arg;
    struct err e = { 0 };
    int rc = m->remote ? 0 : paths_renew_runtime(m->paths, &e);
    AUTO(free_p) char *path = paths_socket(m->paths, m->application_id, "m");
    if (m->remote || !m->listener || (rc == 0 && path && access(path, F_OK) == 0))
        return;
    if (rc >= 0) {
        listener_close(TAKE(m->listener)); /* before the new one: it removes the old socket */
        rc = clients_listen(m, &e);
    }
    if (rc < 0)
        log_err(LOG_ERROR, "master.socket", &e);
    else
        log_event(LOG_WARN, "master.socket_renewed", f_str("dir", m->paths->runtime));
}
