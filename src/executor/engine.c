/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/proctree.h"
#include "base/str.h"
#include "base/util.h"
#include "cgroup/find.h"
#include "executor/command.h"
#include "executor/engine_left.h"
#include "executor/executor_int.h"

extern char **environ;

enum { NAME_MAX_LEN = 160, UMASK_TEXT_MAX = 8 };

static void container_name(const struct executor *x, uint32_t rank, char out[NAME_MAX_LEN])
{
    /* with the uid: all users of docker share one service */
    (void)snprintf(out, NAME_MAX_LEN, "tony-%u-%s-%u-%u", (unsigned)geteuid(), x->cfg->container_id,
                   x->a.number, rank);
}

static void umask_text(const struct executor *x, char out[UMASK_TEXT_MAX])
{
    (void)snprintf(out, UMASK_TEXT_MAX, "%04o", (unsigned)executor_umask(x) & 0777);
}

static int add(struct strv *argv, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int add(struct strv *argv, const char *fmt, ...)
{
    AUTO(buf_done) struct buf text = { 0 };
    va_list ap;
    va_start(ap, fmt);
    int rc = buf_vaddf(&text, fmt, ap);
    va_end(ap);
    return rc < 0 ? rc : strv_push(argv, buf_cstr(&text));
}

/* ---- the options of the engine ---- */

/* docker_mounts: "SRC:DST[:MODE]" separated by commas, as in YARN. Spaces around an entry are
 * ignored. */
static int add_mounts(const struct executor *x, struct strv *argv)
{
    const Tony__Welcome *w = x->role;
    struct span rest = span_of(w->docker_mounts), one;
    int rc = add(argv, "--volume=%s/containers:%s/containers", x->cfg->job_dir, x->cfg->job_dir);
    if (rc == 0)
        rc = add(argv, "--volume=%s:%s", x->a.logs.dir, x->a.logs.dir);
    for (size_t i = 0; rc == 0 && i < w->n_mounts; i++)
        if (w->mounts[i]->kind == TONY__MOUNT__KIND__LINK)
            rc = add(argv, "--volume=%s:%s:ro", w->mounts[i]->path, w->mounts[i]->path);
    while (rc == 0 && span_split(&rest, ',', &one)) {
        one = span_trim(one);
        if (one.len)
            rc = add(argv, "--volume=%.*s", (int)one.len, one.p);
    }
    return rc;
}

/* How an engine gives GPUs to a container: by NVIDIA's CDI file (podman) or hook (docker), which
 * add the driver's libraries; without them by the devices alone, and the image must have the
 * libraries. */
enum gpu_way { GPU_BY_CDI, GPU_BY_HOOK, GPU_BY_DEVICE };

static enum gpu_way gpu_way(bool podman, const struct strv *env)
{
    if (podman)
        return access("/etc/cdi/nvidia.yaml", F_OK) == 0 ||
                       access("/var/run/cdi/nvidia.yaml", F_OK) == 0
                   ? GPU_BY_CDI
                   : GPU_BY_DEVICE;
    AUTO(free_p)
    char *hook = command_on_path("nvidia-container-runtime-hook", strv_env_get(env, "PATH"));
    return hook ? GPU_BY_HOOK : GPU_BY_DEVICE;
}

static int add_gpus(const struct executor *x, bool podman, struct strv *argv, struct strv *env)
{
    static const char *const common[] = { "/dev/nvidiactl", "/dev/nvidia-uvm",
                                          "/dev/nvidia-uvm-tools" };
    enum gpu_way way = gpu_way(podman, env);
    struct span rest = span_of(x->cfg->gpus), one;
    AUTO(buf_done) struct buf seen = { 0 };
    unsigned n = 0;
    int rc = 0;
    if (!rest.len)
        return 0;
    if (way == GPU_BY_HOOK)
        rc = add(argv, "--gpus=\"device=%s\"", x->cfg->gpus);
    while (rc == 0 && span_split(&rest, ',', &one)) {
        if (way != GPU_BY_HOOK)
            rc =
                add(argv,
                    way == GPU_BY_CDI ? "--device=nvidia.com/gpu=%.*s" : "--device=/dev/nvidia%.*s",
                    (int)one.len, one.p);
        if (rc == 0) /* in the container, GPUs are numbered from 0 */
            rc = buf_addf(&seen, "%s%u", n ? "," : "", n);
        n++;
    }
    for (size_t i = 0; rc == 0 && way == GPU_BY_DEVICE && i < ARRAY_LEN(common); i++)
        if (access(common[i], F_OK) == 0)
            rc = add(argv, "--device=%s", common[i]);
    return rc < 0 ? rc : strv_env_set(env, "CUDA_VISIBLE_DEVICES", buf_cstr(&seen));
}

/* Pass the variables of the task on, except those that describe this machine, unless the job has
 * set them. Only names are given: the engine takes the values from its own environment. */
static int add_variables(const struct strv *env, struct strv *argv)
{
    static const char *const ours[] = { "PATH",  "HOME",   "USER",           "LOGNAME",
                                        "SHELL", "TMPDIR", "LD_LIBRARY_PATH" };
    int rc = 0;
    for (size_t i = 0; i < env->n && rc == 0; i++) {
        const char *eq = strchr(env->v[i], '=');
        AUTO(free_p) char *name = eq ? strndup(env->v[i], (size_t)(eq - env->v[i])) : NULL;
        bool leave = !name || !*name;
        for (size_t k = 0; k < ARRAY_LEN(ours) && !leave; k++)
            leave = str_eq(name, ours[k]) &&
                    (str_eq(getenv(name), eq + 1) || (k == 0 && !getenv(name)));
        if (!leave)
            rc = add(argv, "--env=%s", name);
    }
    return rc;
}

/* The other groups of the user, for files that only a group may read. podman of an ordinary user
 * cannot name them, since they have no number in its user namespace, but crun can keep them. */
static int add_groups(bool podman, struct strv *argv)
{
    int n = getgroups(0, NULL), rc = 0;
    AUTO(free_p) gid_t *groups = n > 0 ? calloc((size_t)n, sizeof *groups) : NULL;
    if (n <= 0)
        return 0;
    if (!groups || (n = getgroups(n, groups)) < 0)
        return -ENOMEM;
    for (int i = 0; rc == 0 && i < n; i++) {
        if (groups[i] == getegid())
            continue;
        if (podman && geteuid() != 0)
            return strv_push(argv, "--group-add=keep-groups");
        rc = add(argv, "--group-add=%u", (unsigned)groups[i]);
    }
    return rc;
}

/* Run as the user of the job, so that files of the task belong to that user. */
static int add_user(bool podman, struct strv *argv)
{
    int rc = podman && geteuid() != 0 ? strv_push(argv, "--userns=keep-id") : 0;
    if (rc == 0)
        rc = add(argv, "--user=%u:%u", (unsigned)geteuid(), (unsigned)getegid());
    return rc < 0 ? rc : add_groups(podman, argv);
}

static int add_ulimit(const char *name, const struct rlimit *r, struct strv *argv)
{
    return add(argv, "--ulimit=%s=%lld:%lld", name, (long long)r->rlim_cur, (long long)r->rlim_max);
}

/* podman lowers its own limit of processes to the largest pid. After that only a process with
 * CAP_SYS_RESOURCE could give the container more. */
static void cap_processes(struct rlimit *procs)
{
    AUTO(buf_done) struct buf text = { .max = 64 };
    int64_t most;
    if (fs_read(AT_FDCWD, "/proc/sys/kernel/pid_max", &text, NULL) < 0 ||
        str_i64(span_trim(buf_span(&text)), 1, INT32_MAX, "pid_max", &most, NULL) < 0)
        return;
    procs->rlim_cur = MIN(procs->rlim_cur, (rlim_t)most);
    procs->rlim_max = MIN(procs->rlim_max, (rlim_t)most);
}

/* Has each container a control group of its own? A container of podman stays in the control group
 * of the task, which limits it. If there is no such group, only podman of root can limit the
 * container; for other users the executor samples the memory. A container of docker has a group of
 * its own, so docker gets the limits. */
static bool is_apart(const struct executor *x, bool podman)
{
    return !podman || !(x->a.in_cgroup || !x->cfg->memory_bytes || geteuid() != 0);
}

static int add_limits(const struct executor *x, bool podman, struct strv *argv)
{
    struct rlimit procs = { RLIM_INFINITY, RLIM_INFINITY };
    (void)getrlimit(RLIMIT_NPROC, &procs);
    if (podman)
        cap_processes(&procs);
    /* the defaults of an engine are higher, and a user may not be allowed to have them */
    int rc = add_ulimit("nofile", &x->cfg->nofile, argv);
    if (rc == 0)
        rc = add_ulimit("nproc", &procs, argv);
    if (rc < 0)
        return rc;
    if (!is_apart(x, podman))
        return strv_push(argv, "--cgroups=disabled");
    if (x->cfg->memory_bytes)
        rc = add(argv, "--memory=%llub", (unsigned long long)x->cfg->memory_bytes);
    /* of memory and swap together; by default a container may swap as much as its memory */
    if (rc == 0 && x->cfg->memory_bytes && cgroup_machine_swaps())
        rc = add(argv, "--memory-swap=%llub", (unsigned long long)x->cfg->memory_bytes);
    if (rc == 0 && x->role->vcores)
        rc = add(argv, "--cpu-shares=%u", MIN(x->role->vcores * 1024, 262144u));
    return rc;
}

/* ---- the command ---- */

/* If the first word is a file in the working directory, put "./" in front: outside of an image,
 * command.c finds such a file without "./". */
static char *command_text(const struct executor *x, const char *text)
{
    text += strspn(text, " \t");
    AUTO(free_p) char *word = strndup(text, strcspn(text, " \t"));
    AUTO(free_p) char *path = word ? str_printf("%s/%s", x->workdir, word) : NULL;
    struct stat st;
    bool here =
        path && !strpbrk(word, "/'\"$`\\=(){}") && stat(path, &st) == 0 && S_ISREG(st.st_mode);
    if (here && !(st.st_mode & S_IXUSR))
        (void)chmod(path,
                    (st.st_mode | S_IXUSR | S_IXGRP) & 07777); /* if it fails, execve() does */
    return str_printf("%s%s", here ? "./" : "", text);
}

/*
 * The first process of a container. The kernel does not deliver a signal to it for which it has no
 * handler. So the shell outlives the TERM of engine_signal(), and exits with the exit code of the
 * command. It sets no handler, because its child would have the handler, too, until the child is
 * the command.
 *
 * The command runs in the foreground of this shell: in the background it would ignore INT and QUIT.
 * This shell itself prints nothing, such as "Terminated".
 *
 * $0 is the name of the container, $1 the command. $2: if the container has a control group of its
 * own, a directory for two files. This shell makes `out-of-memory` if the kernel has killed a
 * process for its memory, and writes to `cpu-<name>` how much CPU time the group has used, in
 * microseconds. Nobody else can tell: the engine makes the group, and removes it with the
 * container. $3: the file creation mask; an engine starts this shell with a mask of its own.
 */
static const char first_process[] =
    "umask \"$3\"\n"
    "exec 3>&2 2>/dev/null\n"
    "(exec 2>&3 3>&-\n"
    "if command -v bash >/dev/null 2>&1; then exec bash -c \"$1\"; fi\n"
    "exec sh -c \"$1\")\n"
    "r=$?\n"
    "if [ \"$2\" ]; then\n"
    "for f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do\n"
    "while read -r k v; do\n"
    "case $k,$v in oom_kill,0) ;; oom_kill,*) true >\"$2/out-of-memory\" ;; esac\n"
    "done <$f\n"
    "done\n"
    "u=\n"
    "read -r g </proc/self/cgroup\n"
    "if [ \"$g\" = 0::/ ]; then\n"
    "while read -r k v; do\n"
    "case $k in usage_usec) u=$v ;; esac\n"
    "done </sys/fs/cgroup/cpu.stat\n"
    "elif read -r v </sys/fs/cgroup/cpuacct/cpuacct.usage; then u=${v%???}; fi\n"
    "if [ \"$u\" ]; then echo \"$u\" >\"$2/cpu-$0\"; fi\n"
    "fi\n"
    "exit $r";

bool engine_oom_killed(const struct executor *x)
{
    AUTO(free_p)
    char *path = x->engine && x->a.logs.dir ? str_printf("%s/out-of-memory", x->a.logs.dir) : NULL;
    return path && unlink(path) == 0;
}

char *engine_cpu_file(const struct executor *x, uint32_t rank)
{
    char name[NAME_MAX_LEN];
    container_name(x, rank, name);
    return str_printf("%s/cpu-%s", x->a.logs.dir ? x->a.logs.dir : "", name);
}

/* Append the command line of this process as in /proc, up to the name of the container. */
static int add_first_arguments(const struct executor *x, uint32_t rank, struct buf *out)
{
    char name[NAME_MAX_LEN];
    container_name(x, rank, name);
    const char *const argv[] = { "sh", "-c", first_process, name };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(argv); i++)
        rc = buf_add(out, argv[i], strlen(argv[i]) + 1);
    return rc;
}

