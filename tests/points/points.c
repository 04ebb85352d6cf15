/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that die, or stop, where a test says so. tests/points/meson.build links tony-pool,
 * tony-master and tony-executor a second time. In these programs each system call with an effect
 * outside the program goes through this file (ld's --wrap). The shipped programs do not contain it.
 *
 * Each such call is two points: "call NAME FILE" before it and "done NAME FILE" after it. FILE is
 * the file of the descriptor, or the path given. For a write to a journal the names of its events
 * follow: "call write /jobs/x/journal registered attempt_started". TONY_TEST_POINTS in the
 * environment names a directory. The first process of a program that comes to a point there takes
 * the file PROGRAM.1, the next one PROGRAM.2, and so on, by renaming it to PROGRAM.1.taken. PROGRAM
 * is pool, keeper, master or executor-SLOT. The file has one line, or two:
 *
 *     NUMBER ACTION FILTER
 *     AFTER
 *
 * At the NUMBERth point (from 1) whose text contains FILTER, the process writes that text into
 * PROGRAM.1.struck and then performs ACTION: kill (SIGKILL to itself), stop (SIGSTOP to itself), or
 * torn (the first half of the write, then kill). With AFTER, the process counts from the first
 * point whose text contains AFTER; this point counts, too. In FILTER and AFTER, * stands for any
 * text.
 *
 * TONY_TEST_SEGMENT in the environment: a master begins a new segment of its journal after it has
 * written more than so many bytes; with 0 after each write.
 *
 * TONY_TEST_EXITS in the environment: a keeper replaces the file `exits` at each acknowledgement of
 * the master after which the file has more than so many bytes.
 *
 * TONY_TEST_WALL names a file with a number of ms that is added to the wall clock. It is read each
 * time.
 *
 * TONY_TEST_SYNC names a file with an errno, for a disk where only the sync reports that it is
 * full. While that file exists, fdatasync() of a file named "journal" fails with this errno and
 * does nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/str.h"
#include "base/util.h"
#include "executor/executor.h"
#include "executor/executor_int.h"
#include "executor/keeper_int.h"
#include "storage/journal.h"

enum { LIVES_MAX = 9 };

static struct {
    pid_t me; /* the process whose points count; a child between fork and exec has another pid */
    bool ready, armed;
    bool counts; /* AFTER was found, or there is none */
    char program[32], taken[PATH_MAX], action[8], filter[64], after[64];
    unsigned number, count;
} at;

static ssize_t read_small(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd == -1 ? -1 : read(fd, out, size - 1);
    if (fd != -1)
        (void)close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n;
}

/* POINTS_PROGRAM is the program's name: on a cluster its file has another name. */
static void name_program(void)
{
    char line[4096];
    const char *name = POINTS_PROGRAM;
    if (strcmp(name, "executor") == 0) {
        ssize_t n = read_small("/proc/self/cmdline", line, sizeof line);
        bool keeper = n > 0 && (memmem(line, (size_t)n, "--keeper", 8) ||
                                memmem(line, (size_t)n, "tony-keeper", 11));
        name = keeper                                             ? "keeper"
               : n > 0 && memmem(line, (size_t)n, "--cleanup", 9) ? "cleanup"
                                                                  : "container";
    }
    (void)str_copy(at.program, sizeof at.program, name);
}

static void take(void)
{
    const char *dir = getenv("TONY_TEST_POINTS");
    at.ready = true;
    at.armed = false;
    at.count = 0;
    at.me = getpid();
    for (int life = 1; dir && life <= LIVES_MAX; life++) {
        char path[PATH_MAX - 8], text[256];
        (void)snprintf(path, sizeof path, "%s/%s.%d", dir, at.program, life);
        (void)snprintf(at.taken, sizeof at.taken, "%s.taken", path);
        if (rename(path, at.taken) == -1)
            continue;
        at.after[0] = '\0';
        at.armed = read_small(at.taken, text, sizeof text) > 0 &&
                   sscanf(text, "%u %7s %63[^\n]\n%63[^\n]", &at.number, at.action, at.filter,
                          at.after) >= 3;
        at.counts = at.after[0] == '\0';
        return;
    }
}

/* Describes the call. /proc names the file of the descriptor. */
static void describe(char *out, size_t size, const char *when, const char *call, int fd,
                     const char *path)
{
    char link[32], file[PATH_MAX] = "";
    if (!path) {
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, file, sizeof file - 1);
        file[n > 0 ? n : 0] = '\0';
    }
    (void)snprintf(out, size, "%s %s %s", when, call, path ? path : file);
}

