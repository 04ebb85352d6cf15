/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoint the next attempt of a task resumes from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "drive.h"
#include "job/job_int.h"
#include "torture.h"

static char running[200]; /* kept for failure messages */

/* Words for drive_run(), and in addition: "0:10": slot 0 reports that it has saved step 10, at
 * "/c/0/10" followed by the generation. "0:10/3": one of three parts. "0:10@1.2": in attempt 2 of
 * generation 1 instead of the current ones. "!0:10": the core must refuse the report. The core may
 * refuse what it already knows. */
static void feed(struct drive *d, const char *words)
{
    struct span rest = span_of(words), word;
    while (span_split(&rest, ' ', &word)) {
        unsigned slot, step, parts = 0, generation = 0, attempt = 0;
        char path[40];
        AUTO(free_p) char *text = span_dup(word);
        const char *at = text + (*text == '!');
        if (sscanf(at, "%u:%u/%u", &slot, &step, &parts) < 2) {
            drive_run(d, text);
            continue;
        }
        const struct slot *s = &d->job->slots[slot];
        if (strchr(at, '@'))
            assert_int_equal(sscanf(strchr(at, '@'), "@%u.%u", &generation, &attempt), 2);
        generation = generation ? generation : s->generation;
        (void)snprintf(path, sizeof path, "/c/%u/%u.%u", slot, step, generation);
        int rc = drive_feed(
            d, &(struct job_event){ .type = EV_CHECKPOINT,
                                    .checkpoint = { .slot = slot,
                                                    .generation = generation,
                                                    .attempt = attempt ? attempt : s->attempt,
                                                    .step = step,
                                                    .parts = parts,
                                                    .path = path } });
        if (rc != (*text == '!'))
            fail_msg("'%s' in '%s' returned %d: %s", text, words, rc, d->e.msg);
    }
}

static void check(const struct job *j, uint32_t slot, const char *path)
{
    uint64_t step = 0;
    const char *got = job_checkpoint(j, slot, &step);
    if (!str_eq(got, path))
        fail_msg("%s: slot %u: %s, not %s", running, slot, got ? got : "none",
                 path ? path : "none");
    if (path)
        assert_int_equal(step, strtoull(strrchr(path, '/') + 1, NULL, 10));
}

static void test_the_newest_that_all_share(void **state)
{
    static const struct {
        const char *saved, *of0, *of2;
    } rows[] = {
        { "0:10", "/c/0/10.1", "/c/0/10.1" }, /* only rank 0 saves checkpoints */
        { "0:10 0:20 0:30", "/c/0/30.1", "/c/0/30.1" },
        { "0:10 1:10 2:10 0:20 1:20", "/c/0/10.1", "/c/2/10.1" },
        { "0:10 1:10 2:10 0:20 1:20 2:20", "/c/0/20.1", "/c/2/20.1" },
        { "0:10 1:10 2:10 0:20 0:30 0:40 0:50 0:60 0:70 0:80 1:20", "/c/0/10.1", "/c/2/10.1" },
        { "0:10/3", NULL, NULL },
        { "0:10/3 1:10/3", NULL, NULL },
        { "0:10/3 1:10/3 2:10/3", "/c/0/10.1", "/c/2/10.1" },
        { "0:10/3 1:10/3 2:10/3 1:20/3 2:20/3", "/c/0/10.1", "/c/2/10.1" },
        { "0:0", "/c/0/0.1", "/c/0/0.1" },
        { "0:10 !0:10", "/c/0/10.1", "/c/0/10.1" },
        { "0:20 1:10", "/c/0/20.1", "/c/0/20.1" }, /* a complete step stays complete */
        { "0:20 1:20 0:5 1:5", "/c/0/20.1", "/c/0/20.1" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct drive d;
        drive_init(&d, "worker*3");
        drive_run(&d, "go");
        check(d.job, 0, NULL);
        feed(&d, rows[i].saved);
        check(d.job, 0, rows[i].of0);
        check(d.job, 2, rows[i].of2);
        /* a new master has the same state */
        struct job *again = drive_replay(&d, d.journal.n);
        check(again, 0, rows[i].of0);
        check(again, 2, rows[i].of2);
        job_free(again);
        drive_done(&d);
    }
}

static void test_checkpoints_that_are_refused(void **state)
{
    struct drive d;
    (void)state;
    drive_init(&d, "worker*2");
    drive_run(&d, "go");
    struct job_event ev = {
        .type = EV_CHECKPOINT,
        .checkpoint = { .slot = 1, .generation = 1, .attempt = 2, .step = 5, .path = "/c/5" }
    };
    assert_int_equal(drive_feed(&d, &ev), 1); /* no such attempt */
    ev.checkpoint.attempt = 1;
    ev.checkpoint.path = NULL;
    assert_int_equal(drive_feed(&d, &ev), 1);
    ev.checkpoint.path = "/c/5";
    assert_int_equal(drive_feed(&d, &ev), 0);
    check(d.job, 0, "/c/5");
    drive_done(&d);
}

struct timeline {
    const char *job, *script, *of0, *of1; /* the paths from which slots 0 and 1 would resume */
};

static void check_timelines(const struct timeline *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct drive d;
        (void)snprintf(running, sizeof running, "%s", rows[i].script);
        drive_init(&d, rows[i].job);
        feed(&d, rows[i].script);
        check(d.job, 0, rows[i].of0);
        check(d.job, 1, rows[i].of1);
        struct job *again = drive_replay(&d, d.journal.n);
        check(again, 0, rows[i].of0);
        check(again, 1, rows[i].of1);
        job_free(again);
        drive_done(&d);
    }
}

