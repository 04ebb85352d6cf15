/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tony-exact: reads an instance of `tony allocate` from standard input, and writes the answer of
 * the policy `dorm`, improved by the solver CBC. It is a separate program for two reasons: `tony`
 * must not need the solver's library, and a solver may need any amount of time and memory.
 *
 *   tony-exact TIME_MS SEARCH_MS MEMORY_MIB < INSTANCE
 *
 * TIME_MS: the solver ends after this time. SEARCH_MS: the part of TIME_MS after which our own
 * search ends. MEMORY_MIB: the address space of the process. TONY_CBC names another library, for
 * tests. Exit codes: 0; 1 no library, no memory or no standard output; 2 wrong arguments or
 * instance. After a failure one line on standard error says why.
 *
 *   tony-exact --program TIME_MS MEMORY_MIB < PROGRAM
 *
 * solves one integer program (partition/solver_wire.h) and writes the answer. `tony simulate
 * --exact` runs this once or several times for each decision.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"
#include "partition/instance.h"
#include "partition/solver.h"
#include "partition/solver_wire.h"

enum { EXIT_FAILED = 1, EXIT_WRONG = 2 };

/* The functions of CBC's C interface (Cbc_C_Interface.h, 2.10) that this program uses. */
struct model;

static struct {
    struct model *(*new_model)(void);
    void (*delete_model)(struct model *m);
    void (*load)(struct model *m, int cols, int rows, const int *start, const int *index,
                 const double *value, const double *col_lo, const double *col_hi,
                 const double *cost, const double *row_lo, const double *row_hi);
    void (*set_integer)(struct model *m, int col);
    void (*set_parameter)(struct model *m, const char *name, const char *value);
    void (*set_start)(struct model *m, int n, const int *cols, const double *values);
    int (*solve)(struct model *m);
    int (*best_proved)(struct model *m);
    int (*impossible_proved)(struct model *m);
    const double *(*best)(struct model *m);
    double (*bound)(struct model *m);
} cbc;

static int64_t deadline_us;

static bool find(void *library, const char *name, void *out)
{
    void *symbol = dlsym(library, name);
    memcpy(out, &symbol, sizeof symbol);
    return symbol != NULL;
}

static int load_library(struct err *e)
{
    const char *own = getenv("TONY_CBC"), *name = own && *own ? own : "libCbcSolver.so.3";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        (void)err_set(e, ENOENT, "cannot load the solver: %s", dlerror());
        return err_hint(e, "on Debian: apt-get install coinor-libcbc3");
    }
    if (find(library, "Cbc_newModel", &cbc.new_model) &&
        find(library, "Cbc_deleteModel", &cbc.delete_model) &&
        find(library, "Cbc_loadProblem", &cbc.load) &&
        find(library, "Cbc_setInteger", &cbc.set_integer) &&
        find(library, "Cbc_setParameter", &cbc.set_parameter) &&
        find(library, "Cbc_setMIPStartI", &cbc.set_start) &&
        find(library, "Cbc_solve", &cbc.solve) &&
        find(library, "Cbc_isProvenOptimal", &cbc.best_proved) &&
        find(library, "Cbc_isProvenInfeasible", &cbc.impossible_proved) &&
        find(library, "Cbc_bestSolution", &cbc.best) &&
        find(library, "Cbc_getBestPossibleObjValue", &cbc.bound))
        return 0;
    (void)err_set(e, ENOENT, "cannot use the solver in '%s': %s", name, dlerror());
    return err_hint(e, "version 2.10 of CBC is needed");
}

/* Let the solver start from the guess. It finds the values of the other columns itself. */
static void set_start(struct model *m, const struct part_program *p)
{
    int *cols = calloc((size_t)p->n_cols + 1, sizeof *cols);
    double *values = calloc((size_t)p->n_cols + 1, sizeof *values);
    int n = 0;
    for (int c = 0; cols && values && c < p->n_cols; c++) {
        if (!p->whole[c])
            continue;
        cols[n] = c;
        values[n++] = p->guess[c];
    }
    if (n > 0)
        cbc.set_start(m, n, cols, values);
    free(cols);
    free(values);
}

static enum part_solved solve(void *ctx, const struct part_program *p, double *x, double *bound)
{
    (void)ctx;
    double left_s = (double)(deadline_us - clock_mono_us()) / 1e6;
    struct model *m = left_s > 0.01 ? cbc.new_model() : NULL;
    char seconds[32];
    if (!m)
        return PART_SOLVED_NOT;
    cbc.load(m, p->n_cols, p->n_rows, p->start, p->row, p->value, p->lo, p->hi, p->cost, p->row_lo,
             p->row_hi);
    for (int c = 0; c < p->n_cols; c++)
        if (p->whole[c])
            cbc.set_integer(m, c);
    snprintf(seconds, sizeof seconds, "%.3f", left_s);
    cbc.set_parameter(m, "log", "0");
    cbc.set_parameter(m, "timeMode", "elapsed");
    cbc.set_parameter(m, "seconds", seconds);
    cbc.set_parameter(m, "ratioGap", "0");
    cbc.set_parameter(m, "allowableGap", "0");
    if (p->guess)
        set_start(m, p);
    (void)cbc.solve(m); /* the result is read from the model below */
    enum part_solved solved = PART_SOLVED_NOT;
    const double *best = cbc.best(m);
    if (cbc.impossible_proved(m)) {
        solved = PART_SOLVED_IMPOSSIBLE;
    } else if (best) {
        memcpy(x, best, (size_t)p->n_cols * sizeof *x);
        solved = cbc.best_proved(m) ? PART_SOLVED_BEST : PART_SOLVED_SOME;
    }
    /* Before it has solved the first relaxation, CBC answers with a number that is no bound. */
    if (solved >= PART_SOLVED_SOME)
        *bound = fabs(cbc.bound(m)) < 1e40 ? cbc.bound(m) : (double)-INFINITY;
    cbc.delete_model(m);
    return solved;
}