/* Adds the names of the events in a part of a journal. */
static void add_events(char *out, size_t size, const char *p, size_t n)
{
    static const char mark[] = "\"e\":\"";
    const char *end = p + n, *quote;
    while ((p = memmem(p, (size_t)(end - p), mark, sizeof mark - 1))) {
        size_t used = strlen(out);
        p += sizeof mark - 1;
        quote = memchr(p, '"', (size_t)(end - p));
        if (!quote)
            return;
        (void)snprintf(out + used, size - used, " %.*s", (int)(quote - p), p);
        p = quote;
    }
}

/* Does this process wait for the next job (base/standby.h)? It may wait for hours, and must not
 * take the file of a point that the test makes meanwhile for another process. */
static bool is_standby(void)
{
    char line[32];
    return read_small("/proc/self/cmdline", line, sizeof line) > 0 &&
           str_starts(line, "tony-standby");
}

static bool is_watched(int fd)
{
    if (!at.ready && is_standby())
        return false;
    if (!at.ready) {
        name_program();
        take();
    }
    return at.armed && getpid() == at.me && fd != STDERR_FILENO;
}

/* Does the text contain the pattern? In it, * stands for any text. */
static bool has(const char *text, const char *pattern)
{
    char whole[80];
    (void)snprintf(whole, sizeof whole, "*%s*", pattern);
    return fnmatch(whole, text, 0) == 0;
}

/* Does the process have to act at this point? */
static bool is_it(const char *text)
{
    char struck[PATH_MAX + 8];
    at.counts = at.counts || has(text, at.after);
    if (!at.counts || !has(text, at.filter) || ++at.count != at.number)
        return false;
    (void)snprintf(struck, sizeof struck, "%.*s.struck", (int)(strlen(at.taken) - 6), at.taken);
    int out = open(struck, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (out != -1) {
        (void)dprintf(out, "%s\n", text);
        (void)close(out);
    }
    at.armed = false;
    return true;
}

static bool reached(const char *when, const char *call, int fd, const char *path)
{
    char text[PATH_MAX + 64];
    if (!is_watched(fd))
        return false;
    describe(text, sizeof text, when, call, fd, path);
    return is_it(text);
}

static bool reached_write(const char *when, int fd, const char *p, size_t n)
{
    char text[PATH_MAX + 512];
    if (!is_watched(fd))
        return false;
    describe(text, sizeof text, when, "write", fd, NULL);
    if (str_ends(text, "/journal"))
        add_events(text, sizeof text, p, n);
    return is_it(text);
}

static void strike(void)
{
    (void)kill(getpid(), strcmp(at.action, "stop") == 0 ? SIGSTOP : SIGKILL);
}

static void point(const char *when, const char *call, int fd, const char *path)
{
    int saved = errno;
    if (reached(when, call, fd, path))
        strike();
    errno = saved;
}

/* ---- the calls ---- */

#define WRAP(type, name, params, args, fd, path)                                                   \
    type __real_##name params;                                                                     \
    type __wrap_##name params;                                                                     \
    type __wrap_##name params                                                                      \
    {                                                                                              \
        point("call", #name, fd, path);                                                            \
        type rc = __real_##name args;                                                              \
        point("done", #name, fd, path);                                                            \
        return rc;                                                                                 \
    }

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    int saved = errno;
    if (reached_write("call", fd, p, n)) {
        if (strcmp(at.action, "torn") == 0)
            (void)!__real_write(fd, p, n / 2); /* the result does not matter: the process dies */
        strike();
    }
    errno = saved;
    ssize_t rc = __real_write(fd, p, n);
    saved = errno;
    if (reached_write("done", fd, p, n))
        strike();
    errno = saved;
    return rc;
}

WRAP(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n), fd, NULL)
WRAP(ssize_t, send, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags), fd, NULL)
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags), fd, NULL)
WRAP(int, connect, (int fd, const struct sockaddr *to, socklen_t n), (fd, to, n), fd, NULL)
WRAP(int, listen, (int fd, int n), (fd, n), fd, NULL)
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    const char *path = getenv("TONY_TEST_SYNC");
    char what[PATH_MAX + 64], text[32];
    point("call", "fdatasync", fd, NULL);
    describe(what, sizeof what, "call", "fdatasync", fd, NULL);
    if (path && str_ends(what, "/journal") && read_small(path, text, sizeof text) > 0) {
        errno = (int)strtol(text, NULL, 10);
        return -1;
    }
    int rc = __real_fdatasync(fd);
    point("done", "fdatasync", fd, NULL);
    return rc;
}

