/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/queue.h"

#include <errno.h>
#include <stdlib.h>

#include "cluster/link.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

void queue_done(struct queue *q)
{
    for (size_t i = 0; i < q->nodes.n; i++)
        free(q->nodes.v[i].name);
    for (size_t i = 0; i < q->jobs.n; i++) {
        free(q->jobs.v[i].key_tag);
        free(q->jobs.v[i].size_tag);
        vec_done(&q->jobs.v[i].shares);
    }
    vec_done(&q->nodes);
    vec_done(&q->jobs);
    vec_done(&q->wanted);
}

static const struct conn_ops no_ops = { 0 };

static int dial(struct cluster_host *h, const struct master_question *q, struct conn **out,
                struct err *e)
{
    struct conn *conn = NULL;
    const struct conn_target to = { .host = q->host,
                                    .port = q->port,
                                    .identity = q->identity,
                                    .key = q->key,
                                    .deadline_ms = clock_mono_ms() + q->connect_ms };
    int rc = conn_dial_tls(h->loop, &to, &no_ops, NULL, &conn, e);
    if (rc == 0 && (rc = link_hello(h, conn)) < 0) {
        conn_close(conn);
        return err_set(e, -rc, "cannot send a request to the master at '%s': %m", q->host);
    }
    if (rc == 0)
        *out = conn;
    return rc;
}

/* A master of another user may be hostile, and its text goes to our terminal and our log. */
static void tame(struct err *e)
{
    for (char *texts[] = { e->msg, e->hint }, **t = texts; t < texts + ARRAY_LEN(texts); t++)
        for (char *p = *t; *p; p++)
            if ((unsigned char)*p < ' ' || *p == 0x7f)
                *p = '?';
}

int cluster_ask_master(struct cluster_host *h, const struct master_question *q,
                       const Tony__ClientAsk *ask, struct buf *out, struct err *e)
{
    Tony__Frame f = TONY__FRAME__INIT;
    struct conn *conn = NULL;
    struct answer answer = { .wait_ms = q->answer_ms, .wait_is_total = true, .max = q->answer_max };
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = (Tony__ClientAsk *)(uintptr_t)ask;
    int rc = dial(h, q, &conn, e);
    if (rc == 0)
        rc = link_ask(h, &conn, &f, &answer, e);
    conn_close(conn);
    tame(e);
    if (rc == 0) {
        *out = answer.json;
        answer.json = (struct buf){ 0 };
    }
    answer_done(&answer);
    return rc;
}
