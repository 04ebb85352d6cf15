/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "cgroup/file.h"
#include "cgroup/find.h"
#include "cgroup/place.h"
#include "cgroup/spare.h"
#include "cgroup/tree.h"

/* The file of v1 to which a single-threaded process writes "0" to enter a group. A write to
 * `cgroup.procs` makes the kernel stop every fork and exit of the machine for an RCU grace period
 * (measured: 10 to 15 ms). A thread that moves only itself through `tasks` does not cause that
 * (kernel/cgroup/cgroup.c, cgroup_procs_write_start). */
#define V1_ENTER "tasks"

enum { V1_SHARES_A_CORE = 1024, V2_WEIGHT_A_CORE = 100, V2_WEIGHT_MAX = 10000 };

/* ---- the job's groups ---- */

/* Give all jobs of a user together the weight of one process for each core of the machine. By
 * default their common group has the weight of one process: beside a build with fifty processes,
 * all jobs together would get a fiftieth of the machine. */
static void weigh_user(const char *dir, bool v2)
{
    char text[32];
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    snprintf(text, sizeof text, "%d",
             v2 ? MIN(cores * V2_WEIGHT_A_CORE, (int)V2_WEIGHT_MAX) : cores * V1_SHARES_A_CORE);
    /* Fails if there is no cpu controller. */
    (void)group_put(dir, v2 ? "cpu.weight" : "cpu.shares", text);
}

/* Make base/tony-<uid>/<job>. ready: if there are spare groups, take them; NULL = do not look. The
 * caller frees the path. NULL: e says why it failed. */
static char *make_job_dir(const char *base, const char *job, bool v2, struct spare_groups *ready,
                          struct err *e)
{
    AUTO(free_p) char *user = str_printf("%s/tony-%u", base, (unsigned)geteuid());
    AUTO(free_p) char *dir = user ? str_printf("%s/%s", user, job) : NULL;
    if (!dir || strlen(dir) + 32 > CGROUP_PATH_MAX) {
        (void)err_set(e, ENAMETOOLONG, "cannot make a control group below '%s': %m", base);
        return NULL;
    }
    if ((mkdir(user, 0755) == -1 && errno != EEXIST)) {
        (void)err_set(e, errno, "cannot make control group '%s': %m", user);
        return NULL;
    }
    weigh_user(user, v2);
    if (ready && spare_groups_take(user, dir, ready))
        return TAKE(dir);
    if (v2) /* fails without a cpu controller */
        (void)group_put(user, "cgroup.subtree_control", "+cpu");
    if (v2 && group_put(user, "cgroup.subtree_control", "+memory") < 0) {
        (void)err_set(e, EOPNOTSUPP, "control group '%s' cannot limit memory", user);
        return NULL;
    }
    if (mkdir(dir, 0755) == -1 && errno != EEXIST) {
        (void)err_set(e, errno, "cannot make control group '%s': %m", dir);
        return NULL;
    }
    return TAKE(dir);
}

/* The keeper, the master and the executors stay in the pool's group: entering another one would
 * make the kernel stop all forks of the machine for 10 to 15 ms. */
static int open_v2(struct cgroup_job *j, const char *base, const char *job, struct err *e)
{
    AUTO(free_p) char *dir = make_job_dir(base, job, true, NULL, e);
    if (!dir)
        return -EACCES;
    (void)group_put(dir, "cgroup.subtree_control", "+cpu"); /* only for shares of the cores */
    int rc = group_put(dir, "cgroup.subtree_control", "+memory");
    if (rc < 0) {
        cgroup_tree_remove(dir);
        return err_set(e, -rc, "cannot limit memory below control group '%s': %m", dir);
    }
    *j = (struct cgroup_job){ .kind = CGROUP_V2, .memory = TAKE(dir) };
    return 0;
}

static int open_v1(struct cgroup_job *j, const struct place *place, const char *job, struct err *e)
{
    struct spare_groups ready = { 0 };
    char *dir = make_job_dir(place->dir, job, false, &ready, e);
    if (!dir)
        return -EACCES;
    *j = (struct cgroup_job){ .kind = CGROUP_V1, .memory = dir, .ready = ready };
    AUTO(free_p) char *cpu = place->cpu[0] ? str_dup(place->cpu) : NULL;
    j->cpu = cpu ? make_job_dir(cpu, job, false, NULL, NULL) : NULL;
    if (j->cpu && group_put(j->cpu, V1_ENTER, "0") < 0) {
        cgroup_tree_remove(j->cpu);
        free(TAKE(j->cpu));
    }
    if (j->cpu)
        j->cpu_from = TAKE(cpu);
    return 0;
}

