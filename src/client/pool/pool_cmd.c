/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool status, pool start, pool stop; pool set and pool why are in pool_policy.c
 */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/base.h"
#include "base/lockfile.h"
#include "client/client_int.h"
#include "client/pool/ask.h"
#include "client/pool/pool_policy.h"
#include "client/pool/pool_unit.h"
#include "client/show/names.h"
#include "codec/json.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

enum { END_MS = 30000 }; /* for a pool to end */

static int fail_rc(struct err *e)
{
    return client_fail(EXIT_CLUSTER, e);
}

/* 1: the pool has answered; 0: no pool runs. */
static int ask_pool(struct client *c, bool start, int what, bool force, json_t **out, struct err *e)
{
    const struct cluster_question q = { .what = what, .start = start, .force = force };
    return pool_ask(c, &q, out, NULL, e);
}

static void size_cell(const json_t *obj, char *out, size_t n)
{
    (void)str_size((uint64_t)doc_int(obj, "memory_mib", 0) << 20, out, n);
}

static void print_status(const json_t *doc)
{
    const json_t *capacity = json_object_get(doc, "capacity"), *used = json_object_get(doc, "used");
    char of[32], in_use[32];
    size_cell(capacity, of, sizeof of);
    size_cell(used, in_use, sizeof in_use);
    (void)printf("pool %lld, version %s\n  memory  %s of %s\n  GPUs    %lld of %lld\n  cores   "
                 "%lld asked for, %lld in the machine\n",
                 (long long)doc_int(doc, "pid", 0), doc_str(doc, "version"), in_use, of,
                 (long long)doc_int(used, "gpus", 0), (long long)doc_int(capacity, "gpus", 0),
                 (long long)doc_int(used, "vcores", 0), (long long)doc_int(capacity, "vcores", 0));
    if (!str_eq(doc_str(doc, "policy"), "fifo"))
        (void)printf("  policy  %s\n", doc_str(doc, "policy"));
    const json_t *jobs = json_object_get(doc, "jobs");
    if (json_array_size(jobs) == 0)
        return;
    struct table t = { .n_cols = 5 };
    table_add(&t, "APPLICATION", "NAME", "STATE", "MEMORY", "WAITS BEHIND", NULL);
    size_t i;
    json_t *job;
    json_array_foreach(jobs, i, job)
    {
        char memory[32], name[NAMES_CELL_MAX];
        size_cell(json_object_get(job, "needs"), memory, sizeof memory);
        /* A running job has `wants` if it waits for room to grow. */
        const json_t *wants = json_object_get(job, "wants");
        table_add(&t, doc_str(job, "application_id"), names_cell(doc_str(job, "name"), name),
                  doc_str(job, "state"), memory, doc_str(wants ? wants : job, "behind"), NULL);
    }
    table_print(&t);
}

static int status(struct client *c, bool start)
{
    struct err e = { 0 };
    json_t *doc = NULL;
    int rc = ask_pool(c, start, TONY__CLIENT_ASK__WHAT__POOL_STATUS, false, &doc, &e);
    if (rc < 0)
        return fail_rc(&e);
    bool json = options_has(&c->o, OPT_JSON);
    if (rc == 0) {
        if (json)
            return client_print_json(json_pack("{s:b}", "running", 0));
        (void)printf("the pool does not run; it is started when needed\n");
        return client_flush_stdout();
    }
    (void)json_object_set_new(doc, "running", json_true());
    if (json)
        return client_print_json(doc);
    AUTO(json_freep) json_t *shown = names_shown(c, doc, false);
    print_status(shown);
    json_decref(doc);
    return client_flush_stdout();
}

static bool answers(struct client *c)
{
    json_t *doc = NULL;
    bool yes = ask_pool(c, false, TONY__CLIENT_ASK__WHAT__POOL_STATUS, false, &doc, NULL) == 1;
    json_decref(doc);
    return yes;
}

/* Does a pool hold the lock? The pool releases it as the very last step of its end. */
static bool holds_its_lock(const struct client *c)
{
    AUTO(free_p) char *path = paths_pool_lock(&c->host.paths);
    return path && lockfile_is_held(path);
}

/* Wait until the pool has ended: it has released its lock. The caller may then safely remove
 * TONY_HOME. If a pool answers after a silence, the old one has ended and this is a new one. */
