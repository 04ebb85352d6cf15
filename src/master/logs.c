/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client reads the log of a task on another machine. The master forwards the client's ReadLog to
 * the executor of the task, and the executor's LogData to the client. It stores only which client
 * has sent which ReadLog.
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
    QUESTIONS_MAX = 4096,          /* of all clients */
    QUESTIONS_PER_CLIENT_MAX = 64, /* a client that reads many logs asks for one after the other */
    LOG_DATA_MAX = 1 << 20,        /* bytes of one answer (proto/tony.proto, ReadLog) */
};

#define MUTABLE(p) ((char *)(uintptr_t)(p))

static void send_answer(struct peer *client, uint32_t number, const Tony__LogData *from)
{
    Tony__LogData a = *from; /* the bytes of data are not copied */
    a.number = number;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_LOG_DATA;
    f.log_data = &a;
    (void)conn_send(client->conn, &f); /* on_close() handles a broken connection */
}

static void refuse(struct peer *client, uint32_t number, int num, const char *message)
{
    Tony__LogData a = TONY__LOG_DATA__INIT;
    a.num = (uint32_t)num;
    a.message = MUTABLE(message);
    send_answer(client, number, &a);
}

/* The executor is not connected. Tell the client why, and where else the log can be read. */
static void refuse_disconnected(struct peer *client, uint32_t number, uint32_t slot)
{
    const struct master *m = client->m;
    struct slot_view v;
    job_slot(m->job, slot, &v);
    const char *url = locations_log_url(m, slot);
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

static size_t n_questions_of(const struct master *m, const struct peer *client)
{
    size_t n = 0;
    for (size_t i = 0; i < m->log_questions.n; i++)
        n += m->log_questions.v[i].client == client;
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
        refuse_disconnected(client, q->number, q->slot);
        return;
    }
    if (m->log_questions.n >= QUESTIONS_MAX ||
        n_questions_of(m, client) >= QUESTIONS_PER_CLIENT_MAX) {
        refuse(client, q->number, EBUSY, "too many questions for logs at once");
        return;
    }
    struct log_question question = {
        .client = client,
        .client_number = q->number,
        .executor_number = ++m->last_log_question,
        .slot = q->slot,
    };
    if (vec_push(&m->log_questions, question) < 0) {
        refuse(client, q->number, ENOMEM, "no memory to ask for the log");
        return;
    }
    Tony__ReadLog r = *q;
    r.number = question.executor_number;
    r.max = MIN(r.max, (uint32_t)LOG_DATA_MAX);
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_READ_LOG;
    f.read_log = &r;
    (void)conn_send(x->conn, &f); /* if it is broken, logs_executor_gone() answers the client */
}

/* The order of the questions may change: an answer names its question by number. */
static void remove_question(struct master *m, size_t i)
{
    vec_remove_fast(&m->log_questions, i);
}

void logs_answer(struct peer *executor, const Tony__LogData *a)
{
    struct master *m = executor->m;
    for (size_t i = 0; i < m->log_questions.n; i++) {
        struct log_question q = m->log_questions.v[i];
        if (q.executor_number != a->number || q.slot != executor->slot)
            continue;
        remove_question(m, i);
        if (a->data.len > LOG_DATA_MAX)
            refuse(q.client, q.client_number, EPROTO, "the executor's answer is too long");
        else
            send_answer(q.client, q.client_number, a);
        return;
    }
    log_event(LOG_DEBUG, "log.unasked", f_int("slot", executor->slot));
}

void logs_executor_gone(struct master *m, uint32_t slot)
{
    for (size_t i = m->log_questions.n; i-- > 0;) {
        struct log_question q = m->log_questions.v[i];
        if (q.slot != slot)
            continue;
        remove_question(m, i);
        refuse_disconnected(q.client, q.client_number, slot);
    }
}

void logs_client_gone(struct peer *client)
{
    struct master *m = client->m;
    for (size_t i = m->log_questions.n; i-- > 0;)
        if (m->log_questions.v[i].client == client)
            remove_question(m, i);
}
