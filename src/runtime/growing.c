/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables that grow with the number of tasks, such as CLUSTER_SPEC. Linux refuses to start a
 * program if one string of its environment has more than 128 KiB, or if all of them together have
 * more than a quarter of the stack's limit. So tony leaves out a variable that is too long; the
 * file TONY_SPEC_FILE has the addresses, too.
 *
 * Programs of some frameworks fail, or silently train alone, without the variable. If the number of
 * tasks shows that such a variable will be too long, tony refuses the job when it is submitted. If
 * only the addresses show it, the master fails the job when the gang has registered, before any
 * task of it starts. If the variable is too long only because the variables of one task leave too
 * little room, that task fails with an error sentence.
 */
#include "runtime/runtime_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"

#define USE_THE_FILE                                                                               \
    "let the program read TONY_SPEC_FILE, and set tony.application."                               \
    "addresses-in-environment to false; or run fewer tasks"

enum { NOT_FOUND = -1 };

static int64_t find_variable(const struct strv *env, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < env->n; i++)
        if (strncmp(env->v[i], name, len) == 0 && env->v[i][len] == '=')
            return (int64_t)i;
    return NOT_FOUND;
}

static void remove_variable(struct strv *env, size_t at)
{
    free(env->v[at]);
    memmove(env->v + at, env->v + at + 1, (env->n - at) * sizeof *env->v); /* with the last NULL */
    env->n--;
}

/* Bytes of all variables as the kernel counts them: each string with its NUL and a pointer to it.
 */
static size_t size_of_all(const struct strv *env)
{
    size_t sum = 0;
    for (size_t i = 0; i < env->n; i++)
        sum += strlen(env->v[i]) + 1 + sizeof env->v[i];
    return sum;
}

static int too_long(const struct runtime *rt, const char *name, size_t bytes, size_t limit,
                    struct err *e)
{
    (void)err_set(e, E2BIG,
                  "the addresses of all tasks do not fit into the environment: framework '%s' "
                  "needs %s with %zu bytes, and Linux takes %zu",
                  rt->name, name, bytes, limit);
    return err_hint(e, USE_THE_FILE);
}

/* The index in env of the longest growing variable among those that are needed (or, if needed is
 * false, among those that are not). */
static int64_t find_longest(const struct runtime *rt, const struct strv *env, bool needed)
{
    int64_t longest = NOT_FOUND;
    for (const struct rt_growing *g = rt->growing; g && g->name; g++) {
        int64_t at = g->needed == needed ? find_variable(env, g->name) : NOT_FOUND;
        if (at >= 0 && (longest < 0 || strlen(env->v[at]) > strlen(env->v[longest])))
            longest = at;
    }
    return longest;
}

static size_t size_of_growing(const struct runtime *rt, const struct strv *env)
{
    size_t sum = 0;
    for (const struct rt_growing *g = rt->growing; g && g->name; g++) {
        int64_t at = find_variable(env, g->name);
        sum += at >= 0 ? strlen(env->v[at]) + 1 + sizeof env->v[at] : 0;
    }
    return sum;
}

/* Remove growing variables until all variables together fit into in->total_max. Each of them alone
 * is short enough already. If the other variables alone exceed the limit, remove none: execve()
 * then fails, and its error is reported. */
static int limit_total(const struct runtime *rt, const struct rt_input *in, struct strv *env,
                       struct err *e)
{
    size_t max = in->total_max, total = size_of_all(env);
    if (total <= max || total - size_of_growing(rt, env) > max)
        return 0;
    for (int64_t at; total > max && (at = find_longest(rt, env, false)) >= 0;) {
        remove_variable(env, (size_t)at);
        total = size_of_all(env);
    }
    int64_t at = total > max ? find_longest(rt, env, true) : NOT_FOUND;
    if (at < 0)
        return 0;
    size_t growing = size_of_growing(rt, env);
    (void)err_set(e, E2BIG,
                  "the addresses of all tasks do not fit into the environment: the variables of "
                  "framework '%s', such as %.*s, need %zu bytes, and the others leave %zu",
                  rt->name, (int)strcspn(env->v[at], "="), env->v[at], growing,
                  max - (total - growing));
    return err_hint(e, USE_THE_FILE);
}

