/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of a job: from its master while it runs, else from its history. Both give the journal;
 * history/events.h makes the events.
 */
#include "history/events.h"

#include <errno.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/link.h"
#include "cluster/remote.h"
#include "codec/json.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

enum {
    LOOK_MS = 200,  /* pause between two requests to a master */
    WAIT_MS = 1000, /* pause between two requests to the cluster while there is no master */
    /* time limit for an answer: a long journal may come over a slow connection */
    ANSWER_LIMIT_MS = 60000,
    TEXT_MAX = 1 << 30, /* bytes of a journal in memory: BUF_MAX_DEFAULT is too small */
    /* how often to look for the history of a job that has just ended, WAIT_MS / 10 apart */
    HISTORY_TRIES = 100,
};

struct reading {
    struct cluster *k;
    const char *id;
    struct conn *conn; /* to the master; NULL = none */
    struct history_events *events;
    uint64_t segment, offset; /* the position in the journal up to which it was read */
    cluster_event_fn *fn;
    void *arg;
    struct err *e;
};

static int feed(struct reading *r, struct span conf, struct span text, bool first)
{
    const char *last = text.len ? memrchr(text.p, '\n', text.len) : NULL;
    /* leave out the last line if it is incomplete: it is being written */
    text.len = last ? (size_t)(last - text.p) + 1 : 0;
    int rc = r->events || !conf.len ? 0 : history_events_new(conf, &r->events, r->e);
    if (rc == 0 && !r->events)
        rc = err_set(r->e, EBADMSG, "the configuration of job '%s' is missing", r->id);
    if (rc == 0 && text.len)
        rc = history_events_feed(r->events, text, first, r->fn, r->arg, r->e);
    if (rc == 0)
        r->offset += text.len;
    return rc;
}

/* ---- from the master ---- */

/* Read the answer of a master: a line that says which part follows, then that part. */
static int take_answer(struct reading *r, const struct buf *answer)
{
    struct span rest = buf_span(answer), line;
    AUTO(json_freep) json_t *head = NULL;
    (void)span_split(&rest, '\n', &line);
    int rc = json_parse("answer", line, &head, r->e);
    if (rc < 0)
        return rc;
    json_int_t segment = json_integer_value(json_object_get(head, "segment"));
    json_int_t offset = json_integer_value(json_object_get(head, "offset"));
    if (segment < 0 || offset < 0 || (offset && (uint64_t)offset != r->offset))
        return err_set(r->e, EPROTO,
                       "the master sent a part of the journal that was not asked for");
    const char *conf = json_string_value(json_object_get(head, "conf"));
    r->segment = (uint64_t)segment;
    r->offset = (uint64_t)offset;
    return feed(r, span_of(conf), rest, offset == 0);
}

/* 0; 1: no master answers now; or -errno. */
static int ask_master(struct reading *r, const struct cluster_report *at)
{
    static const struct conn_ops no_ops = { 0 };
    struct cluster_host *h = cluster_head(r->k)->cfg.host;
    struct err why = { 0 };
    int rc = r->conn ? 0 : cluster_dial(r->k, at, &no_ops, NULL, &r->conn, &why);
    if (rc < 0)
        return 1;
    Tony__ClientAsk ask = TONY__CLIENT_ASK__INIT;
    ask.what = TONY__CLIENT_ASK__WHAT__JOURNAL;
    ask.application_id = (char *)(uintptr_t)r->id;
    ask.segment = r->segment;
    ask.offset = r->offset;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &ask;
    struct answer a = { .wait_ms = ANSWER_LIMIT_MS, .max = TEXT_MAX };
    rc = link_ask(h, &r->conn, &f, &a, &why);
    bool refused = rc < 0 && a.refused && why.num != EAGAIN;
    if (rc == 0)
        rc = take_answer(r, &a.json);
    else if (refused)
        *r->e = why;
    else
        rc = 1;
    answer_done(&a);
    return rc;
}

