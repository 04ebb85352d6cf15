/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proctree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/util.h"
#include "base/vec.h"

enum {
    /* Rounds of SIGSTOP. If the tree still grows after them, proctree_signal() sends its signal
     * nevertheless. Callers repeat the call. */
    STOP_ROUNDS_MAX = 50,
    WALK_MAX = 100000,     /* descendants in one walk; kernel.pid_max is usually 32768 or 4194304 */
    ENVIRON_MAX = 8 << 20, /* bytes of an environment; the kernel allows 6 MiB at most */
    EXEC_WAIT_MS = 1000,   /* a process whose environment is empty may be in its execve() */
    KILL_PAUSE_MS = 5,     /* between two rounds of proctree_kill_job() */
};

/* Read a file of /proc into out, NUL-terminated and cut to size. Returns the length or -errno. */
static ssize_t read_proc(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return -errno;
    size_t n = 0;
    ssize_t got;
    while (n < size - 1 && (got = read(fd, out + n, size - 1 - n)) > 0)
        n += (size_t)got;
    close(fd);
    out[n] = '\0';
    return (ssize_t)n;
}

/* Append the pids of a file /proc/<pid>/task/<tid>/children: "12 13 14 ". It may be longer than one
 * page, hence more than one read(). false: the file cannot be opened. */
static bool add_children_file(const char *path, struct pids *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return false;
    char text[4096];
    pid_t pid = 0;
    for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < n; i++) {
            if (text[i] >= '0' && text[i] <= '9') {
                pid = pid * 10 + (text[i] - '0');
            } else if (pid) {
                (void)vec_push(out, pid); /* without memory, the caller's next call adds it */
                pid = 0;
            }
        }
    close(fd);
    return true;
}

/* For kernels without CONFIG_PROC_CHILDREN: read the parent of every process of the machine. */
static void children_by_scan(pid_t parent, struct pids *out)
{
    DIR *d = opendir("/proc");
    for (struct dirent *x; d && (x = readdir(d));) {
        char path[64], text[512];
        char *end;
        long pid = strtol(x->d_name, &end, 10);
        if (*end || pid <= 0)
            continue;
        snprintf(path, sizeof path, "/proc/%ld/stat", pid);
        if (read_proc(path, text, sizeof text) <= 0)
            continue;
        const char *paren = strrchr(text, ')'); /* the program's name may contain ')' as well */
        char state;
        int ppid;
        if (paren && sscanf(paren + 1, " %c %d", &state, &ppid) == 2 && ppid == parent)
            (void)vec_push(out, (pid_t)pid);
    }
    if (d)
        closedir(d);
}

void proctree_children(pid_t pid, struct pids *out)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *d = opendir(path);
    bool any_readable = false, any_thread = false;
    for (struct dirent *x; d && (x = readdir(d));) {
        if (x->d_name[0] == '.')
            continue;
        any_thread = true;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/children", (int)pid, x->d_name);
        any_readable |= add_children_file(path, out);
    }
    if (d)
        closedir(d);
    if (any_thread && !any_readable && access("/proc/self/task", F_OK) == 0 &&
        access("/proc/thread-self/children", F_OK) == -1)
        children_by_scan(pid, out);
}

static bool has(const struct pids *list, pid_t pid)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i] == pid)
            return true;
    return false;
}

/* Append the children of pid that are not in the list `except`. */
static void children_except(pid_t pid, const struct pids *except, struct pids *out)
{
    size_t kept = out->n;
    proctree_children(pid, out);
    for (size_t i = kept; except->n && i < out->n; i++)
        if (!has(except, out->v[i]))
            out->v[kept++] = out->v[i];
    out->n = except->n ? kept : out->n;
}

void proctree_below_except(pid_t pid, const struct pids *except, struct pids *out)
{
    size_t i = out->n;
    children_except(pid, except, out);
    for (; i < out->n && out->n < WALK_MAX; i++)
        children_except(out->v[i], except, out);
}

void proctree_below(pid_t pid, struct pids *out)
{
    proctree_below_except(pid, &(struct pids){ 0 }, out);
}

unsigned proctree_signal(int sig, bool stop_first)
{
    struct pids list = { 0 };
    size_t before = 0;
    for (int round = 0; stop_first && round < STOP_ROUNDS_MAX; round++) {
        list.n = 0;
        proctree_below(getpid(), &list);
        for (size_t i = 0; i < list.n; i++)
            (void)kill(list.v[i], SIGSTOP);
        if (list.n == before)
            break;
        before = list.n;
    }
    list.n = 0;
    proctree_below(getpid(), &list);
    for (size_t i = 0; i < list.n; i++)
        (void)kill(list.v[i], sig);
    unsigned n = (unsigned)list.n;
    vec_done(&list);
    return n;
}