#define GANG "worker*2/on/scope-job/max9"
#define ALONE "worker*2/on/scope-task/max9"

static void test_generations_do_not_mix(void **state)
{
    static const struct timeline rows[] = {
        /* the example in docs/task-socket.md */
        { GANG, "go 0:100/2 1:100/2 0:110/2 worker:1=1 +5000 1:110/2", "/c/0/100.1", "/c/1/100.1" },
        { GANG, "go 0:100/2 1:100/2 0:110/2 worker:1=1 +5000 1:110/2 0:110/2", "/c/0/110.2",
          "/c/1/110.2" },
        { GANG, "go 0:100 1:100 0:110 worker:1=1 +5000 1:110", "/c/0/100.1", "/c/1/100.1" },
        { GANG, "go 0:100 1:100 0:110 worker:1=1 +5000 1:110 0:110", "/c/0/110.2", "/c/1/110.2" },
        /* a step that was complete is complete again in another generation; parts of two
         * generations are never mixed */
        { GANG, "go 0:100/2 1:100/2 worker:1=1 +5000 1:100/2", "/c/0/100.1", "/c/1/100.1" },
        { GANG, "go 0:100/2 1:100/2 worker:1=1 +5000 1:100/2 0:100/2", "/c/0/100.2", "/c/1/100.2" },
        /* steps newer than the one that was resumed are dropped, for all later generations */
        { GANG, "go 0:100/2 1:100/2 0:110/2 worker:1=1 +5000 worker:1=1 +5000 1:110/2",
          "/c/0/100.1", "/c/1/100.1" },
        { GANG, "go 0:100/2 1:100/2 0:120/2 worker:1=1 +5000 0:110/2 1:110/2 worker:0=1",
          "/c/0/110.2", "/c/1/110.2" },
        /* only rank 0 saves checkpoints */
        { GANG, "go 0:100 worker:1=1", "/c/0/100.1", "/c/0/100.1" },
        { GANG, "go 0:100 worker:1=1 +5000 0:110", "/c/0/110.2", "/c/0/110.2" },
        /* the program did not find the checkpoint and started over: the new checkpoint counts */
        { GANG, "go 0:100 worker:1=1 +5000 0:10", "/c/0/10.2", "/c/0/10.2" },
        { GANG, "go 0:100 worker:1=1 +5000 0:10 worker:1=1 +5000 0:20 0:15", "/c/0/20.3",
          "/c/0/20.3" },
    };
    (void)state;
    check_timelines(rows, ARRAY_LEN(rows));
}

