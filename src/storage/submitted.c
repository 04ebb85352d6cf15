/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/submitted.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define FILE_NAME "submitted"

enum { HOST_MAX = 256, FIELDS = 6 };

static void this_host(char out[static HOST_MAX])
{
    if (gethostname(out, HOST_MAX) == -1 || !out[0])
        (void)str_copy(out, HOST_MAX, "localhost");
    out[HOST_MAX - 1] = '\0';
}

/* ---- writing ---- */

static int take_lock(const struct paths *p, struct err *e)
{
    AUTO(free_p) char *path = str_printf("%s/" FILE_NAME ".lock", p->home);
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    if (fd == -1)
        return err_set(e, path ? errno : ENOMEM, "cannot open '%s/" FILE_NAME ".lock': %m",
                       p->home);
    while (flock(fd, LOCK_EX) == -1) {
        if (errno == EINTR)
            continue;
        int rc = err_set(e, errno, "cannot lock '%s': %m", path);
        close_p(&fd);
        return rc;
    }
    return fd;
}

/* Replace the file by the newer half of its lines. */
static int drop_older_half(const struct paths *p, const char *path, struct err *e)
{
    AUTO(buf_done) struct buf text = { .max = 4 * SUBMITTED_MAX };
    AUTO(free_p) char *new_path = str_printf("%s.new", path);
    AUTO(close_p) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd == -1 || !new_path)
        return err_set(e, new_path ? errno : ENOMEM, "cannot read '%s': %m", path);
    int rc = buf_fill_fd(&text, fd, e);
    if (rc < 0)
        return rc;
    const char *half = memchr(text.p + text.len / 2, '\n', text.len - text.len / 2);
    size_t from = half ? (size_t)(half + 1 - text.p) : 0;
    AUTO(close_p)
    int out = open(new_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    rc = out == -1 ? -errno : fs_write_all(out, text.p + from, text.len - from);
    if (rc == 0 && (fsync(out) == -1 || rename(new_path, path) == -1))
        rc = -errno;
    (void)p;
    return rc < 0 ? err_set(e, -rc, "cannot write '%s': %m", new_path) : 0;
}

static int append(const struct paths *p, const struct buf *line, struct err *e)
{
    AUTO(close_p) int lock = take_lock(p, e);
    AUTO(free_p) char *path = str_printf("%s/" FILE_NAME, p->home);
    struct stat st;
    char last = '\n';
    if (lock < 0)
        return lock;
    if (!path || line->failed)
        return err_set(e, ENOMEM, "cannot write '%s/" FILE_NAME "': %m", p->home);
    bool is_new = stat(path, &st) == -1;
    if (!is_new && st.st_size > SUBMITTED_MAX && drop_older_half(p, path, e) < 0)
        return -e->num;
    AUTO(close_p)
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd == -1)
        return err_set(e, errno, "cannot open '%s': %m", path);
    /* A crash may have left a line without an end. */
    bool torn = fstat(fd, &st) == 0 && st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) == 1 &&
                last != '\n';
    int rc = torn ? fs_write_all(fd, "\n", 1) : 0;
    if (rc == 0)
        rc = fs_write_all(fd, line->p, line->len);
    return rc < 0 ? err_set(e, -rc, "cannot write '%s': %m", path) : is_new;
}

int submitted_add(const struct paths *p, const char *cluster, const char *id, const char *place,
                  struct err *e)
{
    AUTO(buf_done) struct buf line = { 0 };
    char host[HOST_MAX];
    this_host(host);
    (void)buf_addf(&line, "submitted %lld %s %s %s %s\n", (long long)clock_wall_ms(), cluster, id,
                   host, place && *place && !strpbrk(place, " \n") ? place : "-");
    return append(p, &line, e);
}

int submitted_end(const struct paths *p, const char *id, const char *state, struct err *e)
{
    AUTO(buf_done) struct buf line = { 0 };
    (void)buf_addf(&line, "ended %lld %s %s\n", (long long)clock_wall_ms(), id, state);
    int rc = append(p, &line, e);
    return rc < 0 ? rc : 0;
}

int submitted_sync(const char *home, bool is_new)
{
    AUTO(free_p) char *path = str_printf("%s/" FILE_NAME, home);
    AUTO(close_p) int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd == -1 || fdatasync(fd) == -1)
        return -errno;
    AUTO(close_p) int dir = is_new ? open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    return is_new && (dir == -1 || fsync(dir) == -1) ? -errno : 0;
}

/* ---- reading ---- */

static int read_file(const struct paths *p, struct buf *out)
{
    AUTO(free_p) char *path = str_printf("%s/" FILE_NAME, p->home);
    AUTO(close_p) int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    struct err unread;
    out->max = 4 * SUBMITTED_MAX;
    return fd == -1 ? -errno : buf_fill_fd(out, fd, &unread);
}

/* Split a line into words. Returns their number. */
static size_t words_of(struct span line, struct span out[FIELDS])
{
    size_t n = 0;
    while (n < FIELDS && span_split(&line, ' ', &out[n]))
        n++;
    return line.p ? 0 : n;
}

static bool copy_word(char *out, size_t size, struct span word)
{
    if (!word.len || word.len >= size)
        return false;
    memcpy(out, word.p, word.len);
    out[word.len] = '\0';
    return true;
}

static bool parse_job(struct span line, struct submitted *out, char host[static HOST_MAX])
{
    struct span w[FIELDS];
    return words_of(line, w) == FIELDS && span_eqs(w[0], "submitted") &&
           str_i64(w[1], 0, INT64_MAX, "time", &out->at_ms, NULL) == 0 &&
           copy_word(out->cluster, sizeof out->cluster, w[2]) &&
           copy_word(out->id, sizeof out->id, w[3]) && copy_word(host, HOST_MAX, w[4]) &&
           copy_word(out->place, sizeof out->place, w[5]);
}

static bool is_meant(const struct submitted *s, const char *word, int64_t number, bool here)
{
    const char *last = strrchr(s->id, '_');
    int64_t n = 0;
    if (str_eq(word, "last"))
        return here;
    if (!number)
        return str_eq(s->id, word);
    return last && str_i64(span_of(last + 1), 1, UINT32_MAX, "number", &n, NULL) == 0 &&
           n == number && here;
}

int submitted_find(const struct paths *p, const char *cluster, const char *word,
                   struct submitted *out)
{
    AUTO(buf_done) struct buf text = { 0 };
    char host[HOST_MAX], mine[HOST_MAX];
    int64_t number = 0;
    struct submitted s;
    int rc = read_file(p, &text), found = -ENOENT;
    if (rc < 0)
        return rc;
    if (str_i64(span_of(word), 1, UINT32_MAX, "number", &number, NULL) < 0)
        number = 0;
    this_host(mine);
    struct span rest = buf_span(&text), line;
    while (rest.len && span_split(&rest, '\n', &line)) {
        if (!parse_job(line, &s, host) || !is_meant(&s, word, number, str_eq(host, mine)) ||
            (cluster && !str_eq(cluster, s.cluster)))
            continue;
        *out = s;
        found = 0;
    }
    return found;
}

int submitted_state(const struct paths *p, const char *id, char *out, size_t n)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct span rest, line, w[FIELDS];
    int rc = read_file(p, &text), found = -ENOENT;
    for (rest = buf_span(&text); rc == 0 && rest.len && span_split(&rest, '\n', &line);)
        if (words_of(line, w) == 4 && span_eqs(w[0], "ended") && span_eqs(w[2], id) &&
            copy_word(out, n, w[3]))
            found = 0;
    return rc < 0 ? rc : found;
}
