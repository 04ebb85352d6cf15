/* SPDX-License-Identifier: Apache-2.0 */
/* `tony resize --wait`: which resize the client follows, when it stops waiting, and with which exit
 * code, when the scheduler begins another resize at the same moment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/show/resize.h"

#define JOB "{\"application_id\":\"application_1_0001\",\"state\":\"RUNNING\""
#define ROLE(from, to) "\"roles\":[{\"name\":\"worker\",\"from\":" #from ",\"to\":" #to "}]"
#define ON(state, asked) ",\"resize\":{\"state\":\"" state "\",\"asked_ms\":" #asked ","
#define LAST(outcome) ",\"last_resize\":{\"outcome\":\"" outcome "\",\"at_ms\":90,"

/* The client's own resize, 4 to 3, was accepted at 50 ms; one resize was done before it. */
#define MINE_WAITS JOB ",\"resizes\":1" ON("waiting", 50) ROLE(4, 3) "}}"
#define MINE_FORMS JOB ",\"resizes\":1" ON("forming", 50) ROLE(4, 3) "}}"

static const struct row {
    const char *docs[4]; /* the answer of the master, then its updates */
    int n_updates;       /* after so many the wait is over */
    int code;
} rows[] = {
    { { MINE_FORMS, MINE_FORMS, JOB ",\"resizes\":2" LAST("done") ROLE(4, 3) "}}" }, 2, EXIT_DONE },
    { { MINE_WAITS, JOB ",\"resizes\":1" LAST("timed_out") ROLE(4, 3) "}}" }, 1, EXIT_JOB_FAILED },
    /* live: its own tasks leave, and are waited for */
    { { MINE_WAITS, JOB ",\"resizes\":2,\"leaving\":1" LAST("done") ROLE(4, 3) "}}",
        JOB ",\"resizes\":2" LAST("done") ROLE(4, 3) "}}" },
      2,
      EXIT_DONE },
    /* the gang has formed, and shrinks again for the scheduler: those tasks leave for that */
    { { MINE_FORMS, JOB ",\"resizes\":2,\"leaving\":1" ON("forming", 90) ROLE(3, 2) "}}" },
      1,
      EXIT_DONE },
    /* both were done before the client looked */
    { { MINE_FORMS, JOB ",\"resizes\":3" LAST("done") ROLE(3, 2) "}}" }, 1, EXIT_DONE },
    { { MINE_FORMS, JOB ",\"resizes\":3,\"leaving\":1" LAST("done") ROLE(3, 2) "}}" },
      1,
      EXIT_DONE },
    /* live, and the next one follows: the document does not say whose tasks leave, so the client
       waits for all */
    { { MINE_WAITS, JOB ",\"resizes\":2,\"leaving\":2" ON("waiting", 90) ROLE(3, 2) "}}",
        JOB ",\"resizes\":3" LAST("done") ROLE(3, 2) "}}" },
      2,
      EXIT_DONE },
    /* replaced while it waited */
    { { MINE_WAITS, JOB ",\"resizes\":1,\"leaving\":1" ON("forming", 90) ROLE(4, 2) "}}" },
      1,
      EXIT_JOB_FAILED },
};

struct script {
    const struct row *row;
    int n_updates;
};

static int play(void *arg, const struct follow_options *o, struct follow_result *out, struct err *e)
{
    struct script *s = arg;
    bool over = false;
    (void)e;
    for (int i = 1; i < 4 && s->row->docs[i] && !over; i++) {
        json_t *doc = json_loads(s->row->docs[i], 0, NULL);
        assert_non_null(doc);
        over = o->on_update("RUNNING", doc, o->arg);
        s->n_updates++;
        json_decref(doc);
    }
    out->detached = !over;
    return 0;
}

static void test_waits(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *argv[] = { (char[]){ "--wait" }, NULL };
        struct client c = { .host = { .version = "test" } };
        struct script s = { .row = &rows[i] };
        assert_int_equal(options_parse(1, argv, ~UINT64_C(0), &c.o, NULL), 0);
        json_t *doc = json_loads(rows[i].docs[0], 0, NULL);
        assert_non_null(doc);
        int code = resize_answered(&c, "application_1_0001", doc, play, &s);
        if (code != rows[i].code || s.n_updates != rows[i].n_updates)
            fail_msg("row %zu: exit code %d after %d updates, but designed: %d after %d", i, code,
                     s.n_updates, rows[i].code, rows[i].n_updates);
        options_done(&c.o);
    }
}

#define WORKER                                                                                     \
    (char[])                                                                                       \
    {                                                                                              \
        "worker"                                                                                   \
    }
#define PS                                                                                         \
    (char[])                                                                                       \
    {                                                                                              \
        "ps"                                                                                       \
    }
#define EVAL                                                                                       \
    (char[])                                                                                       \
    {                                                                                              \
        "eval"                                                                                     \
    }

/* A request that would change nothing is refused. The sentence names each role of the request. */
static void test_nothing_would_change(void **state)
{
    const struct {
        struct cluster_resize_role sizes[3];
        size_t n;
        const char *sentence;
    } cases[] = {
        { { { WORKER, 2 } }, 1, "job a_1 has worker 2 already; nothing would change" },
        { { { WORKER, 2 }, { PS, 1 } },
          2,
          "job a_1 has worker 2 and ps 1 already; nothing would change" },
        { { { PS, 1 }, { EVAL, 3 }, { WORKER, 2 } },
          3,
          "job a_1 has ps 1, eval 3 and worker 2 already; nothing would change" },
        { { { WORKER, 2 }, { PS, 2 } }, 2, NULL },
    };
    json_t *doc = json_loads("{\"application_id\":\"a_1\",\"state\":\"RUNNING\",\"roles\":["
                             "{\"name\":\"worker\",\"instances\":2},"
                             "{\"name\":\"ps\",\"instances\":1},"
                             "{\"name\":\"eval\",\"instances\":3}]}",
                             0, NULL);

    (void)state;
    assert_non_null(doc);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct cluster_resize w = { .within_ms = 0 };
        struct err e = { 0 };
        for (size_t k = 0; k < cases[i].n; k++)
            assert_int_equal(vec_push(&w.sizes, cases[i].sizes[k]), 0);
        int code = resize_check(&w, doc, &e);
        assert_int_equal(code, cases[i].sentence ? EXIT_MISUSE : EXIT_DONE);
        assert_string_equal(e.msg, cases[i].sentence ? cases[i].sentence : "");
        vec_done(&w.sizes);
    }
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_waits),
                                        cmocka_unit_test(test_nothing_would_change) };
    return cmocka_run_group_tests_name("client_resize", tests, NULL, NULL);
}
