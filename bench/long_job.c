/* SPDX-License-Identifier: Apache-2.0 */
#include "long_job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "conf/conf.h"
#include "master/compact.h"

enum {
    BURST_MS = COPIES_DELAY_MS, /* records of this time are written together */
    DAY_MS = 86400000,
    STEPS = 1000, /* between two checkpoints */
};

/* ---- the configuration ---- */

struct conf *long_job_conf(uint32_t n_tasks, struct err *e)
{
    char instances[16];
    const char *const pairs[][2] = {
        { "tony.application.name", "long" },
        { "tony.worker.instances", instances },
        { "tony.worker.command", "true" },
        { "tony.application.addresses-in-environment", "false" },
        { "tony.task.heartbeat-interval-ms",
          "3600000" }, /* long, so that no executor counts as silent */
        { "tony.worker.restart", "on-failure" },
        { "tony.worker.restart-scope", "job" },
        { "tony.worker.max-restarts", "-1" },
    };
    struct conf *c = conf_new();
    (void)snprintf(instances, sizeof instances, "%u", n_tasks);
    for (size_t i = 0; c && i < ARRAY_LEN(pairs); i++)
        if (conf_set(c, CL_JOB, pairs[i][0], pairs[i][1], "bench", false, e) < 0) {
            conf_free(c);
            return NULL;
        }
    return c;
}

/* ---- copies ---- */

static uint64_t copies_bytes(const struct long_copies *c)
{
    uint64_t n = c->base;
    for (size_t i = 0; i < c->n_tails; i++)
        n += c->tails[i];
    return n;
}

/* Write the new records, and the last files that the plan merges with them, as one file. The merged
 * files exist until it is complete. */
static void copies_burst(struct long_copies *c, uint64_t size)
{
    uint64_t put = size - c->stored;
    if (put == 0)
        return;
    c->stored = size;
    if (c->base == 0) {
        c->base = put;
        c->most = MAX(c->most, c->base);
        return;
    }
    unsigned merged = copies_plan(c->ranks);
    uint64_t before = copies_bytes(c);
    for (; merged > 0; merged--)
        put += c->tails[--c->n_tails];
    c->most = MAX(c->most, before + put);
    c->tails[c->n_tails++] = put;
}

/* The base of the new set is written while the whole older set still exists. */
static void copies_new_segment(struct long_copies *c, uint64_t size)
{
    c->most = MAX(c->most, copies_bytes(c) + size);
    c->base = c->stored = size;
    c->n_tails = 0;
    copies_plan_begin(c->ranks);
}

/* ---- the master's part ---- */

static int feed_one(struct long_job *l, const struct job_event *ev, struct err *e)
{
    size_t from = l->acts.n = 0;
    int rc = job_feed(l->job, ev, l->now_ms, &l->acts, e);
    for (size_t i = from; rc >= 0 && i < l->acts.n; i++) {
        const struct job_action *a = &l->acts.v[i];
        struct long_word w = { .type = a->type, .slot = job_action_slot(a) };
        if (a->type == ACT_START)
            w = (struct long_word){ a->type, a->start.slot, a->start.generation, a->start.attempt };
        else if (a->type == ACT_STOP_ATTEMPT)
            w = (struct long_word){ a->type, a->stop_attempt.slot, a->stop_attempt.generation,
                                    a->stop_attempt.attempt };
        else if (a->type == ACT_RENEW)
            w.generation = a->renew.generation;
        if (w.slot != JOB_ACTION_OF_JOB && vec_push(&l->words, w) < 0)
            rc = -ENOMEM;
    }
    if (rc != 0)
        return rc;
    rc = replay_add_event(&l->journal, l->job, ev, &l->replay, &l->scratch);
    l->n_records = l->replay.n_records;
    return rc;
}

