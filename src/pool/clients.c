/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "codec/json.h"
#include "history/history.h"
#include "job/job.h"
#include "loop/loop.h"
#include "pool/pool_int.h"
#include "proto/tony.pb-c.h"

enum {
    /* If jobs run when a client wants to stop the pool, wait this long before refusing: they may be
     * about to end. */
    STOP_PATIENCE_MS = 1000,
    /* If a job has more containers, the pool does not replay its journal for the last update: that
     * would block the loop, so the client reads the history itself. */
    REPLAY_MAX = 256,
};

/* ---- answers ---- */

static void send(struct pool_client *c, const Tony__Frame *f)
{
    int rc = c->conn ? conn_send(c->conn, f) : 0;
    if (rc < 0)
        log_event(LOG_WARN, "client.send", f_str("client", c->program),
                  f_int("rc", rc)); /* on_close() follows */
}

static void refuse(struct pool_client *c, const struct err *e)
{
    Tony__Refused r = TONY__REFUSED__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    r.num = (uint32_t)e->num;
    r.message = (char *)e->msg;
    r.hint = (char *)e->hint;
    f.body_case = TONY__FRAME__BODY_REFUSED;
    f.refused = &r;
    send(c, &f);
}

static void refuse_unknown(struct pool_client *c, const char *id)
{
    struct err e = { 0 };
    (void)err_set(&e, ENOENT, "no job '%s' waits or runs", id);
    (void)err_hint(&e, "tony list shows the jobs that wait or run");
    refuse(c, &e);
}

static void refuse_rc(struct pool_client *c, int rc, const char *what)
{
    struct err e = { 0 };
    (void)err_set(&e, -rc, "cannot %s: %m", what);
    refuse(c, &e);
}

#define OTHER_VERSION                                                                              \
    "tony was replaced while the pool ran; when no job runs, end the pool: tony pool stop"

static void refuse_text(struct pool_client *c, int num, const char *text, const char *hint)
{
    struct err e = { 0 };
    (void)err_set(&e, num, "%s", text);
    if (hint)
        (void)err_hint(&e, "%s", hint);
    refuse(c, &e);
}

static void answer(struct pool_client *c, const struct buf *json)
{
    int rc = c->conn ? conn_send_answer(c->conn, buf_span(json)) : 0;
    if (rc < 0)
        log_event(LOG_WARN, "client.send", f_str("client", c->program),
                  f_int("rc", rc)); /* on_close() follows */
}

static void answer_text(struct pool_client *c, const char *json)
{
    answer(c, &(struct buf){ .p = (char *)json, .len = strlen(json) });
}

/* ---- updates ---- */

static int build_update(const struct pool_job *j, Tony__JobUpdate *u, struct buf *json)
{
    bool waiting = j->phase == PH_WAITING;
    *u = (Tony__JobUpdate)TONY__JOB_UPDATE__INIT;
    int rc = waiting ? report_waiting(j, false, json) : report_starting(j, json);
    u->application_id = (char *)j->id;
    u->state = (char *)(waiting ? "WAITING" : "STARTING");
    u->json = (ProtobufCBinaryData){ .data = (uint8_t *)json->p, .len = json->len };
    if (!waiting)
        u->master_socket = j->master_socket;
    return rc;
}

static void send_update(struct pool_client *c, const struct pool_job *j)
{
    AUTO(buf_done) struct buf json = { 0 };
    Tony__JobUpdate u;
    Tony__Frame f = TONY__FRAME__INIT;
    int rc = build_update(j, &u, &json);
    if (rc < 0) {
        refuse_rc(c, rc, "show the state of the job");
        return;
    }
    f.body_case = TONY__FRAME__BODY_JOB_UPDATE;
    f.job_update = &u;
    send(c, &f);
}

void clients_tell(struct pool_job *j)
{
    for (struct pool_client *c = j->pool->clients; c; c = c->next)
        if (c->job == j && c->follows)
            send_update(c, j);
}

