/* SPDX-License-Identifier: Apache-2.0 */
#include "client/policy/exact.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "partition/solver_wire.h"
#include "storage/paths.h"

extern char **environ;

enum {
    SOLVE_PERCENT = 80,   /* of the time limit; the solver often ends later than it was told */
    SEARCH_PERCENT = 20,  /* of the time limit, for our own search, with which the solver begins */
    SEARCH_MAX_MS = 2000, /* our own search needs much less than this */
    FIRST_LIMIT_MS =
        60 * 1000,        /* for a trivial integer program that tests whether the solver works */
    ANSWER_MAX = 1 << 30, /* bytes */
};

/* Standard input, output and error of tony-exact: files in memory, which cannot block it. */
struct files {
    int in, out, err;
};

static void files_done(struct files *f)
{
    close_p(&f->in);
    close_p(&f->out);
    close_p(&f->err);
}

static int files_open(struct files *f, struct span text)
{
    f->in = memfd_create("instance", MFD_CLOEXEC);
    f->out = memfd_create("answer", MFD_CLOEXEC);
    f->err = memfd_create("errors", MFD_CLOEXEC);
    if (f->in == -1 || f->out == -1 || f->err == -1)
        return -errno;
    int rc = fs_write_all(f->in, text.p, text.len);
    return rc < 0 ? rc : lseek(f->in, 0, SEEK_SET) == -1 ? -errno : 0;
}

static int start(const char *program, char *const argv[], const struct files *f, pid_t *out)
{
    posix_spawn_file_actions_t acts;
    int num = posix_spawn_file_actions_init(&acts);
    if (num != 0)
        return -num;
    const int fds[] = { f->in, f->out, f->err };
    for (int fd = 0; fd < 3 && num == 0; fd++)
        num = posix_spawn_file_actions_adddup2(&acts, fds[fd], fd);
    if (num == 0)
        num = posix_spawn(out, program, &acts, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&acts); /* fails only if acts was not initialized */
    return -num;
}

/* Wait until the process has ended, and kill it at the deadline. *late: it was killed. */
static int wait_until(pid_t pid, int64_t deadline_ms, int *status, bool *late)
{
    AUTO(close_p) int end = pidfd_open(pid, 0);
    int rc = 0, n = end == -1 ? -1 : 0;
    *late = false;
    while (end != -1 && n == 0) {
        int64_t left = deadline_ms - clock_mono_ms();
        struct pollfd fd = { .fd = end, .events = POLLIN };
        n = left > 0 ? poll(&fd, 1, (int)MIN(left, (int64_t)INT32_MAX)) : 0;
        if (n == -1 && errno == EINTR)
            n = 0;
        if (n == 0 && clock_mono_ms() >= deadline_ms)
            break;
    }
    if (n == -1)
        rc = -errno;
    if (n != 1) {
        *late = n == 0;
        (void)kill(pid, SIGKILL); /* fails only if it has ended already */
    }
    while (waitpid(pid, status, 0) == -1 && errno == EINTR)
        ;
    return rc;
}

static int read_back(int fd, struct buf *out, struct err *e)
{
    if (lseek(fd, 0, SEEK_SET) == -1)
        return err_set(e, errno, "cannot read the output of tony-exact: %m");
    return buf_fill_fd(out, fd, e);
}

/* Make an error of the text that tony-exact has written to standard error. */
static int failed(const struct files *f, struct err *e)
{
    AUTO(buf_done) struct buf text = { .max = 4096 };
    (void)read_back(f->err, &text, NULL); /* without a text, the sentence below is used */
    struct span rest = buf_span(&text), line;
    const char *name = "tony-exact: ";
    if (!span_split(&rest, '\n', &line) || !span_starts(line, name))
        return err_set(e, ENOENT, "cannot use the exact solver: tony-exact failed");
    return err_set(e, ENOENT, "%.*s", (int)(line.len - strlen(name)), line.p + strlen(name));
}