bool proctree_catches(pid_t pid, int sig)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (read_proc(path, text, sizeof text) <= 0)
        return false;
    const char *at = strstr(text, "\nSigCgt:");
    return at && sig > 0 && sig <= 64 && strtoull(at + 8, NULL, 16) >> (sig - 1) & 1;
}

unsigned proctree_signal_below(pid_t pid, int sig, bool catchers)
{
    struct pids list = { 0 };
    unsigned n = 0;
    proctree_below(pid, &list);
    for (size_t i = 0; i < list.n; i++)
        if (sig > 0 && sig <= 64 && (!catchers || proctree_catches(list.v[i], sig)) &&
            kill(list.v[i], sig) == 0)
            n++;
    vec_done(&list);
    return n;
}

static uint64_t rss_of(pid_t pid)
{
    char path[64], text[128];
    unsigned long long size, resident;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    if (read_proc(path, text, sizeof text) <= 0 || sscanf(text, "%llu %llu", &size, &resident) != 2)
        return 0;
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t pss_of(pid_t pid)
{
    char path[64], text[2048];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    if (read_proc(path, text, sizeof text) <= 0)
        return 0;
    const char *at = strstr(text, "\nPss:");
    return at ? strtoull(at + 5, NULL, 10) * 1024 : 0;
}

uint64_t proctree_rss(const struct pids *except, bool pss)
{
    struct pids list = { 0 };
    uint64_t sum = 0;
    proctree_below_except(getpid(), except, &list);
    for (size_t i = 0; i < list.n; i++)
        sum += pss ? pss_of(list.v[i]) : rss_of(list.v[i]);
    vec_done(&list);
    return sum;
}

/*
 * The size of the environment of process pid in bytes. -1: it has none and will have none.
 * 0: it calls execve() now, and will have one soon.
 *
 * /proc/<pid>/stat has the addresses where the environment starts and ends, and where the code
 * ends. An execve() sets that of the code last. Until then the environment may have no end, or one
 * equal to its start.
 */
static int64_t environment_size(pid_t pid)
{
    enum { STATE = 3, FLAGS = 9, CODE_END = 27, ENV_START = 50, ENV_END = 51 };
    /* PF_EXITING and PF_KTHREAD of the kernel's include/linux/sched.h */
    const unsigned long EXITING = 0x4, KERNEL_THREAD = 0x200000;
    char path[64], text[2048];
    unsigned long value[ENV_END + 1] = { 0 };
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    char *at = read_proc(path, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    if (!at || at[1] != ' ' || !at[2] || strchr("ZXx", at[2]))
        return -1;
    at += 3;
    for (int i = STATE + 1; i <= ENV_END; i++)
        value[i] = strtoul(at, &at, 10);
    if (value[FLAGS] & (EXITING | KERNEL_THREAD))
        return -1;
    if (value[CODE_END] == 0)
        return 0;
    return value[ENV_END] > value[ENV_START] ? (int64_t)(value[ENV_END] - value[ENV_START]) : -1;
}

/* environ_text: the strings of /proc/<pid>/environ, each ended by a NUL. */
static bool has_entry(struct span environ_text, const char *entry)
{
    struct span one;
    while (span_split(&environ_text, '\0', &one))
        if (span_eqs(one, entry))
            return true;
    return false;
}

/*
 * Read the environment until it is complete, or until it has this entry (NULL = until it is
 * complete).
 *
 * During an execve() the new program has no environment yet, and a descriptor of
 * /proc/<pid>/environ that was opened before has no more bytes. So the text may be empty or cut
 * short. On a busy machine, where the execve() waits for the disk or for a core, this can last
 * long.
 */
static bool read_environment(pid_t pid, const char *entry, struct buf *text)
{
    char path[64];
    int64_t deadline_ms = clock_mono_ms() + EXEC_WAIT_MS;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    for (;;) {
        AUTO(close_p) int fd = open(path, O_RDONLY | O_CLOEXEC);
        buf_clear(text);
        if (fd == -1 || buf_fill_fd(text, fd, NULL) < 0)
            return false;
        if (entry && has_entry(buf_span(text), entry))
            return true;
        int64_t size = environment_size(pid);
        if (size < 0 || (size > 0 && (uint64_t)size == text->len) || clock_mono_ms() >= deadline_ms)
            return !entry && text->len > 0;
        (void)poll(NULL, 0, 1);
    }
}

bool proctree_environment(pid_t pid, struct buf *out)
{
    AUTO(buf_done) struct buf text = { .max = ENVIRON_MAX };
    return read_environment(pid, NULL, &text) && buf_add(out, text.p, text.len) == 0;
}

bool proctree_has_variable(pid_t pid, const char *entry)
{
    AUTO(buf_done) struct buf text = { .max = ENVIRON_MAX };
    return read_environment(pid, entry, &text);
}

static bool is_of_job(int proc, const char *name, pid_t pid, const char *entry)
{
    struct stat st;
    return fstatat(proc, name, &st, 0) == 0 && st.st_uid == geteuid() &&
           proctree_has_variable(pid, entry);
}

/* Set *out for each start with which this command line begins. Returns how many were set. */
static size_t match_starts(pid_t pid, struct span line, const struct span *starts, size_t n,
                           pid_t *out)
{
    size_t set = 0;
    for (size_t i = 0; i < n; i++) {
        if (out[i] || line.len < starts[i].len || memcmp(line.p, starts[i].p, starts[i].len) != 0)
            continue;
        out[i] = pid; /* the lowest pid: /proc is in their order */
        set++;
    }
    return set;
}

void proctree_find(const struct span *starts, size_t n, pid_t *out)
{
    size_t len = 0, left = n;
    for (size_t i = 0; i < n; i++) {
        len = MAX(len, starts[i].len);
        out[i] = 0;
    }
    AUTO(free_p) char *text = malloc(len + 1);
    DIR *d = text && n ? opendir("/proc") : NULL;
    for (struct dirent *x; d && left && (x = readdir(d));) {
        char path[64], *end;
        struct stat st;
        long pid = strtol(x->d_name, &end, 10);
        if (*end || pid <= 1 || fstatat(dirfd(d), x->d_name, &st, 0) == -1 ||
            st.st_uid != geteuid())
            continue;
        (void)snprintf(path, sizeof path, "/proc/%ld/cmdline", pid);
        ssize_t got = read_proc(path, text, len + 1);
        if (got > 0)
            left -= match_starts((pid_t)pid, span_mem(text, (size_t)got), starts, n, out);
    }
    if (d)
        closedir(d);
}

static bool is_inside(pid_t pid)
{
    char path[64], own[64] = { 0 }, its[64] = { 0 };
    (void)snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)pid);
    return readlink("/proc/self/ns/pid", own, sizeof own - 1) > 0 &&
           readlink(path, its, sizeof its - 1) > 0 && strcmp(own, its) != 0;
}

