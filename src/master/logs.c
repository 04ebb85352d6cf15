/*
 * A client reads the log of a task on a machine that is not its own: the question goes on to the
 * task's executor, the answer back to who asked. Nothing is kept here but whose question it was.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"

enum {
    QUESTIONS_MAX = 4096,      /* of all clients */
    QUESTIONS_OF_ONE_MAX = 64, /* a follower of many tasks asks one after the other */
    LOG_DATA_MAX = 1 << 20,    /* of one answer, as the protocol says */
};

#define MUTABLE(p) ((char *)(uintptr_t)(p))

static void answer(struct peer *client, uint32_t number, const Tony__LogData *from)
{
    Tony__LogData a = *from; /* data is borrowed */
    a.number = number;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_LOG_DATA;
    f.log_data = &a;
    (void)conn_send(client->conn, &f); /* a broken one is told by its on_close */
}

static void refuse(struct peer *client, uint32_t number, int num, const char *message)
{
    Tony__LogData a = TONY__LOG_DATA__INIT;
    a.num = (uint32_t)num;
    a.message = MUTABLE(message);
    answer(client, number, &a);
}

/* The executor is not there: who wants to read on must ask somebody else, and whom. */
static void refuse_gone(struct peer *client, uint32_t number, uint32_t slot)
{
    const struct master *m = client->m;
    struct slot_view v;
    job_slot(m->job, slot, &v);
    const char *url = places_log_url(m, slot);
    char text[800];
    if (!v.container || (!v.address && v.state != SLOT_ENDED && v.state != SLOT_DRAINING))
        (void)snprintf(text, sizeof text, "task '%s:%u' has no log yet: it has not started", v.role,
                       v.index);
    else if (url)
        (void)snprintf(text, sizeof text,
                       "the executor of task '%s:%u' is not connected; its log may be read at %s",
                       v.role, v.index, url);
    else
        (void)snprintf(text, sizeof text, "the executor of task '%s:%u' is not connected", v.role,
                       v.index);
    refuse(client, number, v.container ? ESTALE : ENOENT, text);
}

static size_t asked_by(const struct master *m, const struct peer *client)
{
    size_t n = 0;
    for (size_t i = 0; i < m->questions.n; i++)
        n += m->questions.v[i].asker == client;
    return n;
}

void logs_ask(struct peer *client, const Tony__ReadLog *q)
{
    struct master *m = client->m;
    if (q->slot >= job_n_slots(m->job)) {
        refuse(client, q->number, ENOENT, "the job has no such task");
        return;
    }
    struct peer *x = m->executors[q->slot];
    if (!x) {
        refuse_gone(client, q->number, q->slot);
        return;
    }
    if (m->questions.n >= QUESTIONS_MAX || asked_by(m, client) >= QUESTIONS_OF_ONE_MAX) {
        refuse(client, q->number, EBUSY, "too many questions for logs at once");
        return;
    }
    struct log_question mine = {
        .asker = client, .number = q->number, .ours = ++m->last_question, .slot = q->slot
    };
    if (vec_push(&m->questions, mine) < 0) {
        refuse(client, q->number, ENOMEM, "no memory to ask for the log");
        return;
    }
    Tony__ReadLog r = *q;
    r.number = mine.ours;
    r.max = MIN(r.max, (uint32_t)LOG_DATA_MAX);
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_READ_LOG;
    f.read_log = &r;
    (void)conn_send(x->conn,
                    &f); /* a broken one is told by its on_close, and the question with it */
}

/* Order does not matter: answers carry numbers. */
static void forget(struct master *m, size_t i)
{
    vec_remove_fast(&m->questions, i);
}

void logs_answer(struct peer *executor, const Tony__LogData *a)
{
    struct master *m = executor->m;
    for (size_t i = 0; i < m->questions.n; i++) {
        struct log_question q = m->questions.v[i];
        if (q.ours != a->number || q.slot != executor->slot)
            continue;
        forget(m, i);
        if (a->data.len > LOG_DATA_MAX)
            refuse(q.asker, q.number, EPROTO, "the executor's answer is too long");
        else
            answer(q.asker, q.number, a);
        return;
    }
    log_event(LOG_DEBUG, "log.unasked", f_int("slot", executor->slot));
}

void logs_executor_gone(struct master *m, uint32_t slot)
{
    for (size_t i = m->questions.n; i-- > 0;) {
        struct log_question q = m->questions.v[i];
        if (q.slot != slot)
            continue;
        forget(m, i);
        refuse_gone(q.asker, q.number, slot);
    }
}

void logs_client_gone(struct peer *client)
{
    struct master *m = client->m;
    for (size_t i = m->questions.n; i-- > 0;)
        if (m->questions.v[i].asker == client)
            forget(m, i);
}
