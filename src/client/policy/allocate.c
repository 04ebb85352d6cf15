/* SPDX-License-Identifier: Apache-2.0 */
/* `tony allocate`: reads nodes and jobs from standard input, and prints one division of the
 * nodes among the jobs. */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/policy/allocate.h"
#include "client/policy/exact.h"
#include "partition/instance.h"

enum {
    ANSWER_MAX = 1 << 30,
    LIMIT_MAX_MS = 24 * 3600 * 1000,
    EXACT_LIMIT_MS = 60 * 1000, /* of --exact without --time-limit */
    EXACT_PART = 4,             /* with --exact, the fast search gets 1/EXACT_PART of the time */
};

static bool past(void *ctx)
{
    return clock_mono_us() >= *(int64_t *)ctx;
}

int client_policy(const char *name, const struct part_policy **out, struct err *e)
{
    const char *names[16];
    size_t n = 0;
    *out = part_policy_find(name);
    if (*out)
        return 0;
    for (const struct part_policy *p = part_policies; p->name && n < ARRAY_LEN(names); p++)
        names[n++] = p->name;
    int rc = err_set(e, EINVAL, "there is no policy '%s'", name);
    const char *near = str_nearest(name, names, n);
    AUTO(buf_done) struct buf list = { 0 };
    for (size_t i = 0; i < n; i++)
        (void)buf_addf(&list, "%s%s", i ? ", " : "", names[i]);
    if (near)
        err_hint(e, "did you mean '%s'?", near);
    else
        err_hint(e, "the policies are %s", buf_cstr(&list));
    return rc;
}

/* Replace the answer of the search by that of the exact solver, if the solver ends in time. */
static int improve(struct span instance, int64_t limit_ms, struct buf *answer, struct err *e)
{
    AUTO(buf_done) struct buf exact = { .max = ANSWER_MAX };
    int rc = exact_ask(instance, limit_ms, &exact, e);
    if (rc == -ETIMEDOUT) {
        client_note("%s; this is the answer of the fast search", e->msg);
        return 0;
    }
    if (rc == 0) {
        buf_done(answer);
        *answer = exact;
        exact = (struct buf){ 0 };
    }
    return rc;
}

int cmd_allocate(struct client *c)
{
    bool exact = options_has(&c->o, OPT_EXACT);
    const struct part_policy *policy = NULL;
    const char *name = options_get(&c->o, OPT_POLICY),
               *seconds = options_get(&c->o, OPT_TIME_LIMIT);
    int64_t limit_ms = EXACT_LIMIT_MS, deadline_us = clock_mono_us();
    struct part_limit limit = { 0 };
    struct err e = { 0 };
    if (name && client_policy(name, &policy, &e) < 0)
        return client_fail(EXIT_MISUSE, &e);
    if (exact && name && !str_eq(name, "dorm")) {
        (void)err_set(&e, EINVAL, "--exact is for the policy 'dorm', not for '%s'", name);
        return client_fail(EXIT_MISUSE, &e);
    }
    if (seconds) {
        if (str_ms(span_of(seconds), 1, LIMIT_MAX_MS, option_name(OPT_TIME_LIMIT), &limit_ms, &e) <
            0)
            return client_fail(EXIT_MISUSE, &e);
        deadline_us += limit_ms * 1000 / (exact ? EXACT_PART : 1);
        limit.stop = past;
        limit.ctx = &deadline_us;
    }

    AUTO(buf_done) struct buf text = { 0 };
    AUTO(buf_done) struct buf answer = { .max = ANSWER_MAX };
    int rc = buf_fill_fd(&text, STDIN_FILENO, &e);
    if (rc == 0)
        rc = instance_answer("standard input", buf_span(&text), policy, &limit, NULL, &answer, &e);
    if (rc < 0)
        return client_fail(rc == -ENOMEM ? EXIT_CLUSTER : EXIT_MISUSE, &e);
    if (exact && improve(buf_span(&text), limit_ms, &answer, &e) < 0)
        return client_fail(EXIT_CLUSTER, &e);
    (void)fwrite(answer.p, 1, answer.len, stdout); /* client_flush_stdout() reports a failure */
    return client_flush_stdout();
}