static void test_late_reports_of_checkpoints(void **state)
{
    static const struct timeline rows[] = {
        { GANG, "go 0:100/2 1:100/2 0:110/2 worker:1=1 +5000 !1:110/2@1.1 !0:110/2@1.1",
          "/c/0/100.1", "/c/1/100.1" },
        { GANG, "go 0:100/2 1:100/2 worker:1=1 +5000 1:110/2 !0:110/2@1.1", "/c/0/100.1",
          "/c/1/100.1" },
        /* generation 2 began without a checkpoint: its files may have the same names as those of
         * generation 1 */
        { GANG, "go 0:5/2 worker:1=1 +5000 !1:5/2@1.1", NULL, NULL },
        { GANG, "go 0:5 worker:1=1 +5000 !0:6@2.1 !0:6@1.2 !0:6@3.3 !0:6@1.3", "/c/0/5.1",
          "/c/0/5.1" },
        /* reports count until generation 2 has begun: worker:0 is being halted and saves */
        { GANG, "go 0:100/2 1:100/2 mute:worker:0 worker:1=1 1:110/2 0:110/2", "/c/0/110.1",
          "/c/1/110.1" },
        { GANG,
          "go 0:100/2 1:100/2 1:110/2 mute:worker:0 worker:1=1 0:110/2@1.1 heal:worker:0 "
          "worker:0=killed 0:120/2",
          "/c/0/110.1", "/c/1/110.1" },
        /* the same without a gang: the first task that starts decides */
        { GANG " gang=0", "go 0:100/2 1:100/2 mute:worker:1 worker:0=1 1:110/2 0:110/2@1.1",
          "/c/0/110.1", "/c/1/110.1" },
    };
    (void)state;
    check_timelines(rows, ARRAY_LEN(rows));
}

static void test_a_task_that_restarts_alone(void **state)
{
    static const struct timeline rows[] = {
        /* worker:0 repeats the steps after 100: its old part of step 110 does not count */
        { ALONE, "go 0:100/2 1:100/2 0:110/2 worker:0=1 1:110/2", "/c/0/100.1", "/c/1/100.1" },
        { ALONE, "go 0:100/2 1:100/2 0:110/2 worker:0=1 1:110/2 0:110/2", "/c/0/110.1",
          "/c/1/110.1" },
        { ALONE, "go 0:100/2 1:100/2 0:110/2 worker:0=1 1:110/2 !0:110/2@1.1", "/c/0/100.1",
          "/c/1/100.1" },
        /* the reports of the other task still count: it did not go back */
        { ALONE, "go 0:100 1:100 1:110 worker:0=1 0:110", "/c/0/110.1", "/c/1/110.1" },
        /* worker:0 still counts as a task that saves */
        { ALONE, "go 0:100 1:100 worker:0=1 1:110", "/c/0/100.1", "/c/1/100.1" },
        { ALONE, "go 0:100 1:100 worker:0=1 0:110 1:110", "/c/0/110.1", "/c/1/110.1" },
        { ALONE, "go 0:100 worker:0=1 0:90 1:90", "/c/0/100.1", "/c/0/100.1" },
        /* roles that do not restart keep their reports */
        { "worker*2/on/scope-role/max9 ps*1/untracked",
          "go 0:100/3 1:100/3 2:100/3 0:110/3 2:110/3 worker:0=1 1:110/3", "/c/0/100.1",
          "/c/1/100.1" },
        { "worker*2/on/scope-role/max9 ps*1/untracked",
          "go 0:100/3 1:100/3 2:100/3 0:110/3 2:110/3 worker:0=1 1:110/3 0:110/3", "/c/0/110.1",
          "/c/1/110.1" },
    };
    (void)state;
    check_timelines(rows, ARRAY_LEN(rows));
}