/* Run tony-exact with these arguments. */
static int ask(char *const argv[], struct span text, int64_t limit_ms, struct buf *answer,
               struct err *e)
{
    int64_t deadline_ms = clock_mono_ms() + limit_ms;
    AUTO(free_p) char *program = paths_program("tony-exact");
    if (!program)
        return err_set(e, ENOENT, "cannot use the exact solver: the program tony-exact is missing");
    AUTO(files_done) struct files f = { -1, -1, -1 };
    int rc = files_open(&f, text);
    if (rc < 0)
        return err_set(e, -rc, "cannot pass the instance to tony-exact: %m");
    pid_t pid;
    rc = start(program, argv, &f, &pid);
    if (rc < 0)
        return err_set(e, -rc, "cannot start '%s': %m", program);
    int status = 0;
    bool late;
    rc = wait_until(pid, deadline_ms, &status, &late);
    if (rc < 0)
        return err_set(e, -rc, "cannot wait for tony-exact: %m");
    if (late)
        return err_set(e, ETIMEDOUT, "the exact solver has not ended within %.3g s",
                       (double)limit_ms / 1000);
    if (WIFSIGNALED(status))
        return err_set(
            e, ETIMEDOUT,
            "the exact solver crashed with signal %d, perhaps for lack of memory (%d MiB)",
            WTERMSIG(status), EXACT_MEMORY_MIB);
    if (WEXITSTATUS(status) != 0)
        return failed(&f, e);
    return read_back(f.out, answer, e);
}

int exact_ask(struct span instance, int64_t limit_ms, struct buf *answer, struct err *e)
{
    char solve[24], search[24], memory[24];
    snprintf(solve, sizeof solve, "%" PRId64, MAX(limit_ms * SOLVE_PERCENT / 100, INT64_C(1)));
    snprintf(search, sizeof search, "%" PRId64,
             MIN(limit_ms * SEARCH_PERCENT / 100, (int64_t)SEARCH_MAX_MS));
    snprintf(memory, sizeof memory, "%d", EXACT_MEMORY_MIB);
    char *const argv[] = { (char *)"tony-exact", solve, search, memory, NULL };
    return ask(argv, instance, limit_ms, answer, e);
}

/* ---- a solver for decisions in this process ---- */

static int ask_program(const struct part_program *p, int64_t limit_ms, enum part_solved *solved,
                       double *x, double *bound, struct err *e)
{
    AUTO(buf_done) struct buf bytes = { .max = ANSWER_MAX };
    AUTO(buf_done) struct buf answer = { .max = ANSWER_MAX };
    char solve[24], memory[24];
    snprintf(solve, sizeof solve, "%" PRId64, MAX(limit_ms * SOLVE_PERCENT / 100, INT64_C(1)));
    snprintf(memory, sizeof memory, "%d", EXACT_MEMORY_MIB);
    char *const argv[] = { (char *)"tony-exact", (char *)"--program", solve, memory, NULL };
    int rc = program_encode(p, &bytes);
    if (rc < 0)
        return err_set(e, -rc, "cannot pass the program to tony-exact: %m");
    rc = ask(argv, buf_span(&bytes), limit_ms, &answer, e);
    if (rc == 0 && solution_decode(buf_span(&answer), p->n_cols, solved, bound, x) < 0)
        rc = err_set(e, EINVAL, "cannot read the answer of tony-exact");
    return rc;
}

static enum part_solved solve_program(void *ctx, const struct part_program *p, double *x,
                                      double *bound)
{
    struct exact_solver *s = ctx;
    enum part_solved solved = PART_SOLVED_NOT;
    s->asked++;
    if (ask_program(p, s->limit_ms, &solved, x, bound, NULL) < 0)
        solved = PART_SOLVED_NOT;
    s->silent += solved == PART_SOLVED_NOT;
    return solved;
}

int exact_solver_init(struct exact_solver *s, int64_t limit_ms, struct err *e)
{
    /* A trivial integer program, which tests whether the solver works: the least x in 1 .. 2. */
    const struct part_program first = { .n_cols = 1,
                                        .lo = (const double[]){ 1 },
                                        .hi = (const double[]){ 2 },
                                        .cost = (const double[]){ 1 },
                                        .whole = (const bool[]){ true },
                                        .start = (const int[]){ 0, 0 } };
    enum part_solved solved = PART_SOLVED_NOT;
    double x = 0, bound;
    *s = (struct exact_solver){ .solver = { solve_program, s }, .limit_ms = limit_ms };
    int rc = ask_program(&first, FIRST_LIMIT_MS, &solved, &x, &bound, e);
    return rc == -ETIMEDOUT ? err_set(e, ENOENT, "the exact solver does not answer") : rc;
}