void engine_find(const struct executor *x, const uint32_t *ranks, size_t n, pid_t *out)
{
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(free_p) struct span *starts = calloc(n + 1, sizeof *starts);
    for (size_t i = 0; i < n; i++)
        out[i] = 0;
    for (size_t i = 0; starts && i < n; i++) {
        size_t before = text.len;
        if (add_first_arguments(x, ranks[i], &text) < 0)
            return;
        starts[i].len = text.len - before;
    }
    const char *at = text.p;
    for (size_t i = 0; starts && i < n; at += starts[i++].len)
        starts[i].p = at;
    if (starts)
        proctree_find(starts, n, out);
}

pid_t engine_first(const struct executor *x, uint32_t rank)
{
    pid_t found;
    engine_find(x, &rank, 1, &found);
    return found;
}

unsigned engine_signal(const struct executor *x, uint32_t rank, int signal, bool catchers)
{
    pid_t first = engine_first(x, rank);
    return first ? proctree_signal_below(first, signal, catchers) : 0;
}

bool engine_has_container(const struct executor *x, uint32_t rank)
{
    return engine_first(x, rank) != 0;
}

static int find_engine(struct executor *x, const struct strv *env, char **out, bool *out_podman,
                       struct err *e)
{
    const char *path = strv_env_get(env, "PATH");
    char *found = command_on_path("podman", path);
    *out_podman = found != NULL;
    if (!found)
        found = command_on_path("docker", path);
    if (!found)
        return err_set(e, ENOENT,
                       "there is neither podman nor docker on the PATH to run image '%s'",
                       x->role->docker_image);
    *out = found;
    return 0;
}

