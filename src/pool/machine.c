/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "cgroup/place.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "storage/paths.h"

enum {
    /* How long tony-gpu may take. Loading the driver takes some seconds; the client that started
     * the pool waits 10 s in all. */
    GPU_LIMIT_MS = 6000,
};

/* ---- memory ---- */

bool machine_meminfo(struct span text, uint64_t *out_mib)
{
    struct span line;
    while (span_split(&text, '\n', &line)) {
        if (!span_starts(line, "MemTotal:"))
            continue;
        struct span value = span_trim(span_mem(line.p + 9, line.len - 9));
        if (value.len < 3 || memcmp(value.p + value.len - 3, " kB", 3) != 0)
            return false;
        int64_t kib;
        if (str_i64(span_mem(value.p, value.len - 3), 1, INT64_MAX, "MemTotal", &kib, NULL) < 0)
            return false;
        *out_mib = (uint64_t)kib >> 10;
        return true;
    }
    return false;
}

/* The lowest memory limit of a control group and its parents up to `top`, in MiB; UINT64_MAX = no
 * limit. */
static uint64_t group_limit(const char *top, struct span dir, const char *file)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        AUTO(buf_done) struct buf text = { .max = 4096 };
        AUTO(free_p) char *path = str_printf("%.*s/%s", (int)dir.len, dir.p, file);
        int64_t bytes;
        if (path && fs_read(AT_FDCWD, path, &text, NULL) == 0 &&
            str_i64(span_trim(buf_span(&text)), 0, INT64_MAX, file, &bytes, NULL) ==
                0) /* fails for "max", which means no limit */
            least = MIN(least, (uint64_t)bytes >> 20);
        if (dir.len <= strlen(top))
            return least;
        do
            dir.len--;
        while (dir.len > 0 && dir.p[dir.len] != '/');
    }
}

struct hierarchy {
    const char *controller, *limit;
};

static const struct hierarchy hierarchies[] = {
    { "", "memory.max" },
    { "memory", "memory.limit_in_bytes" },
};

static uint64_t memory_limit(void)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < ARRAY_LEN(hierarchies); i++) {
        const struct hierarchy *h = &hierarchies[i];
        AUTO(free_p) char *top = NULL;
        AUTO(free_p) char *dir = cgroup_find(h->controller, &top, NULL);
        if (dir && top)
            least = MIN(least, group_limit(top, span_of(dir), h->limit));
    }
    return least;
}

static uint64_t survey_memory(const struct conf *conf)
{
    uint64_t limit = memory_limit();
    if (conf_get(conf, "tony.pool.memory"))
        return (uint64_t)conf_int(conf, "tony.pool.memory");
    AUTO(buf_done) struct buf text = { .max = 1 << 20 };
    uint64_t total = 0;
    const char *fake = getenv("TONY_TEST_MEMINFO"); /* for tests: another file */
    if (fs_read(AT_FDCWD, fake ? fake : "/proc/meminfo", &text, NULL) < 0 ||
        !machine_meminfo(buf_span(&text), &total))
        log_event(LOG_WARN, "machine.memory",
                  f_str("problem", "/proc/meminfo does not say how much there is"));
    total = MIN(total, limit);
    uint64_t reserve = (uint64_t)conf_int(conf, "tony.pool.memory-reserve");
    return total > reserve ? total - reserve : 0;
}

static uint32_t survey_cores(const struct conf *conf)
{
    if (conf_get(conf, "tony.pool.vcores"))
        return (uint32_t)conf_int(conf, "tony.pool.vcores");
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (uint32_t)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN); /* cpu_set_t has room for 1024 CPUs only */
    return n > 0 ? (uint32_t)n : 1;
}

/* ---- GPUs ---- */

size_t machine_gpu_lines(struct span text, uint32_t out[MACHINE_GPUS_MAX])
{
    size_t n = 0;
    struct span line;
    while (n < MACHINE_GPUS_MAX && span_split(&text, '\n', &line)) {
        AUTO(json_freep) json_t *gpu = NULL;
        if (span_trim(line).len == 0 || json_parse("tony-gpu", line, &gpu, NULL) < 0)
            continue;
        int64_t index = json_int(gpu, "index", -1);
        if (index >= 0 && index < 1024 && (n == 0 || (uint32_t)index > out[n - 1]))
            out[n++] = (uint32_t)index;
    }
    return n;
}

