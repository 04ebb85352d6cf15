/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/usage.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/proctree.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "executor/cgroup.h"

/* Read a small file, NUL-terminated. false: it cannot be read. */
static bool get(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return false;
    ssize_t n = read(fd, out, size - 1);
    close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* ---- one process ---- */

struct process {
    uint64_t rss, cpu_ms, read_bytes, written_bytes;
    uint32_t threads;
};

static uint64_t to_ms(unsigned long long ticks)
{
    static long per_second;
    if (!per_second)
        per_second = MAX(sysconf(_SC_CLK_TCK), 1L);
    return ticks * 1000 / (unsigned long long)per_second;
}

/* proc(5), /proc/<pid>/stat: the state is field 3, utime 14, stime 15, cutime 16, cstime 17,
 * num_threads 20, rss 24. The name of the program, in parentheses, may contain any character. */
static bool read_stat(pid_t pid, struct process *out)
{
    char path[40], text[1024];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    const char *p = get(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    unsigned long long v[25] = { 0 };
    if (!p || p[1] != ' ' || !p[2])
        return false;
    char *at = (char *)(uintptr_t)(p + 3);
    for (int i = 4; i <= 24; i++)
        v[i] = strtoull(at, &at, 10);
    out->cpu_ms = to_ms(v[14] + v[15] + v[16] + v[17]);
    /* The kernel counts the first thread until the process is reaped, also if it has ended. */
    bool has_ended = p[2] == 'Z' || p[2] == 'X';
    out->threads = (uint32_t)(v[20] - (has_ended && v[20] ? 1 : 0));
    out->rss = v[24] * (uint64_t)sysconf(_SC_PAGESIZE);
    return true;
}

static uint64_t line_of(const char *text, const char *key)
{
    const char *p = strstr(text, key);
    return p && (p == text || p[-1] == '\n') ? strtoull(p + strlen(key), NULL, 10) : 0;
}

/* path: /proc/<pid>/io. Only the owner of a process may read it, and only if the process may be
 * debugged. Otherwise the numbers stay 0. */
static void read_io(const char *path, struct process *out)
{
    char text[512];
    if (!get(path, text, sizeof text))
        return;
    out->read_bytes = line_of(text, "read_bytes: ");
    out->written_bytes = line_of(text, "write_bytes: ");
}

static bool read_process(pid_t pid, struct process *out)
{
    char path[40];
    *out = (struct process){ 0 };
    (void)snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    if (!read_stat(pid, out))
        return false;
    read_io(path, out);
    return true;
}

/* ---- the group ---- */

static bool get_in(const struct cgroup *g, const char *file, char *out, size_t size)
{
    char path[CGROUP_PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/%s", g->path, file);
    return get(path, out, size);
}

static uint64_t group_memory(const struct cgroup *g)
{
    bool v1 = g->kind == CGROUP_V1;
    char used[32], stat[8192];
    if (!get_in(g, v1 ? "memory.usage_in_bytes" : "memory.current", used, sizeof used))
        return 0;
    uint64_t n = strtoull(used, NULL, 10), cache = 0;
    if (get_in(g, "memory.stat", stat, sizeof stat)) {
        const char *key = v1 ? "\ntotal_inactive_file " : "\ninactive_file ";
        const char *p = strstr(stat, key);
        cache = p ? strtoull(p + strlen(key), NULL, 10) : 0;
    }
    return n > cache ? n - cache : 0;
}

/* ---- the sum ---- */

static bool group_counts_cpu(const struct cgroup *g)
{
    return g && g->kind == CGROUP_V2;
}

static uint64_t ms_of(const struct timeval *t)
{
    return (uint64_t)t->tv_sec * 1000 + (uint64_t)t->tv_usec / 1000;
}

/* The CPU time, reads and writes of all reaped children of this process, and of the descendants
 * that those had reaped. known: the executor's own sums; NULL = read the sums of the kernel. */
static void reaped(const struct usage_base *known, struct process *out)
{
    struct rusage used;
    *out = (struct process){ 0 };
    if (known) {
        out->cpu_ms = known->cpu_ms;
        out->read_bytes = known->read_bytes;
        out->written_bytes = known->written_bytes;
        return;
    }
    if (getrusage(RUSAGE_CHILDREN, &used) == 0)
        out->cpu_ms = ms_of(&used.ru_utime) + ms_of(&used.ru_stime);
    read_io("/proc/self/io", out); /* with the little that the executor itself reads and writes */
}

void usage_base(const struct cgroup *g, const struct usage_base *known, struct usage_base *out)
{
    struct process own;
    reaped(known, &own);
    *out = (struct usage_base){ .cpu_ms = group_counts_cpu(g) ? cgroup_cpu_ms(g) : own.cpu_ms,
                                .read_bytes = own.read_bytes,
                                .written_bytes = own.written_bytes };
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void add_up(const struct cgroup *g, const struct usage_base *base, const struct process *sum,
                   struct usage *out)
{
    uint64_t cpu_ms = group_counts_cpu(g) ? cgroup_cpu_ms(g) : sum->cpu_ms;
    *out = (struct usage){ .cpu_ms = less(cpu_ms, base->cpu_ms),
                           .read_bytes = less(sum->read_bytes, base->read_bytes),
                           .written_bytes = less(sum->written_bytes, base->written_bytes),
                           .threads = sum->threads };
}

void usage_at_end(const struct cgroup *g, const struct usage_base *base,
                  const struct usage_base *known, struct usage *out)
{
    struct process sum;
    reaped(known, &sum);
    add_up(g, base, &sum, out);
}

void usage_trace_done(struct usage_trace *t)
{
    if (t->fd > 0)
        close(t->fd);
    *t = (struct usage_trace){ 0 };
}

bool usage_is_idle(struct usage_trace *t, pid_t pid, uint64_t memory)
{
    char path[40], text[sizeof t->text];
    if (t->pid != pid) {
        usage_trace_done(t);
        (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        t->fd = open(path, O_RDONLY | O_CLOEXEC);
        t->pid = pid;
    }
    ssize_t n = t->fd > 0 ? pread(t->fd, text, sizeof text - 1, 0) : -1;
    text[n > 0 ? n : 0] = '\0';
    /* a text that fills the buffer was cut off, and may differ behind the cut */
    bool idle =
        n > 0 && (size_t)n < sizeof text - 1 && memory == t->memory && str_eq(text, t->text);
    t->memory = memory;
    (void)str_copy(t->text, sizeof t->text, text);
    return idle;
}

void usage_leave_out(const struct cgroup *g, struct usage_base *base, const struct rusage *used)
{
    /* A group that counts CPU time has not counted a child outside of it, and still counts one that
     * was in it. */
    if (!group_counts_cpu(g))
        base->cpu_ms += ms_of(&used->ru_utime) + ms_of(&used->ru_stime);
    /* The kernel counts blocks of 512 bytes, also on disks with other blocks. */
    base->read_bytes += (uint64_t)used->ru_inblock * 512;
    base->written_bytes += (uint64_t)used->ru_oublock * 512;
}

static bool is_in(const struct pids *list, pid_t pid)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i] == pid)
            return true;
    return false;
}

void usage_now(const struct cgroup *g, const struct usage_base *base,
               const struct usage_base *known, const struct pids *except, struct usage *out)
{
    struct pids list = { 0 }, apart = { 0 };
    struct process sum, one;
    uint32_t n = 0;
    reaped(known, &sum);
    if (g)
        cgroup_list(g, &list);
    else
        proctree_below_except(getpid(), except, &list);
    for (size_t i = 0; g && i < except->n; i++) { /* the group also has their descendants */
        (void)vec_push(&apart, except->v[i]);
        proctree_below(except->v[i], &apart);
    }
    for (size_t i = 0; i < list.n; i++) {
        if (is_in(&apart, list.v[i]) || !read_process(list.v[i], &one))
            continue;
        sum.rss += one.rss;
        sum.cpu_ms += one.cpu_ms;
        sum.threads += one.threads;
        n++;
        sum.read_bytes += one.read_bytes;
        sum.written_bytes += one.written_bytes;
    }
    vec_done(&list);
    vec_done(&apart);
    add_up(g, base, &sum, out);
    out->processes = n;
    out->memory_bytes = g ? group_memory(g) : sum.rss;
}
