/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics of tasks for the page of the pool. Each master knows those of its job. So the pool
 * connects to the masters of all live jobs, AT_ONCE at a time, and puts their answers together.
 *
 * If another request comes meanwhile, it gets the same answer. A master that does not answer within
 * SCRAPE_MS is left out: the page does not wait for a master that is stopped or starting.
 */
#include <errno.h>
#include <stdlib.h>

#include "loop/http.h"
#include "loop/loop.h"
#include "metrics/metrics.h"
#include "pool/pool_int.h"

enum {
    AT_ONCE = 32,     /* connections to masters */
    ANSWER_MAX = METRICS_MERGE_MAX + (4 << 20),
    SCRAPE_MS = 4000, /* less than Prometheus waits by default (10 s), and than HTTP_SERVER_WAIT_MS */
};

/* A master that is asked. */
struct asked {
    struct scrape *scrape;
    char id[APP_ID_MAX];
    struct conn *conn; /* NULL = not asked yet, or it has answered */
    struct buf text;
};

/* A client of the page. */
struct reader {
    struct scrape *scrape;
    struct http_asker *asker;
    bool open; /* OpenMetrics is wanted */
};

struct scrape {
    struct pool *pool;
    struct metrics_merge *merge;
    struct loop_timer *timer;
    struct asked *masters;
    size_t n_masters, n_begun, n_open;
    VEC(struct reader *) readers;
};

static void ask_more(struct scrape *s);

static void asked_done(struct asked *a)
{
    if (a->conn)
        a->scrape->n_open--;
    conn_close(TAKE(a->conn));
    buf_done(&a->text);
}

static void scrape_free(struct scrape *s)
{
    if (s->pool->scrape == s)
        s->pool->scrape = NULL;
    for (size_t i = 0; i < s->n_masters; i++)
        asked_done(&s->masters[i]);
    free(s->masters);
    for (size_t i = 0; i < s->readers.n; i++)
        free(s->readers.v[i]);
    vec_done(&s->readers);
    loop_timer_free(s->timer);
    metrics_merge_free(s->merge);
    free(s);
}

/* ---- the answer ---- */

static void reply(struct reader *r)
{
    struct err e = { 0 };
    struct http_answer a = { .status = 200, .type = metrics_text_type(r->open) };
    a.body.max = ANSWER_MAX;
    int rc = page_text(r->scrape->pool, r->scrape->merge, r->open, &a.body);
    if (rc < 0)
        rc = err_set(&e, ENOMEM, "no memory for the metrics");
    http_reply(TAKE(r->asker), &a, rc, &e);
    buf_done(&a.body);
}

static void finish(void *arg)
{
    struct scrape *s = arg;
    s->pool->scrape = NULL; /* a request that comes now begins another one */
    for (size_t i = 0; i < s->readers.n; i++)
        if (s->readers.v[i]->asker)
            reply(s->readers.v[i]);
    scrape_free(s);
}

static void reader_gone(void *arg)
{
    struct reader *r = arg;
    r->asker = NULL;
}

/* ---- the masters ---- */

/* The master has answered, or will not. */
static void asked_over(struct asked *a)
{
    struct scrape *s = a->scrape;
    asked_done(a);
    ask_more(s);
}

static void on_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct asked *a = arg;
    struct err e = { 0 };
    (void)c;
    int rc = f->body_case == TONY__FRAME__BODY_ANSWER ? 0 : -EPROTO;
    if (rc == 0)
        rc = buf_add(&a->text, f->answer->json.data, f->answer->json.len);
    if (rc == 0 && f->answer->more)
        return;
    if (rc == 0)
        rc = metrics_merge_add(a->scrape->merge, buf_span(&a->text), &e);
    if (rc < 0) /* a master of an older version refuses */
        log_event(LOG_DEBUG, "page.no_tasks", f_str("job", a->id), f_str("why", e.msg));
    asked_over(a);
}

static void on_close(struct conn *c, const struct err *e, void *arg)
{
    struct asked *a = arg;
    (void)c; /* the loop frees it */
    (void)e; /* the job has ended, or its master will be restarted */
    a->conn = NULL;
    a->scrape->n_open--;
    asked_over(a);
}

static const struct conn_ops master_ops = { NULL, on_frame, on_close };

static int send_question(struct conn *c)
{
    Tony__ClientHello hello = TONY__CLIENT_HELLO__INIT;
    Tony__ClientAsk ask = TONY__CLIENT_ASK__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    hello.version = TONY__VERSION__PROTOCOL_VERSION;
    hello.program = (char *)(uintptr_t)"the page of the pool";
    f.body_case = TONY__FRAME__BODY_CLIENT_HELLO;
    f.client_hello = &hello;
    int rc = conn_send(c, &f);
    ask.what = TONY__CLIENT_ASK__WHAT__METRICS_TEXT;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &ask;
    return rc < 0 ? rc : conn_send(c, &f);
}

static void ask_one(struct asked *a)
{
    struct scrape *s = a->scrape;
    AUTO(free_p) char *path = paths_socket(&s->pool->paths, a->id, "m");
    if (!path || conn_dial_unix(s->pool->loop, path, &master_ops, a, &a->conn, NULL) < 0)
        return; /* the master is starting, or has ended */
    s->n_open++;
    a->text.max = METRICS_MERGE_MAX;
    if (send_question(a->conn) < 0)
        asked_done(a);
}

static void ask_more(struct scrape *s)
{
    while (s->n_open < AT_ONCE && s->n_begun < s->n_masters)
        ask_one(&s->masters[s->n_begun++]);
    if (s->n_open == 0) /* not from a callback of a connection: the scrape is freed */
        loop_timer_set(s->timer, clock_mono_ms());
}

static int name_masters(struct scrape *s)
{
    const struct pool *p = s->pool;
    s->masters = calloc(MIN(p->jobs.n, (size_t)PAGE_JOBS_MAX) + 1, sizeof *s->masters);
    if (!s->masters)
        return -ENOMEM;
    for (size_t i = 0; i < p->jobs.n && s->n_masters < PAGE_JOBS_MAX; i++) {
        const struct pool_job *j = p->jobs.v[i];
        if (j->phase != PH_LIVE)
            continue;
        struct asked *a = &s->masters[s->n_masters++];
        *a = (struct asked){ .scrape = s };
        (void)snprintf(a->id, sizeof a->id, "%s", j->id);
    }
    return 0;
}

static int scrape_new(struct pool *p)
{
    struct scrape *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    *s = (struct scrape){ .pool = p, .merge = metrics_merge_new() };
    s->timer = loop_timer_new(p->loop, finish, s);
    if (!s->merge || !s->timer || name_masters(s) < 0) {
        scrape_free(s);
        return -ENOMEM;
    }
    p->scrape = s;
    loop_timer_set(s->timer, clock_mono_ms() + SCRAPE_MS);
    ask_more(s);
    return 0;
}

int scrape_answer(struct pool *p, struct http_answer *a, struct err *e)
{
    struct reader *r = calloc(1, sizeof *r);
    if (r && (p->scrape || scrape_new(p) == 0) && vec_push(&p->scrape->readers, r) == 0) {
        *r = (struct reader){ .scrape = p->scrape, .open = metrics_text_is_open(a->accept) };
        r->asker = http_wait(a, reader_gone, r);
        return 0;
    }
    free(r);
    return err_set(e, ENOMEM, "no memory for the metrics");
}

void scrape_stop(struct pool *p)
{
    if (p->scrape)
        scrape_free(p->scrape);
}