static int fill(struct executor *x, const char *command, uint32_t rank, bool podman,
                struct strv *env, struct strv *argv)
{
    char name[NAME_MAX_LEN], mask[UMASK_TEXT_MAX];
    container_name(x, rank, name);
    AUTO(free_p) char *text = command_text(x, command);
    const char *notes = is_apart(x, podman) ? x->a.logs.dir : "";
    int rc = text ? 0 : -ENOMEM;
    /* --ipc=host: data loaders need more shared memory than the 64 MB of a container */
    const char *const fixed[] = { podman ? "podman" : "docker",
                                  "run",
                                  "--rm",
                                  "--network=host",
                                  "--ipc=host",
                                  "--security-opt=label=disable",
                                  podman ? "--log-driver=passthrough" : "--log-driver=none" };
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(fixed); i++)
        rc = strv_push(argv, fixed[i]);
    if (rc == 0)
        rc = add(argv, "--name=%s", name);
    if (rc == 0)
        rc = add(argv, "--workdir=%s", x->workdir);
    if (rc == 0)
        rc = add_user(podman, argv);
    if (rc == 0)
        rc = add_limits(x, podman, argv);
    if (rc == 0)
        rc = add_mounts(x, argv);
    if (rc == 0)
        rc = add_gpus(x, podman, argv, env);
    if (rc == 0)
        rc = add_variables(env, argv);
    umask_text(x, mask);
    const char *const last[] = {
        "--entrypoint=", x->role->docker_image, "sh", "-c", first_process, name, text, notes, mask
    };
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(last); i++)
        rc = strv_push(argv, last[i]);
    return rc;
}

