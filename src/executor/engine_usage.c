/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The usage of the containers of a task, if each has a control group of its own. With docker the
 * processes of the task are below its service, and not below this executor, which has started only
 * the client.
 *
 * The group is that of the first process of the container. While the container runs, anybody may
 * read the group's files. At its end the service removes the group. So the first process itself
 * writes how much CPU time the group has used, when the command has ended (engine.c).
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/proctree.h"
#include "cgroup/find.h"
#include "executor/engine.h"
#include "executor/executor_int.h"

enum { CPU_TEXT_MAX = 64 };

/* ---- the group of a process ---- */

/* A group above this process, and one that is not mounted here, say nothing about the container. */
static bool is_apart(const char *path, const char *own, const char *top)
{
    return path && own && top && !strstr(path, "/..") && !str_eq(path, top) && !str_eq(path, own);
}

static bool find_in(const struct cgroup_texts *own, const struct cgroup_texts *its,
                    const char *controller, struct cgroup *out)
{
    AUTO(free_p) char *top = NULL;
    AUTO(free_p) char *path = cgroup_find_in(its, controller, &top, NULL);
    AUTO(free_p) char *ours = cgroup_find_in(own, controller, NULL, NULL);
    if (!is_apart(path, ours, top) || !str_copy(out->path, sizeof out->path, path))
        return false;
    out->kind = controller[0] ? CGROUP_V1 : CGROUP_V2;
    return true;
}

/* The group of a process, if that is another one than the group of this process. */
static bool group_of_process(pid_t pid, struct cgroup *out)
{
    char path[40];
    AUTO(cgroup_texts_done) struct cgroup_texts own;
    AUTO(buf_done) struct buf text = { 0 };
    (void)snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    cgroup_texts_read(&own);
    if (fs_read(AT_FDCWD, path, &text, NULL) < 0)
        return false;
    struct cgroup_texts its = { .own = text, .mounts = own.mounts };
    return find_in(&own, &its, "memory", out) || find_in(&own, &its, "", out);
}

/* ---- the sum ---- */

void engine_usage_begin(struct executor *x)
{
    free(TAKE(x->containers));
    x->n_containers = 0;
}

static bool have_containers(struct executor *x)
{
    uint32_t n = MAX(x->role->ranks, 1u);
    if (!x->containers && (x->containers = calloc(n, sizeof *x->containers)))
        x->n_containers = n;
    return x->containers;
}

/* Find the groups of the containers that have started meanwhile. */
static void find_groups(struct executor *x)
{
    AUTO(free_p) uint32_t *ranks = calloc(x->n_containers, sizeof *ranks);
    AUTO(free_p) pid_t *first = calloc(x->n_containers, sizeof *first);
    size_t n = 0;
    for (uint32_t rank = 0; ranks && rank < x->n_containers; rank++)
        if (!x->containers[rank].group.kind)
            ranks[n++] = rank;
    if (n && first)
        engine_find(x, ranks, n, first);
    for (size_t i = 0; first && i < n; i++) {
        struct cgroup *g = &x->containers[ranks[i]].group;
        if (first[i] && !group_of_process(first[i], g))
            g->kind = 0;
    }
}

static void measure(const struct engine_container *c, struct usage *out)
{
    static const struct usage_base none;
    struct pids nobody = { 0 };
    if (c->group.kind)
        usage_now(&c->group, &none, &none, &nobody, out);
}

/* The CPU time that the first process of the container has written; 0 = it was killed. */
static uint64_t last_cpu_ms(const struct executor *x, uint32_t rank)
{
    AUTO(free_p) char *path = engine_cpu_file(x, rank);
    AUTO(buf_done) struct buf text = { .max = CPU_TEXT_MAX };
    if (!path || fs_read(AT_FDCWD, path, &text, NULL) < 0)
        return 0;
    (void)unlink(path);
    return strtoull(buf_cstr(&text), NULL, 10) / 1000;
}

void engine_usage(struct executor *x, bool over, struct usage *out)
{
    *out = (struct usage){ 0 };
    if (!have_containers(x))
        return;
    if (!over)
        find_groups(x);
    for (uint32_t rank = 0; rank < x->n_containers; rank++) {
        struct engine_container *c = &x->containers[rank];
        struct usage u = { 0 };
        if (over)
            u.cpu_ms = last_cpu_ms(x, rank);
        else
            measure(c, &u);
        /* a container that has ended has no group any more: then its last values hold */
        c->cpu_ms = MAX(c->cpu_ms, u.cpu_ms);
        c->read_bytes = MAX(c->read_bytes, u.read_bytes);
        c->written_bytes = MAX(c->written_bytes, u.written_bytes);
        out->cpu_ms += c->cpu_ms;
        out->read_bytes += c->read_bytes;
        out->written_bytes += c->written_bytes;
        out->memory_bytes += u.memory_bytes;
        out->threads += u.threads;
        out->processes += u.processes;
    }
}
