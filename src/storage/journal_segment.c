/* SPDX-License-Identifier: Apache-2.0 */
/* Replacing a journal's segment by a snapshot: see journal.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "storage/journal_int.h"

enum { WRITE_CHUNK = 256 << 10 }; /* bytes of the snapshot per write() */

/* ---- when to begin a segment ---- */

/* The bytes of events after which a new segment is worth its cost, for a snapshot of that size and
 * at least `min` bytes. */
static int64_t journal_segment_after(int64_t min, int64_t snapshot_size)
{
    return MAX(min, snapshot_size);
}

bool journal_wants_segment(const struct journal *j)
{
    int64_t events = j->size - MAX(j->head_end, j->put_off_at);
    if (j->old_format && !j->put_off_at)
        return true;
    return events > journal_segment_after(j->segment_min, j->head_end);
}

void journal_put_off_segment(struct journal *j)
{
    j->put_off_at = j->size;
}

/* ---- beginning one ---- */

/* The file "<name>.new", until it is renamed. */
struct segment {
    int fd;
    char *name;
    int64_t size;
    struct buf text; /* not written yet */
};

static int segment_error(const struct journal *j, int num, struct err *e)
{
    return err_set(e, num, "cannot begin a new segment of journal '%s': %m", j->name);
}

/* Create and lock the new file. This process has the journal's lock, so an existing file of that
 * name is the rest of a failed attempt of its own. The new file is locked before it becomes the
 * journal, so that no other process can open the journal for writing. */
static int create_new_file(const struct journal *j, struct segment *s)
{
    s->name = str_printf("%s.new", j->name);
    if (!s->name)
        return -ENOMEM;
    if (journal_probe_call(j, JOURNAL_CALL_CREATE_NEW) == -1)
        return -errno;
    if (unlinkat(j->dir_fd, s->name, 0) == -1 && errno != ENOENT)
        return -errno;
    s->fd = openat(j->dir_fd, s->name,
                   O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
    if (s->fd == -1 || (flock(s->fd, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK))
        return -errno;
    return 0;
}

static int write_text(const struct journal *j, struct segment *s)
{
    if (journal_probe_call(j, JOURNAL_CALL_WRITE_NEW) == -1)
        return -errno;
    int rc = fs_write_all(s->fd, s->text.p, s->text.len);
    s->size += (int64_t)s->text.len;
    buf_clear(&s->text);
    return rc;
}

static int write_records(const struct journal *j, struct segment *s, const struct span *payloads,
                         size_t n)
{
    int rc = journal_add_header(&s->text, j->next_n, n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = journal_add_line(&s->text, j->next_n + 1 + i, payloads[i]);
        if (rc == 0 && s->text.len >= WRITE_CHUNK)
            rc = write_text(j, s);
    }
    if (rc == 0 && s->text.len > 0)
        rc = write_text(j, s);
    if (rc == 0 && (journal_probe_call(j, JOURNAL_CALL_SYNC_NEW) == -1 || fdatasync(s->fd) == -1))
        rc = -errno;
    return rc;
}

/* Rename the new file over the journal. A network file system may rename a file and still report a
 * failure. So after an error, check which file has the journal's name. */
static int rename_over(struct journal *j, const struct segment *s)
{
    struct stat renamed, named;
    if (journal_probe_call(j, JOURNAL_CALL_RENAME) == -1)
        return -errno;
    if (renameat(j->dir_fd, s->name, j->dir_fd, j->name) == 0)
        return 0;
    int rc = -errno;
    if (fstat(s->fd, &renamed) == -1 ||
        fstatat(j->dir_fd, j->name, &named, AT_SYMLINK_NOFOLLOW) == -1) {
        j->lost = true; /* it is unknown which file is the journal: write to neither */
        j->failed = rc;
        return rc;
    }
    bool is_renamed = renamed.st_ino == named.st_ino && renamed.st_dev == named.st_dev;
    return is_renamed ? 0 : rc;
}

/* Remove the new file after a failure. */
static void give_up(const struct journal *j, struct segment *s)
{
    if (s->fd != -1 && (journal_probe_call(j, JOURNAL_CALL_REMOVE_NEW) == -1 ||
                        unlinkat(j->dir_fd, s->name, 0) == -1))
        log_event(LOG_WARN, "journal.unfinished_segment", f_str("name", s->name),
                  f_str("why", strerror(errno)));
    close_p(&s->fd);
}

/* Use the new file, which is the journal now. Closing the old one frees its lock and its disk
 * blocks. */
static void switch_to(struct journal *j, struct segment *s, size_t n)
{
    close_p(&j->fd);
    j->fd = s->fd;
    j->first_n = j->next_n;
    j->next_n += 1 + n;
    j->size = j->head_end = s->size;
    j->put_off_at = 0;
    j->header_due = j->old_format = j->torn = j->rewrite = false;
    j->n_written = 0;
    buf_clear(&j->pending); /* the snapshot contains the effect of these records */
    j->dir_dirty = true;
    j->n_segments++;
}

int journal_begin_segment(struct journal *j, const struct span *payloads, size_t n, struct err *e)
{
    int64_t t0 = clock_mono_us(), before;
    if (n == 0)
        return segment_error(j, EINVAL, e);
    int rc = journal_unwritten(j) > 0 || j->failed < 0 ? journal_flush(j, false, e) : 0;
    before = j->size;
    journal_put_off_segment(j);
    if (rc < 0)
        return rc;
    struct segment s = { .fd = -1 };
    rc = create_new_file(j, &s);
    if (rc == 0)
        rc = write_records(j, &s, payloads, n);
    if (rc == 0)
        rc = rename_over(j, &s);
    if (rc == 0)
        switch_to(j, &s, n);
    else
        give_up(j, &s);
    /* Until the directory is synced, a power cut may bring the old segment back. If syncing fails,
     * dir_dirty stays set: the next sync of the journal tries again, and reports a failure. */
    if (rc == 0 && journal_sync_dir(j) == -1)
        log_event(LOG_WARN, "journal.directory_not_synced", f_str("why", strerror(errno)));
    buf_done(&s.text);
    free(s.name);
    j->segment_us += clock_mono_us() - t0;
    if (rc < 0)
        return segment_error(j, -rc, e);
    log_event(LOG_INFO, "journal.new_segment", f_int("first", (int64_t)j->first_n),
              f_int("records", (int64_t)n), f_int("bytes", j->size), f_int("bytes_before", before),
              f_int("us", clock_mono_us() - t0));
    return 0;
}
