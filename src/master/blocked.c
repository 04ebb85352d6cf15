/*
 * The journal cannot be written for a while: its disk is full, or fails.
 *
 * What runs goes on running. What happens is taken note of in memory; nothing is done about it,
 * since that must not be done before it stands in the journal, and the job's time stands still, so
 * that no limit is over because of the disk. The write is tried again and again, and when it
 * succeeds all that has waited is done, in its order. A master that dies meanwhile has lost
 * nothing: executors keep what was not acknowledged.
 *
 * Who wants the job stopped does not wait for the disk: see end.c.
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
    RETRY_MS = 500,
    SAY_MS = 60000,         /* in the log */
    PENDING_MAX = 16 << 20, /* of what is taken note of */
};

static bool may_come_back(int num)
{
    return num == ENOSPC || num == EDQUOT || num == EIO || num == EROFS;
}

static int64_t retry_ms(const struct master *m)
{
    return m->probe && m->probe->retry_ms ? m->probe->retry_ms : RETRY_MS;
}

bool blocked_waits(const struct master *m)
{
    return m->blocked_why && clock_mono_ms() < m->blocked_retry_ms;
}

bool blocked_begin(struct master *m, const struct err *why)
{
    int64_t now = clock_mono_ms();
    if (!may_come_back(why->num) || journal_retry(&m->journal) < 0 || m->stop_answers ||
        m->journal.pending.len > PENDING_MAX)
        return false;
    if (!m->blocked_why) {
        m->blocked_job_ms = master_now(m);
        m->blocked_since_ms = m->blocked_said_ms = now;
        m->blocked_why = str_dup(why->msg);
        if (!m->blocked_why)
            return false;
        log_err(LOG_ERROR, "journal.blocked", why);
        m->dirty = true;
    } else if (now - m->blocked_said_ms >= SAY_MS) {
        m->blocked_said_ms = now;
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
    history_free(TAKE(m->stands));
    m->dirty = true;
}

/* A verdict that is not written is none: others are shown what stands. */
void blocked_look(struct master *m)
{
    struct err e = { 0 };
    if (!m->blocked_why || m->stands || job_state(m->job) < JOB_SUCCEEDED)
        return;
    if (history_load(m->job_dir, &m->stands, &e) < 0)
        log_err(LOG_WARN, "journal.unreadable", &e);
}
