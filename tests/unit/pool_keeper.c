/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for the keeper. It takes the lock, listens, and obeys the file `do` in the job's
 * directory. */
#include "pool_keeper.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "conf/conf.h"
#include "history/history.h"
#include "job/job.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/jobfile.h"
#include "storage/paths.h"

enum { GPUS_MAX = 8 };

struct keeper {
    struct loop *loop;
    struct paths paths;
    const char *id;
    char *dir;
    struct conn *pool;
    struct loop_timer *timer;
    uint64_t memory_mib;
    uint32_t gpus[GPUS_MAX], n_gpus;
    /* for a resized job */
    uint64_t wants_mib;
    uint32_t wants_gpus, wants_number, heard;
    int64_t wants_since_ms;
    int64_t min_containers, max_containers;
    int64_t ends_early_ms, ends_late_ms;
    bool deaf; /* does not answer an Admit */
};

static void keeper_send_state(struct keeper *k, bool finished, const char *state)
{
    Tony__KeeperState s = TONY__KEEPER_STATE__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    s.application_id = (char *)k->id;
    s.pid = getpid();
    s.memory_mib = k->memory_mib;
    s.finished = finished;
    s.state = (char *)state;
    s.gpus = k->gpus;
    s.n_gpus = k->n_gpus;
    s.admit_heard = k->heard;
    if (k->wants_number) {
        s.wants_containers = 3;
        s.wants_memory_mib = k->wants_mib;
        s.wants_gpus = k->wants_gpus;
        s.wants_vcores = 7;
        s.wants_number = k->wants_number;
        s.wants_since_ms = k->wants_since_ms;
    }
    s.min_containers = (uint32_t)k->min_containers;
    s.max_containers = (uint32_t)k->max_containers;
    s.ends_early_ms = k->ends_early_ms;
    s.ends_late_ms = k->ends_late_ms;
    f.body_case = TONY__FRAME__BODY_KEEPER_STATE;
    f.keeper_state = &s;
    if (k->pool)
        (void)conn_send(k->pool, &f);
}

/* The keeper is killed while it ends: the job is in history, and files that take room are left. */
static _Noreturn void keeper_dies_late(struct keeper *k, bool says, bool leaves_room)
{
    AUTO(free_p) char *history = paths_history(&k->paths, k->id);
    AUTO(free_p) char *ended = str_printf("%s/ended/%s/box", k->paths.pool, k->id);
    if ((leaves_room && fs_mkdirs(ended, 0700, NULL) < 0) || rename(k->dir, history) == -1)
        _exit(9);
    if (says)
        keeper_send_state(k, true, "SUCCEEDED");
    loop_flush(k->loop);
    (void)kill(getpid(), SIGKILL);
    _exit(9);
}

static void keeper_end(struct keeper *k)
{
    AUTO(free_p) char *history = paths_history(&k->paths, k->id);
    if (rename(k->dir, history) == -1)
        _exit(9);
    keeper_send_state(k, true, "SUCCEEDED");
    loop_stop(k->loop);
}

/* ---- a resized job ---- */

/* Writes a note for the test into the job's directory: what the job may hold ("80 0,1") into the
 * file `holds`. */