static int compact(struct long_job *l, struct err *e)
{
    if (l->before_compaction)
        l->before_compaction(l, l->arg);
    if (l->kept) {
        (void)unlink(l->kept);
        if (link(l->path, l->kept) == -1)
            return err_set(e, errno, "cannot keep journal '%s': %m", l->path);
    }
    int rc = compact_journal(&l->journal, l->job, &l->replay, e);
    if (rc < 0)
        return rc;
    l->n_segments++;
    l->most_snapshot = MAX(l->most_snapshot, (uint64_t)l->journal.size);
    copies_new_segment(&l->copies, (uint64_t)l->journal.size);
    return 0;
}

static int flush(struct long_job *l, struct err *e)
{
    int rc = journal_flush(&l->journal, false, e);
    if (rc < 0)
        return rc;
    l->flushed_ms = l->now_ms;
    l->most_journal = MAX(l->most_journal, (uint64_t)l->journal.size);
    copies_burst(&l->copies, (uint64_t)l->journal.size);
    return journal_wants_segment(&l->journal) ? compact(l, e) : 0;
}

/* ---- the parts of scheduler and executors: answer each action at once ---- */

static struct job_event answer(const struct long_word *w, char container[48], char address[32])
{
    struct job_event ev = { 0 };
    (void)snprintf(container, 48, "container_1700000000000_0001_01_%06u", w->slot + 1);
    (void)snprintf(address, 32, "10.1.%u.%u:%u", w->slot >> 8, w->slot & 0xff,
                   20000 + (w->slot * 7 + w->generation * 13) % 40000);
    if (w->type == ACT_ASK)
        ev = (struct job_event){ .type = EV_ALLOCATED,
                                 .allocated = { .slot = w->slot, .container = container } };
    else if (w->type == ACT_LAUNCH || w->type == ACT_RENEW)
        ev = (struct job_event){ .type = EV_REGISTERED,
                                 .registered = { .slot = w->slot,
                                                 .container = container,
                                                 .generation = w->generation,
                                                 .address = address,
                                                 .pid = 50000 + w->slot } };
    else if (w->type == ACT_START)
        ev = (struct job_event){ .type = EV_ATTEMPT_STARTED,
                                 .attempt_started = { .slot = w->slot,
                                                      .generation = w->generation,
                                                      .attempt = w->attempt,
                                                      .pid = 100000 + w->slot } };
    else if (w->type == ACT_STOP_ATTEMPT)
        ev = (struct job_event){ .type = EV_ATTEMPT_ENDED,
                                 .attempt_ended = { .slot = w->slot,
                                                    .generation = w->generation,
                                                    .attempt = w->attempt,
                                                    .signal = 15,
                                                    .reason = END_KILLED_BY_MASTER } };
    return ev;
}

static int feed(struct long_job *l, const struct job_event *ev, struct err *e)
{
    char container[48], address[32];
    l->words.n = 0;
    int rc = feed_one(l, ev, e);
    for (size_t i = 0; rc == 0 && i < l->words.n; i++) {
        struct long_word w = l->words.v[i];
        struct job_event next = answer(&w, container, address);
        if (next.type)
            rc = feed_one(l, &next, e);
    }
    return rc == 1 ? err_set(e, e->num ? e->num : EPROTO, "%s", e->msg) : rc;
}

/* ---- time ---- */

static int pass_until(struct long_job *l, int64_t at_ms, struct err *e)
{
    struct job_event due;
    int rc = 0;
    l->now_ms = MAX(l->now_ms, at_ms);
    while (rc == 0 && job_due(l->job, l->now_ms, &due))
        rc = feed(l, &due, e);
    if (rc == 0 && l->now_ms - l->flushed_ms >= BURST_MS)
        rc = flush(l, e);
    return rc;
}

static int tells(struct long_job *l, uint32_t slot, uint64_t step, bool saves, struct err *e)
{
    char path[200];
    struct slot_view v;
    job_slot(l->job, slot, &v);
    (void)snprintf(path, sizeof path,
                   "hdfs://cluster/user/someone/runs/application_1700000000000_0001/step-%09llu/"
                   "rank-%05u",
                   (unsigned long long)step, slot);
    int rc = feed(l, &(struct job_event){ .type = EV_BEAT, .beat = { .slot = slot } }, e);
    if (rc == 0)
        rc = feed(
            l,
            &(struct job_event){ .type = EV_PROGRESS, .progress = { .slot = slot, .step = step } },
            e);
    if (rc == 0 && saves)
        rc = feed(l,
                  &(struct job_event){ .type = EV_CHECKPOINT,
                                       .checkpoint = { .slot = slot,
                                                       .generation = v.generation,
                                                       .attempt = v.attempt,
                                                       .step = step,
                                                       .path = path } },
                  e);
    return rc;
}

