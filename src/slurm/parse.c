/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what the commands of Slurm print. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "base/map.h"
#include "slurm/commands.h"
#include "slurm/parse_int.h"

enum { SHAPES_MAX = 64 }; /* kinds of nodes in a partition; further ones are left out */

/* ---- sinfo ---- */

uint32_t slurm_count_gpus(struct span gres)
{
    struct span item;
    int64_t n = 0;
    while (span_split(&gres, ',', &item)) {
        int64_t count = 1;
        item = span_trim(item);
        const char *paren = item.len ? memchr(item.p, '(', item.len) : NULL;
        if (paren)
            item.len = (size_t)(paren - item.p);
        if (!span_eqs(item, "gpu") && !span_starts(item, "gpu:"))
            continue;
        const char *colon = memrchr(item.p, ':', item.len);
        if (colon && str_i64(span_mem(colon + 1, (size_t)(item.p + item.len - colon - 1)), 0,
                             SLURM_COUNT_MAX, "gres", &count, NULL) < 0)
            count = 1; /* "gpu:a100": one of that type */
        n = MIN(n + count, (int64_t)SLURM_COUNT_MAX);
    }
    return (uint32_t)n;
}

bool slurm_read_number(struct span text, int64_t *out)
{
    text = span_trim(text);
    if (text.len && text.p[text.len - 1] == '+')
        text.len--;
    return str_i64(text, 0, INT64_MAX >> 20, "number", out, NULL) == 0;
}

/* "idle", "mix", "alloc", "comp", "resv", ... */
bool slurm_node_is_usable(struct span state)
{
    static const char *const out[] = { "down", "drain", "drng", "fail", "inval", "unk", "boot" };
    for (size_t i = 0; i < ARRAY_LEN(out); i++)
        if (span_starts(state, out[i]))
            return false;
    return true;
}

struct line { /* of sinfo */
    struct span name, partition;
    struct slurm_node node;
    bool usable;
};

static bool read_line(struct span text, struct line *out)
{
    struct span cpus, memory, gres, state;
    int64_t vcores, mib;
    if (!span_split(&text, '|', &out->name) || !span_split(&text, '|', &out->partition) ||
        !span_split(&text, '|', &cpus) || !span_split(&text, '|', &memory) ||
        !span_split(&text, '|', &gres) || !span_split(&text, '|', &state) || !out->name.len ||
        !slurm_read_number(cpus, &vcores) || !slurm_read_number(memory, &mib))
        return false;
    out->partition = span_trim(out->partition);
    out->usable = slurm_node_is_usable(span_trim(state));
    out->node =
        (struct slurm_node){ 1, (uint64_t)mib, (uint32_t)MIN(vcores, (int64_t)SLURM_COUNT_MAX),
                             slurm_count_gpus(gres) };
    return true;
}

/* "all*" is the default partition. */
static bool is_default(struct span partition)
{
    return partition.len && partition.p[partition.len - 1] == '*';
}

static bool has_default(struct span text, bool unusable)
{
    struct span rest;
    struct line line;
    while (text.len && span_split(&text, '\n', &rest))
        if (read_line(rest, &line) && (unusable || line.usable) && is_default(line.partition))
            return true;
    return false;
}

static int add_node(slurm_nodes *out, const struct slurm_node *n)
{
    size_t i = 0;
    while (i < out->n && (out->v[i].memory_mib != n->memory_mib || out->v[i].gpus != n->gpus ||
                          out->v[i].vcores != n->vcores))
        i++;
    if (i < out->n)
        out->v[i].n++;
    else if (out->n < SHAPES_MAX && vec_push(out, *n) < 0)
        return -ENOMEM;
    return 0;
}

static void names_done(struct map *m)
{
    map_done(m, NULL);
}

/* Put the names of these nodes into the map. A list that cannot be read excludes none here: sbatch
 * judges it. */
static int exclude_names(const char *list, struct map *names, void *mark)
{
    struct strv v = { 0 };
    int rc = list && *list && slurm_expand_nodes(span_of(list), &v) == 0 ? 0 : -EBADMSG;
    for (size_t i = 0; rc == 0 && i < v.n; i++)
        rc = map_set(names, v.v[i], mark, NULL);
    strv_done(&v);
    return rc == -ENOMEM ? rc : 0;
}