void cgroup_job_open(struct cgroup_job *j, const char *application_id, const struct place *known,
                     struct err *e)
{
    const char *job = strchr(application_id, '_');
    struct place place;
    job = job ? job + 1 : application_id;
    *j = (struct cgroup_job){ .kind = CGROUP_NONE };
    if (known)
        place = *known;
    else
        place_survey(&place);
    if (place.kind == PLACE_READY)
        (void)open_v2(j, place.dir, job, e);
    else if (place.kind == PLACE_V1)
        (void)open_v1(j, &place, job, e);
    else if (place.kind == PLACE_OFF)
        (void)err_set(e, ENOTSUP, "control groups are switched off by TONY_CGROUPS");
    else
        (void)err_set(e, EACCES, "%s",
                      place.why ? place.why : "there is no control group for the job");
    if (place.kind == PLACE_NONE && place.remedy)
        (void)err_hint(e, "%s", place.remedy);
    if (j->kind != CGROUP_NONE)
        j->swap = cgroup_machine_swaps();
}

void cgroup_job_weight(const struct cgroup_job *j, uint64_t vcores)
{
    char text[32];
    if (j->kind == CGROUP_V1 && j->cpu) {
        snprintf(text, sizeof text, "%llu",
                 (unsigned long long)(vcores ? vcores * V1_SHARES_A_CORE : 2));
        (void)group_put(j->cpu, "cpu.shares",
                        text); /* if it fails, all jobs have the same weight */
    } else if (j->kind == CGROUP_V2) {
        uint64_t w = vcores ? MIN(vcores * V2_WEIGHT_A_CORE, (uint64_t)V2_WEIGHT_MAX) : 1;
        snprintf(text, sizeof text, "%llu", (unsigned long long)w);
        (void)group_put(j->memory, "cpu.weight", text);
    }
}

void cgroup_job_done(struct cgroup_job *j)
{
    free(j->memory);
    free(j->cpu);
    free(j->cpu_from);
    *j = (struct cgroup_job){ .kind = CGROUP_NONE };
}

void cgroup_job_remove(struct cgroup_job *j, struct spare_groups used)
{
    bool keeps = j->kind == CGROUP_V1 && used.n > 0;
    if (j->cpu_from)
        /* If this fails, the group cannot be removed, because this process is in it. */
        (void)group_put(j->cpu_from, V1_ENTER, "0");
    if (j->memory && !(keeps && spare_groups_keep(j->memory, used, j->ready)))
        cgroup_tree_remove(j->memory);
    if (j->cpu)
        cgroup_tree_remove(j->cpu);
    cgroup_job_done(j);
}

/* ---- a container's group ---- */

bool cgroup_of(const struct cgroup_job *j, const char *container_id, struct cgroup *out)
{
    *out = (struct cgroup){ .kind = CGROUP_NONE };
    if (j->kind == CGROUP_NONE)
        return false;
    const char *name = container_id;
    int fields = 0; /* container_<cluster>_<number>_<keeper>_<container>: the last two */
    for (const char *p = container_id + strlen(container_id); p > container_id; p--)
        if (p[-1] == '_' && ++fields == 2) {
            name = p;
            break;
        }
    int n = snprintf(out->path, sizeof out->path, "%s/%s", j->memory, name);
    if (n < 0 || (size_t)n >= sizeof out->path)
        return false;
    out->kind = j->kind;
    out->swap = j->swap;
    return true;
}

/* -1 = not limited. The limit with swap is never below that without. So the one that becomes larger
 * must be changed first. Which one that is only the group of an earlier task needs to know. */
static int limit_v1(const struct cgroup *g, const char *text)
{
    int rc = group_put(g->path, "memory.limit_in_bytes", text);
    if (rc == -EINVAL && g->swap && group_put(g->path, "memory.memsw.limit_in_bytes", text) == 0)
        return group_put(g->path, "memory.limit_in_bytes", text);
    if (rc == 0 && g->swap)
        (void)group_put(g->path, "memory.memsw.limit_in_bytes", text);
    return rc;
}

