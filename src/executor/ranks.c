/* SPDX-License-Identifier: Apache-2.0 */
/* An attempt with several processes, one for each rank: which rank decides how the attempt ended,
 * and the cores and log files of each rank. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/str.h"
#include "base/util.h"
#include "executor/executor_int.h"

int ranks_init(struct attempt *a, uint32_t n)
{
    if (n < 2)
        return 0;
    a->ranks = calloc(n, sizeof *a->ranks);
    return a->ranks ? 0 : -ENOMEM;
}

/* Does the end of this rank decide the end of the attempt? The first rank that fails decides. If
 * several are reaped at the same time, one that was killed by a signal decides: its death is
 * usually the reason why the others have failed. */
static bool decides(const struct attempt *a, int status, int64_t now_us)
{
    if (!a->exited)
        return status != 0;
    return a->ended_us == now_us && WIFSIGNALED(status) && WIFEXITED(a->status);
}

bool ranks_exited(struct attempt *a, pid_t pid, int status, int64_t now_us)
{
    for (uint32_t i = 0; i < a->n_ranks; i++) {
        struct rank *r = &a->ranks[i];
        if (r->pid != pid || r->exited)
            continue;
        r->exited = true;
        a->n_alive--;
        if (decides(a, status, now_us) || (!a->exited && a->n_alive == 0)) {
            a->exited = true;
            a->rank = status ? i : 0;
            a->status = status;
            a->ended_us = now_us;
        }
        break;
    }
    return a->exited;
}

/* Bind ranks to cores only if the container may not use more cores than it has asked for. If it may
 * use more, other containers run on them as well, and the kernel's scheduler does better. */
const cpu_set_t *ranks_cores(const struct executor *x, uint32_t rank, cpu_set_t *room)
{
    cpu_set_t all;
    uint32_t n_ranks = x->role->ranks;
    if (n_ranks < 2 || sched_getaffinity(0, sizeof all, &all) == -1)
        return NULL;
    uint32_t n = (uint32_t)CPU_COUNT(&all), index = 0;
    if (n > x->role->vcores || n < n_ranks)
        return NULL;
    uint32_t first = (uint32_t)((uint64_t)n * rank / n_ranks);
    uint32_t end = (uint32_t)((uint64_t)n * (rank + 1) / n_ranks);
    CPU_ZERO(room);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        if (index >= first && index < end)
            CPU_SET(cpu, room);
        index++;
    }
    return room;
}

char *ranks_log_path(const struct executor *x, const char *name, uint32_t rank)
{
    const char *dir = x->a.logs.dir;
    if (executor_has_keeper(x))
        return str_printf("%s/%s.%u", dir, name, rank);
    /* On a cluster the logs of all attempts are in one directory: "stdout.2" is that of the second
     * attempt. */
    return str_printf("%s/%s.%zu.%u", dir, name, x->cfg->remote->attempts.n, rank);
}

static int open_one(const struct executor *x, const char *name, uint32_t rank, struct err *e)
{
    AUTO(free_p) char *path = ranks_log_path(x, name, rank);
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                         executor_has_keeper(x) ? 0600 : 0640)
                  : -1;
    return fd == -1 ? err_set(e, path ? errno : ENOMEM, "cannot make log file '%s': %m",
                              path ? path : name)
                    : fd;
}

int ranks_logs_open(const struct executor *x, uint32_t rank, int *out_fd, int *err_fd,
                    struct err *e)
{
    int out = open_one(x, "stdout", rank, e);
    int err = out < 0 ? out : open_one(x, "stderr", rank, e);
    if (err < 0) {
        close_p(&out);
        return err;
    }
    *out_fd = out;
    *err_fd = err;
    return 0;
}