int rt_limit_growing(const struct runtime *rt, const struct rt_input *in, struct strv *env,
                     struct err *e)
{
    size_t max = in->variable_max ? in->variable_max : RT_VARIABLE_MAX;
    for (const struct rt_growing *g = rt->growing; g && g->name; g++) {
        int64_t at = find_variable(env, g->name);
        size_t bytes = at >= 0 ? strlen(env->v[at]) + 1 : 0;
        if (bytes <= max)
            continue;
        if (g->needed)
            return too_long(rt, g->name, bytes, max, e);
        remove_variable(env, (size_t)at);
    }
    return in->total_max ? limit_total(rt, in, env, e) : 0;
}

bool runtime_needs_growing(const struct runtime *rt)
{
    bool needed = false;
    for (const struct rt_growing *g = rt->growing; g && g->name; g++)
        needed |= g->needed;
    return needed;
}

bool runtime_needs_all(const struct runtime *rt, const struct rt_input *in, size_t spec_bytes)
{
    return rt->addresses == RT_ALL ||
           (rt->addresses == RT_GROWING && !in->file_only && str_eq(in->distributed_mode, "GANG") &&
            (runtime_needs_growing(rt) || spec_bytes < RT_VARIABLE_MAX));
}

/* ---- before any task runs ---- */

/* A numeric address of a task, as short or as long as one can be. */
static const char *sample_address(const struct rt_job *job, bool longest)
{
    if (job->local)
        return longest ? "127.0.0.1:65535" : "127.0.0.1:1024";
    return longest ? "255.255.255.255:65535" : "1.1.1.1:1024";
}

/* The job's roles. The address list of each role repeats the sample address for each task. */
struct sample {
    struct rt_role *roles;
    struct buf *lists;
    size_t n;
};

static void sample_done(struct sample *s)
{
    for (size_t i = 0; s->lists && i < s->n; i++)
        buf_done(&s->lists[i]);
    free(s->lists);
    free(s->roles);
}

static int sample_build(const struct rt_job *job, bool longest, struct sample *s)
{
    const char *address = sample_address(job, longest);
    s->n = job->n_roles;
    s->roles = calloc(s->n + 1, sizeof *s->roles);
    s->lists = calloc(s->n + 1, sizeof *s->lists);
    if (!s->roles || !s->lists)
        return -ENOMEM;
    for (size_t i = 0; i < s->n; i++) {
        struct buf *text = &s->lists[i];
        s->roles[i] = job->roles[i];
        (void)buf_reserve(text, job->roles[i].n * (strlen(address) + 3) + 1);
        for (uint32_t k = 0; k < job->roles[i].n; k++)
            buf_addf(text, k ? ",\"%s\"" : "\"%s\"", address);
        if (text->failed)
            return -ENOMEM;
        s->roles[i].list = span_mem(buf_cstr(text), text->len);
    }
    return 0;
}

/* Make the environment of the last task of a role, whose index is the longest, without a limit on
 * lengths, and raise the lengths in out to those of its variables. env() may lack other input and
 * fail; that does not matter, since only the growing variables are measured. */
static int sample_lengths(const struct runtime *rt, const struct rt_role *roles, size_t n_roles,
                          size_t role, bool longest, struct rt_length *out, size_t n)
{
    AUTO(strv_done) struct strv env = { 0 };
    struct err unused = { 0 };
    struct rt_input in = { .application_id = "",
                           .distributed_mode = "GANG",
                           .roles = roles,
                           .n_roles = n_roles,
                           .role = roles[role].name,
                           .index = roles[role].n - 1,
                           .generation = 1,
                           .server = true,
                           .variable_max = SIZE_MAX };
    int rc = rt->env(&in, &env, &unused);
    for (size_t i = 0; rc != -ENOMEM && i < n; i++) {
        int64_t at = find_variable(&env, out[i].name);
        size_t bytes = at >= 0 ? strlen(env.v[at]) + 1 : 0;
        size_t *to = longest ? &out[i].most : &out[i].least;
        *to = MAX(*to, bytes);
    }
    return rc == -ENOMEM ? rc : 0;
}