static void keeper_note(const struct keeper *k, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void keeper_note(const struct keeper *k, const char *name, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    AUTO(free_p) char *path = fs_join(k->dir, name);
    (void)fs_write_atomic(AT_FDCWD, path, span_of(text), 0600, false, NULL);
}

static void keeper_note_holdings(const struct keeper *k)
{
    AUTO(buf_done) struct buf gpus = { 0 };
    for (uint32_t i = 0; i < k->n_gpus; i++)
        (void)buf_addf(&gpus, "%s%u", i ? "," : "", k->gpus[i]);
    keeper_note(k, "holds", "%llu %s", (unsigned long long)k->memory_mib, buf_cstr(&gpus));
}

/* "want 80 2": asks the pool for these resources. What it receives in excess it gives back at once,
 * as unused. */
static void keeper_wants(struct keeper *k, struct span word)
{
    struct span first;
    int64_t mib = 0, gpus = 0;
    (void)span_split(&word, ' ', &first);
    (void)span_split(&word, ' ', &first);
    (void)str_i64(first, 1, INT32_MAX, "MiB", &mib, NULL);
    (void)str_i64(word, 0, GPUS_MAX, "gpus", &gpus, NULL);
    k->wants_mib = (uint64_t)mib;
    k->wants_gpus = (uint32_t)gpus;
    k->wants_number++;
    k->wants_since_ms = clock_wall_ms();
    k->memory_mib = MIN(k->memory_mib, k->wants_mib);
    k->n_gpus = MIN(k->n_gpus, k->wants_gpus);
    keeper_note_holdings(k);
    keeper_send_state(k, false, "");
}

/* "bounds 1 4": the smallest and the largest number of containers. */
static void keeper_bounds(struct keeper *k, struct span word)
{
    struct span first;
    (void)span_split(&word, ' ', &first);
    (void)span_split(&word, ' ', &first);
    (void)str_i64(first, 0, UINT32_MAX, "least", &k->min_containers, NULL);
    (void)str_i64(word, 0, UINT32_MAX, "most", &k->max_containers, NULL);
    keeper_send_state(k, false, "");
}

/* "outlook 60 120": the job ends in 60 to 120 s. */
static void keeper_outlook(struct keeper *k, struct span word)
{
    struct span first;
    int64_t early_s = 0, late_s = 0;
    (void)span_split(&word, ' ', &first);
    (void)span_split(&word, ' ', &first);
    (void)str_i64(first, 0, 1000000, "early", &early_s, NULL);
    (void)str_i64(word, 0, 1000000, "late", &late_s, NULL);
    k->ends_early_ms = clock_mono_ms() + early_s * 1000;
    k->ends_late_ms = clock_mono_ms() + late_s * 1000;
    keeper_send_state(k, false, "");
}

static void keeper_admitted(struct keeper *k, const Tony__Admit *m)
{
    if (m->refused[0] && m->wants_number == k->wants_number)
        keeper_note(k, "refused", "%u %s", m->wants_number, m->refused);
    if (k->deaf)
        return;
    k->memory_mib = MAX(k->memory_mib, MIN(m->memory_mib, k->wants_mib));
    k->n_gpus = 0;
    for (size_t i = 0; i < m->n_gpus && k->n_gpus < GPUS_MAX; i++)
        k->gpus[k->n_gpus++] = m->gpus[i];
    k->heard = m->number;
    keeper_note_holdings(k);
    keeper_send_state(k, false, "");
}

/* ---- commands ---- */

/* Obeys the command in the file `do`, if there is one. */
static void keeper_look(void *arg)
{
    struct keeper *k = arg;
    if (access(k->dir, F_OK) == -1) /* the test is over */
        _exit(0);
    AUTO(free_p) char *path = fs_join(k->dir, "do");
    AUTO(buf_done) struct buf word = { 0 };
    if (fs_read(AT_FDCWD, path, &word, NULL) == 0 && word.len > 0) {
        (void)unlink(path);
        if (span_eqs(buf_span(&word), "end"))
            keeper_end(k);
        else if (span_eqs(buf_span(&word), "die"))
            (void)kill(getpid(), SIGKILL);
        else if (span_eqs(buf_span(&word), "end, die"))
            keeper_dies_late(k, true, true);
        else if (span_eqs(buf_span(&word), "end, die later"))
            keeper_dies_late(k, true, false);
        else if (span_eqs(buf_span(&word), "move, die"))
            keeper_dies_late(k, false, true);
        else if (span_eqs(buf_span(&word), "fail"))
            keeper_send_state(k, false, "MASTER_FAILED");
        else if (span_eqs(buf_span(&word), "exit4"))
            _exit(4);
        else if (span_eqs(buf_span(&word), "be deaf"))
            k->deaf = true;
        else if (str_starts(buf_cstr(&word), "want "))
            keeper_wants(k, buf_span(&word));
        else if (str_starts(buf_cstr(&word), "bounds "))
            keeper_bounds(k, buf_span(&word));
        else if (str_starts(buf_cstr(&word), "outlook "))
            keeper_outlook(k, buf_span(&word));
    }
    loop_timer_set(k->timer, clock_mono_ms() + 5);
}

static void keeper_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct keeper *k = arg;
    k->pool = c;
    if (f->body_case == TONY__FRAME__BODY_POOL_HELLO)
        k->heard = 0, keeper_send_state(k, false, "");
    else if (f->body_case == TONY__FRAME__BODY_ADMIT)
        keeper_admitted(k, f->admit);
    else if (f->body_case == TONY__FRAME__BODY_SIZE_WISH)
        keeper_note(k, "wish", "%s %u %llu %s", f->size_wish->grow ? "grow" : "shrink",
                    f->size_wish->n_containers, (unsigned long long)f->size_wish->deadline_ms,
                    f->size_wish->why);
    else if (f->body_case == TONY__FRAME__BODY_KILL_JOB)
        _exit(4);
}

static void keeper_closed(struct conn *c, const struct err *e, void *arg)
{
    struct keeper *k = arg;
    (void)e;
    if (k->pool == c)
        k->pool = NULL;
}

static void keeper_accept(struct conn *c, void *arg)
{
    static const struct conn_ops ops = { NULL, keeper_frame, keeper_closed };
    conn_set_arg(c, &ops, arg);
}