static void test_which_tasks_a_step_waits_for(void **state)
{
    static const struct timeline rows[] = {
        /* the first task of a generation that reports a step waits for the tasks that saved in the
         * last one */
        { GANG, "go 0:10 1:10 worker:1=1 +5000 0:20", "/c/0/10.1", "/c/1/10.1" },
        { GANG, "go 0:10 1:10 worker:1=1 +5000 0:20 1:20", "/c/0/20.2", "/c/1/20.2" },
        /* also if no complete step was saved in between */
        { GANG, "go 0:10 1:10 worker:1=1 +5000 0:20 worker:1=1 +5000 1:20", "/c/0/10.1",
          "/c/1/10.1" },
        { GANG, "go 0:10 1:10 worker:1=1 +5000 worker:1=1 +5000 1:20", "/c/0/10.1", "/c/1/10.1" },
        { GANG, "go 0:10 1:10 worker:1=1 +5000 worker:1=1 +5000 1:20 0:20", "/c/0/20.3",
          "/c/1/20.3" },
        /* worker:1 no longer saves: five steps wait for it, the sixth does not */
        { GANG, "go 0:10 1:10 worker:1=1 +5000 0:20 0:30 0:40 0:50 0:60", "/c/0/10.1",
          "/c/1/10.1" },
        { GANG, "go 0:10 1:10 worker:1=1 +5000 0:20 0:30 0:40 0:50 0:60 0:70", "/c/0/70.2",
          "/c/0/70.2" },
        { GANG, "go 0:10 1:10 worker:1=1 +5000 0:20 0:30 0:40 0:50 0:60 0:70 worker:1=1 +5000 0:80",
          "/c/0/80.3", "/c/0/80.3" },
        /* a task that has saved in this generation is waited for without a limit */
        { GANG, "go 0:10 1:10 0:20 0:30 0:40 0:50 0:60 0:70", "/c/0/10.1", "/c/1/10.1" },
        { GANG, "go 0:10 1:10 0:20 0:30 0:40 0:50 0:60 0:70 1:30", "/c/0/30.1", "/c/1/30.1" },
        /* if the reports give the number of parts, no guess is needed */
        { GANG, "go 0:10/2 1:10/2 worker:1=1 +5000 0:20/1", "/c/0/20.2", "/c/0/20.2" },
        /* all parts of a step must give the same number */
        { GANG, "go 0:10/2 !1:10/3 !1:10 1:10/2", "/c/0/10.1", "/c/1/10.1" },
        { GANG, "go 0:10/2 !1:10/1", NULL, NULL },
        /* a sidecar's checkpoints count if no other task saves */
        { "worker*1/on/scope-job/max9 tb*1/sidecar", "go 1:10", "/c/1/10.1", "/c/1/10.1" },
        { "worker*1/on/scope-job/max9 tb*1/sidecar", "go 1:10 worker:0=1 1:20@1.1", "/c/1/20.1",
          "/c/1/20.1" },
        { "worker*1/on/scope-job/max9 tb*1/sidecar", "go 0:10 1:20", "/c/0/10.1", "/c/0/10.1" },
    };
    (void)state;
    check_timelines(rows, ARRAY_LEN(rows));
}

/* ---- against a model ---- */

/*
 * The rules of docs/task-socket.md, as a simple model: it keeps every accepted report, and loops
 * over all of them.
 */
enum { SLOTS = 4, FACTS_MAX = 400 };

struct fact {
    uint32_t slot, generation, attempt, parts;
    uint64_t step;
    bool dropped;   /* a rollback has dropped it */
    bool uncounted; /* too many newer steps wait */
};

struct model {
    struct fact facts[FACTS_MAX];
    size_t n;
    uint32_t timeline;
    bool awaited[SLOTS], left[SLOTS]; /* left: the task has left since its last report */
    bool has;
    uint32_t generation, first;
    uint64_t step;
};

static bool m_newer(const struct model *m, uint32_t generation, uint64_t step)
{
    return !m->has || generation > m->generation || (generation == m->generation && step > m->step);
}

static bool m_counts(const struct model *m, const struct fact *f)
{
    return !f->dropped && !f->uncounted && f->generation == m->timeline &&
           m_newer(m, f->generation, f->step);
}

static bool m_reported(const struct model *m, uint32_t slot)
{
    bool any = false;
    for (size_t i = 0; i < m->n; i++)
        any |= m->facts[i].slot == slot && m->facts[i].generation == m->timeline;
    return any && !m->left[slot];
}

