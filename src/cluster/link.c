/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/link.h"

#include <errno.h>
#include <pwd.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "job/job.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

/* ---- connecting ---- */

static const struct conn_ops no_ops = { 0 };

int link_hello(struct cluster_host *h, struct conn *conn)
{
    Tony__ClientHello hello = TONY__CLIENT_HELLO__INIT;
    hello.version = TONY__VERSION__PROTOCOL_VERSION;
    hello.program = (char *)(uintptr_t)(h->program ? h->program : "tony");
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_CLIENT_HELLO;
    f.client_hello = &hello;
    return conn_send(conn, &f);
}

int link_dial(struct cluster_host *h, const char *path, struct conn **out, struct err *e)
{
    struct loop *l = host_loop(h, e);
    if (!l)
        return -ENOMEM;
    struct conn *conn = NULL;
    int rc = conn_dial_unix(l, path, &no_ops, NULL, &conn, e);
    if (rc == 0 && (rc = link_hello(h, conn)) < 0) {
        conn_close(conn);
        return err_set(e, -rc, "cannot send to '%s': %m", path);
    }
    if (rc == 0)
        *out = conn;
    return rc;
}

/* ---- one request and its answer ---- */

struct asking {
    struct loop *loop;
    struct loop_timer *timer;
    int64_t wait_ms;
    struct answer *answer;
    struct err *e;
    int rc;
    bool over, closed;
};

static void asking_end(struct asking *a, int rc)
{
    a->rc = rc;
    a->over = true;
    loop_stop(a->loop);
}

static void asking_frame(struct conn *conn, const Tony__Frame *f, void *arg)
{
    struct asking *a = arg;
    (void)conn;
    if (a->over)
        return;
    const ProtobufCBinaryData *json = NULL;
    bool more = false;
    if (f->body_case == TONY__FRAME__BODY_REFUSED) {
        int num = f->refused->num > 0 && f->refused->num < 4096 ? (int)f->refused->num : EIO;
        a->answer->refused = true;
        (void)err_set(a->e, num, "%s", f->refused->message);
        if (f->refused->hint[0])
            err_hint(a->e, "%s", f->refused->hint);
        asking_end(a, -num);
        return;
    }
    if (f->body_case == TONY__FRAME__BODY_SUBMITTED) {
        a->answer->application_id = str_dup(f->submitted->application_id);
        a->answer->job_dir = str_dup(f->submitted->job_dir);
        bool ok = a->answer->application_id && a->answer->job_dir;
        asking_end(a, ok ? 0 : err_set(a->e, ENOMEM, "cannot read the answer: %m"));
        return;
    }
    if (f->body_case == TONY__FRAME__BODY_ANSWER)
        json = &f->answer->json, more = f->answer->more;
    else if (f->body_case == TONY__FRAME__BODY_JOB_UPDATE)
        json = &f->job_update->json;
    else
        return; /* an unknown frame, from a newer version: ignore it */
    int rc = buf_add(&a->answer->json, json->data, json->len);
    if (rc == 0 && more) {
        if (!a->answer->wait_is_total)
            loop_timer_set(a->timer, clock_mono_ms() + a->wait_ms);
        return;
    }
    asking_end(a, rc < 0 ? err_set(a->e, -rc, "cannot read the answer: %m") : 0);
}

static void asking_closed(struct conn *conn, const struct err *why, void *arg)
{
    struct asking *a = arg;
    (void)conn;
    a->closed = true;
    if (!a->over)
        asking_end(
            a, why->num ? err_set(a->e, why->num, "%s", why->msg)
                        : err_set(a->e, ECONNRESET, "the connection was closed without an answer"));
}

static void asking_late(void *arg)
{
    struct asking *a = arg;
    if (!a->over)
        asking_end(
            a, err_set(a->e, ETIMEDOUT, "no answer within %lld s", (long long)a->wait_ms / 1000));
}

static const struct conn_ops asking_ops = { .on_frame = asking_frame, .on_close = asking_closed };