static int await_end(struct client *c, struct err *e)
{
    int64_t deadline = clock_mono_ms() + END_MS;
    bool silent = false;
    for (int pause = 1; clock_mono_ms() < deadline; pause = MIN(pause * 2, 50)) {
        bool there = answers(c);
        if (there ? silent : !holds_its_lock(c))
            return 0;
        silent = !there;
        (void)poll(NULL, 0, pause);
    }
    return err_set(e, ETIMEDOUT, "the pool announced its end, but still answers after %d s",
                   END_MS / 1000);
}

/* Ask the pool to stop. A pool that is starting holds its lock before it listens: wait and ask
 * again. 0: no pool runs; 1: the pool has the request. */
static int ask_to_stop(struct client *c, json_t **out, struct err *e)
{
    int64_t deadline = clock_mono_ms() + END_MS;
    for (;;) {
        bool force = options_has(&c->o, OPT_FORCE);
        int rc = ask_pool(c, false, TONY__CLIENT_ASK__WHAT__POOL_STOP, force, out, e);
        if (rc != 0 || !holds_its_lock(c))
            return rc;
        if (clock_mono_ms() >= deadline)
            return err_set(e, ETIMEDOUT, "a pool has been starting or ending for %d s",
                           END_MS / 1000);
        (void)poll(NULL, 0, 10);
    }
}

static int stop(struct client *c)
{
    struct err e = { 0 };
    json_t *doc = NULL;
    int rc = ask_to_stop(c, &doc, &e);
    bool ran = rc == 1;
    json_decref(doc);
    if (rc == 1)
        rc = await_end(c, &e);
    if (rc < 0)
        return client_fail(e.num == EBUSY ? EXIT_JOB_FAILED : EXIT_CLUSTER, &e);
    if (options_has(&c->o, OPT_JSON))
        return client_print_json(json_pack("{s:b, s:b}", "running", 0, "stopped", ran));
    client_note(ran ? "the pool has stopped" : "the pool does not run");
    return EXIT_DONE;
}

static int show_status(struct client *c)
{
    return status(c, false);
}

static int start(struct client *c)
{
    return status(c, true);
}

static int enable(struct client *c)
{
    return pool_unit(c, true);
}

static int disable(struct client *c)
{
    return pool_unit(c, false);
}

static const struct subcommand {
    const char *word;
    int (*run)(struct client *c); /* returns the exit code */
    size_t most;                  /* arguments after the word */
    bool may_force;               /* takes --force */
} subcommands[] = {
    { "status", show_status, 0, false }, { "start", start, 0, false },
    { "stop", stop, 0, true },           { "set", pool_set, SIZE_MAX, false },
    { "why", pool_why, 1, false },       { "enable", enable, 0, false },
    { "disable", disable, 0, false },
};

static int unknown_word(const char *word)
{
    const char *words[ARRAY_LEN(subcommands)];
    struct err e = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(subcommands); i++)
        words[i] = subcommands[i].word;
    (void)err_set(&e, EINVAL, "tony pool does not understand '%s'", word);
    const char *near = str_nearest(word, words, ARRAY_LEN(words));
    if (near)
        err_hint(&e, "did you mean 'tony pool %s'?", near);
    else
        err_hint(&e, "usage: tony pool status|start|stop|set|why|enable|disable");
    return client_fail(EXIT_MISUSE, &e);
}

int cmd_pool(struct client *c)
{
    const char *word = c->o.args[0];
    const struct subcommand *s = NULL;
    struct err e = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(subcommands); i++)
        if (str_eq(word, subcommands[i].word))
            s = &subcommands[i];
    if (!s)
        return unknown_word(word);
    if (c->o.n_args - 1 > s->most) {
        (void)err_set(&e, EINVAL, "tony pool %s takes no argument '%s'", word,
                      c->o.args[s->most + 1]);
        return client_fail(EXIT_MISUSE, &e);
    }
    if (options_has(&c->o, OPT_FORCE) && !s->may_force) {
        (void)err_set(&e, EINVAL, "option '--force' belongs to 'tony pool stop'");
        return client_fail(EXIT_MISUSE, &e);
    }
    return s->run(c);
}
