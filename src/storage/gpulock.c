/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/gpulock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"

#define PREFIX "tony-gpu-"

enum {
    NAME_SIZE = 64,
    TRIES = 4,            /* to claim a device, if another process claims it at the same time */
    PAUSE_MS = 4,         /* between two tries: a random time up to this */
    LOCKS_MAX = 16 << 20, /* the text of /proc/locks */
    LOCK_WORDS = 6,       /* of its lines, up to the inode */
    PROGRAM_SIZE = 32,    /* of a process; the kernel keeps 15 bytes */
};

const char *gpulock_dir(void)
{
    const char *set = getenv("TONY_GPU_LOCKS");
    return set && *set ? set : "/tmp";
}

static uint32_t random_u32(void)
{
    uint32_t v;
    if (getrandom(&v, sizeof v, GRND_NONBLOCK) != (ssize_t)sizeof v)
        v = (uint32_t)clock_mono_us() ^ (uint32_t)getpid() << 12; /* soon after the boot */
    return v;
}

/* ---- who holds a lock ---- */

/* A line of /proc/locks: "1: FLOCK  ADVISORY  WRITE 17 08:01:1234 0 EOF". Locks that wait have
 * "->" behind the number. */
static bool is_lock_on(struct span line, uint64_t inode, int64_t *out_pid)
{
    struct span word[LOCK_WORDS], at, rest;
    for (size_t i = 0; i < ARRAY_LEN(word);)
        if (!span_split(&line, ' ', &word[i]))
            return false;
        else if (word[i].len)
            i++;
    int64_t found;
    rest = word[5];
    for (int i = 0; i < 3; i++)
        if (!span_split(&rest, ':', &at))
            return false;
    return span_eqs(word[1], "FLOCK") && span_eqs(word[3], "WRITE") &&
           str_i64(at, 0, INT64_MAX, "inode", &found, NULL) == 0 && (uint64_t)found == inode &&
           str_i64(word[4], -1, INT32_MAX, "pid", out_pid, NULL) == 0;
}

/* The name of the program that a process runs, without bytes that a terminal would obey. Its user
 * chooses the name. "" = it cannot be read. */
static void program_of(int64_t pid, char out[static PROGRAM_SIZE])
{
    char path[40];
    AUTO(buf_done) struct buf text = { .max = PROGRAM_SIZE };
    (void)snprintf(path, sizeof path, "/proc/%lld/comm", (long long)pid);
    out[0] = '\0';
    if (fs_read(AT_FDCWD, path, &text, NULL) < 0)
        return;
    struct span name = span_trim(buf_span(&text));
    size_t n = 0;
    for (; n < name.len && n < PROGRAM_SIZE - 1; n++)
        out[n] = name.p[n] >= ' ' && name.p[n] <= '~' ? name.p[n] : '?';
    out[n] = '\0';
}

static uid_t owner_of_process(int64_t pid, uid_t otherwise)
{
    char path[32];
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/%lld", (long long)pid);
    return stat(path, &st) == 0 ? st.st_uid : otherwise;
}

/* Is the file of another user locked by a process of that user? Inodes of two file systems may have
 * the same number, so the process must fit, if it still exists. */
static bool is_locked_by_owner(const struct stat *st, int64_t *out_pid)
{
    AUTO(buf_done) struct buf text = { .max = LOCKS_MAX };
    struct span rest, line;
    if (fs_read(AT_FDCWD, "/proc/locks", &text, NULL) < 0)
        return false;
    rest = buf_span(&text);
    while (span_split(&rest, '\n', &line))
        if (is_lock_on(line, st->st_ino, out_pid) &&
            owner_of_process(*out_pid, st->st_uid) == st->st_uid)
            return true;
    return false;
}

/* ---- claims ---- */

struct claim {
    uid_t uid;
    int64_t pid; /* 0 = unknown */
};

/* Does a process hold this claim? If the file belongs to this user and no process holds it, remove
 * it. */
static bool is_held(int dir, const char *name, struct claim *out)
{
    struct stat st;
    *out = (struct claim){ 0 };
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == -1 || !S_ISREG(st.st_mode) ||
        st.st_nlink != 1)
        return false;
    out->uid = st.st_uid;
    if (st.st_uid != geteuid())
        return is_locked_by_owner(&st, &out->pid);
    AUTO(close_p) int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd == -1)
        return false;
    if (flock(fd, LOCK_SH | LOCK_NB) == -1) {
        bool held = errno == EWOULDBLOCK;
        if (!is_locked_by_owner(&st, &out->pid)) /* the message names the process */
            out->pid = 0;
        return held;
    }
    (void)unlinkat(dir, name, 0); /* its process was killed */
    return false;
}