/* Send the verdict of a finished job, read from its history. -errno: it cannot be read. */
static int send_end(struct pool_client *c, const char *id)
{
    struct pool *p = c->pool;
    AUTO(free_p) char *dir = NULL;
    AUTO(json_freep) json_t *doc = NULL;
    _Bool live = false;
    struct err e = { 0 };
    int rc = paths_find_job(&p->paths, id, &dir, &live, &e);
    if (rc == 0 && live)
        rc = -ENOENT;
    if (rc == 0)
        rc = history_status_brief(dir, &doc, &e); /* followers get the status without the tasks */
    if (rc < 0)
        return rc;
    AUTO(free_p) char *json = json_dumps(doc, JSON_COMPACT);
    if (!json)
        return -ENOMEM;
    Tony__JobUpdate u = TONY__JOB_UPDATE__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    u.application_id = (char *)id;
    u.state = (char *)(uintptr_t)json_str(doc, "state", "");
    u.json = (ProtobufCBinaryData){ .data = (uint8_t *)json, .len = strlen(json) };
    u.finished = true;
    u.exit_code = (int32_t)json_int(doc, "exit_code", 1);
    f.body_case = TONY__FRAME__BODY_JOB_UPDATE;
    f.job_update = &u;
    send(c, &f);
    return 0;
}

void clients_tell_end(struct pool_job *j)
{
    bool cheap = !j->was_admitted || j->n_containers <= REPLAY_MAX;
    for (struct pool_client *c = j->pool->clients; c; c = c->next)
        if (c->job == j && c->follows && (!cheap || send_end(c, j->id) < 0))
            refuse_unknown(c, j->id); /* the client then reads the history itself */
}

/* ---- owners ---- */

static bool job_has_owner(const struct pool_job *j)
{
    for (const struct pool_client *c = j->pool->clients; c; c = c->next)
        if (c->job == j && c->owns)
            return true;
    return false;
}

static void on_owner_away(void *arg)
{
    struct pool_job *j = arg;
    if (j->phase != PH_WAITING || job_has_owner(j))
        return;
    struct job_event ev = { .type = EV_STOP,
                            .stop = { .who = "pool", .why = "its client has disconnected" } };
    pool_job_abort(j, &ev);
}

/* Does nothing for running jobs: their masters watch for absent clients themselves. */
void clients_owner_gone(struct pool_job *j)
{
    if (j->phase != PH_WAITING || !j->owned || j->client_away_ms < 0 || job_has_owner(j))
        return;
    if (!j->away)
        j->away = loop_timer_new(j->pool->loop, on_owner_away, j);
    if (j->away)
        loop_timer_set(j->away, clock_mono_ms() + j->client_away_ms);
}

static void set_owned(struct pool_job *j)
{
    if (j->owned)
        return;
    j->owned = true;
    int rc = submit_mark_owned(j);
    if (rc < 0)
        log_event(LOG_WARN, "job.owned", f_str("job", j->id),
                  f_int("rc", rc)); /* the master then only learns of owners that connect to it */
}

/* ---- submitting ---- */

static void clients_submitted(struct submission *s, const struct err *e);

static int sync_work(void *arg)
{
    return submission_sync(arg);
}

static void sync_done(void *arg, int rc)
{
    struct submission *s = arg;
    if (rc < 0 && !s->e.num)
        (void)err_set(&s->e, -rc, "the pool cannot accept the job: %m");
    if (!s->pool->ended)
        clients_submitted(s, &s->e);
    submission_free(s);
}

static void on_submit(struct pool_client *c, const Tony__Submit *m)
{
    struct err e = { 0 };
    struct submission *s = NULL;
    struct pool *p = c->pool;
    int rc = 0;
    if (m->version != TONY__VERSION__PROTOCOL_VERSION) {
        (void)err_set(&e, EPROTO,
                      "the pool is of another version (%s) than the program that submits",
                      TONY_VERSION);
        rc = err_hint(&e, OTHER_VERSION);
    } else if (c->submission)
        rc = err_set(&e, EBUSY, "one submission of this connection is under way already");
    if (rc == 0)
        rc = submit(p, span_mem(m->conf.data, m->conf.len),
                    span_mem(m->secrets.data, m->secrets.len), m->owned, &s, &e);
    if (rc < 0) {
        log_err(LOG_INFO, "submit.refused", &e);
        refuse(c, &e);
        return;
    }
    log_event(LOG_INFO, "job.submitted", f_str("job", s->id), f_str("client", c->program));
    s->client = c;
    c->submission = s;
    c->job = pool_job_find(p, s->id);
    c->owns = m->owned;
    c->follows = false;
    p->n_submissions++;
    /* Write to disk on a thread, while pool_admit() starts the job's processes. */
    rc = loop_work(p->loop, sync_work, sync_done, s);
    pool_admit(p);
    if (rc < 0)
        sync_done(s, submission_sync(s));
}

