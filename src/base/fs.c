/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"

void fd_open_standard(void)
{
    static const int flags[] = { O_RDONLY, O_RDONLY, O_WRONLY };
    struct pollfd p[3] = { { .fd = 0 }, { .fd = 1 }, { .fd = 2 } };
    if (poll(p, ARRAY_LEN(p), 0) <= 0)
        return;
    for (int fd = 0; fd < 3; fd++)
        if (p[fd].revents & POLLNVAL && open("/dev/null", flags[fd]) != fd)
            return; /* open() will fail later as well, and its caller reports the error */
}

bool fs_no_room(int num)
{
    return num == ENOSPC || num == EDQUOT || num == EFBIG;
}

int fs_hint_room(int rc, struct err *e)
{
    if (!e || e->hint[0] || !fs_no_room(-rc))
        return rc;
    if (rc == -EFBIG)
        err_hint(e, "raise the limit on the size of files (ulimit -f), then run `tony pool stop`: "
                    "the next job starts a pool with the new limit");
    else
        err_hint(e, "free some space in the file system of TONY_HOME, or set TONY_HOME to a "
                    "directory in another one");
    return rc;
}

void fs_ignore_sigxfsz(void)
{
    (void)signal(SIGXFSZ, SIG_IGN); /* cannot fail for this signal */
}

void fs_spread_below(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int flags = 0;
    if (fd >= 0 && ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && !(flags & FS_TOPDIR_FL)) {
        flags |= FS_TOPDIR_FL;
        (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
    }
    if (fd >= 0)
        close(fd);
}

int fd_nonblock(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags == -1)
        return -errno;
    int want = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
    if (want != flags && fcntl(fd, F_SETFL, want) == -1)
        return -errno;
    return 0;
}

bool fs_has_text(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_size > 0;
}

bool fs_any_named(const char *dir, const char *prefix)
{
    DIR *d = opendir(dir);
    bool found = false;
    for (struct dirent *x; d && !found && (x = readdir(d));)
        found = strncmp(x->d_name, prefix, strlen(prefix)) == 0;
    if (d)
        (void)closedir(d);
    return found;
}

char *fs_join(const char *a, const char *b)
{
    size_t n = strlen(a);
    char *s;
    if (asprintf(&s, "%s%s%s", a, n > 0 && a[n - 1] == '/' ? "" : "/", b) < 0)
        return NULL;
    return s;
}

int fs_open_file(int dirfd, const char *path, int flags, struct err *e)
{
    struct stat st;
    AUTO(close_p)
    int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags);
    if (fd == -1 || fstat(fd, &st) == -1)
        return err_set(e, errno, "cannot open '%s': %m", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, EINVAL, "'%s' is not a regular file", path);
    int mine = fd;
    fd = -1;
    return mine;
}

static int read_open(int fd, const char *path, struct buf *out, struct err *e)
{
    int rc = buf_fill_fd(out, fd, e);
    return rc < 0 ? err_wrap(e, rc, "file '%s'", path) : 0;
}

int fs_read_file(int dirfd, const char *path, struct buf *out, struct err *e)
{
    AUTO(close_p) int fd = fs_open_file(dirfd, path, 0, e);
    return fd < 0 ? fd : read_open(fd, path, out, e);
}

int fs_read(int dirfd, const char *path, struct buf *out, struct err *e)
{
    AUTO(close_p) int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd == -1)
        return err_set(e, errno, "cannot open '%s': %m", path);
    return read_open(fd, path, out, e);
}

int fs_write_all(int fd, const void *p, size_t len)
{
    const char *from = p;
    while (len > 0) {
        ssize_t n = write(fd, from, len);
        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1)
            return -errno;
        if (n == 0)
            return -EIO;
        from += n;
        len -= (size_t)n;
    }
    return 0;
}

/* The name of a temporary file in the directory of path. It does not contain the file name of path,
 * which may already have the maximal length of a name. */
