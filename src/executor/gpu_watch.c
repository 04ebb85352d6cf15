/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/gpu_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"
#include "codec/json.h"

extern char **environ;

enum { LINE_MAX_BYTES = 4096 };

struct gpu_watch {
    pid_t pid;
    int fd;
    struct buf in;
};

static int spawn(struct gpu_watch *g, const char *program, const char *gpus, uint32_t interval_ms,
                 int out_fd, struct err *e)
{
    char every[16], watch[] = "--watch", only[] = "--gpus";
    (void)snprintf(every, sizeof every, "%u", interval_ms);
    char *argv[] = { (char *)(uintptr_t)program, watch, every, *gpus ? only : NULL,
                     (char *)(uintptr_t)gpus,    NULL };
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t all, none;
    (void)sigfillset(&all);
    (void)sigemptyset(&none);
    /* These calls cannot fail; posix_spawn() reports every error. */
    (void)posix_spawn_file_actions_init(&fa);
    (void)posix_spawnattr_init(&attr);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    (void)posix_spawnattr_setsigdefault(&attr, &all);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&fa, out_fd, STDOUT_FILENO);
    (void)posix_spawn_file_actions_addopen(&fa, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawn(&g->pid, program, &fa, &attr, argv, environ);
    (void)posix_spawn_file_actions_destroy(&fa);
    (void)posix_spawnattr_destroy(&attr);
    return rc ? err_set(e, rc, "cannot start '%s': %m", program) : 0;
}

struct gpu_watch *gpu_watch_new(const char *program, const char *gpus, uint32_t interval_ms,
                                struct err *e)
{
    int ends[2];
    struct gpu_watch *g = calloc(1, sizeof *g);
    if (!g || pipe2(ends, O_CLOEXEC | O_NONBLOCK) == -1) {
        (void)err_set(e, g ? errno : ENOMEM, "cannot start tony-gpu: %m");
        free(g);
        return NULL;
    }
    g->fd = ends[0];
    g->in.max = LINE_MAX_BYTES;
    /* tony-gpu may wait while the pipe is full: only the executor's end does not block. */
    int flags = fcntl(ends[1], F_GETFL);
    (void)fcntl(ends[1], F_SETFL, flags & ~O_NONBLOCK);
    int rc = spawn(g, program, gpus, interval_ms, ends[1], e);
    close(ends[1]);
    if (rc == 0)
        return g;
    close(g->fd);
    free(g);
    return NULL;
}

void gpu_watch_free(struct gpu_watch *g)
{
    if (!g)
        return;
    if (g->pid > 0)
        (void)kill(g->pid, SIGKILL);
    close(g->fd);
    buf_done(&g->in);
    free(g);
}

void gpu_watch_note_end(struct gpu_watch *g)
{
    g->pid = 0;
}

int gpu_watch_fd(const struct gpu_watch *g)
{
    return g->fd;
}

pid_t gpu_watch_pid(const struct gpu_watch *g)
{
    return g->pid;
}

/* The figures of one line, as tony-gpu names them, in our units. */
static void read_line(struct span line,
                      void (*figure)(void *arg, unsigned gpu, enum metric_gpu which, double value),
                      void *arg)
{
    static const struct {
        const char *key;
        enum metric_gpu which;
        double unit;
    } rows[] = {
        { "gpu_percent", METRIC_GPU_PERCENT, 1 },
        { "used_mib", METRIC_GPU_MEMORY, 1 << 20 },
        { "used_percent", METRIC_GPU_MEMORY_PERCENT, 1 },
        { "bar1_percent", METRIC_GPU_BAR1_PERCENT, 1 },
        { "power_mw", METRIC_GPU_POWER, 0.001 },
        { "temperature_c", METRIC_GPU_TEMPERATURE, 1 },
    };
    AUTO(json_freep) json_t *obj = NULL;
    if (!line.len || json_parse("tony-gpu", line, &obj, NULL) < 0)
        return;
    int64_t gpu = json_int(obj, "index", -1);
    if (gpu < 0 || gpu >= METRICS_GPUS_MAX)
        return;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const json_t *v = json_object_get(obj, rows[i].key);
        if (json_is_number(v))
            figure(arg, (unsigned)gpu, rows[i].which, json_number_value(v) * rows[i].unit);
    }
}

bool gpu_watch_read(struct gpu_watch *g,
                    void (*figure)(void *arg, unsigned gpu, enum metric_gpu which, double value),
                    void *arg)
{
    for (;;) {
        char *room = buf_reserve(&g->in, LINE_MAX_BYTES - g->in.len);
        ssize_t n = room ? read(g->fd, room, LINE_MAX_BYTES - g->in.len) : 0;
        if (n == -1)
            return errno == EAGAIN || errno == EINTR;
        if (n <= 0)
            return false;
        buf_commit(&g->in, (size_t)n);
        const char *end;
        while (g->in.len && (end = memchr(g->in.p, '\n', g->in.len))) {
            size_t len = (size_t)(end - g->in.p);
            read_line(span_mem(g->in.p, len), figure, arg);
            buf_consume(&g->in, len + 1);
        }
        if (g->in.len >= LINE_MAX_BYTES)
            return false; /* that is not tony-gpu */
    }
}