static bool past_search(void *ctx)
{
    return clock_mono_us() >= *(int64_t *)ctx;
}

/* CBC prints to standard output even with its log switched off. Redirect standard output to
 * /dev/null, and return a descriptor for the answer. */
static int keep_stdout(void)
{
    int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (out == -1 || null == -1 || dup2(null, STDOUT_FILENO) == -1)
        return -1;
    return out;
}

static int fail(int code, const struct err *e)
{
    (void)fprintf(stderr, "tony-exact: %s%s%s%s\n", e->msg, e->hint[0] ? " (" : "", e->hint,
                  e->hint[0] ? ")" : "");
    return code;
}

/* Answer the instance on standard input. search_ms: for our own search. */
static int answer_instance(int64_t began_us, int64_t search_ms, struct buf *answer, struct err *e)
{
    int64_t search_until_us = began_us + search_ms * 1000;
    struct part_limit search = { .stop = past_search, .ctx = &search_until_us };
    const struct part_solver solver = { .solve = solve };
    AUTO(buf_done) struct buf text = { 0 };
    int rc = buf_fill_fd(&text, STDIN_FILENO, e);
    if (rc == 0)
        rc = instance_answer("standard input", buf_span(&text), NULL, &search, &solver, answer, e);
    return rc;
}

/* Solve the program on standard input. */
static int answer_program(struct buf *answer, struct err *e)
{
    AUTO(buf_done) struct buf bytes = { 0 };
    struct part_program p;
    double bound = -INFINITY;
    int rc = buf_fill_fd(&bytes, STDIN_FILENO, e);
    if (rc < 0)
        return rc;
    if (program_decode(buf_span(&bytes), &p) < 0)
        return err_set(e, EINVAL, "standard input is not an integer program");
    AUTO(free_p) double *x = calloc((size_t)p.n_cols + 1, sizeof *x);
    if (!x)
        return err_set(e, ENOMEM, "cannot solve the program: %m");
    enum part_solved solved = solve(NULL, &p, x, &bound);
    rc = solution_encode(solved, bound, x, p.n_cols, answer);
    return rc < 0 ? err_set(e, -rc, "cannot solve the program: %m") : 0;
}

int main(int argc, char **argv)
{
    int64_t time_ms = 0, search_ms = 0, memory_mib = 0, began_us = clock_mono_us();
    bool program = argc == 4 && str_eq(argv[1], "--program");
    struct err e = { 0 };
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* without the parent no process reads the answer */
    if (argc != 4)
        return fail(EXIT_WRONG, (err_set(&e, EINVAL,
                                         "usage: tony-exact TIME_MS SEARCH_MS MEMORY_MIB "
                                         "< INSTANCE"),
                                 &e));
    const char *time = program ? argv[2] : argv[1];
    if (str_i64(span_of(time), 1, 1000000000, "TIME_MS", &time_ms, &e) < 0 ||
        (!program && str_i64(span_of(argv[2]), 0, time_ms, "SEARCH_MS", &search_ms, &e) < 0) ||
        str_i64(span_of(argv[3]), 1, 1 << 24, "MEMORY_MIB", &memory_mib, &e) < 0)
        return fail(EXIT_WRONG, &e);
    struct rlimit limit = { .rlim_cur = (rlim_t)memory_mib << 20,
                            .rlim_max = (rlim_t)memory_mib << 20 };
    if (setrlimit(RLIMIT_AS, &limit) == -1)
        return fail(EXIT_FAILED, (err_set(&e, errno, "cannot limit the memory: %m"), &e));
    deadline_us = began_us + time_ms * 1000;
    int out = keep_stdout();
    if (out == -1)
        return fail(EXIT_FAILED, (err_set(&e, errno, "cannot open '/dev/null': %m"), &e));
    if (load_library(&e) < 0)
        return fail(EXIT_FAILED, &e);

    AUTO(buf_done) struct buf answer = { .max = (size_t)1 << 30 };
    int rc =
        program ? answer_program(&answer, &e) : answer_instance(began_us, search_ms, &answer, &e);
    if (rc < 0)
        return fail(rc == -ENOMEM ? EXIT_FAILED : EXIT_WRONG, &e);
    rc = fs_write_all(out, answer.p, answer.len);
    if (rc < 0)
        return fail(EXIT_FAILED, (err_set(&e, -rc, "cannot write the answer: %m"), &e));
    return 0;
}
