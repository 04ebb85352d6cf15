/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program for bench/long:
 *
 *     long-job run TASKS ROUNDS JOURNAL [straggler]
 *     long-job restore TASKS JOURNAL
 *
 * run: in a job of TASKS tasks, each task reports ROUNDS checkpoints, one every five minutes.
 * Prints the numbers of records and of segments, and the largest sizes in bytes of the journal, of
 * a snapshot and of all copies together. JOURNAL.kept is the journal as it was just before the last
 * compaction.
 *
 * restore: reads a journal as a new master does, and prints the CPU time for that in microseconds.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "conf/conf.h"
#include "long_job.h"

static _Noreturn void die(const struct err *e)
{
    fprintf(stderr, "long-job: %s\n", e->num ? e->msg : "no memory");
    exit(1);
}

static uint32_t number(const char *text, const char *what)
{
    struct err e = { 0 };
    int64_t n = 0;
    if (str_i64(span_of(text), 1, 1000000, what, &n, &e) < 0)
        die(&e);
    return (uint32_t)n;
}

static int64_t cpu_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* cannot fail */
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void run(const struct job_spec *spec, uint32_t rounds, const char *path, bool straggler)
{
    struct err e = { 0 };
    struct long_job l = { 0 };
    AUTO(free_p) char *kept = str_printf("%s.kept", path);
    if (!kept || long_job_open(&l, spec, path, JOURNAL_SEGMENT_MIN, &e) < 0)
        die(&e);
    l.kept = kept;
    l.straggler = straggler;
    if (long_job_begin(&l, &e) < 0 || long_job_rounds(&l, rounds, &e) < 0)
        die(&e);
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", l.n_records,
           l.n_segments, l.most_journal, l.most_snapshot, l.copies.most);
    long_job_close(&l);
}

static void restore(const struct job_spec *spec, const char *path)
{
    struct err e = { 0 };
    struct job *job = NULL;
    int64_t from = cpu_us();
    if (long_job_restore(spec, path, &job, &e) < 0)
        die(&e);
    printf("%" PRId64 "\n", cpu_us() - from);
    job_free(job);
}

int main(int argc, char **argv)
{
    struct err e = { 0 };
    struct job_spec *spec = NULL;
    bool runs = argc >= 5 && argc <= 6 && str_eq(argv[1], "run");
    bool restores = argc == 4 && str_eq(argv[1], "restore");
    if (!runs && !restores) {
        fprintf(stderr, "usage: long-job run TASKS ROUNDS JOURNAL [straggler]\n"
                        "       long-job restore TASKS JOURNAL\n");
        return 2;
    }
    log_setup(2, LOG_WARN, false);
    AUTO(conf_freep) struct conf *conf = long_job_conf(number(argv[2], "tasks"), &e);
    if (!conf || job_spec_build(conf, &spec, &e) < 0)
        die(&e);
    if (runs)
        run(spec, number(argv[3], "rounds"), argv[4], argc == 6);
    else
        restore(spec, argv[3]);
    job_spec_free(spec);
    return 0;
}