/* Appends the job's id to $TONY_HOME/cleaned. */
static int cleanup(const char *id)
{
    struct paths paths;
    struct err e = { 0 };
    if (paths_open(&paths, &e) < 0)
        return 1;
    AUTO(free_p) char *note = fs_join(paths.home, "cleaned");
    AUTO(free_p) char *ended = str_printf("%s/ended/%s", paths.pool, id);
    AUTO(free_p) char *line = str_printf("%s\n", id);
    (void)fs_remove_tree(AT_FDCWD, ended, NULL);
    int fd = open(note, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int rc = fd == -1 ? -1 : fs_write_all(fd, line, strlen(line));
    close_p(&fd);
    paths_done(&paths);
    return rc < 0;
}

int fake_keeper_main(int argc, char **argv)
{
    struct keeper k = { .id = argv[2] };
    struct err e = { 0 };
    struct listener *s;
    int ready = -1, fd = -1;
    const char *gpus = "";
    if (str_eq(argv[1], "--cleanup"))
        return cleanup(k.id);
    for (int i = 3; i + 1 < argc; i++) {
        int64_t n = 0;
        (void)str_i64(span_of(argv[i + 1]), 0, INT32_MAX, "n", &n, NULL);
        if (str_eq(argv[i], "--ready-fd"))
            ready = (int)n;
        if (str_eq(argv[i], "--lock-fd"))
            fd = (int)n;
        if (str_eq(argv[i], "--memory-mib"))
            k.memory_mib = (uint64_t)n;
        if (str_eq(argv[i], "--gpus"))
            gpus = argv[i + 1];
    }
    if (paths_open(&k.paths, &e) < 0 || !(k.loop = loop_new(&e)))
        return 1;
    k.dir = paths_job(&k.paths, k.id);
    AUTO(free_p) char *refuse = fs_join(k.dir, "refuse");
    if (access(refuse, F_OK) == 0) {
        (void)!write(STDERR_FILENO, "tony-executor: no luck today\n", 29);
        return 1;
    }
    AUTO(free_p) char *lock = paths_job_lock(&k.paths, k.id);
    AUTO(free_p) char *sock = paths_socket(&k.paths, k.id, "k");
    /* The pool has already taken the lock for this keeper. */
    if (flock(fd, LOCK_EX | LOCK_NB) == -1)
        return 5;
    if (listener_open_unix(k.loop, sock, keeper_accept, &k, &s, &e) < 0)
        return 1;
    AUTO(free_p) char *lives = str_printf("%s/life-%d", k.dir, getpid());
    (void)close(open(lives, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    for (struct span rest = span_of(gpus), one; gpus[0] && span_split(&rest, ',', &one);) {
        int64_t n = 0;
        (void)str_i64(one, 0, INT32_MAX, "gpu", &n, NULL);
        k.gpus[k.n_gpus++] = (uint32_t)n;
    }
    keeper_note_holdings(&k);
    AUTO(free_p) char *given = fs_join(k.dir, "gpus");
    (void)fs_write_atomic(AT_FDCWD, given, span_of(gpus), 0600, false, NULL);
    (void)!write(ready, "r", 1);
    (void)close(ready);
    k.timer = loop_timer_new(k.loop, keeper_look, &k);
    loop_timer_set(k.timer, clock_mono_ms());
    (void)loop_run(k.loop);
    (void)unlink(sock);
    (void)unlink(lock);
    return 0;
}

/* ---- the job ---- */

void encode_job(const struct want *j, struct buf *out)
{
    struct err e = { 0 };
    AUTO(conf_freep) struct conf *conf = conf_new();
    const char *const set[][2] = {
        { "tony.application.name", "sleepy" },
        { "tony.worker.instances", j->instances ? j->instances : "1" },
        { "tony.worker.command", "sleep 1000" },
        { "tony.worker.memory", j->memory },
        { "tony.application.priority", j->priority },
        { "tony.client.away-limit", j->away },
        { "tony.container.allocation.timeout", j->allocation },
        { "tony.worker.gpus", j->gpus },
        { "tony.worker.max-instances", j->max_instances },
    };
    for (size_t i = 0; i < ARRAY_LEN(set); i++)
        if (set[i][1] && conf_set(conf, CL_JOB, set[i][0], set[i][1], "job.yaml:1", false, &e) < 0)
            fail_msg("%s", e.msg);
    struct job_file f = { .conf = conf,
                          .user = (char *)"tester",
                          .host = (char *)"here",
                          .cwd = (char *)"/",
                          .version = (char *)"0",
                          .wall_ms = clock_wall_ms() };
    assert_int_equal(job_file_encode(&f, out, &e), 0);
}