WRAP(int, fsync, (int fd), (fd), fd, NULL)
WRAP(int, rename, (const char *a, const char *b), (a, b), -1, b)
WRAP(int, renameat, (int d, const char *a, int f, const char *b), (d, a, f, b), -1, b)
WRAP(int, renameat2, (int d, const char *a, int f, const char *b, unsigned g), (d, a, f, b, g), -1,
     b)
WRAP(int, mkdir, (const char *p, mode_t m), (p, m), -1, p)
WRAP(int, mkdirat, (int d, const char *p, mode_t m), (d, p, m), -1, p)
WRAP(int, unlink, (const char *p), (p), -1, p)
WRAP(int, unlinkat, (int d, const char *p, int flags), (d, p, flags), -1, p)

pid_t __real_fork(void);
pid_t __wrap_fork(void);
pid_t __wrap_fork(void)
{
    point("call", "fork", -1, "");
    pid_t pid = __real_fork();
    if (pid > 0)
        point("done", "fork", -1, "");
    else if (pid == 0 && strcmp(at.program, "pool") == 0)
        at.me = getpid(); /* the child in the background is the pool from here on */
    return pid;
}

#ifdef POINTS_EXECUTOR
/* An executor is a fork of its keeper. */
_Noreturn void __real_executors_run(const struct executor_config *cfgs, size_t n);
_Noreturn void __wrap_executors_run(const struct executor_config *cfgs, size_t n);
_Noreturn void __wrap_executors_run(const struct executor_config *cfgs, size_t n)
{
    (void)snprintf(at.program, sizeof at.program, "executor-%u", cfgs[0].slot);
    take();
    __real_executors_run(cfgs, n);
}

bool __real_exits_wants_rewrite(const struct keeper *k);
bool __wrap_exits_wants_rewrite(const struct keeper *k);
bool __wrap_exits_wants_rewrite(const struct keeper *k)
{
    const char *most = getenv("TONY_TEST_EXITS");
    if (!most)
        return __real_exits_wants_rewrite(k);
    return (int64_t)k->exits_size > strtoll(most, NULL, 10);
}
#endif

#ifdef POINTS_MASTER
bool __real_journal_wants_segment(const struct journal *j);
bool __wrap_journal_wants_segment(const struct journal *j);
bool __wrap_journal_wants_segment(const struct journal *j)
{
    const char *most = getenv("TONY_TEST_SEGMENT");
    if (!most)
        return __real_journal_wants_segment(j);
    return j->size - MAX(j->head_end, j->put_off_at) > strtoll(most, NULL, 10);
}
#endif

int64_t __real_clock_wall_ms(void);
int64_t __wrap_clock_wall_ms(void);
int64_t __wrap_clock_wall_ms(void)
{
    const char *path = getenv("TONY_TEST_WALL");
    char text[32];
    if (!path || read_small(path, text, sizeof text) <= 0)
        return __real_clock_wall_ms();
    return __real_clock_wall_ms() + strtoll(text, NULL, 10);
}
