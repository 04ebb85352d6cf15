/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a journal: see journal.h. journal_read.c builds the lines and reads them. */
#include "storage/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "storage/journal_int.h"

enum {
    KEEP_CAP = 1 << 20, /* memory that pending keeps while it is empty */
    OPEN_TRIES = 5,     /* times that another process may replace the file while we open it */
    VERIFY_CHUNK = 64 << 10,
};

static int take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

int journal_probe_call(const struct journal *j, enum journal_call call)
{
    int rc = j->probe ? j->probe->before(j->probe->arg, call) : 0;
    if (rc == 0)
        return 0;
    errno = -rc;
    return -1;
}

/* ---- opening ---- */

/* Open the directory of path, and set the file's name in it. */
static int open_dir(struct journal *j, const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/');
    AUTO(free_p) char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    j->name = str_dup(slash ? slash + 1 : path);
    if (!dir || !j->name)
        return err_set(e, ENOMEM, "cannot open journal '%s': %m", path);
    j->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (j->dir_fd == -1)
        return err_set(e, errno, "cannot open journal '%s': %m", path);
    return 0;
}

/* Is fd the file that has the journal's name now? Another process may have begun a new segment
 * since fd was opened. */
static bool is_current(const struct journal *j, int fd)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 &&
           fstatat(j->dir_fd, j->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

/* Open the file and lock it: two writers would destroy each other's records. Some network file
 * systems have no locks; there the journal is used without one. */
static int open_locked(struct journal *j, const char *path, struct err *e)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY;
    for (int i = 0; i < OPEN_TRIES; i++) {
        AUTO(close_p) int fd = openat(j->dir_fd, j->name, flags);
        if (fd == -1 && errno == ENOENT) {
            fd = openat(j->dir_fd, j->name, flags | O_CREAT, 0600);
            j->dir_dirty = true;
        }
        if (fd == -1)
            return err_set(e, errno, "cannot open journal '%s': %m", path);
        if (flock(fd, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK)
            return err_set(e, EBUSY, "journal '%s' is being written by another process", path);
        if (is_current(j, fd)) {
            j->fd = take_fd(&fd);
            return 0;
        }
    }
    return err_set(e, EBUSY, "another process keeps replacing journal '%s'", path);
}

/* Check all records. Find the end of the last valid one and the number of the next. */
static int scan(struct journal *j, const char *path, struct err *e)
{
    struct journal_reader r;
    struct journal_record rec;
    int rc = journal_reader_open(&r, path, e);
    if (rc < 0)
        return rc;
    j->old_format = false;
    while ((rc = journal_reader_next(&r, &rec, e)) == 1)
        j->old_format |= r.format < JOURNAL_FORMAT;
    j->next_n = r.n_read ? r.next_n : 1;
    j->first_n = r.n_read ? r.first_n : 1;
    j->size = r.end;
    j->head_end = r.head_end;
    j->header_due = r.format < JOURNAL_FORMAT;
    journal_reader_close(&r);
    return rc;
}

/* Cut off the bytes behind the last valid record. A crash during a write may have left them. */
static int cut_torn_end(struct journal *j, const char *path, struct err *e)
{
    struct stat st;
    if (fstat(j->fd, &st) == -1)
        return err_set(e, errno, "cannot open journal '%s': %m", path);
    if (st.st_size <= j->size)
        return 0;
    if (ftruncate(j->fd, (off_t)j->size) == -1 || fdatasync(j->fd) == -1)
        return err_set(e, errno, "cannot cut the torn end of journal '%s': %m", path);
    log_event(LOG_WARN, "journal.torn", f_str("path", path), f_int("kept", j->size),
              f_int("cut", (int64_t)st.st_size - j->size));
    return 0;
}

/* Remove the file of a new segment that a crash has left unfinished. No other process can be making
 * one: this process has the journal's lock. */
static int remove_unfinished(struct journal *j, const char *path, struct err *e)
{
    AUTO(free_p) char *name = str_printf("%s.new", j->name);
    if (!name)
        return err_set(e, ENOMEM, "cannot open journal '%s': %m", path);
    if (unlinkat(j->dir_fd, name, 0) == 0)
        log_event(LOG_INFO, "journal.unfinished_segment_removed", f_str("path", path));
    else if (errno != ENOENT)
        return err_set(e, errno, "cannot remove the unfinished segment '%s.new': %m", path);
    return 0;
}

int journal_open(struct journal *j, const char *path, struct err *e)
{
    *j = (struct journal){
        .fd = -1, .dir_fd = -1, .pending.max = SIZE_MAX / 4, .segment_min = JOURNAL_SEGMENT_MIN
    };
    int rc = open_dir(j, path, e);
    if (rc == 0)
        rc = open_locked(j, path, e);
    if (rc == 0)
        rc = remove_unfinished(j, path, e);
    if (rc == 0)
        rc = scan(j, path, e);
    if (rc == 0)
        rc = cut_torn_end(j, path, e);
    if (rc < 0) {
        close_p(&j->fd);
        j->fd = -1;
        journal_close(j);
    }
    return rc;
}

/* ---- adding ---- */

int journal_add(struct journal *j, struct span payload)
{
    if (j->failed < 0)
        return j->failed;
    int64_t t0 = clock_mono_us();
    size_t before = j->pending.len;
    uint64_t n = j->next_n;
    int rc = j->header_due ? journal_add_header(&j->pending, n++, 0) : 0;
    if (rc == 0)
        rc = journal_add_line(&j->pending, n, payload);
    if (rc == -EINVAL) {
        j->pending.len = before;
        return rc;
    }
    if (rc < 0) {
        j->failed = rc; /* no record may follow the missing one */
        return rc;
    }
    j->header_due = false;
    j->next_n = n + 1;
    j->n_added++;
    j->add_us += clock_mono_us() - t0;
    return 0;
}

size_t journal_unwritten(const struct journal *j)
{
    return j->pending.len - j->n_written;
}

/* ---- writing ---- */

/* Write len bytes to the offset `at`. If a write() writes only a part, the next one either writes
 * the rest or returns the error that explains the short write. */
static int write_at(struct journal *j, int64_t at, const char *p, size_t len)
{
    size_t done = 0;
    if (lseek(j->fd, (off_t)at, SEEK_SET) == -1)
        return -errno;
    while (done < len) {
        ssize_t n = journal_probe_call(j, JOURNAL_CALL_WRITE);
        if (n == 0)
            n = write(j->fd, p + done, len - done);
        if (n == -1 && errno != EINTR)
            return -errno;
        if (n == 0)
            return -ENOSPC;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int cut_to_size(const struct journal *j)
{
    if (journal_probe_call(j, JOURNAL_CALL_CUT) == -1)
        return -1;
    return ftruncate(j->fd, (off_t)j->size);
}

/*
 * Write the records that are not in the file yet. With j->rewrite, write all records since the last
 * sync again, at the same offset: the bytes are equal, so a crash during the write loses none of
 * them. Cutting the file back first could lose records whose actions have been carried out.
 */
static int journal_write_pending(struct journal *j, struct err *e)
{
    size_t from = j->rewrite ? 0 : j->n_written;
    int64_t durable = j->size - (int64_t)j->n_written;
    int rc = j->torn ? cut_to_size(j) : 0;
    if (rc == -1) {
        j->failed = -errno;
        return err_set(e, errno, "cannot write the journal: %m");
    }
    j->torn = false;
    rc = write_at(j, durable + (int64_t)from, j->pending.p + from, j->pending.len - from);
    j->n_writes++;
    if (rc == 0) {
        j->size = durable + (int64_t)j->pending.len;
        j->n_written = j->pending.len;
        return 0;
    }
    /* A part of the new bytes may be in the file. Cut it off, so that the file ends with the last
     * valid record. If this fails as well, the next reader finds a torn last line. */
    if (cut_to_size(j) == -1) {
        j->torn = true;
        log_event(LOG_WARN, "journal.not_cut", f_int("size", j->size));
    }
    /* On NFS this error may concern bytes of an earlier write() that did not reach the server. NFS
     * reports it only once, so write these bytes again. */
    j->rewrite = j->n_written > 0;
    j->failed = rc;
    return err_set(e, -rc, "cannot write the journal: %m%s",
                   rc == -EFBIG ? " (a limit on the size of files: ulimit -f)" : "");
}

/* ---- syncing ---- */

int journal_sync_dir(struct journal *j)
{
    if (journal_probe_call(j, JOURNAL_CALL_SYNC_DIR) == -1 || fsync(j->dir_fd) == -1)
        return -1;
    j->dir_dirty = false;
    return 0;
}

/* Compare the rewritten bytes with the file. Drop the page cache first, so that read() gets the
 * bytes from the disk or the server. */
static int verify_rewritten(struct journal *j, struct err *e)
{
    char got[VERIFY_CHUNK];
    int64_t at = j->size - (int64_t)j->n_written;
    size_t done = 0;
    (void)posix_fadvise(j->fd, 0, 0,
                        POSIX_FADV_DONTNEED); /* only advice: the kernel may ignore it */
    while (done < j->n_written) {
        ssize_t n =
            pread(j->fd, got, MIN(sizeof got, j->n_written - done), (off_t)(at + (int64_t)done));
        if (n == -1 && errno == EINTR)
            continue;
        if (n <= 0 || memcmp(got, j->pending.p + done, (size_t)n) != 0) {
            j->lost = true;
            j->failed = -EIO;
            return err_set(e, EIO,
                           "after a failed sync, the journal's file differs from what was written "
                           "again");
        }
        done += (size_t)n;
    }
    return 0;
}

/*
 * Set the error of a failed fdatasync(). The kernel has now dropped the pages or counts them as
 * clean, so another sync alone would succeed without proving anything. If the disk or a quota is
 * full, the next flush writes the bytes again (they are still in pending) and syncs them. Any other
 * error is final: a failing device may have lost more than these bytes.
 */
static int sync_failed(struct journal *j, struct err *e)
{
    int num = errno;
    j->failed = -num;
    j->rewrite = true;
    j->lost = num != ENOSPC && num != EDQUOT;
    errno = num;
    return err_set(e, num, "cannot make the journal durable: %m");
}

static int sync_file(struct journal *j, struct err *e)
{
    if (journal_probe_call(j, JOURNAL_CALL_SYNC) == -1 || fdatasync(j->fd) == -1 ||
        (j->dir_dirty && journal_sync_dir(j) == -1))
        return sync_failed(j, e);
    j->n_syncs++;
    int rc = j->rewrite ? verify_rewritten(j, e) : 0;
    if (rc < 0)
        return rc;
    j->rewrite = false;
    j->n_written = 0;
    buf_clear(&j->pending);
    if (j->pending.cap > KEEP_CAP)
        buf_done(&j->pending);
    return 0;
}

int journal_flush(struct journal *j, bool sync, struct err *e)
{
    if (j->failed < 0)
        return err_set(e, -j->failed, "cannot write the journal: %m");
    int64_t t0 = clock_mono_us();
    int rc = journal_unwritten(j) > 0 || j->rewrite ? journal_write_pending(j, e) : 0;
    int64_t t1 = clock_mono_us();
    j->write_us += t1 - t0;
    if (rc == 0 && (sync || j->rewrite || j->n_written >= JOURNAL_UNSYNCED_MAX)) {
        rc = sync_file(j, e);
        j->sync_us += clock_mono_us() - t1;
    }
    return rc;
}

int journal_retry(struct journal *j)
{
    if (j->lost || j->failed == -ENOMEM)
        return j->failed;
    j->failed = 0;
    return 0;
}

void journal_close(struct journal *j)
{
    if (j->fd >= 0)
        log_event(LOG_INFO, "journal.closed", f_int("records", (int64_t)j->n_added),
                  f_int("writes", (int64_t)j->n_writes), f_int("syncs", (int64_t)j->n_syncs),
                  f_int("segments", (int64_t)j->n_segments), f_int("size", j->size),
                  f_int("add_us", j->add_us), f_int("write_us", j->write_us),
                  f_int("sync_us", j->sync_us), f_int("segment_us", j->segment_us));
    buf_done(&j->pending);
    free(j->name);
    close_p(&j->fd);
    close_p(&j->dir_fd);
    *j = (struct journal){ .fd = -1, .dir_fd = -1 };
}
