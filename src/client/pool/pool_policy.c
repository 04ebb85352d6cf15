/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool set, pool why: the policy by which the pool divides the machine, and its decisions.
 */
#include "client/pool/pool_policy.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/policy/figures.h"
#include "client/pool/ask.h"
#include "client/pool/forecast.h"
#include "client/show/names.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "proto/tony.pb-c.h"
#include "storage/paths.h"

static int fail(bool refused, struct err *e)
{
    bool wrong = refused && (e->num == EINVAL || e->num == ERANGE);
    return client_fail(wrong ? EXIT_MISUSE : EXIT_CLUSTER, e);
}

/* ---- pool set ---- */

/* The value as a user may type it: "30m" instead of 1800000 ms. */
static void add_value(const json_t *setting, struct buf *out)
{
    struct span part;
    int64_t ms;
    char text[32];
    const char *value = doc_str(setting, "value");
    const struct conf_key *key = conf_key_find(span_of(doc_str(setting, "key")), &part);
    const char *unit = key && key->unit && value[0] ? key->unit : "";
    if (str_eq(unit, "ms") && str_i64(span_of(value), 0, INT64_MAX, "value", &ms, NULL) == 0)
        (void)buf_adds(out, str_ms_text(ms, text, sizeof text));
    else
        (void)buf_addf(out, "%s%s%s", value, unit[0] ? " " : "", unit);
}

static void print_settings(const json_t *doc)
{
    struct table t = { .n_cols = 3 };
    size_t i;
    json_t *one;
    table_add(&t, "KEY", "VALUE", "FROM", NULL);
    json_array_foreach(json_object_get(doc, "settings"), i, one)
    {
        AUTO(buf_done) struct buf value = { 0 };
        add_value(one, &value);
        const char *key = doc_str(one, "key");
        key += str_starts(key, "tony.pool.policy.") ? strlen("tony.pool.policy.")
                                                    : strlen("tony.pool.");
        table_add(&t, key, buf_cstr(&value), doc_str(one, "origin"), NULL);
    }
    table_print(&t);
    (void)printf("times: a number of ms, or a number and its unit: " STR_MS_FORMS "\n");
}

int pool_set(struct client *c)
{
    struct err e = { 0 };
    json_t *doc = NULL;
    bool refused = false;
    const struct cluster_question q = { .what = TONY__CLIENT_ASK__WHAT__POLICY_SET,
                                        .settings = &c->o.args[1],
                                        .n_settings = c->o.n_args - 1,
                                        .start = true,
                                        .once = true };
    if (pool_ask(c, &q, &doc, &refused, &e) < 0)
        return fail(refused, &e);
    if (options_has(&c->o, OPT_JSON))
        return client_print_json(doc);
    print_settings(doc);
    json_decref(doc);
    return client_flush_stdout();
}

/* ---- pool why ---- */

/* Add "expected" to each job of the decision that waits, and under fifo a list of all that wait. */
static void add_expected(json_t *doc, const struct forecast *f)
{
    json_t *jobs = json_object_get(json_object_get(doc, "decision"), "jobs"), *job;
    size_t i;
    json_array_foreach(jobs, i, job)
    {
        json_t *x = doc_int(job, "containers", 0) || json_is_true(json_object_get(job, "extension"))
                        ? NULL
                        : forecast_json(f, doc_str(job, "application_id"));
        if (x)
            (void)json_object_set_new(job, "expected", x); /* on failure, the member is missing */
    }
    if (!jobs)
        (void)json_object_set_new(doc, "waiting", forecast_queue(f));
}

/* A job that waits: its place in the queue, and what it lacks. */
static void print_waits(const json_t *job, const char *held)
{
    int64_t place = doc_int(json_object_get(job, "expected"), "place", 0);
    AUTO(buf_done) struct buf lacks = { 0 };
    if (place > 0)
        (void)printf("    waits, place %lld in the queue, for %s\n", (long long)place, held);
    else
        (void)printf("    waits, for %s\n", held);
    if (forecast_missing(job, &lacks))
        (void)printf("    lacks: %s\n", buf_cstr(&lacks));
}