static bool m_has_step(const struct model *m, uint32_t slot, uint64_t step, uint32_t *parts)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->facts[i].slot == slot && m->facts[i].step == step && m_counts(m, &m->facts[i])) {
            *parts = m->facts[i].parts;
            return true;
        }
    return false;
}

static bool m_is_whole(const struct model *m, uint64_t step, uint32_t *first)
{
    uint32_t n = 0, parts = 0;
    bool all = true;
    for (uint32_t i = SLOTS; i-- > 0;) {
        bool has = m_has_step(m, i, step, &parts);
        n += has;
        all &= has || !(m_reported(m, i) || m->awaited[i]);
        *first = has ? i : *first;
    }
    return n && (parts ? n >= parts : all);
}

static void m_look(struct model *m)
{
    struct model was = *m;
    for (size_t i = 0; i < was.n; i++) {
        const struct fact *f = &was.facts[i];
        uint32_t first = 0;
        if (!m_counts(&was, f) || !m_newer(m, f->generation, f->step) ||
            !m_is_whole(&was, f->step, &first))
            continue;
        m->has = true;
        m->generation = m->timeline;
        m->step = f->step;
        m->first = first;
    }
}

/* The number of waiting steps, and the lowest of them. */
static size_t m_waiting(const struct model *m, uint64_t *lowest)
{
    uint64_t steps[FACTS_MAX];
    size_t n = 0, k;
    for (size_t i = 0; i < m->n; i++) {
        if (!m_counts(m, &m->facts[i]))
            continue;
        for (k = 0; k < n && steps[k] != m->facts[i].step;)
            k++;
        if (k == n)
            steps[n++] = m->facts[i].step;
    }
    for (k = 0; k < n; k++)
        *lowest = k ? MIN(*lowest, steps[k]) : steps[k];
    return n;
}

static void m_report(struct model *m, const struct fact *f)
{
    uint64_t lowest = 0;
    bool waits = false;
    uint32_t parts;
    m->facts[m->n++] = *f;
    struct fact *mine = &m->facts[m->n - 1];
    m->left[f->slot] = m->awaited[f->slot] = false;
    for (uint32_t i = 0; i < SLOTS; i++)
        waits |= m_has_step(m, i, f->step, &parts);
    if (m_waiting(m, &lowest) > CHECKPOINT_STEPS) {
        mine->uncounted = true; /* until it is decided which step does not count */
        memset(m->awaited, 0, sizeof m->awaited);
        m_look(m);
        mine->uncounted = false;
        if (m_waiting(m, &lowest) > CHECKPOINT_STEPS)
            for (size_t i = 0; i < m->n; i++)
                m->facts[i].uncounted |= m_counts(m, &m->facts[i]) && m->facts[i].step == lowest;
    }
    m_look(m);
}

static void m_drop_newer(struct model *m, uint32_t slot)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->facts[i].slot == slot && m_newer(m, m->facts[i].generation, m->facts[i].step))
            m->facts[i].dropped = true;
}

static void m_begin(struct model *m, uint32_t slot, uint32_t generation)
{
    if (generation != m->timeline) {
        for (uint32_t i = 0; i < SLOTS; i++) {
            m->awaited[i] = m->awaited[i] || m_reported(m, i);
            m->left[i] = false;
            m_drop_newer(m, i);
        }
        m->timeline = generation;
    }
    m_drop_newer(m, slot);
}

/* The path from which the slot resumes. The core may or may not know the slot's own path of a step
 * that did not count at that time. */
static void m_path(const struct model *m, uint32_t slot, bool uncounted, char out[static 60])
{
    uint32_t of[] = { slot, m->first };
    for (size_t k = 0; k < 2 && m->has; k++)
        for (size_t i = m->n; i-- > 0;) {
            const struct fact *f = &m->facts[i];
            if (f->slot != of[k] || f->step != m->step || f->generation != m->generation ||
                f->dropped || (f->uncounted && !uncounted))
                continue;
            (void)snprintf(out, 60, "/c/%u/%u.%u/%u", f->slot, f->generation, f->attempt,
                           (unsigned)f->step);
            return;
        }
    out[0] = '\0';
}

static uint32_t chance(uint64_t *rng, uint32_t n)
{
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*rng >> 33) % n;
}