static bool may_have_gpus(void)
{
    const char *fake = getenv("TONY_NVML");
    return (fake && fake[0]) || access("/dev/nvidiactl", F_OK) == 0;
}

static void read_until(int fd, int64_t deadline_ms, struct buf *out)
{
    for (;;) {
        int64_t left = deadline_ms - clock_mono_ms();
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (left <= 0 || poll(&p, 1, (int)left) == 0)
            return;
        char bytes[4096];
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n == -1 && errno == EINTR)
            continue;
        if (n <= 0 || buf_add(out, bytes, (size_t)n) < 0)
            return;
    }
}

/* Kill tony-gpu and reap it. If it hangs in the driver, even SIGKILL does not end it; then the pool
 * continues without reaping it. */
static void end_child(pid_t pid)
{
    (void)kill(pid, SIGKILL); /* normally it has exited already */
    for (int i = 0; i < 100 && waitpid(pid, NULL, WNOHANG) == 0; i++)
        (void)poll(NULL, 0, i < 10 ? 1 : 10);
}

static int ask_gpus(struct buf *out, struct err *e)
{
    AUTO(free_p) char *program = paths_program("tony-gpu");
    if (!program)
        return err_set(e, ENOENT, "cannot find the program 'tony-gpu' beside this one or on PATH");
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) == -1)
        return err_set(e, errno, "cannot make a pipe: %m");
    posix_spawn_file_actions_t fa;
    (void)posix_spawn_file_actions_init(&fa); /* if this fails, posix_spawn() fails as well */
    (void)posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&fa, fds[1], STDOUT_FILENO);
    char *argv[] = { program, NULL };
    pid_t pid;
    int rc = posix_spawn(&pid, program, &fa, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&fa);
    (void)close(fds[1]);
    if (rc == 0) {
        read_until(fds[0], clock_mono_ms() + GPU_LIMIT_MS, out);
        end_child(pid);
    }
    (void)close(fds[0]);
    return rc == 0 ? 0 : err_set(e, rc, "cannot start '%s': %m", program);
}

static void survey_gpus(const struct conf *conf, struct machine *m)
{
    bool is_configured = conf_get(conf, "tony.pool.gpus") != NULL;
    uint32_t want = is_configured
                        ? (uint32_t)MIN(conf_int(conf, "tony.pool.gpus"), (int64_t)MACHINE_GPUS_MAX)
                        : MACHINE_GPUS_MAX;
    if (want > 0 && may_have_gpus()) {
        AUTO(buf_done) struct buf text = { .max = 1 << 20 };
        struct err e = { 0 };
        if (ask_gpus(&text, &e) < 0)
            log_err(LOG_WARN, "machine.gpus", &e);
        m->n_gpus = (uint32_t)machine_gpu_lines(buf_span(&text), m->gpus);
    }
    if (!is_configured || m->n_gpus >= want) {
        m->n_gpus = MIN(m->n_gpus, want);
        return;
    }
    /* If the site configured more GPUs than NVML reports, the others are not NVIDIA's: number
     * them, too. */
    for (uint32_t i = 0; i < want; i++)
        m->gpus[i] = i;
    m->n_gpus = want;
}

static const char *survey_cgroups(void)
{
    struct place place;
    place_survey(&place);
    return place.kind == PLACE_READY ? "v2" : place.kind == PLACE_V1 ? "v1" : "none";
}

void machine_survey(const struct conf *conf, struct machine *out)
{
    struct machine m = { 0 };
    m.cgroup = survey_cgroups();
    m.memory_mib = survey_memory(conf);
    m.vcores = survey_cores(conf);
    survey_gpus(conf, &m);
    *out = m;
}

bool machine_look_again(const struct conf *conf, struct machine *m)
{
    uint64_t memory_mib = survey_memory(conf);
    uint32_t vcores = survey_cores(conf);
    if (memory_mib == 0)
        memory_mib = m->memory_mib;
    bool changed = memory_mib != m->memory_mib || vcores != m->vcores;
    m->memory_mib = memory_mib;
    m->vcores = vcores;
    return changed;
}