int link_ask(struct cluster_host *h, struct conn **conn, const Tony__Frame *ask, struct answer *out,
             struct err *e)
{
    struct asking a = {
        .loop = h->loop, .wait_ms = out->wait_ms ? out->wait_ms : ANSWER_MS, .answer = out, .e = e
    };
    conn_set_arg(*conn, &asking_ops, &a);
    struct loop_timer *timer = a.timer = loop_timer_new(h->loop, asking_late, &a);
    out->json.max = out->max ? out->max : JOB_STATUS_MAX;
    int rc = timer ? conn_send(*conn, ask) : -ENOMEM;
    if (rc < 0) {
        a.rc = err_set(e, -rc, "cannot send: %m");
    } else {
        loop_timer_set(timer, clock_mono_ms() + a.wait_ms);
        while (!a.over)
            /* Only loop_stop() ends the loop: the timer is always pending. */
            (void)loop_run(h->loop);
    }
    loop_timer_free(timer);
    if (a.closed) {
        *conn = NULL; /* the connection is closed: the loop frees it */
    } else if (a.rc < 0 && !out->refused) {
        conn_close(*conn);
        *conn = NULL;
    } else {
        conn_set_arg(*conn, &no_ops, NULL);
    }
    return a.rc;
}

int status_parse(struct span text, json_t **out, struct err *e)
{
    json_t *doc = json_loadb(text.p ? text.p : "", text.len, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(doc)) {
        json_decref(doc);
        return err_set(e, EBADMSG, "the job's status document is not valid");
    }
    *out = doc;
    return 0;
}

void answer_done(struct answer *a)
{
    buf_done(&a->json);
    free(a->application_id);
    free(a->job_dir);
    *a = (struct answer){ 0 };
}

void link_describe_client(char out[static LINK_CLIENT_MAX])
{
    char host[64] = "";
    struct passwd *pw = getpwuid(getuid());
    /* On failure the text lacks the host name: it only informs people. */
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(out, LINK_CLIENT_MAX, "%.40s@%.60s pid %d", pw ? pw->pw_name : "?", host,
                   (int)getpid());
}

static void ask_init(Tony__ClientAsk *ask, Tony__Frame *f, int what, const char *application_id,
                     char who[static LINK_CLIENT_MAX])
{
    who[0] = 0;
    /* Only a stop names its client: looking up the user name is slow. */
    if (what == TONY__CLIENT_ASK__WHAT__STOP)
        link_describe_client(who);
    *ask = (Tony__ClientAsk)TONY__CLIENT_ASK__INIT;
    ask->what = (Tony__ClientAsk__What)what;
    ask->application_id = (char *)(application_id ? application_id : "");
    ask->who = who;
    *f = (Tony__Frame)TONY__FRAME__INIT;
    f->body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f->client_ask = ask;
}

int link_send_ask(struct conn *conn, int what, const char *application_id, const char *reason)
{
    Tony__ClientAsk ask;
    Tony__Frame f;
    char who[LINK_CLIENT_MAX];
    ask_init(&ask, &f, what, application_id, who);
    ask.reason = (char *)(reason ? reason : "");
    return conn_send(conn, &f);
}

int link_send_stop(struct conn *conn, const char *application_id, const char *reason,
                   bool checkpoint)
{
    Tony__ClientAsk ask;
    Tony__Frame f;
    char who[LINK_CLIENT_MAX];
    ask_init(&ask, &f, TONY__CLIENT_ASK__WHAT__STOP, application_id, who);
    ask.reason = (char *)(reason ? reason : "");
    ask.checkpoint = checkpoint;
    return conn_send(conn, &f);
}

int link_ask_what(struct cluster_host *h, struct conn **conn, int what, const char *application_id,
                  bool force, struct answer *out, struct err *e)
{
    Tony__ClientAsk ask;
    Tony__Frame f;
    char who[LINK_CLIENT_MAX];
    ask_init(&ask, &f, what, application_id, who);
    ask.force = force;
    return link_ask(h, conn, &f, out, e);
}

bool link_broke(int rc)
{
    return rc == -ECONNRESET || rc == -EPIPE;
}
