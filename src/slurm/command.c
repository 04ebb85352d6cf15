/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command of Slurm, and collects what it writes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "slurm/commands.h"

enum { OUTPUT_MAX = 16 << 20, READ_SIZE = 16 << 10, TEXT_MAX = 400 };

struct pipes {
    int in[2], out[2], err[2], failed[2]; /* failed: errno of execvpe() */
};

static void pipes_close(struct pipes *p)
{
    int *const all[] = { p->in, p->out, p->err, p->failed };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        for (int end = 0; end < 2; end++)
            close_p(&all[i][end]);
}

static int pipes_open(struct pipes *p)
{
    *p = (struct pipes){ { -1, -1 }, { -1, -1 }, { -1, -1 }, { -1, -1 } };
    if (pipe2(p->in, O_CLOEXEC) == 0 && pipe2(p->out, O_CLOEXEC) == 0 &&
        pipe2(p->err, O_CLOEXEC) == 0 && pipe2(p->failed, O_CLOEXEC) == 0)
        return 0;
    int rc = -errno;
    pipes_close(p);
    return rc;
}

/* ---- the environment of the command ---- */

/* Variables that change what a command of Slurm asks or prints, such as SBATCH_ARRAY_INX,
 * SQUEUE_PARTITION, SCANCEL_INTERACTIVE and SLURM_TIME_FORMAT. sbatch --export=NIL also hands all
 * SLURM_* on to the job: those of a shell in an allocation (salloc) would change its steps. */
static bool changes_commands(const char *variable)
{
    static const char *const prefixes[] = { "SLURM_",   "SBATCH_", "SQUEUE_", "SINFO_",
                                            "SCANCEL_", "SRUN_",   "SALLOC_", "SCONTROL_" };
    static const char *const kept[] = { "SLURM_CONF=", "SLURM_CONF_SERVER=", "SLURM_JWT=" };
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        if (str_starts(variable, kept[i]))
            return false;
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (str_starts(variable, prefixes[i]))
            return true;
    return false;
}

/* The caller frees the array, not its strings. NULL: no memory. */
static char **command_environment(void)
{
    size_t n = 0, n_kept = 0;
    while (environ[n])
        n++;
    char **kept = calloc(n + 1, sizeof *kept);
    for (size_t i = 0; kept && i < n; i++)
        if (!changes_commands(environ[i]))
            kept[n_kept++] = environ[i];
    return kept;
}

/* ---- running ---- */

/* Runs in the child. */
static _Noreturn void exec_command(const char *const *argv, char **env, const struct pipes *p)
{
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)!chdir("/"); /* sbatch fails in a directory that is removed, perhaps at this moment */
    if (dup2(p->in[0], 0) != -1 && dup2(p->out[1], 1) != -1 && dup2(p->err[1], 2) != -1)
        (void)execvpe(argv[0], (char *const *)(uintptr_t)argv, env);
    int num = errno;
    (void)!write(p->failed[1], &num, sizeof num);
    _exit(127);
}

static bool read_some(int *fd, struct buf *to)
{
    char *at = buf_reserve(to, READ_SIZE);
    ssize_t n = at ? read(*fd, at, READ_SIZE) : 0;
    if (n == -1 && errno == EINTR)
        return true;
    if (n <= 0) {
        close_p(fd);
        return false;
    }
    buf_commit(to, (size_t)n);
    return true;
}

/* Write the input to the command, and read its stdout and stderr until both are closed. */
static int exchange(struct pipes *p, const char *input, int limit_ms, struct slurm_answer *out)
{
    int64_t until = clock_mono_ms() + limit_ms;
    size_t at = 0, len = input ? strlen(input) : 0;
    (void)fcntl(p->in[1], F_SETFL, O_NONBLOCK);
    while (p->out[0] >= 0 || p->err[0] >= 0) {
        if (at == len)
            close_p(&p->in[1]);
        struct pollfd v[] = { { .fd = p->out[0], .events = POLLIN },
                              { .fd = p->err[0], .events = POLLIN },
                              { .fd = p->in[1], .events = POLLOUT } };
        int64_t left = until - clock_mono_ms();
        if (left <= 0)
            return -ETIMEDOUT;
        if (poll(v, ARRAY_LEN(v), (int)left) < 0 && errno != EINTR)
            return -errno;
        if (v[0].revents)
            (void)read_some(&p->out[0], &out->out);
        if (v[1].revents)
            (void)read_some(&p->err[0], &out->err);
        if (v[2].revents) {
            ssize_t n = write(p->in[1], input + at, len - at);
            if (n < 0 && errno != EAGAIN && errno != EINTR)
                at = len; /* the command reads no more; its exit code says why */
            at += n > 0 ? (size_t)n : 0;
        }
    }
    return 0;
}

