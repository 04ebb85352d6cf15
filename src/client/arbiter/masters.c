/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The questions of the arbiter to the masters of the jobs. A master of another user may be hostile,
 * so its answers are limited in time and bytes.
 */
#include <errno.h>
#include <stdlib.h>

#include "client/arbiter/arbiter.h"
#include "client/client_int.h"
#include "cluster/link.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/jobkey.h"

enum {
    /* for the answer about the state; also for connecting to a master of another user */
    SHARE_MS = 3000,
    /* for the answer to a wish: the master writes its journal before it answers */
    WISH_MS = 10000,
    SHARE_MAX = 2 << 20,    /* bytes of an answer: 10,000 nodes need 0.4 MiB */
    SLOW_MS = 1000,         /* if a request took this long to fail, */
    SILENT_PAUSE_MS = 30000 /* do not ask a master of another user again for this time */
};

static const struct conn_ops no_ops = { 0 };

/* A job of this user is asked with the client's key, which is read once. */
static int find_key(struct arbiter *a, struct arbiter_job *j, struct err *e)
{
    return j->key.len ? 0 : yarn_client_key(a->y, j->id, &j->key, e);
}

static int dial(struct arbiter *a, struct arbiter_job *j, struct conn **out, struct err *e)
{
    struct conn *conn = NULL;
    if (!j->has_master)
        return err_set(e, ENOENT, "job '%s' has no master now", j->id);
    int rc = find_key(a, j, e);
    if (rc < 0)
        return rc;
    const struct conn_target to = { .host = j->host,
                                    .port = j->port,
                                    .identity = j->registered ? RESIZE_KEY_ARBITER : JOB_KEY_CLIENT,
                                    .key = &j->key,
                                    .deadline_ms = j->registered ? clock_mono_ms() + SHARE_MS
                                                                 : yarn_deadline(a->y) };
    rc = conn_dial_tls(a->y->loop, &to, &no_ops, NULL, &conn, e);
    if (rc == 0 && (rc = link_hello(a->y->host, conn)) < 0) {
        conn_close(conn);
        return err_set(e, -rc, "cannot send a request to the master of job '%s': %m", j->id);
    }
    if (rc == 0)
        *out = conn;
    return rc;
}

/* Mask the text of a master of another user, which goes to our terminal and our log. */
static void tame(struct err *e)
{
    for (char *texts[] = { e->msg, e->hint }, **t = texts; t < texts + ARRAY_LEN(texts); t++)
        for (char *p = *t; *p; p++)
            if ((unsigned char)*p < ' ' || *p == 0x7f)
                *p = '?';
}

static int ask(struct arbiter *a, struct arbiter_job *j, const Tony__ClientAsk *question,
               struct answer *out, struct err *e)
{
    Tony__Frame f = TONY__FRAME__INIT;
    struct conn *conn = NULL;
    int64_t start_ms = clock_mono_ms();
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = (Tony__ClientAsk *)(uintptr_t)question;
    int rc = dial(a, j, &conn, e);
    if (rc == 0)
        rc = link_ask(a->y->host, &conn, &f, out, e);
    conn_close(conn);
    tame(e);
    if (rc < 0 && !j->registered)
        j->key.len = 0; /* the file may have another key by now */
    if (rc < 0 && j->registered && clock_mono_ms() - start_ms > SLOW_MS)
        j->silent_until_ms = clock_mono_ms() + SILENT_PAUSE_MS;
    return rc;
}

int arbiter_ask_share(struct arbiter *a, struct arbiter_job *j, struct buf *out, struct err *e)
{
    Tony__ClientAsk question = TONY__CLIENT_ASK__INIT;
    struct answer answer = { .wait_ms = SHARE_MS, .wait_is_total = true, .max = SHARE_MAX };
    question.what = TONY__CLIENT_ASK__WHAT__SHARE;
    question.application_id = j->id;
    if (clock_mono_ms() < j->silent_until_ms)
        return err_set(e, ETIMEDOUT, "the master of job '%s' did not answer within %d s", j->id,
                       SHARE_MS / 1000);
    int rc = ask(a, j, &question, &answer, e);
    if (rc == 0) {
        *out = answer.json;
        answer.json = (struct buf){ 0 };
    }
    answer_done(&answer);
    return rc;
}

/* The message for the nodes of a target. One allocation; the caller frees it. */
struct node_wishes {
    size_t n;
    Tony__NodeWish **list;
};

static int make_node_wishes(const struct arbiter *a, const struct part_target *t,
                            struct node_wishes *out)
{
    Tony__NodeWish **list = calloc(t->n_at + 1, sizeof *list + sizeof **list);
    if (!list)
        return -ENOMEM;
    Tony__NodeWish *wishes = (Tony__NodeWish *)(void *)(list + t->n_at + 1);
    for (uint32_t i = 0; i < t->n_at; i++) {
        tony__node_wish__init(&wishes[i]);
        wishes[i].node = (char *)(uintptr_t)a->nodes.v[t->at[i].node].name;
        wishes[i].n_containers = t->at[i].n;
        list[i] = &wishes[i];
    }
    *out = (struct node_wishes){ t->n_at, list };
    return 0;
}

int arbiter_ask_wish(struct arbiter *a, struct arbiter_job *j, const struct part_target *t,
                     const char *why, struct err *e)
{
    Tony__SizeWish wish = TONY__SIZE_WISH__INIT;
    struct node_wishes nodes = { 0 };
    Tony__ClientAsk question = TONY__CLIENT_ASK__INIT;
    struct answer answer = { .wait_ms = WISH_MS, .wait_is_total = true, .max = SHARE_MAX };
    if (make_node_wishes(a, t, &nodes) < 0)
        return err_set(e, ENOMEM, "no memory to ask the master of job '%s'", j->id);
    wish.grow = t->n > j->n;
    wish.n_containers = j->needs.fixed_containers + t->n;
    wish.n_nodes = nodes.n;
    wish.nodes = nodes.list;
    wish.deadline_ms = (uint64_t)a->settings.resize_limit_ms;
    wish.why = (char *)(uintptr_t)why;
    question.what = TONY__CLIENT_ASK__WHAT__WISH;
    question.application_id = j->id;
    question.wish = &wish;
    int rc = ask(a, j, &question, &answer, e);
    answer_done(&answer);
    free(nodes.list);
    return rc;
}