static char *temp_name(const char *path, size_t dir_len)
{
    static atomic_uint counter;
    char *s;
    unsigned n = atomic_fetch_add(&counter, 1);
    if (asprintf(&s, "%.*s.tmp-%d-%u", (int)dir_len, path, (int)getpid(), n) < 0)
        return NULL;
    return s;
}

static int sync_dir(int dirfd, const char *path, size_t dir_len)
{
    AUTO(free_p) char *dir = dir_len > 0 ? strndup(path, dir_len) : strdup(".");
    if (!dir)
        return -ENOMEM;
    AUTO(close_p) int fd = openat(dirfd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1 || fsync(fd) == -1)
        return -errno;
    return 0;
}

static int write_temp(int dirfd, const char *temp, struct span text, mode_t mode, bool sync)
{
    int fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd == -1 && errno == EEXIST) {
        /* A dead process that had the same pid as this one has left the file. */
        (void)unlinkat(dirfd, temp, 0);
        fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    }
    if (fd == -1)
        return -errno;
    int rc = fs_write_all(fd, text.p, text.len);
    if (rc == 0 && sync && fdatasync(fd) == -1)
        rc = -errno;
    if (close(fd) == -1 && rc == 0) /* network file systems report a full disk at close() */
        rc = -errno;
    return rc;
}

int fs_write_atomic(int dirfd, const char *path, struct span text, mode_t mode, bool sync,
                    struct err *e)
{
    const char *slash = strrchr(path, '/');
    size_t dir_len = slash ? (size_t)(slash - path) + 1 : 0;
    AUTO(free_p) char *temp = temp_name(path, dir_len);
    if (!temp)
        return err_set(e, ENOMEM, "cannot write '%s': %m", path);
    int rc = write_temp(dirfd, temp, text, mode, sync);
    if (rc == 0 && renameat(dirfd, temp, dirfd, path) == -1)
        rc = -errno;
    if (rc < 0) {
        (void)unlinkat(dirfd, temp, 0); /* may be missing; the first error is the one to report */
        return err_set(e, -rc, "cannot write '%s': %m", path);
    }
    if (sync)
        rc = sync_dir(dirfd, path, dir_len);
    return rc < 0 ? err_set(e, -rc, "cannot make '%s' durable: %m", path) : 0;
}

static int make_dir(const char *path, mode_t mode)
{
    if (mkdir(path, mode) == 0)
        return 0;
    int num = errno;
    struct stat st;
    if (num == EEXIST || num == EROFS || num == EACCES || num == EPERM) {
        if (stat(path, &st) == 0)
            return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
    }
    return -num;
}

/* Set the error for -EEXIST from make_dir(part): something is there, but stat() finds no directory.
 * The usual cause is a dangling symbolic link. part is path or one of its parents. */
static int refuse_dangling_link(const char *path, const char *part, struct err *e)
{
    struct stat st;
    if (lstat(part, &st) == -1 || !S_ISLNK(st.st_mode))
        return err_set(e, EEXIST, "cannot make directory '%s': %m", path);
    (void)err_set(e, ENOENT,
                  "cannot make directory '%s': '%s' is a symbolic link whose target does not exist",
                  path, part);
    return err_hint(e, "make the directory that the link points to, or remove the link");
}

int fs_mkdirs(const char *path, mode_t mode, struct err *e)
{
    int rc = make_dir(path, mode);
    if (rc == -ENOENT) {
        AUTO(free_p) char *part = strdup(path);
        if (!part)
            return err_set(e, ENOMEM, "cannot make directory '%s': %m", path);
        rc = 0;
        for (char *s = part + strspn(part, "/"); rc == 0 && *s;) {
            s += strcspn(s, "/");
            char *next = s + strspn(s, "/");
            char separator = *s;
            *s = '\0';
            rc = make_dir(part, mode);
            if (rc == -EEXIST)
                return refuse_dangling_link(path, part, e);
            *s = separator;
            s = next;
        }
        if (*path == '\0')
            rc = -ENOENT;
    }
    if (rc == -EEXIST)
        return refuse_dangling_link(path, path, e);
    return rc < 0 ? err_set(e, -rc, "cannot make directory '%s': %m", path) : 0;
}

