/*
 * Control groups: one for each container that enforces its memory, and one for the job that weighs
 * its cores.
 *
 * v2 (unified, with the memory controller where we may make groups), else v1's memory hierarchy,
 * else none: then nothing is enforced here and the executor samples resident memory. Only a task's
 * processes are in a container's group, never its executor.
 *
 *   <base>/tony-<uid>/<job>/<container>
 *
 * job: the application id without "application_"; container: its last two numbers.
 * base: under v1 our own group; under v2 the group above ours (a group with processes cannot have
 * limited children), or the root. The paths used are recorded in the job's directory, file
 * `cgroups`, one a line, so that whoever cleans up need not guess.
 */
#ifndef TONY_EXECUTOR_CGROUP_H
#define TONY_EXECUTOR_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct err;

enum cgroup_kind { CGROUP_NONE = 1, CGROUP_V1, CGROUP_V2 };

struct cgroup_job {
    enum cgroup_kind kind;
    char *memory; /* the job's directory in the memory (v2: unified) hierarchy; NULL with
                     CGROUP_NONE */
    char *cpu;    /* v1: the job's directory in the cpu hierarchy, or NULL */
    char *
        cpu_from; /* where our own process was before it entered the job's cpu (v2: keeper) group */
    bool swap;    /* this machine swaps: the limit must say that swap counts too */
};

/* Find out what there is (TONY_CGROUPS=none: nothing) and make the job's groups; the caller's
 * process (and so all it forks) enters the job's cpu group. Finding none is no error: kind says it,
 * and e (if not NULL) why. */
void cgroup_job_open(struct cgroup_job *j, const char *application_id, struct err *e);
/* Cores of all containers together; 0 = the least weight there is. */
void cgroup_job_weight(const struct cgroup_job *j, uint64_t vcores);
/* Our process leaves, all groups of the job go; containers that still hold processes are killed
 * first. */
void cgroup_job_remove(struct cgroup_job *j);
void cgroup_job_done(struct cgroup_job *j); /* frees memory only */
/* The same from outside, by a path recorded in `cgroups`: kills what is in there, removes. */
void cgroup_tree_remove(const char *path);

/* Paths are built without malloc: a forked child uses them. */
enum { CGROUP_PATH_MAX = 512 };
struct cgroup {
    enum cgroup_kind kind;
    bool swap;
    char path[CGROUP_PATH_MAX];
};
/* The container's group by name; makes nothing. false: none (kind is CGROUP_NONE). */
bool cgroup_of(const struct cgroup_job *j, const char *container_id, struct cgroup *out);
int cgroup_make(const struct cgroup *g, uint64_t memory_bytes, struct err *e);
/* The calling process enters; only system calls, for the time between fork and exec. 0 or -errno.
 */
int cgroup_enter(const char *procs_path);
void cgroup_procs_path(const struct cgroup *g, char out[CGROUP_PATH_MAX + 16]);

uint64_t cgroup_memory_max(const struct cgroup *g); /* the most there was */
uint64_t
cgroup_oom_kills(const struct cgroup *g);       /* processes the kernel killed for want of memory */
uint64_t cgroup_cpu_ms(const struct cgroup *g); /* v2 only, else 0 */

/* Bytes in use now, and processes killed, of a group that is looked at again and again: the files
 * stay open (-1 at first) as long as the executor lives. */
struct cgroup_watch {
    int memory_fd, oom_fd;
};
#define CGROUP_WATCH_INIT                                                                          \
    {                                                                                              \
        -1, -1                                                                                     \
    }
void cgroup_watch(const struct cgroup *g, struct cgroup_watch *w, uint64_t *out_memory,
                  uint64_t *out_oom_kills);

/* Kill all that is in it now. Returns how many there were. */
unsigned cgroup_kill(const struct cgroup *g);

#endif