/* at_ms: the time to which the duration of the present state is counted. */
static void print_job(struct client *c, const json_t *job, int64_t at_ms)
{
    int64_t n = doc_int(job, "containers", 0), had = doc_int(job, "had", 0);
    const char *hint = doc_str(job, "would_change");
    char held[32];
    (void)str_duration(MAX(at_ms - doc_int(job, "since_ms", 0), (int64_t)0), held, sizeof held);
    (void)printf("  %s%s\n", names_label(c, doc_str(job, "application_id")),
                 json_is_true(json_object_get(job, "extension")) ? ", its extension" : "");
    if (n == 0)
        print_waits(job, held);
    else if (!json_is_true(json_object_get(job, "elastic")))
        (void)printf("    has what it needs, and is not resized\n");
    else if (had && had != n)
        (void)printf("    %lld container%s for %s, before %lld; fair: %lld\n", (long long)n,
                     n == 1 ? "" : "s", held, (long long)had, (long long)doc_int(job, "fair", 0));
    else
        (void)printf("    %lld container%s for %s; fair: %lld\n", (long long)n, n == 1 ? "" : "s",
                     held, (long long)doc_int(job, "fair", 0));
    (void)printf("    why: %s\n", doc_str(job, "why"));
    AUTO(buf_done) struct buf start = { 0 };
    if (forecast_text(job, &start))
        (void)printf("    expected start: %s\n", buf_cstr(&start));
    if (hint[0]) /* some are sentences: "it can start when ..." */
        (void)printf("    %s%s\n", str_starts(hint, "it ") ? "" : "what would change it: ", hint);
}

static void add_figures(const json_t *decision, struct buf *out)
{
    const json_t *gap = json_object_get(decision, "gap");
    const struct decision_figures f = {
        .utilization = json_number_value(json_object_get(decision, "utilization")),
        .loss = json_number_value(json_object_get(decision, "loss")),
        .gap = json_is_number(gap) ? json_number_value(gap) : NAN,
        .adjusted = doc_int(decision, "adjusted", 0),
        .admitted = doc_int(decision, "admitted", 0)
    };
    decision_figures_text(&f, out);
}

/* Has the job ended? Then the decision below is the last one about it. */
static bool is_over(const struct client *c, const char *id)
{
    AUTO(free_p) char *dir = NULL;
    bool live = true;
    return id[0] && paths_find_job(&c->host.paths, id, &dir, &live, NULL) == 0 && !live;
}

static void print_why(struct client *c, const char *id, const json_t *read)
{
    AUTO(json_freep) json_t *doc = names_shown(c, read, false);
    const json_t *d = json_object_get(doc, "decision");
    int64_t now_ms = doc_int(doc, "now_ms", 0);
    char ago[32];
    AUTO(buf_done) struct buf figures = { 0 };
    size_t i;
    json_t *job;
    if (!json_is_object(d)) {
        (void)printf("the pool's policy is '%s', and it has made no decision%s\n",
                     doc_str(doc, "policy"),
                     str_eq(doc_str(doc, "policy"), "fifo")
                         ? ": jobs start in the order of the queue, see tony pool status"
                         : " yet");
        forecast_print_queue(c, json_object_get(doc, "waiting"));
        return;
    }
    (void)str_duration(MAX(now_ms - doc_int(d, "at_ms", 0), (int64_t)0), ago, sizeof ago);
    bool over = is_over(c, id);
    if (over)
        (void)printf("%s is over; this is the last decision about it\n", names_label(c, id));
    add_figures(d, &figures);
    (void)printf("policy '%s', decision %lld, %s ago\n  %s\n", doc_str(d, "policy"),
                 (long long)doc_int(d, "number", 0), ago, buf_cstr(&figures));
    json_array_foreach(json_object_get(d, "jobs"), i, job)
    {
        print_job(c, job, over ? doc_int(d, "at_ms", 0) : now_ms);
    }
}

/* ---- older decisions ---- */

/* Remove all other jobs from the decision. Returns the number of entries that are left: a job and
 * its extension. */
static size_t keep_one_job(json_t *decision, const char *id)
{
    json_t *jobs = json_object_get(decision, "jobs");
    for (size_t i = json_array_size(jobs); i-- > 0;)
        if (!str_eq(doc_str(json_array_get(jobs, i), "application_id"), id))
            (void)json_array_remove(jobs, i);
    return json_array_size(jobs);
}

/* The last decision in a file of the pool that is about the job. NULL = there is none, or the file
 * cannot be read. */