/* Copies the state that a snapshot has into another job, and compares the two. */
static void check_snapshot(const struct drive *d)
{
    const struct job_checkpoints *c = &d->job->checkpoints;
    struct job *copy = job_new(d->spec, NULL);
    struct job_checkpoints *to = &copy->checkpoints;
    *to = (struct job_checkpoints){ .has = c->has,
                                    .generation = c->generation,
                                    .step = c->step,
                                    .first = c->first,
                                    .furthest = c->furthest,
                                    .ms = c->ms,
                                    .timeline = c->timeline };
    for (uint32_t i = SLOTS; i-- > 0;) {
        struct checkpoint_record rec;
        uint32_t reported, at = 0;
        bool awaited;
        if (checkpoint_saver(d->job, i, &reported, &awaited))
            assert_int_equal(checkpoint_put_saver(copy, i, reported, awaited), 0);
        while (checkpoint_walk(d->job, i, &at, &rec))
            assert_int_equal(checkpoint_put(copy, i, &rec), 0);
    }
    assert_int_equal(to->n_savers, c->n_savers);
    assert_int_equal(to->n_awaited, c->n_awaited);
    for (uint32_t k = 0; k < CHECKPOINT_STEPS; k++) {
        bool same = !c->steps[k].id;
        for (uint32_t i = 0; i < CHECKPOINT_STEPS && !same; i++)
            same = to->steps[i].id && to->steps[i].step == c->steps[k].step &&
                   to->steps[i].n == c->steps[k].n && to->steps[i].parts == c->steps[k].parts;
        assert_true(same);
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint64_t a = 0, b = 0;
        assert_true(str_eq(job_checkpoint(d->job, i, &a), job_checkpoint(copy, i, &b)));
        assert_int_equal(a, b);
        assert_true(str_eq(checkpoint_newest(&d->job->slots[i], &a),
                           checkpoint_newest(&copy->slots[i], &b)));
        assert_int_equal(a, b);
    }
    job_free(copy);
}

static void check_model(const struct drive *d, const struct model *m)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint64_t step = 0;
        char path[60], other[60];
        const char *got = job_checkpoint(d->job, i, &step);
        m_path(m, i, false, path);
        m_path(m, i, true, other);
        if (!str_eq(got ? got : "", path) && !str_eq(got ? got : "", other))
            fail_msg("%s: slot %u: %s, not %s", running, i, got ? got : "none", path);
    }
    check_snapshot(d);
}

static void report_by_chance(struct drive *d, struct model *m, uint64_t *rng, uint32_t parts)
{
    uint32_t slot = chance(rng, SLOTS), told_parts = 0;
    const struct slot *s = &d->job->slots[slot];
    uint64_t near = m->has && m->generation == m->timeline ? m->step : 10;
    struct fact f = { .slot = slot,
                      .generation = s->generation - (s->generation > 1 && !chance(rng, 8)),
                      .attempt = s->attempt - (s->attempt > 1 && !chance(rng, 8)),
                      .parts = chance(rng, 30) ? parts : 1,
                      .step = near + chance(rng, 9) };
    bool late = f.generation != s->generation || f.attempt != s->attempt ||
                f.generation != m->timeline,
         wrong = false, known = false;
    char path[60];
    if (f.step > near + 2 && chance(rng, 2))
        f.step -= 2;
    for (uint32_t i = 0; i < SLOTS; i++)
        wrong |= m_has_step(m, i, f.step, &told_parts) && told_parts != f.parts;
    for (size_t i = 0; i < m->n; i++)
        known |= m->facts[i].slot == slot && m->facts[i].step == f.step && !m->facts[i].dropped &&
                 m->facts[i].attempt == f.attempt && m->facts[i].generation == f.generation;
    (void)snprintf(path, sizeof path, "/c/%u/%u.%u/%u", slot, f.generation, f.attempt,
                   (unsigned)f.step);
    int rc = drive_feed(d, &(struct job_event){ .type = EV_CHECKPOINT,
                                                .checkpoint = { .slot = slot,
                                                                .generation = f.generation,
                                                                .attempt = f.attempt,
                                                                .step = f.step,
                                                                .parts = f.parts,
                                                                .path = path } });
    if ((rc == 1 && !late && !wrong && !known) || (rc == 0 && (late || wrong)))
        fail_msg("%s: %s: %d: %s", running, path, rc, d->e.msg);
    if (rc == 0)
        m_report(m, &f);
}