static int measure_roles(const struct runtime *rt, const struct rt_role *roles, size_t n_roles,
                         bool longest, struct rt_length *out, size_t n)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n_roles; i++)
        if (roles[i].n)
            rc = sample_lengths(rt, roles, n_roles, i, longest, out, n);
    return rc;
}

static int measure(const struct runtime *rt, const struct rt_job *job, bool longest,
                   struct rt_length *out, size_t n)
{
    struct sample s = { 0 };
    int rc = sample_build(job, longest, &s);
    if (rc == 0)
        rc = measure_roles(rt, s.roles, s.n, longest, out, n);
    sample_done(&s);
    return rc;
}

/* Write the growing variables of a framework to out. Returns their number. */
static size_t list_growing(const struct runtime *rt, struct rt_length out[static RT_LENGTHS_MAX])
{
    size_t n = 0;
    for (const struct rt_growing *g = rt->growing; g && g->name && n < RT_LENGTHS_MAX; g++)
        out[n++] = (struct rt_length){ .name = g->name, .needed = g->needed };
    return n;
}

int runtime_lengths(const struct runtime *rt, const struct rt_job *job,
                    struct rt_length out[static RT_LENGTHS_MAX], size_t *out_n, struct err *e)
{
    *out_n = 0;
    if (job->file_only || !job->gang) /* in FCFS the first tasks start before the others register */
        return 0;
    size_t n = list_growing(rt, out);
    int rc = n ? measure(rt, job, false, out, n) : 0;
    if (rc == 0 && n)
        rc = measure(rt, job, true, out, n);
    if (rc < 0)
        return err_set(e, ENOMEM, "cannot estimate the length of the environment: %m");
    *out_n = n;
    return 0;
}

/* Has the job enough tasks for a variable that is too long? If not, an estimate is unnecessary. */
static bool may_be_too_long(const struct rt_job *job)
{
    enum { SHORTEST = 15 }; /* "1.1.1.1:1024", */
    uint64_t n = 0;
    for (size_t i = 0; i < job->n_roles; i++)
        n += job->roles[i].n;
    return n > RT_VARIABLE_MAX / SHORTEST / 2;
}

int runtime_check_lengths(const struct runtime *rt, const struct rt_job *job, struct err *e)
{
    struct rt_length lengths[RT_LENGTHS_MAX];
    size_t n = 0;
    int rc = may_be_too_long(job) ? runtime_lengths(rt, job, lengths, &n, e) : 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (!lengths[i].needed || lengths[i].least <= RT_VARIABLE_MAX)
            continue;
        (void)err_set(e, E2BIG,
                      "the addresses of all tasks do not fit into the environment: framework '%s' "
                      "needs %s with at least %zu bytes, and Linux takes %d",
                      rt->name, lengths[i].name, lengths[i].least, RT_VARIABLE_MAX);
        rc = err_hint(e, USE_THE_FILE);
    }
    return rc;
}

int runtime_check_addresses(const struct runtime *rt, const struct rt_role *roles, size_t n,
                            struct err *e)
{
    struct rt_length lengths[RT_LENGTHS_MAX];
    size_t n_lengths = list_growing(rt, lengths);
    if (measure_roles(rt, roles, n, true, lengths, n_lengths) < 0)
        return err_set(e, ENOMEM, "cannot measure the addresses of the tasks: %m");
    for (size_t i = 0; i < n_lengths; i++)
        if (lengths[i].needed && lengths[i].most > RT_VARIABLE_MAX)
            return too_long(rt, lengths[i].name, lengths[i].most, RT_VARIABLE_MAX, e);
    return 0;
}
