/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups: one for each container, which limits its memory, and one for the job, which
 * sets its share of the cores.
 *
 * The keeper uses v2 if the pool has found a place there (cgroup/place.h), otherwise the memory
 * hierarchy of v1. If there is neither, the executor samples resident memory instead. The group of
 * a container has only the processes of the task, not the executor.
 *
 *   <base>/tony-<uid>/<job>/<container>
 *
 * job: the application id without "application_"; container: its last two numbers. base: with v1
 * the group of the keeper; with v2 the place that the pool has found. The file `cgroups` in the
 * job's directory lists the paths, one on each line, for a later clean-up.
 */
#ifndef TONY_EXECUTOR_CGROUP_H
#define TONY_EXECUTOR_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cgroup/find.h"
#include "cgroup/spare.h"

struct err;
struct place;

enum cgroup_kind { CGROUP_NONE = 1, CGROUP_V1, CGROUP_V2 };

struct cgroup_job {
    enum cgroup_kind kind;
    char *memory; /* the job's directory in the memory (v2: unified) hierarchy; NULL with
                     CGROUP_NONE */
    char *cpu;    /* v1: the job's directory in the cpu hierarchy, or NULL */
    char *
        cpu_from; /* v1: the group of the keeper before cgroup_job_open(); NULL = still its group */
    bool swap;    /* this machine has swap space, so the limit must include swap */
    struct spare_groups ready; /* groups that the last job has left */
};

/* Make the job's groups. With v1 the calling process, and so its children, enter the job's cpu
 * group. If no groups can be used, or TONY_CGROUPS=none, kind is CGROUP_NONE and e (may be NULL)
 * says why. known: what place_survey() has found; NULL = it is called. */
void cgroup_job_open(struct cgroup_job *j, const char *application_id, const struct place *known,
                     struct err *e);
/* vcores: of all containers together; 0 = the least possible weight. */
void cgroup_job_weight(const struct cgroup_job *j, uint64_t vcores);
/* The calling process leaves the job's groups. Processes that are still in them are killed, and the
 * groups are removed. used: with v1, leave these groups to the next job; used.n 0 = none. */
void cgroup_job_remove(struct cgroup_job *j, struct spare_groups used);
void cgroup_job_done(struct cgroup_job *j); /* frees memory only */
/* Paths are built without malloc(), because a forked child uses them. */
struct cgroup {
    enum cgroup_kind kind;
    bool swap;
    char path[CGROUP_PATH_MAX];
};
/* Name the group of a container, without making it. false: kind is CGROUP_NONE. */
bool cgroup_of(const struct cgroup_job *j, const char *container_id, struct cgroup *out);
int cgroup_make(const struct cgroup *g, uint64_t memory_bytes, struct err *e);
/* Its share of the cores, in proportion to its vcores; v2 only. */
void cgroup_weigh(const struct cgroup *g, uint32_t vcores);
/* v2: a descriptor with which a process can be started in the group. -1: not possible. */
int cgroup_open(const struct cgroup *g);
/* The calling process enters the group. Uses only system calls, for use between fork and exec. */
int cgroup_enter(const char *procs_path);
void cgroup_procs_path(const struct cgroup *g, char out[CGROUP_PATH_MAX + 16]);

uint64_t cgroup_memory_max(const struct cgroup *g); /* the largest use so far, in bytes */
uint64_t cgroup_oom_kills(const struct cgroup *g);  /* processes that the OOM killer has killed */
uint64_t cgroup_cpu_ms(const struct cgroup *g);     /* v2 only, else 0 */

/* For repeated reads of the bytes in use and the number of OOM kills: the descriptors stay open
 * until the executor exits. */
struct cgroup_watch {
    int memory_fd, oom_fd;
};
#define CGROUP_WATCH_INIT                                                                          \
    {                                                                                              \
        -1, -1                                                                                     \
    }
uint64_t cgroup_watch_memory(const struct cgroup *g, struct cgroup_watch *w);
uint64_t cgroup_watch_oom_kills(const struct cgroup *g, struct cgroup_watch *w);

/* Append the processes in the group, also those in groups that the task has made below it. */
struct pids;
void cgroup_list(const struct cgroup *g, struct pids *out);
/* Kill all these processes. Returns how many there were. */
unsigned cgroup_kill(const struct cgroup *g);

#endif