static void by_chance(uint64_t seed, const char *job, unsigned *n_whole)
{
    struct model m;
    uint64_t rng = seed * 2 + 1, whole = 0;
    struct drive d;
    uint32_t parts = (uint32_t[]){ 0, 0, 2, SLOTS }[chance(&rng, 4)];

    m = (struct model){ 0 };
    drive_init(&d, job);
    drive_run(&d, "go");
    for (unsigned i = 0; i < 400; i++) {
        uint32_t attempts[SLOTS];
        for (uint32_t k = 0; k < SLOTS; k++)
            attempts[k] = i ? d.job->slots[k].attempt : 0;
        uint32_t slot = chance(&rng, SLOTS), what = i ? chance(&rng, 40) : 1;
        if (what == 0) {
            char text[40];
            (void)snprintf(text, sizeof text, "%s:%u=1 +100000",
                           job_role_name(d.job, d.job->slots[slot].role), d.job->slots[slot].index);
            drive_run(&d, text);
        } else if (what == 1 && i && !chance(&rng, 3)) {
            checkpoint_leave(d.job, &d.job->slots[slot]);
            m_drop_newer(&m, slot);
            m.left[slot] = true;
            m.awaited[slot] = false;
            m_look(&m);
        } else if (i) {
            report_by_chance(&d, &m, &rng, parts);
        }
        for (uint32_t k = 0; k < SLOTS; k++)
            if (d.job->slots[k].attempt != attempts[k])
                m_begin(&m, k, d.job->slots[k].generation);
        check_model(&d, &m);
        *n_whole += m.step != whole;
        whole = m.step;
    }
    drive_done(&d);
}

/* No step waits for the report of a task that has left the job. */
static void test_a_saver_leaves_the_job(void **state)
{
    struct drive d;
    uint64_t step = 0;
    (void)state;
    drive_init(&d, "worker*3/live");
    drive_run(&d, "go");
    for (uint64_t i = 1; i <= 2; i++) {
        for (uint32_t slot = 0; slot < (i == 1 ? 3u : 2u); slot++)
            assert_int_equal(drive_feed(&d, &(struct job_event){ .type = EV_CHECKPOINT,
                                                                 .checkpoint = { .slot = slot,
                                                                                 .generation = 1,
                                                                                 .attempt = 1,
                                                                                 .step = 10 * i,
                                                                                 .path = "/x" } }),
                             0);
        assert_non_null(job_checkpoint(d.job, 0, &step));
        assert_int_equal(step, 10 * i);
        drive_run(&d, "resize:worker=2 +100");
    }
    drive_done(&d);
}

static void test_random_timelines(void **state)
{
    unsigned n_whole = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        (void)snprintf(running, sizeof running, "seed %u", (unsigned)seed);
        by_chance(seed, "worker*4/on/scope-job/max1000", &n_whole);
        by_chance(seed, "worker*4/on/scope-task/max1000 gang=0", &n_whole);
        by_chance(seed, "worker*2/on/scope-role/max1000 b*2/on/scope-job/max1000", &n_whole);
    }
    assert_true(n_whole > 600); /* otherwise the test proves nothing */
}