void slurm_answer_done(struct slurm_answer *a)
{
    buf_done(&a->out);
    buf_done(&a->err);
}

#define ASK_CONTROLLER "scontrol ping shows whether Slurm's controller answers"

/* Its many lines say neither what munged is nor where it should run. */
static bool is_munge_away(const char *words)
{
    return strstr(words, "Munge encode failed") || strstr(words, "Munge decode failed");
}

int slurm_failed(const struct slurm_answer *a, const char *command, struct err *e)
{
    AUTO(free_p) char *words = slurm_words(a);
    if (words && is_munge_away(words)) {
        (void)err_set(
            e, EIO,
            "'%s' failed: munged, by which Slurm knows its users, does not answer on this "
            "machine",
            command);
        return err_hint(e, "systemctl status munge shows whether it runs");
    }
    (void)err_set(e, EIO, "'%s' failed: %s", command, words && *words ? words : "no reason given");
    return err_hint(e, ASK_CONTROLLER);
}

int slurm_run(const char *const *argv, const char *input, int limit_ms, struct slurm_answer *out,
              struct err *e)
{
    struct pipes p;
    *out = (struct slurm_answer){ .out.max = OUTPUT_MAX, .err.max = OUTPUT_MAX };
    AUTO(free_p) char **env = command_environment();
    if (!env)
        return err_set(e, ENOMEM, "no memory to run '%s'", argv[0]);
    int rc = pipes_open(&p);
    pid_t pid = rc == 0 ? fork() : -1;
    if (pid == 0)
        exec_command(argv, env, &p);
    if (pid == -1) {
        rc = rc < 0 ? rc : -errno;
        pipes_close(&p);
        return err_set(e, -rc, "cannot run '%s': %m", argv[0]);
    }
    close_p(&p.in[0]);
    close_p(&p.out[1]);
    close_p(&p.err[1]);
    close_p(&p.failed[1]);
    rc = exchange(&p, input, limit_ms, out);
    if (rc < 0)
        (void)kill(pid, SIGKILL);
    int status = 0, num = 0;
    while (waitpid(pid, &status, 0) == -1 && errno == EINTR)
        ;
    bool failed = read(p.failed[0], &num, sizeof num) == (ssize_t)sizeof num;
    pipes_close(&p);
    if (failed) {
        (void)err_set(e, num, "cannot run '%s': %m", argv[0]);
        return err_hint(e,
                        "jobs on Slurm need its commands (sbatch, squeue, sinfo, scancel) on the "
                        "PATH of this machine");
    }
    if (rc == -ETIMEDOUT) {
        (void)err_set(e, ETIMEDOUT, "'%s' has not answered within %d s", argv[0], limit_ms / 1000);
        return err_hint(e, ASK_CONTROLLER);
    }
    if (rc < 0)
        return err_set(e, -rc, "cannot run '%s': %m", argv[0]);
    out->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return 0;
}

char *slurm_words(const struct slurm_answer *a)
{
    struct span rest = span_trim(buf_span(&a->err)), line;
    AUTO(buf_done) struct buf text = { 0 };
    while (rest.len && span_split(&rest, '\n', &line)) {
        /* Several may stand before one text. They are removed in this order. */
        static const char *const prefixes[] = { "sbatch: ",         "squeue: ",   "scancel: ",
                                                "sinfo: ",          "scontrol: ", "error: ",
                                                "slurm_load_jobs ", "error: " };
        line = span_trim(line);
        for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
            if (span_starts(line, prefixes[i]))
                line = span_mem(line.p + strlen(prefixes[i]), line.len - strlen(prefixes[i]));
        if (line.len && text.len < TEXT_MAX)
            (void)buf_addf(&text, "%s%.*s", text.len ? "; " : "",
                           (int)MIN(line.len, (size_t)TEXT_MAX), line.p);
    }
    char *words = text.failed ? NULL : str_dup(buf_cstr(&text));
    if (words)
        str_mask_controls(words);
    return words;
}