/* Is there a claim on the device, besides that of the file `own` (NULL = none)? */
static bool find_claim(const char *path, uint32_t index, const char *own, struct claim *out)
{
    char prefix[NAME_SIZE];
    (void)snprintf(prefix, sizeof prefix, PREFIX "%u-", index);
    DIR *d = opendir(path);
    bool found = false;
    for (struct dirent *x; d && !found && (x = readdir(d));)
        found = str_starts(x->d_name, prefix) && !(own && str_eq(x->d_name, own)) &&
                is_held(dirfd(d), x->d_name, out);
    if (d)
        (void)closedir(d);
    return found;
}

bool gpulock_is_held(const char *dir, uint32_t index)
{
    struct claim c;
    return find_claim(dir, index, NULL, &c);
}

/* Make a locked file, and then give it its name. */
static int make_claim(int dir, uint32_t index, char name[NAME_SIZE])
{
    char hidden[NAME_SIZE + 1];
    uint32_t a = random_u32(), b = random_u32();
    (void)snprintf(name, NAME_SIZE, PREFIX "%u-%08x%08x", index, a, b);
    (void)snprintf(hidden, sizeof hidden, ".%s", name);
    int fd = openat(dir, hidden, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = fd == -1 ? -errno : 0;
    if (rc == 0 && flock(fd, LOCK_EX | LOCK_NB) == -1)
        rc = -errno;
    if (rc == 0 && renameat(dir, hidden, dir, name) == -1)
        rc = -errno;
    if (rc == 0)
        return fd;
    if (fd >= 0) {
        (void)unlinkat(dir, hidden, 0);
        (void)close(fd);
    }
    return rc;
}

static void describe(const struct claim *c, struct buf *out)
{
    char program[PROGRAM_SIZE];
    if (c->uid != geteuid())
        buf_addf(out, "user %u", (unsigned)c->uid);
    if (c->pid <= 0)
        return;
    program_of(c->pid, program);
    buf_addf(out, "%sprocess %lld%s%s", out->len ? ", " : "", (long long)c->pid,
             program[0] ? ", " : "", program);
}

static int refuse(uint32_t index, const struct claim *c, struct err *e)
{
    AUTO(buf_done) struct buf text = { 0 };
    describe(c, &text);
    return err_set(e, EWOULDBLOCK, "GPU %u is used by another job of this machine%s%s%s", index,
                   text.len ? " (" : "", buf_cstr(&text), text.len ? ")" : "");
}

bool gpulock_describe(const char *dir, uint32_t index, struct buf *out)
{
    struct claim c;
    bool held = find_claim(dir, index, NULL, &c);
    if (held)
        describe(&c, out);
    return held;
}

bool gpulock_holder(const char *dir, uint32_t index, struct err *e)
{
    struct claim c;
    bool held = find_claim(dir, index, NULL, &c);
    if (held)
        (void)refuse(index, &c, e);
    return held;
}

int gpulock_take(const char *dir, uint32_t index, struct err *e)
{
    AUTO(close_p) int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct claim other = { 0 };
    if (at == -1)
        return err_set(e, errno, "cannot claim GPU %u in '%s': %m", index, dir);
    for (int i = 0; i < TRIES; i++) {
        char name[NAME_SIZE];
        if (i > 0) /* a random pause, so that the two do not collide again */
            (void)poll(NULL, 0, (int)(random_u32() % PAUSE_MS) + 1);
        if (find_claim(dir, index, NULL, &other))
            continue;
        int fd = make_claim(at, index, name);
        if (fd < 0)
            return err_set(e, -fd, "cannot claim GPU %u in '%s': %m", index, dir);
        if (!find_claim(dir, index, name, &other))
            return fd;
        gpulock_release(&fd);
    }
    return refuse(index, &other, e);
}

void gpulock_release(int *fd)
{
    char link[32], path[PATH_MAX];
    struct stat held, named;
    if (*fd < 0)
        return;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", *fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(path, '/');
    /* Remove the file only if the path still names it: another process may have removed it. */
    if (slash && str_starts(slash + 1, PREFIX) && fstat(*fd, &held) == 0 &&
        lstat(path, &named) == 0 && held.st_ino == named.st_ino && held.st_dev == named.st_dev)
        (void)unlink(path);
    (void)flock(*fd,
                LOCK_UN); /* a child may have a copy of the descriptor, which would keep the lock */
    close_p(fd);
}

void gpulock_refresh(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *x; d && (x = readdir(d));) {
        struct stat st;
        if (str_starts(x->d_name, PREFIX) &&
            fstatat(dirfd(d), x->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == geteuid())
            (void)utimensat(dirfd(d), x->d_name, NULL, AT_SYMLINK_NOFOLLOW);
    }
    if (d)
        (void)closedir(d);
}