static json_t *find_in_file(const struct client *c, const char *name, const char *id)
{
    enum { FILE_MAX = 64 << 20 };
    AUTO(free_p) char *path = fs_join(c->host.paths.pool, name);
    AUTO(free_p) char *quoted = str_printf("\"%s\"", id);
    AUTO(buf_done) struct buf text = { .max = FILE_MAX };
    struct span rest, line;
    json_t *found = NULL;
    if (!path || !quoted || fs_read_file(AT_FDCWD, path, &text, NULL) < 0)
        return NULL;
    rest = buf_span(&text);
    while (span_split(&rest, '\n', &line)) {
        if (!line.len || !memmem(line.p, line.len, quoted, strlen(quoted)))
            continue;
        json_t *d = json_loadb(line.p, line.len, JSON_REJECT_DUPLICATES, NULL);
        if (keep_one_job(d, id) > 0) {
            json_decref(found);
            found = TAKE(d);
        }
        json_decref(d); /* a line that the pool did not write to its end is skipped */
    }
    return found;
}

/* The last decision of the running pool is not about the job, for example because it is over: show
 * the last one that was. Changes doc. false: there is none. */
static bool take_older(const struct client *c, const char *id, json_t *doc)
{
    json_t *decision = json_object_get(doc, "decision");
    if (json_array_size(json_object_get(decision, "jobs")) > 0)
        return true;
    if (!(decision = find_in_file(c, "decisions", id)) &&
        !(decision = find_in_file(c, "decisions.1", id)))
        return false;
    (void)json_object_set_new(doc, "decision", decision); /* on failure: "no decision" */
    return true;
}

/* The id of the job that the command names; "" = it names none. An exit code; errors were printed.
 */
static int find_id(struct client *c, char out[APP_ID_MAX])
{
    struct cluster *k = NULL;
    struct err e = { 0 };
    out[0] = '\0';
    int rc = c->o.n_args > 1 ? client_find(c, c->o.args[1], &k, out, &e) : 0;
    return rc < 0 ? client_fail(-rc, &e) : EXIT_DONE;
}

int pool_why(struct client *c)
{
    struct err e = { 0 };
    json_t *doc = NULL;
    bool refused = false;
    char id[APP_ID_MAX];
    int code = find_id(c, id);
    if (code != EXIT_DONE)
        return code;
    const struct cluster_question q = { .what = TONY__CLIENT_ASK__WHAT__POLICY_WHY,
                                        .id = id[0] ? id : NULL };
    int rc = pool_ask(c, &q, &doc, &refused, &e);
    bool absent = rc == 0;
    if (rc < 0)
        return fail(refused, &e);
    if (absent)
        doc = json_pack("{s:s, s:n, s:I}", "policy", "fifo", "decision", "now_ms",
                        (json_int_t)clock_wall_ms());
    struct forecast *f = absent ? NULL : forecast_load(c);
    bool is_new = json_array_size(json_object_get(json_object_get(doc, "decision"), "jobs")) > 0;
    bool is_known = id[0] && take_older(c, id, doc);
    if (f && (is_new || !is_known))
        add_expected(doc, f);
    forecast_free(f);
    if (options_has(&c->o, OPT_JSON))
        return client_print_json(doc);
    if (absent && !is_known)
        (void)printf("the pool does not run, so no job waits and none is resized\n");
    else
        print_why(c, id, doc);
    json_decref(doc);
    return client_flush_stdout();
}

/* ---- for other commands ---- */

/* The last decision of the pool, about one job or about all (id NULL). */
static json_t *ask_why(struct client *c, const char *id)
{
    const struct cluster_question q = { .what = TONY__CLIENT_ASK__WHAT__POLICY_WHY,
                                        .id = id,
                                        .wait_ms = POOL_POLICY_MS };
    json_t *doc = NULL;
    return pool_ask(c, &q, &doc, NULL, NULL) == 1 ? doc : NULL;
}

void pool_policy_add(struct client *c, json_t *doc)
{
    json_t *why = NULL, *job;
    size_t i;
    if (!str_eq(doc_str(doc, "state"), "RUNNING") ||
        !(why = ask_why(c, doc_str(doc, "application_id"))))
        return;
    const json_t *d = json_object_get(why, "decision");
    json_array_foreach(json_object_get(d, "jobs"), i, job)
    {
        if (!json_is_true(json_object_get(job, "extension")))
            (void)json_object_set_new(doc, "policy",
                                      json_pack("{s:s, s:I, s:O}", "name", doc_str(d, "policy"),
                                                "decision", (json_int_t)doc_int(d, "number", 0),
                                                "word", job)); /* on failure, doc lacks it */
    }
    json_decref(why);
}

json_t *pool_reasons(struct client *c)
{
    return ask_why(c, NULL);
}