int fs_private_dir(const char *path, struct err *e)
{
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
        (st.st_mode & 07777) == 0700)
        return 0; /* it is there in nearly all cases: each program of a job asks for six */
    if (mkdir(path, 0700) == -1 && errno != EEXIST && errno != EROFS && errno != EACCES)
        return err_set(e, errno, "cannot make directory '%s': %m", path);
    int mkdir_errno = errno;
    AUTO(close_p) int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY);
    if (fd == -1) {
        int num = errno;
        /* Another user's directory usually cannot be opened either. So check the owner before
         * reporting the error of open(): the owner is the better explanation. */
        if (lstat(path, &st) == -1)
            return err_set(e, num == ENOENT ? mkdir_errno : num, "cannot make directory '%s': %m",
                           path);
        if (S_ISLNK(st.st_mode))
            return err_set(e, EPERM, "'%s' is a symbolic link, but must be a directory", path);
        if (!S_ISDIR(st.st_mode))
            return err_set(e, ENOTDIR, "'%s' is not a directory", path);
        if (st.st_uid == geteuid())
            return err_set(e, num, "cannot open directory '%s': %m", path);
    } else if (fstat(fd, &st) == -1) {
        return err_set(e, errno, "cannot read the owner and mode of directory '%s': %m", path);
    }
    if (st.st_uid != geteuid())
        return err_set(e, EPERM, "directory '%s' belongs to user %u, not to user %u", path,
                       (unsigned)st.st_uid, (unsigned)geteuid());
    if ((st.st_mode & 07777) != 0700 && fchmod(fd, 0700) == -1)
        return err_set(e, errno, "cannot set the mode of directory '%s' to 0700: %m", path);
    return 0;
}

/* The offset at which the last n lines of p[0, len) start. If the text ends in a newline, that
 * newline belongs to the last line. */
static size_t last_lines(const char *p, size_t len, unsigned n)
{
    if (n == 0)
        return len;
    for (size_t i = len; i > 0; i--) {
        if (p[i - 1] == '\n' && i != len && --n == 0)
            return i;
    }
    return 0;
}

/* Append s to out with '?' for each byte that is not valid UTF-8. 0 or -errno. */
static int add_utf8(struct buf *out, struct span s)
{
    size_t bad;
    int rc = 0;
    while (rc == 0 && !span_utf8(s, &bad)) {
        rc = buf_add(out, s.p, bad);
        if (rc == 0)
            rc = buf_addc(out, '?');
        s = span_mem(s.p + bad + 1, s.len - bad - 1);
    }
    return rc < 0 ? rc : buf_add(out, s.p, s.len);
}

int fs_tail(int dirfd, const char *path, unsigned n, size_t max, struct buf *out, struct err *e)
{
    AUTO(close_p) int fd = fs_open_file(dirfd, path, 0, e);
    struct stat st;
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) == -1)
        return err_set(e, errno, "cannot read '%s': %m", path);
    if (st.st_size == 0 || max == 0)
        return 0;
    size_t want = (uintmax_t)st.st_size < max ? (size_t)st.st_size : max, len = 0;
    off_t from = st.st_size - (off_t)want;
    AUTO(free_p) char *text = malloc(want);
    if (!text)
        return err_set(e, ENOMEM, "cannot read '%s': %m", path);
    while (len < want) {
        ssize_t got = pread(fd, text + len, want - len, from + (off_t)len);
        if (got == -1 && errno == EINTR)
            continue;
        if (got == -1)
            return err_set(e, errno, "cannot read '%s': %m", path);
        if (got == 0) /* the file was truncated after fstat() */
            break;
        len += (size_t)got;
    }
    size_t start = last_lines(text, len, n);
    if (start == 0 && from > 0) { /* max cuts a line: skip the rest of a UTF-8 character there */
        while (start < len && start < 3 && ((unsigned char)text[start] & 0xc0) == 0x80)
            start++;
    }
    int rc = add_utf8(out, span_mem(text + start, len - start));
    return rc < 0 ? err_set(e, -rc, "cannot read '%s': %m", path) : 0;
}