static void take_back(struct pool *p, const struct submission *s)
{
    struct pool_job *j = pool_job_find(p, s->id);
    if (j && pool_job_admitted(j)) {
        keeper_stop_job(j, "the disk");
    } else if (j) {
        pool_job_remove(j);
        (void)fs_remove_tree(AT_FDCWD, s->dir,
                             NULL); /* if this fails, the next pool will find the job and run it */
        pool_admit(p);
    }
}

/* The submission is on the disk (e->num 0), or has failed: answer the client. */
static void clients_submitted(struct submission *s, const struct err *e)
{
    struct pool *p = s->pool;
    struct pool_client *c = s->client;
    p->n_submissions--;
    if (c)
        c->submission = NULL;
    if (e->num) {
        log_err(LOG_ERROR, "submit.sync", e);
        if (c)
            refuse(c, e);
        take_back(p, s);
    } else if (c) {
        Tony__Submitted m = TONY__SUBMITTED__INIT;
        Tony__Frame f = TONY__FRAME__INIT;
        m.application_id = s->id;
        m.job_dir = s->dir;
        f.body_case = TONY__FRAME__BODY_SUBMITTED;
        f.submitted = &m;
        send(c, &f);
    }
    pool_prepare_in(p, PREPARE_MS);
    pool_check_idle(p);
}

/* ---- resizing ---- */

static void on_resize(struct pool_client *c, const Tony__ResizeJob *m)
{
    struct err e = { 0 };
    if (resize_waiting(c, m, &e) == 0)
        return;
    log_err(LOG_INFO, "resize.refused", &e);
    refuse(c, &e);
}

void clients_resized(struct resizing *r, const struct err *e)
{
    struct pool_client *c = r->client;
    r->pool->n_submissions--;
    if (c && e->num) {
        refuse(c, e);
    } else if (c) {
        AUTO(buf_done) struct buf json = { 0 };
        (void)buf_addf(&json, "{\"application_id\":\"%s\",\"resized\":true}", r->id);
        answer(c, &json);
    }
    pool_check_idle(r->pool);
}

/* For tests and operators: no command of tony sends this request. */
static void on_wish(struct pool_client *c, const Tony__ClientAsk *ask)
{
    struct pool_job *j = pool_job_find(c->pool, ask->application_id);
    const Tony__SizeWish *w = ask->wish;
    struct err e = { 0 };
    if (!j)
        refuse_unknown(c, ask->application_id);
    else if (!w)
        refuse_text(c, EINVAL, "the request names no size", NULL);
    else if (pool_job_wish(j, w->grow, w->n_containers,
                           (int64_t)MIN(w->deadline_ms, (uint64_t)INT64_MAX), w->saved, w->why,
                           &e) < 0)
        refuse(c, &e);
    else
        answer_text(c, "{\"told\":true}");
}

/* ---- the policy ---- */

/* Answers POLICY_SET and POLICY_WHY. */
static void on_policy(struct pool_client *c, const Tony__ClientAsk *ask)
{
    AUTO(buf_done) struct buf json = { 0 };
    struct err e = { 0 };
    bool why = ask->what == TONY__CLIENT_ASK__WHAT__POLICY_WHY, set = !why && ask->n_settings > 0;
    if (set && sharing_conf_set(c->pool, ask->settings, ask->n_settings, &e) < 0) {
        refuse(c, &e);
        return;
    }
    int rc = why ? sharing_report(c->pool, ask->application_id, &json)
                 : sharing_conf_report(c->pool, &json);
    if (rc < 0)
        refuse_rc(c, rc, "describe the policy");
    else
        answer(c, &json);
    if (set)
        pool_admit(c->pool);
}

/* ---- asking ---- */

static void on_follow(struct pool_client *c, const Tony__ClientAsk *ask)
{
    struct pool_job *j = pool_job_find(c->pool, ask->application_id);
    bool as_owner = ask->what == TONY__CLIENT_ASK__WHAT__OWN;
    if (!j) {
        if (send_end(c, ask->application_id) < 0)
            refuse_unknown(c, ask->application_id);
        return;
    }
    c->owns = as_owner || (c->owns && c->job == j); /* the submitter of j remains its owner */
    c->job = j;
    c->follows = true;
    if (as_owner && j->phase == PH_WAITING) {
        set_owned(j);
        if (j->away)
            loop_timer_stop(j->away);
    }
    send_update(c, j);
}

