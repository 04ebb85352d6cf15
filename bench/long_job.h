/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that runs for weeks, in the job's own time. The core, the journal and its compaction are
 * the real ones; scheduler, executors and tasks are simulated. Each task reports a checkpoint every
 * five minutes, spread evenly over these minutes, and its progress before that. Once a day a task
 * fails, and the gang restarts.
 */
#ifndef TONY_BENCH_LONG_JOB_H
#define TONY_BENCH_LONG_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"
#include "history/replay.h"
#include "job/job.h"
#include "master/copies.h"
#include "storage/journal.h"

struct conf;
struct err;
struct job_spec;

enum { LONG_JOB_ROUND_MS = 300000 };

/* The copies of the journal, by the rule of master/copies.h: sizes only. */
struct long_copies {
    uint64_t base, tails[COPIES_TAILS], stored;
    size_t n_tails;
    unsigned ranks[COPIES_TAILS];
    uint64_t most; /* bytes in all files at once, also while one is being put */
};

/* One action of the core that the simulation answers later. */
struct long_word {
    enum job_action_type type;
    uint32_t slot, generation, attempt;
};

struct long_job {
    const struct job_spec *spec;
    struct job *job;
    struct replay replay;
    struct journal journal;
    const char *path; /* of the journal */
    const char *kept; /* a link to the file that the last compaction has replaced; NULL = none */
    /* Called before each compaction, when the journal is at its largest. May be NULL. */
    void (*before_compaction)(struct long_job *l, void *arg);
    void *arg;
    bool straggler; /* the first task reports only one checkpoint in each generation, so that no
                       later step is ever complete */
    int64_t now_ms, flushed_ms;
    struct job_actions acts;
    VEC(struct long_word) words;
    struct buf scratch;
    struct long_copies copies;
    uint64_t n_records, n_segments, most_journal, most_snapshot;
};

/* The configuration of such a job. NULL: no memory, or e says what is wrong. */
struct conf *long_job_conf(uint32_t n_tasks, struct err *e);
/* segment_min: JOURNAL_SEGMENT_MIN; smaller in tests. */
int long_job_open(struct long_job *l, const struct job_spec *spec, const char *path,
                  int64_t segment_min, struct err *e);
void long_job_close(struct long_job *l);
/* From the submission until all tasks run. */
int long_job_begin(struct long_job *l, struct err *e);
int long_job_rounds(struct long_job *l, unsigned n, struct err *e);

/* What a new master does: checks the journal at `path`, and replays it. The caller frees the job.
 */
int long_job_restore(const struct job_spec *spec, const char *path, struct job **out,
                     struct err *e);

#endif
