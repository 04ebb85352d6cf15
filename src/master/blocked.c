/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal is blocked: for a while it cannot be written, because its disk or a quota is full, or
 * because a write failed.
 *
 * - The tasks continue to run.
 * - The master feeds events to the core as always. It keeps their records and actions in memory. It
 *   carries out no action, because the record of the event must be written first.
 * - The job time stops, so that no timeout expires because of the disk.
 * - The master repeats the write every RETRY_MS. When the write succeeds, the master carries out
 *   all actions that wait, in their order.
 * - Memory is bounded. Records: above PENDING_MAX bytes the master gives up, stops the tasks and
 *   fails the job. Actions: actions_merge() drops repetitions.
 *
 * If the master dies meanwhile, nothing is lost: executors repeat each report that was not
 * acknowledged. If a user stops the job, the master does not wait for the disk:
 * master_journal_failed().
 *
 * ENOSPC and EDQUOT may come from write() or from fdatasync(): network file systems and quotas
 * report a full disk late. storage/journal.h says how the journal repairs itself then. After EIO or
 * EROFS the master retries only if write() returned it.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "history/history.h"
#include "master/master_int.h"

enum {
    RETRY_MS = 500,         /* between two tries to write the journal */
    LOG_PAUSE_MS = 60000,   /* between two lines in the log */
    PENDING_MAX = 16 << 20, /* bytes of unwritten records, about 100,000 records */
};

static bool may_pass(int num)
{
    return num == ENOSPC || num == EDQUOT || num == EIO || num == EROFS;
}

static int64_t retry_ms(const struct master *m)
{
    return m->probe && m->probe->retry_ms ? m->probe->retry_ms : RETRY_MS;
}

bool blocked_must_wait(const struct master *m)
{
    return m->blocked_why && clock_mono_ms() < m->blocked_retry_ms;
}

bool blocked_begin(struct master *m, const struct err *why)
{
    int64_t now = clock_mono_ms();
    if (!may_pass(why->num) || journal_retry(&m->journal) < 0 || m->stop_answers_due ||
        journal_unwritten(&m->journal) > PENDING_MAX)
        return false;
    if (!m->blocked_why) {
        m->blocked_job_ms = master_now(m);
        m->blocked_since_ms = m->blocked_logged_ms = now;
        m->blocked_why = str_dup(why->msg);
        if (!m->blocked_why)
            return false;
        log_err(LOG_ERROR, "journal.blocked", why);
        m->update_due = true;
    } else if (now - m->blocked_logged_ms >= LOG_PAUSE_MS) {
        m->blocked_logged_ms = now;
        log_err(LOG_WARN, "journal.still_blocked", why);
    }
    m->blocked_retry_ms = now + retry_ms(m);
    return true;
}

void blocked_end(struct master *m)
{
    if (!m->blocked_why)
        return;
    int64_t now = clock_mono_ms();
    log_event(LOG_INFO, "journal.goes_on", f_int("after_ms", now - m->blocked_since_ms),
              f_int("bytes", (int64_t)m->journal.size));
    m->t0_mono_ms += now - m->t0_mono_ms - (m->blocked_job_ms - m->t0_job_ms);
    free(TAKE(m->blocked_why));
    history_free(TAKE(m->job_on_disk));
    m->update_due = true;
}

/* A verdict counts only when it is in the journal. If the core has reached one that is not written
 * yet, clients are shown the job that the journal on disk describes. */
void blocked_load_job_on_disk(struct master *m)
{
    struct err e = { 0 };
    if (!m->blocked_why || m->job_on_disk || job_state(m->job) < JOB_SUCCEEDED)
        return;
    if (history_load(m->job_dir, &m->job_on_disk, &e) < 0)
        log_err(LOG_WARN, "journal.unreadable", &e);
}