int cgroup_make(const struct cgroup *g, uint64_t memory_bytes, struct err *e)
{
    bool exists = mkdir(g->path, 0755) == -1;
    if (exists && errno != EEXIST)
        return err_set(e, errno, "cannot make control group '%s': %m", g->path);
    if (memory_bytes == 0 && (!exists || g->kind != CGROUP_V1))
        return 0;
    char text[32];
    snprintf(text, sizeof text, "%lld", memory_bytes ? (long long)memory_bytes : -1LL);
    int rc;
    if (g->kind == CGROUP_V1) {
        rc = limit_v1(g, text);
    } else {
        rc = group_put(g->path, "memory.max", text);
        if (rc == 0 && g->swap)
            (void)group_put(g->path, "memory.swap.max", "0");
        (void)group_put(g->path, "memory.oom.group", "1"); /* an OOM then kills all processes */
    }
    return rc < 0 ? err_set(e, -rc, "cannot limit the memory of control group '%s': %m", g->path)
                  : 0;
}

void cgroup_weigh(const struct cgroup *g, uint32_t vcores)
{
    char text[32];
    if (g->kind != CGROUP_V2 || vcores == 0)
        return; /* v1: a container has no group for cores */
    snprintf(text, sizeof text, "%u",
             MIN(vcores, (uint32_t)(V2_WEIGHT_MAX / V2_WEIGHT_A_CORE)) *
                 (unsigned)V2_WEIGHT_A_CORE);
    (void)group_put(g->path, "cpu.weight", text); /* fails if there is no cpu controller */
}

int cgroup_open(const struct cgroup *g)
{
    int fd = g->kind == CGROUP_V2 ? open(g->path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    return fd >= 0 ? fd : -1;
}

void cgroup_procs_path(const struct cgroup *g, char out[CGROUP_PATH_MAX + 16])
{
    snprintf(out, CGROUP_PATH_MAX + 16, "%s/%s", g->path,
             g->kind == CGROUP_V1 ? V1_ENTER : "cgroup.procs");
}

int cgroup_enter(const char *procs_path)
{
    int fd = open(procs_path, O_WRONLY | O_CLOEXEC);
    if (fd == -1)
        return -errno;
    int rc = write(fd, "0", 1) == 1 ? 0 : -errno;
    close(fd);
    return rc;
}

static const char *memory_file(const struct cgroup *g)
{
    return g->kind == CGROUP_V1 ? "memory.usage_in_bytes" : "memory.current";
}

static const char *oom_file(const struct cgroup *g)
{
    return g->kind == CGROUP_V1 ? "memory.oom_control" : "memory.events";
}

uint64_t cgroup_memory_max(const struct cgroup *g)
{
    return group_get_u64(g->path,
                         g->kind == CGROUP_V1 ? "memory.max_usage_in_bytes" : "memory.peak");
}

uint64_t cgroup_oom_kills(const struct cgroup *g)
{
    return group_get_key(g->path, oom_file(g), "oom_kill");
}

static ssize_t get_again(const struct cgroup *g, int *fd, const char *file, char *out, size_t size)
{
    if (*fd == -1) {
        char path[CGROUP_PATH_MAX + 64];
        snprintf(path, sizeof path, "%s/%s", g->path, file);
        *fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    ssize_t n = *fd == -1 ? -1 : pread(*fd, out, size - 1, 0);
    out[n > 0 ? n : 0] = '\0';
    return n;
}

uint64_t cgroup_watch_memory(const struct cgroup *g, struct cgroup_watch *w)
{
    char text[64];
    return get_again(g, &w->memory_fd, memory_file(g), text, sizeof text) > 0
               ? strtoull(text, NULL, 10)
               : 0;
}

uint64_t cgroup_watch_oom_kills(const struct cgroup *g, struct cgroup_watch *w)
{
    char text[1024];
    return get_again(g, &w->oom_fd, oom_file(g), text, sizeof text) > 0
               ? group_find_key(text, "oom_kill")
               : 0;
}

uint64_t cgroup_cpu_ms(const struct cgroup *g)
{
    return g->kind == CGROUP_V2 ? group_get_key(g->path, "cpu.stat", "usage_usec") / 1000 : 0;
}

void cgroup_list(const struct cgroup *g, struct pids *out)
{
    cgroup_tree_list(g->path, out);
}

unsigned cgroup_kill(const struct cgroup *g)
{
    return cgroup_tree_kill(g->path);
}