static void on_status(struct pool_client *c, const Tony__ClientAsk *ask)
{
    struct pool_job *j = pool_job_find(c->pool, ask->application_id);
    if (!j) {
        refuse_unknown(c, ask->application_id);
    } else if (j->phase == PH_WAITING) {
        AUTO(buf_done) struct buf json = { .max = JOB_STATUS_MAX };
        int rc = report_waiting(j, true, &json);
        if (rc < 0)
            refuse_rc(c, rc, "show the state of the job");
        else
            answer(c, &json);
    } else {
        send_update(c, j); /* it names the master's socket; the master has the full status */
    }
}

static void on_stop(struct pool_client *c, const Tony__ClientAsk *ask)
{
    struct pool_job *j = pool_job_find(c->pool, ask->application_id);
    if (!j) {
        refuse_unknown(c, ask->application_id);
        return;
    }
    if (pool_job_admitted(j)) {
        send_update(c, j); /* it names the master's socket: the client sends the stop there */
        return;
    }
    struct job_event ev = { .type = EV_STOP, .stop = { .who = ask->who, .why = ask->reason } };
    pool_job_abort(j, &ev);
    answer_text(c, "{\"state\":\"KILLED\"}");
}

static void refuse_stop(struct pool_client *c)
{
    const struct pool *p = c->pool;
    struct err e = { 0 };
    AUTO(buf_done) struct buf names = { 0 };
    for (size_t i = 0; i < p->jobs.n && i < 3; i++)
        (void)buf_addf(&names, "%s%s", i ? ", " : "", p->jobs.v[i]->id);
    (void)err_set(&e, EBUSY, "%zu %s: %s%s", p->jobs.n,
                  p->jobs.n == 1 ? "job waits or runs" : "jobs wait or run", buf_cstr(&names),
                  p->jobs.n > 3 ? ", ..." : "");
    (void)err_hint(&e, "wait for their end, or kill them: tony pool stop --force");
    refuse(c, &e);
}

static bool has_waiting(const struct pool *p)
{
    for (size_t i = 0; i < p->jobs.n; i++)
        if (p->jobs.v[i]->phase == PH_WAITING)
            return true;
    return false;
}

static void on_pool_stop(struct pool_client *c, const Tony__ClientAsk *ask)
{
    struct pool *p = c->pool;
    bool busy = p->jobs.n > 0 || p->n_submissions > 0;
    if (busy && !ask->force && has_waiting(p)) {
        refuse_stop(c);
    } else if (busy && !ask->force) {
        /* A job stays live for a moment after its client has got the verdict, until its directory
         * is in history. So wait before refusing. */
        c->stop_by_ms = clock_mono_ms() + STOP_PATIENCE_MS;
        loop_timer_set(p->patience, c->stop_by_ms);
    } else {
        log_event(LOG_INFO, "pool.stop", f_str("who", ask->who), f_int("jobs", (int64_t)p->jobs.n));
        c->waits_for_stop = true;
        pool_stop(p, ask->who[0] ? ask->who : c->program);
    }
}

void clients_patience(void *arg)
{
    struct pool *p = arg;
    for (struct pool_client *c = p->clients; c; c = c->next) {
        if (c->stop_by_ms == 0 || c->stop_by_ms > clock_mono_ms())
            continue;
        c->stop_by_ms = 0;
        refuse_stop(c);
    }
}

bool clients_want_stop(struct pool *p)
{
    bool any = false;
    for (struct pool_client *c = p->clients; c; c = c->next) {
        if (c->stop_by_ms == 0)
            continue;
        c->stop_by_ms = 0;
        c->waits_for_stop = any = true;
    }
    return any;
}

