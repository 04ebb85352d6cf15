/* SPDX-License-Identifier: Apache-2.0 */
#include "client/show/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "storage/paths.h"

static int64_t field_kib(struct span text, const char *name)
{
    struct span line;
    while (span_split(&text, '\n', &line)) {
        if (!span_starts(line, name))
            continue;
        line.p += strlen(name);
        line.len -= strlen(name);
        struct span word = span_trim(line);
        const char *space = memchr(word.p, ' ', word.len);
        if (space)
            word.len = (size_t)(space - word.p);
        int64_t v;
        return str_i64(word, 0, INT64_MAX >> 10, name, &v, NULL) == 0 ? v : -1;
    }
    return -1;
}

int machine_memory(uint64_t *out_total, uint64_t *out_available)
{
    AUTO(buf_done) struct buf text = { 0 };
    int rc = fs_read(AT_FDCWD, "/proc/meminfo", &text, NULL);
    int64_t total = field_kib(buf_span(&text), "MemTotal:"),
            available = field_kib(buf_span(&text), "MemAvailable:");
    if (rc < 0 || total < 0)
        return rc < 0 ? rc : -EBADMSG;
    *out_total = (uint64_t)total << 10;
    *out_available = available < 0 ? 0 : (uint64_t)available << 10;
    return 0;
}

/* ---- programs ---- */

static int read_for(int fd, struct buf *out, int limit_ms)
{
    int64_t deadline = clock_mono_ms() + limit_ms;
    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int64_t left = deadline - clock_mono_ms();
        if (left <= 0 || poll(&p, 1, (int)left) == 0)
            return -ETIMEDOUT;
        char bytes[4096];
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n == 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0 && buf_add(out, bytes, (size_t)n) < 0)
            return -ENOMEM;
    }
}

int machine_run(const char *const *argv, bool errors_too, int limit_ms, struct buf *out,
                int *out_status, struct err *e)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) == -1)
        return err_set(e, errno, "cannot run '%s': %m", argv[0]);
    posix_spawn_file_actions_t fa;
    (void)posix_spawn_file_actions_init(&fa); /* if one of these fails, posix_spawn() reports it */
    (void)posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&fa, fds[1], STDOUT_FILENO);
    if (errors_too)
        (void)posix_spawn_file_actions_adddup2(&fa, fds[1], STDERR_FILENO);
    else
        (void)posix_spawn_file_actions_addopen(&fa, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t pid;
    int rc = posix_spawn(&pid, argv[0], &fa, NULL, (char **)argv, environ);
    (void)posix_spawn_file_actions_destroy(&fa);
    close_p(&fds[1]);
    if (rc != 0) {
        close_p(&fds[0]);
        return err_set(e, rc, "cannot run '%s': %m", argv[0]);
    }
    rc = read_for(fds[0], out, limit_ms);
    close_p(&fds[0]);
    if (rc < 0)
        (void)kill(pid, SIGKILL);
    int status = 0;
    (void)waitpid(pid, &status, 0);
    if (rc < 0)
        return err_set(e, -rc, "'%s' did not answer: %m", argv[0]);
    *out_status = status;
    return 0;
}

/* ---- GPUs ---- */

int machine_gpus(json_t *gpus, struct err *e)
{
    AUTO(free_p) char *program = paths_program("tony-gpu");
    if (!program)
        return err_set(e, ENOENT, "cannot find the program 'tony-gpu' beside this one or on PATH");
    enum { LIMIT_MS = 10000 };
    AUTO(buf_done) struct buf text = { .max = 1 << 20 };
    const char *const argv[] = { program, NULL };
    int status = 0;
    int rc = machine_run(argv, false, LIMIT_MS, &text, &status, e);
    if (rc == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
        rc = err_set(e, ENODEV, "no NVIDIA driver was found");
    struct span rest = buf_span(&text), line;
    while (rc == 0 && rest.len && span_split(&rest, '\n', &line)) {
        json_t *gpu = json_loadb(line.p, line.len, 0, NULL);
        if (json_is_object(gpu) && json_object_get(gpu, "index"))
            (void)json_array_append(gpus, gpu);
        json_decref(gpu);
    }
    return rc;
}

char *machine_which(const char *program)
{
    struct span path = span_of(getenv("PATH")), dir;
    while (path.len && span_split(&path, ':', &dir)) {
        char *file = str_printf("%.*s/%s", (int)dir.len, dir.p, program);
        if (file && access(file, X_OK) == 0)
            return file;
        free(file);
    }
    return NULL;
}
