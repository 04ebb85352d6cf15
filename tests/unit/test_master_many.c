/* SPDX-License-Identifier: Apache-2.0 */
/* A master of a job with as many tasks as a job may have: the status that it sends to clients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "codec/frame.h"
#include "codec/json.h"
#include "job/job_int.h"
#include "loop/loop.h"
#include "master_world.h"
#include "proto/tony.pb-c.h"
#include "scheduler/scheduler.h"

enum { LONG_MS = 60000 };

/* ---- a scheduler that never answers ---- */

struct silent {
    const struct sched_ops *ops;
};

static int silent_open(const struct sched_config *cfg, struct sched **out, struct err *e);

static void silent_close(struct sched *s)
{
    free(s);
}

static const struct sched_ops silent_ops = { .name = "silent",
                                             .open = silent_open,
                                             .close = silent_close };

static int silent_open(const struct sched_config *cfg, struct sched **out, struct err *e)
{
    struct silent *s = calloc(1, sizeof *s);
    (void)cfg;
    if (!s)
        return err_set(e, ENOMEM, "no memory");
    s->ops = &silent_ops;
    *out = (struct sched *)(void *)s;
    return 0;
}

/* ---- a client that asks for the status ---- */

struct asker {
    struct loop *loop;
    struct buf json;
    unsigned n_parts;
    bool over;
};

static void on_open(struct conn *c, void *arg)
{
    Tony__ClientAsk a = TONY__CLIENT_ASK__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    (void)arg;
    a.what = TONY__CLIENT_ASK__WHAT__STATUS;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &a;
    assert_int_equal(conn_send(c, &f), 0);
}

static void on_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct asker *a = arg;
    (void)c;
    if (f->body_case == TONY__FRAME__BODY_REFUSED)
        fail_msg("refused: %s", f->refused->message);
    assert_int_equal(f->body_case, TONY__FRAME__BODY_ANSWER);
    a->n_parts++;
    assert_int_equal(buf_add(&a->json, f->answer->json.data, f->answer->json.len), 0);
    a->over = !f->answer->more;
    if (a->over)
        loop_stop(a->loop);
}

static void on_close(struct conn *c, const struct err *e, void *arg)
{
    (void)c;
    (void)arg;
    fail_msg("the master has closed the connection: %s", e->msg);
}

static void on_late(void *arg)
{
    (void)arg;
    fail_msg("no whole answer came in time");
}

static const struct conn_ops asker_ops = { .on_open = on_open,
                                           .on_frame = on_frame,
                                           .on_close = on_close };

static void ask_status(struct world *w, struct asker *a)
{
    struct conn *c;
    struct err e = { 0 };
    AUTO(free_p) char *path = paths_socket(&w->paths, w->id, "m");
    *a = (struct asker){ .loop = w->loop, .json.max = JOB_STATUS_MAX };
    struct loop_timer *late = loop_timer_new(w->loop, on_late, NULL);
    loop_timer_set(late, clock_mono_ms() + LONG_MS);
    assert_int_equal(conn_dial_unix(w->loop, path, &asker_ops, a, &c, &e), 0);
    (void)loop_run(w->loop);
    conn_close(c);
    loop_timer_free(late);
}

static const char *const conf[] = { "tony.application.framework=generic",
                                    "tony.application.name=many",
                                    "tony.containers.command=true",
                                    "tony.worker.instances=100000",
                                    "tony.worker.memory=1m",
                                    NULL };

static void the_status_of_100000_tasks(void **state)
{
    struct world w;
    struct asker a;
    struct err e = { 0 };
    (void)state;
    world_init(&w, conf, NULL);
    struct master_config cfg = {
        .loop = w.loop, .paths = &w.paths, .application_id = w.id, .epoch = 1, .sched = &silent_ops
    };
    if (master_open(&cfg, &w.master, &e) < 0)
        fail_msg("%s", e.msg);
    ask_status(&w, &a);
    assert_true(a.json.len > FRAME_MAX);
    assert_true(a.n_parts > 1);
    json_t *doc = NULL;
    assert_int_equal(json_parse("status", buf_span(&a.json), &doc, &e), 0);
    assert_int_equal(json_array_size(json_object_get(doc, "tasks")), 100000);
    json_decref(doc);
    buf_done(&a.json);
    master_close(TAKE(w.master));
    world_done(&w);
}

/* With all that a running task on a cluster has, the status of the largest job is within the
 * limit. */
static void the_largest_status_fits_into_the_limit(void **state)
{
    struct world w;
    struct err e = { 0 };
    (void)state;
    world_init(
        &w, (const char *[]){ conf[0], conf[1], conf[2], conf[4], "tony.worker.instances=1", NULL },
        NULL);
    struct master_config cfg = {
        .loop = w.loop, .paths = &w.paths, .application_id = w.id, .epoch = 1, .sched = &silent_ops
    };
    if (master_open(&cfg, &w.master, &e) < 0)
        fail_msg("%s", e.msg);
    struct asker a;
    ask_status(&w, &a);
    /* the strings that this task does not have: an id, an address, the link to the logs, a path,
     * and a sentence on its end */
    size_t more = 60 + 30 + 160 + 200 + 240;
    assert_true((uint64_t)(a.json.len + more) * 100000 < JOB_STATUS_MAX);
    buf_done(&a.json);
    master_close(TAKE(w.master));
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_status_of_100000_tasks),
        cmocka_unit_test(the_largest_status_fits_into_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