/* 10,000 tasks report paths of 100 bytes. The fastest are twenty steps ahead. */
static void test_memory(void **state)
{
    enum { N = 10000, STEPS = 6, AHEAD = 20 };
    static const char zeros[] = "00000000000000000000000000000000000000000000000000000000000000000"
                                "000000000000000000";
    struct drive d;
    (void)state;
    drive_init(&d, "worker*10000");
    drive_run(&d, "go");
    struct job_actions acts = { 0 };
    assert_int_equal(vec_reserve(&acts, 5 * N), 0);
    size_t before = mallinfo2().uordblks, most = 0;
    for (uint32_t step = 1; step < STEPS + AHEAD; step++)
        for (uint32_t i = 0; i < N; i++) {
            char path[128];
            uint32_t mine = i % 2 ? step : step - MIN(step, (uint32_t)AHEAD);
            (void)snprintf(path, sizeof path, "/data/%05u/%s/%04u", i, zeros, mine);
            struct job_event ev = { .type = EV_CHECKPOINT,
                                    .checkpoint = { .slot = i,
                                                    .generation = 1,
                                                    .attempt = 1,
                                                    .step = mine,
                                                    .path = path } };
            acts.n = 0;
            if (mine)
                assert_int_equal(job_feed(d.job, &ev, d.now, &acts, NULL), 0);
            most = MAX(most, i % 1000 ? 0 : mallinfo2().uordblks);
        }
    if (most > before)
        assert_in_range(most - before, 0, 10 << 20);
    vec_done(&acts);
    drive_done(&d);
}

/* Without memory a report changes nothing, and can be repeated. */
static void test_no_memory(void **state)
{
    struct drive d;
    struct job_actions acts = { 0 };
    const struct job_event ev = {
        .type = EV_CHECKPOINT,
        .checkpoint = { .slot = 1, .generation = 1, .attempt = 1, .step = 10, .path = "/c/1/10.1" }
    };
    unsigned n = 1;
    int rc;
    (void)state;
    drive_init(&d, "worker*2");
    feed(&d, "go 0:10");
    for (;; n++) {
        torture_arm(n, false);
        rc = job_feed(d.job, &ev, d.now, &acts, NULL);
        bool hit = torture_hit();
        torture_arm(0, false);
        if (!hit)
            break;
        assert_int_equal(rc, -ENOMEM);
        assert_int_equal(d.job->checkpoints.n_savers, 1);
        check(d.job, 1, "/c/0/10.1");
    }
    assert_int_equal(rc, 0);
    assert_true(n > 2);
    check(d.job, 1, "/c/1/10.1");
    vec_done(&acts);
    drive_done(&d);
}

/* A stop with time to save grants this time to each attempt; a second stop cancels it. */
static void test_a_stop_with_time_to_save(void **state)
{
    struct drive d;
    unsigned asked = 0, plain = 0;
    (void)state;
    drive_init(&d, "worker*2 grace=100");
    drive_run(&d, "go mute:worker:0 mute:worker:1");
    struct job_actions acts = { 0 };
    struct job_event ev = { .type = EV_STOP, .stop = { .who = "ann", .save_ms = 20000 } };
    assert_int_equal(job_feed(d.job, &ev, d.now, &acts, NULL), 0);
    for (size_t i = 0; i < acts.n; i++)
        asked += acts.v[i].type == ACT_STOP_ATTEMPT && acts.v[i].stop_attempt.save_ms == 20000;
    assert_int_equal(asked, 2);
    /* no task counts as stuck before that time is over */
    assert_true(job_deadline(d.job) >= d.now + 20000 + 100);
    acts.n = 0;
    ev.stop.save_ms = 5000;
    assert_int_equal(job_feed(d.job, &ev, d.now, &acts, NULL), 1);
    ev.stop.save_ms = 0;
    acts.n = 0;
    assert_int_equal(job_feed(d.job, &ev, d.now, &acts, NULL), 0);
    for (size_t i = 0; i < acts.n; i++)
        plain += acts.v[i].type == ACT_STOP_ATTEMPT && acts.v[i].stop_attempt.save_ms == 0;
    assert_int_equal(plain, 2);
    assert_true(job_deadline(d.job) < d.now + 20000);
    vec_done(&acts);
    drive_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_newest_that_all_share),
        cmocka_unit_test(test_checkpoints_that_are_refused),
        cmocka_unit_test(test_generations_do_not_mix),
        cmocka_unit_test(test_late_reports_of_checkpoints),
        cmocka_unit_test(test_a_task_that_restarts_alone),
        cmocka_unit_test(test_which_tasks_a_step_waits_for),
        cmocka_unit_test(test_a_saver_leaves_the_job),
        cmocka_unit_test(test_random_timelines),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_a_stop_with_time_to_save),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