unsigned proctree_signal_inside(const char *entry, int sig)
{
    DIR *d = opendir("/proc");
    unsigned n = 0;
    for (struct dirent *x; d && (x = readdir(d));) {
        char *end;
        long pid = strtol(x->d_name, &end, 10);
        if (!*end && pid > 1 && is_inside((pid_t)pid) &&
            is_of_job(dirfd(d), x->d_name, (pid_t)pid, entry) && kill((pid_t)pid, sig) == 0)
            n++;
    }
    if (d)
        closedir(d);
    return n;
}

/* Is the process an executor or a keeper? Both say so by the name of their thread. A program of the
 * user with such a name is killed later, together with them. */
static bool is_executor(pid_t pid)
{
    char path[64], name[32];
    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    return read_proc(path, name, sizeof name) > 0 &&
           (strcmp(name, "tony-executor\n") == 0 || strcmp(name, "tony-keeper\n") == 0);
}

/* One walk over /proc. Returns the number of processes of the job. */
static int kill_once(const char *entry, bool executors, unsigned *out_signals)
{
    DIR *d = opendir("/proc");
    if (!d)
        return -errno;
    int n = 0;
    for (struct dirent *x; (x = readdir(d));) {
        char *end;
        long pid = strtol(x->d_name, &end, 10);
        if (*end || pid <= 1 || pid == getpid() ||
            !is_of_job(dirfd(d), x->d_name, (pid_t)pid, entry))
            continue;
        n++;
        if ((executors || !is_executor((pid_t)pid)) && kill((pid_t)pid, SIGKILL) == 0)
            (*out_signals)++;
    }
    (void)closedir(d);
    return n;
}

int proctree_kill_job(const char *application_id, int executors_ms, int limit_ms,
                      unsigned *out_signals)
{
    char entry[128];
    unsigned unused = 0;
    int64_t begun_ms = clock_mono_ms();
    (void)snprintf(entry, sizeof entry, "TONY_APPLICATION_ID=%s", application_id);
    for (;;) {
        int64_t spent_ms = clock_mono_ms() - begun_ms;
        int n = kill_once(entry, spent_ms >= executors_ms, out_signals ? out_signals : &unused);
        if (n <= 0 || spent_ms >= limit_ms)
            return n;
        (void)poll(NULL, 0, KILL_PAUSE_MS); /* a killed process takes a moment to disappear */
    }
}