int slurm_parse_nodes(struct span text, const struct slurm_choice *which, slurm_nodes *out)
{
    AUTO(names_done) struct map names = { 0 };
    struct span rest;
    struct line line;
    bool only_default = which->default_only && has_default(text, which->unusable);
    if (exclude_names(which->exclude, &names, out) < 0)
        return -ENOMEM;
    while (text.len && span_split(&text, '\n', &rest)) {
        if (!read_line(rest, &line) || (only_default && !is_default(line.partition)) ||
            !(line.usable || which->unusable))
            continue;
        AUTO(free_p) char *name = span_dup(line.name);
        if (!name)
            return -ENOMEM;
        if (map_has(&names, name))
            continue;
        if (map_set(&names, name, out, NULL) < 0 || add_node(out, &line.node) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* ---- squeue and sbatch ---- */

void slurm_copy(struct span from, char *to, size_t size)
{
    size_t n = MIN(from.len, size - 1);
    if (n)
        memcpy(to, from.p, n);
    to[n] = '\0';
    str_mask_controls(to);
}

/* host: the node of the batch script; nodes: those that the job has, in Slurm's short form. */
static bool has_lost(struct span host, struct span nodes)
{
    struct strv names = { 0 };
    bool lost = host.len && nodes.len && slurm_expand_nodes(nodes, &names) == 0 && names.n > 0;
    for (size_t i = 0; i < names.n && lost; i++)
        lost = !span_eqs(host, names.v[i]);
    strv_done(&names);
    return lost;
}

/* out_first: it is no component, or the first one. */
static bool read_state(struct span line, struct slurm_state *out, bool *out_first)
{
    struct span f[4] = { { 0 } }; /* state, reason, number, node of the batch script */
    *out = (struct slurm_state){ 0 };
    for (size_t i = 0; i < ARRAY_LEN(f) && line.len; i++)
        (void)span_split(&line, '|', &f[i]);
    if (!f[0].len)
        return false;
    slurm_copy(span_trim(f[0]), out->state, sizeof out->state);
    slurm_copy(span_trim(f[1]), out->reason, sizeof out->reason);
    out->components = f[2].len > 0 && memchr(f[2].p, '+', f[2].len);
    *out_first = !out->components || (f[2].len > 1 && memcmp(f[2].p + f[2].len - 2, "+0", 2) == 0);
    out->headless = str_eq(out->state, "RUNNING") && has_lost(span_trim(f[3]), span_trim(line));
    return true;
}

/* Slurm 22.05 puts a heterogeneous job with a component of one node back into its queue when a node
 * of any component fails. But only that component returns: the others have ended as FAILED, so the
 * job never starts. Right after a requeue (BeginTime) the others may still be on their way. */
static bool is_torn(const struct slurm_state *first, const struct slurm_state *other)
{
    return first->components && str_eq(first->state, "PENDING") &&
           !str_eq(first->reason, "BeginTime") && slurm_state_is_over(other->state);
}

void slurm_parse_state(struct span text, struct slurm_state *out)
{
    struct span line = { 0 };
    struct slurm_state all[2]; /* the first component, which is not always in the first line */
    *out = all[0] = all[1] = (struct slurm_state){ 0 };
    bool torn = false;
    while (text.len && span_split(&text, '\n', &line)) {
        struct slurm_state next;
        bool first;
        if (!read_state(line, &next, &first))
            continue;
        if (first && !all[0].state[0])
            all[0] = next;
        else if (!all[1].state[0] || slurm_state_is_over(next.state))
            all[1] = next;
    }
    if (all[0].state[0])
        torn = all[1].state[0] && is_torn(&all[0], &all[1]);
    else
        all[0] = all[1];
    *out = all[0];
    if (torn) {
        out->torn = true;
        (void)str_copy(out->state, sizeof out->state, "NODE_FAIL");
        (void)str_copy(out->reason, sizeof out->reason,
                       "Slurm has ended one of its components, and so cannot start it again");
    }
}

int slurm_parse_number(struct span text, char out[static 32])
{
    struct span id = span_trim(text);
    size_t n = 0;
    while (n < id.len && id.p[n] >= '0' && id.p[n] <= '9')
        n++;
    if (n == 0 || n >= 32 || (n < id.len && !strchr("; \n", id.p[n])))
        return -EBADMSG;
    slurm_copy(span_mem(id.p, n), out, 32);
    return 0;
}

bool slurm_state_is_over(const char *state)
{
    static const char *const live[] = { "PENDING",     "CONFIGURING", "RUNNING",      "COMPLETING",
                                        "SUSPENDED",   "REQUEUED",    "RESIZING",     "SIGNALING",
                                        "STAGE_OUT",   "STOPPED",     "REQUEUE_HOLD", "REQUEUE_FED",
                                        "SPECIAL_EXIT" };
    for (size_t i = 0; i < ARRAY_LEN(live); i++)
        if (str_eq(state, live[i]))
            return false;
    return true;
}

/* ---- scontrol ---- */

/* "2026-11-24T12:30:00", in the time zone of this process. 0: it is no time ("Unknown", "None"). */
static int64_t read_time(struct span text)
{
    char copied[32];
    struct tm tm = { .tm_isdst = -1 };
    slurm_copy(text, copied, sizeof copied);
    const char *end = strptime(copied, "%Y-%m-%dT%H:%M:%S", &tm);
    time_t t = end && *end == '\0' ? mktime(&tm) : 0;
    return t > 0 ? (int64_t)t : 0;
}

/* exit_code: "0:9". A job that was cancelled, or whose time is over, has such a code, too. But then
 * the reason is another one. */
static uint32_t read_killed(const struct slurm_state *is, struct span exit_code)
{
    struct span code;
    int64_t n = 0;
    bool failed = str_eq(is->state, "FAILED") || str_eq(is->state, "COMPLETING");
    bool script = str_eq(is->reason, "JobLaunchFailure") || str_eq(is->reason, "NonZeroExitCode") ||
                  str_starts(is->reason, "RaisedSignal");
    if (!failed || !script || !exit_code.len || !span_split(&exit_code, ':', &code) ||
        !span_eqs(code, "0") || str_i64(exit_code, 1, 64, "ExitCode", &n, NULL) < 0)
        return 0;
    return (uint32_t)n;
}

/* The fields are separated by spaces. Values of later fields may contain spaces, so the first
 * field of a name counts. */
static int read_job(struct span line, struct slurm_job *out)
{
    struct span word;
    struct {
        const char *name;
        struct span value;
    } fields[] = { { "JobState", { 0 } }, { "Reason", { 0 } },   { "EndTime", { 0 } },
                   { "Requeue", { 0 } },  { "Restarts", { 0 } }, { "PreemptTime", { 0 } },
                   { "ExitCode", { 0 } } };
    *out = (struct slurm_job){ 0 };
    while (line.len && span_split(&line, ' ', &word)) {
        struct span name;
        if (!word.len || !memchr(word.p, '=', word.len) || !span_split(&word, '=', &name))
            continue;
        for (size_t i = 0; i < ARRAY_LEN(fields); i++)
            if (span_eqs(name, fields[i].name) && !fields[i].value.p)
                fields[i].value = word;
    }
    int64_t n = 0;
    slurm_copy(fields[0].value, out->is.state, sizeof out->is.state);
    slurm_copy(fields[1].value, out->is.reason, sizeof out->is.reason);
    out->end_s = read_time(fields[2].value);
    out->requeue = span_eqs(fields[3].value, "1");
    if (fields[4].value.len && str_i64(fields[4].value, 0, INT32_MAX, "Restarts", &n, NULL) == 0)
        out->restarts = (uint32_t)n;
    out->preempt_s = read_time(fields[5].value);
    out->killed = read_killed(&out->is, fields[6].value);
    return out->is.state[0] ? 0 : -EBADMSG;
}

/* A heterogeneous job has a line for each component. It ends when the first of them does. */
int slurm_parse_job(struct span text, struct slurm_job *out)
{
    struct span line = { 0 };
    struct slurm_job next;
    *out = (struct slurm_job){ 0 };
    if (!text.len || !span_split(&text, '\n', &line))
        return -EBADMSG;
    int rc = read_job(line, out);
    while (text.len && span_split(&text, '\n', &line))
        if (line.len && read_job(line, &next) == 0) {
            out->preempt_s = out->preempt_s ? out->preempt_s : next.preempt_s;
            if (next.end_s && (!out->end_s || next.end_s < out->end_s))
                out->end_s = next.end_s;
        }
    return rc;
}

enum slurm_meaning slurm_meaning_of(const struct slurm_job *j, uint32_t run)
{
    static const char *const queued[] = { "PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
                                          "SPECIAL_EXIT" };
    if (j->restarts > run)
        return SLURM_REQUEUES;
    for (size_t i = 0; i < ARRAY_LEN(queued); i++)
        if (str_eq(j->is.state, queued[i]))
            return SLURM_REQUEUES;
    if (str_eq(j->is.state, "COMPLETING") || slurm_state_is_over(j->is.state))
        return SLURM_ENDS;
    return j->preempt_s ? SLURM_PREEMPTS : SLURM_RUNS;
}
