/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds the size of the journal: when it has become large, the master replaces it by a snapshot of
 * the job's state (storage/journal.h: journal_begin_segment()).
 *
 * When: after a flush, as soon as journal_wants_segment() returns true. No record waits in memory
 * then, so the snapshot is exactly the state that a replay of the old segment gives.
 *
 * Cost: the loop waits for one write and one fdatasync() of the snapshot. For 5 MiB this takes 5 ms
 * of CPU time, and 70 to 220 ms on a busy virtual disk. It happens at most once per 4 MiB of
 * events, and at most once per snapshot size of events. A thread could write the snapshot without
 * stopping the loop, but then new records would have to go to both segments.
 *
 * If it fails, the old segment stays in use. The master tries again when as many bytes more have
 * been written to the journal.
 */
#include "master/compact.h"

#include <errno.h>

#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "base/vec.h"
#include "master/copies.h"
#include "master/master_int.h"

/* Write the state of the job and its clocks to lines, one payload on each line. The journal adds
 * the header itself. */
static int snapshot_payloads(const struct job *job, const struct replay *replay, struct buf *lines,
                             struct err *e)
{
    int rc = replay_snapshot(replay, lines);
    if (rc == 0)
        rc = job_snapshot(job, lines);
    return rc < 0 ? err_set(e, -rc, "no memory for a snapshot of the job") : 0;
}

static int begin_segment(struct journal *j, struct span lines, struct err *e)
{
    VEC(struct span) payloads = { 0 };
    struct span line;
    int rc = 0;
    while (rc == 0 && span_split(&lines, '\n', &line))
        if (line.len > 0)
            rc = vec_push(&payloads, line);
    if (rc < 0)
        rc = err_set(e, -rc, "no memory for a snapshot of the job");
    else
        rc = journal_begin_segment(j, payloads.v, payloads.n, e);
    vec_done(&payloads);
    return rc;
}

int compact_journal(struct journal *j, const struct job *job, const struct replay *replay,
                    struct err *e)
{
    AUTO(buf_done) struct buf lines = { .max = SIZE_MAX / 4 }; /* 100,000 tasks: some 100 MiB */
    int rc = snapshot_payloads(job, replay, &lines, e);
    return rc == 0 ? begin_segment(j, buf_span(&lines), e) : rc;
}

void compact_if_due(struct master *m)
{
    if (m->phase != MP_RUNNING || m->blocked_why || journal_unwritten(&m->journal) > 0 ||
        !journal_wants_segment(&m->journal))
        return;
    struct err e = { 0 };
    int rc = compact_journal(&m->journal, m->job, &m->replay, &e);
    if (rc < 0) {
        journal_put_off_segment(&m->journal);
        log_err(LOG_WARN, "journal.not_compacted", &e);
    } else if (m->copies) {
        copies_segment(m->copies, m->journal.first_n, (uint64_t)m->journal.size,
                       m->journal.next_n - 1);
    }
}