static int fails(struct long_job *l, uint32_t slot, struct err *e)
{
    struct slot_view v;
    job_slot(l->job, slot, &v);
    return feed(l,
                &(struct job_event){ .type = EV_ATTEMPT_ENDED,
                                     .attempt_ended = { .slot = slot,
                                                        .generation = v.generation,
                                                        .attempt = v.attempt,
                                                        .exit_code = 1,
                                                        .step = v.step,
                                                        .reason = END_EXITED,
                                                        .tail = "Traceback\nValueError: 7\n" } },
                e);
}

static int one_round(struct long_job *l, struct err *e)
{
    uint32_t n = job_n_tasks(l->job);
    int64_t from_ms = l->now_ms;
    uint64_t round = (uint64_t)(from_ms / LONG_JOB_ROUND_MS) + 1;
    bool first = from_ms % DAY_MS < LONG_JOB_ROUND_MS;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        rc = pass_until(l, from_ms + (int64_t)i * LONG_JOB_ROUND_MS / n, e);
        if (rc == 0)
            rc = tells(l, i, round * STEPS, first || i > 0 || !l->straggler, e);
    }
    if (rc == 0)
        rc = pass_until(l, from_ms + LONG_JOB_ROUND_MS, e);
    if (rc == 0 && l->now_ms % DAY_MS < LONG_JOB_ROUND_MS)
        rc = fails(l, (uint32_t)(l->now_ms / DAY_MS * 7 % n), e);
    return rc;
}

int long_job_rounds(struct long_job *l, unsigned n, struct err *e)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < n; i++)
        rc = one_round(l, e);
    return rc == 0 ? flush(l, e) : rc;
}

/* ---- start and end ---- */

int long_job_open(struct long_job *l, const struct job_spec *spec, const char *path,
                  int64_t segment_min, struct err *e)
{
    *l = (struct long_job){ .spec = spec, .path = path, .journal.fd = -1 };
    copies_plan_begin(l->copies.ranks);
    int rc = journal_open(&l->journal, path, e);
    if (rc < 0)
        return rc;
    l->journal.segment_min = segment_min;
    l->job = job_new(spec, e);
    return l->job ? 0 : -ENOMEM;
}

void long_job_close(struct long_job *l)
{
    if (l->journal.fd >= 0)
        journal_close(&l->journal);
    job_free(l->job);
    vec_done(&l->acts);
    vec_done(&l->words);
    buf_done(&l->scratch);
}

int long_job_begin(struct long_job *l, struct err *e)
{
    const struct job_event begin[] = {
        { .type = EV_SUBMITTED,
          .submitted = { .application_id = "application_1700000000000_0001",
                         .user = "someone",
                         .wall_ms = 1700000000000 } },
        { .type = EV_MASTER_STARTED,
          .master_started = { .epoch = 1, .wall_ms = 1700000000000, .mono_ms = 1 } },
        { .type = EV_RESYNCED },
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(begin); i++)
        rc = feed(l, &begin[i], e);
    return rc == 0 ? flush(l, e) : rc;
}

int long_job_restore(const struct job_spec *spec, const char *path, struct job **out, struct err *e)
{
    struct journal journal;
    struct replay replay;
    struct job *job = job_new(spec, e);
    int rc = job ? journal_open(&journal, path, e) : -ENOMEM;
    if (rc == 0) {
        rc = replay_file(job, path, &replay, e);
        journal_close(&journal);
    }
    if (rc == 0)
        *out = job;
    else
        job_free(job);
    return rc;
}
