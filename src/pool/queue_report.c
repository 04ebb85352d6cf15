/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer to QUEUE: all that a client needs to compute when each waiting job will start
 * (partition/estimate.h). The client computes it, so that the pool's loop never waits for it.
 */
#include <errno.h>
#include <math.h>

#include "codec/json.h"
#include "pool/pool_int.h"
#include "pool/sharing.h"

static void add_str(struct buf *out, const char *key, const char *value)
{
    (void)buf_addf(out, "\"%s\":", key);
    (void)json_add_str(out, span_of(value)); /* report_queue() looks at out->failed */
    (void)buf_addc(out, ',');
}

static void add_amount(struct buf *out, const char *key, const struct admission_amount *a)
{
    (void)buf_addf(out, "\"%s\":{\"memory_mib\":%llu,\"gpus\":%u},", key,
                   (unsigned long long)a->memory_mib, a->gpus);
}

/* How long the job still runs, as its master has estimated it from the progress of the tasks. */
static void add_left(struct buf *out, const struct pool_job *j)
{
    int64_t now = clock_mono_ms();
    if (j->ends_late_ms == 0)
        (void)buf_adds(out, "\"left_ms\":null,");
    else
        (void)buf_addf(out, "\"left_ms\":{\"min\":%lld,\"max\":%lld},",
                       (long long)MAX(j->ends_early_ms - now, (int64_t)0),
                       (long long)MAX(j->ends_late_ms - now, (int64_t)0));
}

static void add_entry(struct buf *out, const struct pool_job *j, const struct share_job *s)
{
    bool extension = s->kind == SHARE_EXTENDS;
    (void)buf_addc(out, '{');
    add_str(out, "application_id", j->id);
    add_str(out, "name", j->name);
    add_amount(out, "needs", extension ? &s->each : &j->needs);
    if (s->kind == SHARE_WAITS) {
        struct admission_amount least = sharing_least(j);
        add_amount(out, "least", &least);
    }
    add_amount(out, "fixed", &s->fixed);
    add_amount(out, "each", &s->each);
    if (!extension)
        add_left(out, j);
    const struct pool_job *shrinks;
    int64_t within_ms;
    if (!extension && sharing_start_waits(j, &within_ms, &shrinks) >= 0)
        (void)buf_addf(out, "\"starts_within_ms\":%lld,", (long long)within_ms);
    add_str(out, "behind", extension ? j->wish.behind : j->behind);
    (void)buf_addf(out,
                   "\"extension\":%s,\"runs\":%s,\"pinned\":%s,\"containers\":%u,\"min\":%u,"
                   "\"max\":%u,\"priority\":%d,\"number\":%u,\"weight\":%u,\"budget\":%.9g,"
                   "\"timeout_ms\":%llu,\"attained_s\":%.9g,\"resize_s\":%.9g,\"waited_s\":%.9g,"
                   "\"place\":%u}",
                   extension ? "true" : "false", s->kind == SHARE_RUNS ? "true" : "false",
                   share_is_pinned(s->pin) ? "true" : "false", s->n, s->min, s->max, s->priority,
                   s->number, s->weight, s->budget, (unsigned long long)j->timeout_ms,
                   s->attained_s, s->resize_s, s->waited_s, extension ? j->wish.place : j->place);
}

static void add_options(struct buf *out, const struct policy_settings *y)
{
    const struct part_options *o = &y->options;
    (void)buf_addf(out,
                   "\"options\":{\"theta1\":%.9g,\"theta2\":%.9g,\"loss_max\":%.9g,"
                   "\"adjust_max\":%lld,\"reserve\":%.9g,\"payback_s\":%.9g,\"interval_ms\":%lld,"
                   "\"resize_limit_ms\":%lld,\"levels\":[",
                   o->theta1, o->theta2, o->loss_max, (long long)o->adjust_max, o->reserve,
                   o->payback_s, (long long)y->interval_ms, (long long)y->resize_limit_ms);
    for (uint32_t v = 0; v < y->n_levels; v++)
        (void)buf_addf(out, "%s%.9g", v ? "," : "", y->levels[v]);
    (void)buf_adds(out, "]},");
}

int report_queue(const struct pool *p, struct buf *out)
{
    struct admission_amount capacity = { p->machine.memory_mib, p->machine.n_gpus };
    struct share_job s;
    const char *sep = "";
    (void)buf_addc(out, '{');
    add_str(out, "policy", sharing_name(p));
    add_amount(out, "capacity", &capacity);
    add_amount(out, "free", &p->left);
    add_options(out, &p->sharing.settings);
    (void)buf_adds(out, "\"jobs\":[");
    for (size_t i = 0; i < 2 * p->jobs.n; i++) { /* all jobs, then their waiting extensions */
        const struct pool_job *j = p->jobs.v[i % p->jobs.n];
        if (i < p->jobs.n)
            sharing_describe(j, &s);
        else if (!sharing_describe_extension(j, &s))
            continue;
        (void)buf_adds(out, sep);
        add_entry(out, j, &s);
        sep = ",";
    }
    (void)buf_adds(out, "]}");
    return out->failed ? -ENOMEM : 0;
}