/* ---- from the history ---- */

static int read_history(struct reading *r)
{
    const struct cluster_ops *ops = cluster_ops_of(r->k);
    AUTO(buf_done) struct buf conf = { .max = TEXT_MAX };
    AUTO(buf_done) struct buf journal = { .max = TEXT_MAX };
    int rc = ops->history_file(r->k, r->id, "job.conf", &conf, r->e);
    if (rc == 0)
        rc = ops->history_file(r->k, r->id, "journal", &journal, r->e);
    return rc < 0 ? rc : feed(r, buf_span(&conf), buf_span(&journal), true);
}

/* Wait for the history of a job that is over: its files may be being moved to the history at this
 * moment. */
static int await_history(struct reading *r)
{
    int rc = 0;
    for (int i = 0; i < HISTORY_TRIES; i++) {
        rc = read_history(r);
        if (rc != -ENOENT)
            break;
        host_pause(cluster_head(r->k)->cfg.host, WAIT_MS / 10);
    }
    if (rc == -ENOENT)
        (void)err_set(r->e, ENOENT, "job '%s' is over and has no history", r->id);
    return rc;
}

/* ---- both ---- */

/* Does the job wait for resources? Then there are no events yet. The report of a cluster may say
 * RUNNING nevertheless, so look at the status, too. */
static bool waits(struct reading *r, const struct cluster_report *at)
{
    json_t *doc = NULL;
    struct err unread = { 0 };
    if (at->phase == CLUSTER_WAITING)
        return true;
    if (at->phase != CLUSTER_RUNNING ||
        cluster_ops_of(r->k)->status(r->k, r->id, &doc, &unread) < 0)
        return false;
    bool yes = str_eq(json_string_value(json_object_get(doc, "state")), "WAITING");
    json_decref(doc);
    return yes;
}

static bool is_done(const struct reading *r, bool follow)
{
    return !follow || (r->events && history_events_over(r->events));
}

/* Ask the cluster whether the job runs. Then read the events from its master, or from the history.
 * 1: all events were read; 0: call again after *out_ms; or -errno. */
static int look_anew(struct reading *r, bool follow, int64_t *out_ms)
{
    struct cluster_report at = { 0 };
    int rc = cluster_ops_of(r->k)->report(r->k, r->id, &at, r->e);
    if (rc == 0 && at.phase == CLUSTER_OVER) {
        rc = await_history(r);
        rc = rc < 0 ? rc : 1;
    } else if (rc == 0) {
        rc = at.phase == CLUSTER_RUNNING ? ask_master(r, &at) : 1;
        if (rc == 0)
            rc = is_done(r, follow);
        else if (rc == 1)
            rc = !follow && waits(r, &at);
        *out_ms = at.phase == CLUSTER_RUNNING ? LOOK_MS : WAIT_MS;
    }
    cluster_report_done(&at);
    return rc;
}

static int look(struct reading *r, bool follow, int64_t *out_ms)
{
    int rc = r->conn ? ask_master(r, NULL) : 1;
    *out_ms = LOOK_MS;
    if (rc <= 0)
        return rc < 0 ? rc : is_done(r, follow);
    conn_close(TAKE(r->conn));
    return look_anew(r, follow, out_ms);
}

int cluster_events(struct cluster *k, const char *id, bool follow, cluster_event_fn *fn, void *arg,
                   struct err *e)
{
    struct reading r = { .k = k, .id = id, .fn = fn, .arg = arg, .e = e };
    int rc;
    int64_t pause_ms, silent_ms = 0;
    while ((rc = look(&r, follow, &pause_ms)) == 0 ||
           (rc < 0 && follow && cluster_is_silent(k, e, &silent_ms))) {
        silent_ms = rc == 0 ? 0 : silent_ms;
        host_pause(cluster_head(k)->cfg.host, pause_ms);
    }
    conn_close(r.conn);
    history_events_free(r.events);
    return rc < 0 ? rc : 0;
}