static void on_ask(struct pool_client *c, const Tony__ClientAsk *ask)
{
    AUTO(buf_done) struct buf json = { 0 };
    int rc = 0;
    switch (ask->what) {
    case TONY__CLIENT_ASK__WHAT__STATUS:
        on_status(c, ask);
        return;
    case TONY__CLIENT_ASK__WHAT__FOLLOW:
    case TONY__CLIENT_ASK__WHAT__OWN:
        on_follow(c, ask);
        return;
    case TONY__CLIENT_ASK__WHAT__STOP:
        on_stop(c, ask);
        return;
    case TONY__CLIENT_ASK__WHAT__POOL_STOP:
        on_pool_stop(c, ask);
        return;
    case TONY__CLIENT_ASK__WHAT__POOL_STATUS:
    case TONY__CLIENT_ASK__WHAT__POOL_JOBS:
        rc = report_pool(c->pool, ask->what == TONY__CLIENT_ASK__WHAT__POOL_STATUS, &json);
        if (rc < 0)
            refuse_rc(c, rc, "describe the pool");
        else
            answer(c, &json);
        return;
    case TONY__CLIENT_ASK__WHAT__WISH:
        on_wish(c, ask);
        return;
    case TONY__CLIENT_ASK__WHAT__POLICY_SET:
    case TONY__CLIENT_ASK__WHAT__POLICY_WHY:
        on_policy(c, ask);
        return;
    case TONY__CLIENT_ASK__WHAT__QUEUE:
        rc = report_queue(c->pool, &json);
        if (rc < 0)
            refuse_rc(c, rc, "describe the queue");
        else
            answer(c, &json);
        return;
    case TONY__CLIENT_ASK__WHAT__SHARE: /* only of a master */
    case TONY__CLIENT_ASK__WHAT__METRICS_TEXT:
    case TONY__CLIENT_ASK__WHAT__METRICS:
    case TONY__CLIENT_ASK__WHAT__JOURNAL:
    case TONY__CLIENT_ASK__WHAT__NONE:
    case _TONY__CLIENT_ASK__WHAT_IS_INT_SIZE:
    default: /* a request that only newer versions know */
        refuse_text(c, EOPNOTSUPP, "the pool of tony " TONY_VERSION " does not know this request",
                    OTHER_VERSION);
    }
}

static void on_hello(struct pool_client *c, const Tony__ClientHello *hello)
{
    (void)str_copy(c->program, sizeof c->program, hello->program); /* for the log: may be cut */
    if (hello->version == TONY__VERSION__PROTOCOL_VERSION)
        return;
    struct err e = { 0 };
    (void)err_set(&e, EPROTO,
                  "the pool that runs is of another version: tony " TONY_VERSION
                  ", protocol %d; this '%s' has protocol %u",
                  TONY__VERSION__PROTOCOL_VERSION, c->program, hello->version);
    (void)err_hint(&e,
                   "when no job runs, end the pool with the tony that started it: tony pool stop");
    refuse(c, &e);
}

/* ---- connections ---- */

static void on_frame(struct conn *conn, const Tony__Frame *f, void *arg)
{
    struct pool_client *c = arg;
    (void)conn;
    if (f->body_case == TONY__FRAME__BODY_CLIENT_HELLO)
        on_hello(c, f->client_hello);
    else if (f->body_case == TONY__FRAME__BODY_SUBMIT)
        on_submit(c, f->submit);
    else if (f->body_case == TONY__FRAME__BODY_RESIZE_JOB)
        on_resize(c, f->resize_job);
    else if (f->body_case == TONY__FRAME__BODY_CLIENT_ASK)
        on_ask(c, f->client_ask);
    else
        refuse_text(c, EPROTO, "the pool of tony " TONY_VERSION " does not know this message",
                    OTHER_VERSION);
}

static void client_free(struct pool_client *c)
{
    if (c->prev)
        c->prev->next = c->next;
    else
        c->pool->clients = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (c->submission)
        c->submission->client = NULL;
    if (c->resizing)
        c->resizing->client = NULL;
    free(c);
}

static void on_close(struct conn *conn, const struct err *e, void *arg)
{
    struct pool_client *c = arg;
    struct pool *p = c->pool;
    struct pool_job *j = c->owns ? c->job : NULL;
    (void)conn;
    if (e->num && e->num != ECONNRESET && e->num != EPIPE)
        log_err(LOG_WARN, "client.broken", e);
    client_free(c);
    if (j)
        clients_owner_gone(j);
    pool_check_idle(p);
}

static const struct conn_ops client_ops = { NULL, on_frame, on_close };

void clients_accept(struct conn *conn, void *arg)
{
    struct pool *p = arg;
    struct pool_client *c = calloc(1, sizeof *c);
    if (!c)
        return; /* no memory: the loop closes a connection without conn_ops */
    c->pool = p;
    c->conn = conn;
    (void)str_copy(c->program, sizeof c->program, "?");
    c->next = p->clients;
    if (c->next)
        c->next->prev = c;
    p->clients = c;
    conn_set_arg(conn, &client_ops, c);
    pool_check_idle(p);
}

void clients_close(struct pool *p)
{
    while (p->clients) {
        struct pool_client *c = p->clients;
        if (c->waits_for_stop)
            answer_text(c, "{\"stopped\":true}");
        conn_finish(c->conn);
        client_free(c);
    }
}
