/* SPDX-License-Identifier: Apache-2.0 */
/* The client of the master's world. */
#include "master_world_int.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

static void client_ask(struct world *w, Tony__ClientAsk__What what)
{
    Tony__ClientAsk a = TONY__CLIENT_ASK__INIT;
    a.what = what;
    a.application_id = w->id;
    a.who = (char *)(uintptr_t) "tester@here";
    a.reason = (char *)(uintptr_t) "enough";
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &a;
    (void)conn_send(w->client, &f);
}

static void client_resize(struct world *w)
{
    Tony__RoleSize sizes[ARRAY_LEN(w->resize_roles)], *list[ARRAY_LEN(w->resize_roles)];
    Tony__ResizeJob a = TONY__RESIZE_JOB__INIT;
    for (size_t i = 0; i < ARRAY_LEN(w->resize_roles) && w->resize_roles[i]; i++) {
        tony__role_size__init(&sizes[i]);
        sizes[i].role = (char *)(uintptr_t)w->resize_roles[i];
        sizes[i].instances = w->resize_to;
        list[a.n_roles++] = &sizes[i];
    }
    a.roles = list;
    a.application_id = w->resize_id ? (char *)(uintptr_t)w->resize_id : w->id;
    a.who = (char *)(uintptr_t) "tester@here";
    a.reason = (char *)(uintptr_t) "room for others";
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_RESIZE_JOB;
    f.resize_job = &a;
    w->resize_asked = true;
    (void)conn_send(w->client, &f);
}

static void client_open(struct conn *c, void *arg)
{
    struct world *w = arg;
    Tony__ClientHello h = TONY__CLIENT_HELLO__INIT;
    h.version = TONY__VERSION__PROTOCOL_VERSION;
    h.program = (char *)(uintptr_t) "test";
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_CLIENT_HELLO;
    f.client_hello = &h;
    (void)conn_send(c, &f);
    client_ask(w, w->owns ? TONY__CLIENT_ASK__WHAT__OWN : TONY__CLIENT_ASK__WHAT__FOLLOW);
    if (w->stop_asked && !w->stop_answered)
        client_ask(w, TONY__CLIENT_ASK__WHAT__STOP);
}

static void client_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct world *w = arg;
    (void)c;
    if (f->body_case == TONY__FRAME__BODY_ANSWER && w->resize_asked && !w->resize_answered &&
        !w->refused_num) {
        w->resize_answered = true;
        (void)buf_add(&w->resize_answer, f->answer->json.data, f->answer->json.len);
        client_ask(w, TONY__CLIENT_ASK__WHAT__STOP);
        w->stop_asked = true;
    } else if (f->body_case == TONY__FRAME__BODY_REFUSED) {
        w->refused_num = (int)f->refused->num;
        (void)str_copy(w->refused, sizeof w->refused, f->refused->message);
        (void)str_copy(w->refused_hint, sizeof w->refused_hint, f->refused->hint);
        w->stop_asked = !w->client_errs_after_start; /* the client asks after it has reconnected */
    } else if (f->body_case == TONY__FRAME__BODY_ANSWER) {
        w->stop_answered = true;
    } else if (f->body_case == TONY__FRAME__BODY_LOG_DATA) {
        const Tony__LogData *a = f->log_data;
        w->n_logs++;
        w->log_num = a->num;
        assert(a->number == 7000 + w->n_logs);
        (void)snprintf(w->log_text, sizeof w->log_text, "%.*s",
                       a->num ? (int)strlen(a->message) : (int)a->data.len,
                       a->num ? a->message : (const char *)a->data.data);
    } else if (f->body_case == TONY__FRAME__BODY_JOB_UPDATE) {
        w->n_updates++;
        w->n_finished += f->job_update->finished ? 1 : 0;
        w->client_code = f->job_update->exit_code;
        (void)str_copy(w->client_state, sizeof w->client_state, f->job_update->state);
        buf_clear(&w->client_json);
        (void)buf_add(&w->client_json, f->job_update->json.data, f->job_update->json.len);
    }
}

static void client_again(struct world *w)
{
    if (w->n_finished == 0)
        loop_timer_set(w->client_timer, clock_mono_ms() + WORLD_AGAIN_MS);
}

static void client_closed(struct conn *c, const struct err *e, void *arg)
{
    struct world *w = arg;
    (void)c;
    (void)e;
    w->client = NULL;
    client_again(w);
}

static const struct conn_ops client_ops = { .on_open = client_open,
                                            .on_frame = client_frame,
                                            .on_close = client_closed };

void world_client_dial(void *arg)
{
    struct world *w = arg;
    if (world_dial_master(w, NULL, &client_ops, w, &w->client) < 0) {
        w->client = NULL;
        client_again(w);
    }
}

static void client_read_log(struct world *w)
{
    Tony__ReadLog q = TONY__READ_LOG__INIT;
    q.number = 7001 + w->n_logs;
    q.slot = w->reads_log_of - 1;
    q.stream = (char *)(uintptr_t) "stderr";
    q.offset = -10;
    q.max = 1000;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_READ_LOG;
    f.read_log = &q;
    (void)conn_send(w->client, &f);
}

unsigned world_n_running(const struct world *w)
{
    unsigned n = 0;
    for (unsigned i = 0; i < w->n_boxes; i++)
        n += w->boxes[i].running;
    return n;
}

void world_client_may_resize(struct world *w)
{
    bool ready = !w->files.holds || w->files.held.done;
    if (w->resize_roles[0] && !w->resize_asked && w->client && ready &&
        world_n_running(w) >= w->resize_when)
        client_resize(w);
}

void world_task_runs(struct world *w)
{
    if (w->reads_log_of && w->client && !w->ran)
        client_read_log(w);
    if (w->on_running && !w->ran)
        w->on_running(w);
    w->ran = true;
    world_client_may_resize(w);
    if (w->stop_when_running && !w->stop_asked) {
        w->stop_asked = true;
        if (w->client)
            client_ask(w, TONY__CLIENT_ASK__WHAT__STOP);
    }
    if (w->client_errs_after_start && w->client) {
        client_ask(w, TONY__CLIENT_ASK__WHAT__POOL_STATUS);
        w->owns = false; /* the client reconnects as a follower */
    }
    if (w->client_leaves_after_start && w->client) {
        conn_close(TAKE(w->client));
        loop_timer_stop(w->client_timer);
    }
}