int engine_prepare(struct executor *x, const char *text, uint32_t rank, struct strv *env,
                   struct command *out, struct err *e)
{
    struct command c = { 0 };
    bool podman = false;
    int rc = find_engine(x, env, &c.path, &podman, e);
    if (rc < 0)
        return rc;
    c.shell = str_dup("/bin/sh");
    rc = c.shell ? fill(x, text, rank, podman, env, &c.argv) : -ENOMEM;
    /* A variable for the engine itself. It is added after add_variables(), so the task does not
     * get it. */
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (rc == 0 && runtime)
        rc = strv_env_set(env, "XDG_RUNTIME_DIR", runtime);
    free(x->engine);
    x->engine = rc == 0 ? str_dup(c.path) : NULL;
    x->engine_apart = is_apart(x, podman);
    if (rc < 0 || !x->engine) {
        command_done(&c);
        return err_set(e, ENOMEM, "cannot prepare the container: %m");
    }
    char name[NAME_MAX_LEN];
    container_name(x, rank, name);
    rc = left_note(x->cfg->job_dir, name, x->engine, e);
    if (rc < 0) {
        command_done(&c);
        return rc;
    }
    *out = c;
    return 0;
}

static int fill_exec(const struct executor *x, const struct strv *command, bool tty, bool input,
                     const char *term, const char *mark, struct strv *argv)
{
    static const char shell[] = "umask \"$0\"; exec \"$(command -v bash || echo sh)\"";
    static const char program[] = "umask \"$0\"; exec \"$@\"";
    char name[NAME_MAX_LEN], mask[UMASK_TEXT_MAX];
    container_name(x, 0, name);
    umask_text(x, mask);
    int rc = add(argv, "%s", x->engine);
    if (rc == 0)
        rc = add(argv, "exec");
    if (rc == 0 && (input || tty))
        rc = add(argv, "--interactive");
    if (rc == 0 && tty)
        rc = add(argv, "--tty");
    if (rc == 0 && tty && *term)
        rc = add(argv, "--env=TERM=%s", term);
    if (rc == 0)
        rc = add(argv, "--env=%s", mark);
    if (rc == 0)
        rc = add(argv, "--workdir=%s", x->workdir);
    if (rc == 0)
        rc = add(argv, "%s", name);
    const char *const first[] = { "sh", "-c", command->n ? program : shell, mask };
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(first); i++)
        rc = strv_push(argv, first[i]);
    for (size_t i = 0; rc == 0 && i < command->n; i++)
        rc = strv_push(argv, command->v[i]);
    return rc;
}

