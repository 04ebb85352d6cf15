/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "codec/json.h"
#include "conf/conf.h"
#include "history/history.h"
#include "job/job.h"
#include "pool/pool_int.h"
#include "storage/jobfile.h"

/* docs/json.md describes these JSON documents. */

static void add_str(struct buf *out, const char *key, const char *value)
{
    (void)buf_addf(out, "\"%s\":", key);
    (void)json_add_str(out, span_of(value)); /* done() checks out->failed */
}

static void add_needs(struct buf *out, const struct pool_job *j)
{
    (void)buf_addf(out, "\"needs\":{\"memory_mib\":%llu,\"vcores\":%u,\"gpus\":%u}",
                   (unsigned long long)j->needs.memory_mib, j->vcores, j->needs.gpus);
}

static int done(const struct buf *out)
{
    return out->failed ? -ENOMEM : 0;
}

static void add_job(struct buf *out, const struct pool_job *j)
{
    (void)buf_addc(out, '{');
    add_str(out, "application_id", j->id);
    (void)buf_addc(out, ',');
    add_str(out, "name", j->name);
    (void)buf_addc(out, ',');
    add_str(out, "state", pool_phase_name(j->phase));
    (void)buf_addf(out, ",\"priority\":%d,", j->priority);
    add_needs(out, j);
    if (j->phase == PH_WAITING) {
        (void)buf_addf(out, ",\"place\":%u,", j->place);
        add_str(out, "behind", j->behind);
    }
    if (j->wish.open) {
        (void)buf_addf(out,
                       ",\"wants\":{\"memory_mib\":%llu,\"vcores\":%u,\"gpus\":%u,\"place\":%u,",
                       (unsigned long long)j->wish.needs.memory_mib, j->wish.vcores,
                       j->wish.needs.gpus, j->wish.place);
        add_str(out, "behind", j->wish.behind);
        (void)buf_addc(out, '}');
    }
    if (j->max_containers)
        (void)buf_addf(out, ",\"bounds\":{\"min\":%u,\"max\":%u", j->min_containers,
                       j->max_containers);
    if (j->max_containers && j->cost_known)
        (void)buf_addf(out, ",\"cost_ms\":%llu", (unsigned long long)j->cost_ms);
    if (j->max_containers)
        (void)buf_addc(out, '}');
    if (pool_job_admitted(j) && j->gpus_known) {
        (void)buf_adds(out, ",\"held_gpus\":[");
        for (uint32_t i = 0; i < j->needs.gpus; i++)
            (void)buf_addf(out, "%s%u", i ? "," : "", j->gpus[i]);
        (void)buf_addc(out, ']');
    }
    sharing_add_result(j->pool, j->id, out);
    (void)buf_addc(out, '}');
}

static void add_machine(struct buf *out, const struct pool *p)
{
    uint64_t memory_mib = 0, vcores = 0, gpus = 0;
    for (size_t i = 0; i < p->jobs.n; i++) {
        const struct pool_job *j = p->jobs.v[i];
        if (!pool_job_admitted(j))
            continue;
        memory_mib += j->needs.memory_mib;
        vcores += j->vcores;
        gpus += j->needs.gpus;
    }
    (void)buf_addf(out, "\"pid\":%ld,\"version\":\"%s\",\"started_ms\":%lld,", (long)getpid(),
                   TONY_VERSION, (long long)p->started_wall_ms);
    add_str(out, "policy", sharing_name(p));
    (void)buf_addc(out, ',');
    add_str(out, "home", p->paths.home);
    (void)buf_addc(out, ',');
    add_str(out, "cgroup", p->machine.cgroup);
    (void)buf_addf(out,
                   ",\"stopping\":%s,\"capacity\":{\"memory_mib\":%llu,\"vcores\":%u,\"gpus\":%u},"
                   "\"used\":{\"memory_mib\":%llu,\"vcores\":%llu,\"gpus\":%llu},",
                   p->stopping ? "true" : "false", (unsigned long long)p->machine.memory_mib,
                   p->machine.vcores, p->machine.n_gpus, (unsigned long long)memory_mib,
                   (unsigned long long)vcores, (unsigned long long)gpus);
}

int report_pool(const struct pool *p, bool all, struct buf *out)
{
    (void)buf_addc(out, '{');
    if (all)
        add_machine(out, p);
    (void)buf_adds(out, "\"jobs\":[");
    for (size_t i = 0; i < p->jobs.n; i++) {
        if (i)
            (void)buf_addc(out, ',');
        add_job(out, p->jobs.v[i]);
    }
    (void)buf_adds(out, "]}");
    return done(out);
}

/* The status document of a job that was only submitted. It comes from the same core (src/job) that
 * will run the job: feed the event EV_SUBMITTED, then ask for the status. */
static int core_status(const struct pool_job *j, bool full, struct buf *out)
{
    AUTO(free_p) char *dir = paths_job(&j->pool->paths, j->id);
    AUTO(free_p) char *path = dir ? fs_join(dir, "job.conf") : NULL;
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(job_file_freep) struct job_file *file = NULL;
    AUTO(job_spec_freep) struct job_spec *spec = NULL;
    struct err e = { 0 };
    if (!path)
        return -ENOMEM;
    int rc = fs_read(AT_FDCWD, path, &text, &e);
    if (rc == 0)
        rc = job_file_decode(buf_span(&text), &file, &e);
    if (rc == 0)
        rc = job_spec_build(file->conf, &spec, &e);
    struct job *job = rc == 0 ? job_new(spec, &e) : NULL;
    if (!job)
        return rc < 0 ? rc : -ENOMEM;
    struct job_event ev = history_submitted(file, j->id);
    struct job_actions actions = { 0 };
    rc = job_feed(job, &ev, 0, &actions, &e);
    if (rc >= 0)
        rc = job_status_json(job, full, out);
    vec_done(&actions);
    job_free(job);
    return rc;
}

int report_waiting(const struct pool_job *j, bool full, struct buf *out)
{
    size_t from = out->len;
    int rc = core_status(j, full, out);
    if (rc < 0)
        return rc;
    if (out->len > from && out->p[out->len - 1] == '}') { /* add the member "waiting" */
        out->len--;
        (void)buf_adds(out, ",\"waiting\":{");
        struct admission_amount least = sharing_least(j);
        add_needs(out, j);
        (void)buf_addf(out, ",\"least\":{\"memory_mib\":%llu,\"gpus\":%u}",
                       (unsigned long long)least.memory_mib, least.gpus);
        (void)buf_addf(out, ",\"free\":{\"memory_mib\":%llu,\"gpus\":%u},\"place\":%u,",
                       (unsigned long long)j->pool->left.memory_mib, j->pool->left.gpus, j->place);
        add_str(out, "behind", j->behind);
        if (j->held && clock_mono_ms() < j->not_before_ms) {
            (void)buf_addc(out, ',');
            add_str(out, "held", j->held);
        }
        sharing_add_result(j->pool, j->id, out);
        (void)buf_adds(out, "}}");
    }
    return done(out);
}

int report_starting(const struct pool_job *j, struct buf *out)
{
    (void)buf_addc(out, '{');
    add_str(out, "application_id", j->id);
    (void)buf_addc(out, ',');
    add_str(out, "name", j->name);
    (void)buf_adds(out, ",\"state\":\"STARTING\",\"roles\":[]}");
    return done(out);
}
