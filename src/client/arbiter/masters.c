/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends the requests of the arbiter to the masters of jobs: for the state of the job, or for
 * another size (a "wish"). A master of another user may be hostile, so its answers are limited in
 * time and bytes.
 */
#include <errno.h>
#include <stdlib.h>

#include "client/arbiter/arbiter.h"
#include "client/client_int.h"
#include "proto/tony.pb-c.h"
#include "storage/jobkey.h"

enum {
    /* to wait for the state of a job; also to connect to a master of another user */
    SHARE_MS = 3000,
    /* to wait for the answer to a wish: the master writes its journal before it answers */
    WISH_MS = 10000,
    SHARE_MAX = 2 << 20, /* bytes of an answer: 10,000 nodes need 0.4 MiB */
    /* If a request to a master of another user fails after more than SLOW_MS, the arbiter does not
     * ask this master again for SILENT_PAUSE_MS. */
    SLOW_MS = 1000,
    SILENT_PAUSE_MS = 30000
};

/* Set the key for requests to the master. For a job of this user that is the client's key, which is
 * read once. */
static int find_key(struct arbiter *a, struct arbiter_job *j, struct err *e)
{
    return j->key.len ? 0 : cluster_ops_of(a->k)->key(a->k, j->id, &j->key, e);
}

static int ask(struct arbiter *a, struct arbiter_job *j, const Tony__ClientAsk *question,
               int64_t answer_ms, struct buf *out, struct err *e)
{
    int64_t start_ms = clock_mono_ms();
    if (!j->has_master)
        return err_set(e, ENOENT, "job '%s' has no master now", j->id);
    int rc = find_key(a, j, e);
    if (rc < 0)
        return rc;
    const struct master_question q = { .host = j->host,
                                       .port = j->port,
                                       .identity =
                                           j->registered ? RESIZE_KEY_ARBITER : JOB_KEY_CLIENT,
                                       .key = &j->key,
                                       .connect_ms = j->registered ? SHARE_MS : a->master_ms,
                                       .answer_ms = answer_ms,
                                       .answer_max = SHARE_MAX };
    rc = cluster_ask_master(a->host, &q, question, out, e);
    if (rc < 0 && !j->registered)
        j->key.len = 0; /* perhaps the key was replaced: read it again next time */
    if (rc < 0 && j->registered && clock_mono_ms() - start_ms > SLOW_MS)
        j->silent_until_ms = clock_mono_ms() + SILENT_PAUSE_MS;
    return rc;
}

int arbiter_ask_share(struct arbiter *a, struct arbiter_job *j, struct buf *out, struct err *e)
{
    Tony__ClientAsk question = TONY__CLIENT_ASK__INIT;
    question.what = TONY__CLIENT_ASK__WHAT__SHARE;
    question.application_id = j->id;
    if (clock_mono_ms() < j->silent_until_ms)
        return err_set(e, ETIMEDOUT, "the master of job '%s' did not answer within %d s", j->id,
                       SHARE_MS / 1000);
    return ask(a, j, &question, SHARE_MS, out, e);
}

/* The nodes of a wish, as the message wants them. `list` is one allocation, which the caller frees.
 */
struct node_wishes {
    size_t n;
    Tony__NodeWish **list;
};

static int make_node_wishes(const struct arbiter *a, const struct wish *t, struct node_wishes *out)
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

int arbiter_ask_wish(struct arbiter *a, struct arbiter_job *j, const struct wish *w, struct err *e)
{
    Tony__SizeWish wish = TONY__SIZE_WISH__INIT;
    struct node_wishes nodes = { 0 };
    Tony__ClientAsk question = TONY__CLIENT_ASK__INIT;
    AUTO(buf_done) struct buf answer = { 0 };
    if (make_node_wishes(a, w, &nodes) < 0)
        return err_set(e, ENOMEM, "no memory to ask the master of job '%s'", j->id);
    wish.grow = w->grow;
    wish.n_containers = j->needs.fixed_containers + w->instances;
    wish.n_nodes = nodes.n;
    wish.nodes = nodes.list;
    wish.deadline_ms = (uint64_t)a->settings.resize_limit_ms;
    wish.why = (char *)(uintptr_t)w->why;
    question.what = TONY__CLIENT_ASK__WHAT__WISH;
    question.application_id = j->id;
    question.wish = &wish;
    int rc = ask(a, j, &question, WISH_MS, &answer, e);
    free(nodes.list);
    return rc;
}