int engine_exec(const struct executor *x, const struct strv *argv, bool tty, bool input,
                const char *term, const char *mark, struct command *out, struct err *e)
{
    struct command c = { .path = str_dup(x->engine) };
    int rc = c.path ? fill_exec(x, argv, tty, input, term, mark, &c.argv) : -ENOMEM;
    if (rc < 0) {
        command_done(&c);
        return err_set(e, ENOMEM, "cannot prepare the command: %m");
    }
    *out = c;
    return 0;
}

void engine_forget(const struct executor *x)
{
    for (uint32_t rank = 0; rank < MAX(x->role->ranks, 1u); rank++) {
        char name[NAME_MAX_LEN];
        container_name(x, rank, name);
        left_forget(x->cfg->job_dir, name);
    }
}

void engine_kill(struct executor *x)
{
    AUTO(close_p) int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (uint32_t rank = 0; null >= 0 && rank < MAX(x->role->ranks, 1u); rank++) {
        char name[NAME_MAX_LEN], program[] = "engine", kill_verb[] = "kill", remove_verb[] = "rm",
                                 force[] = "--force";
        container_name(x, rank, name);
        char *kill_argv[] = { program, kill_verb, name, NULL };
        char *remove_argv[] = { program, remove_verb, force, name, NULL };
        char **argv = x->a.engine_gave_up ? remove_argv : kill_argv;
        struct spawn s = { .cgroup_fd = -1,
                           .umask = UMASK_DEFAULT,
                           .path = x->engine,
                           .shell = x->engine,
                           .workdir = "/",
                           .argv = argv,
                           .env = environ,
                           .out_fd = null,
                           .err_fd = null,
                           .nofile = x->cfg->nofile };
        (void)spawn_task(&s); /* if it fails, kill_round() kills the processes later */
    }
}
