/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs read back from their directories, the list of jobs, and the end of jobs without a master.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "history/history.h"
#include "history/replay.h"
#include "job/job.h"
#include "storage/jobfile.h"
#include "storage/journal.h"
#include "storage/paths.h"

enum { T0 = 1700000000 };

struct home {
    char dir[64];
    struct paths p;
};

static void home_init(struct home *h)
{
    struct err e = { 0 };
    *h = (struct home){ .dir = "/tmp/tony-h-XXXXXX" };
    log_setup(2, LOG_ERROR + 1, false);
    assert_non_null(mkdtemp(h->dir));
    (void)setenv("TONY_HOME", h->dir, 1);
    (void)setenv("XDG_RUNTIME_DIR", h->dir, 1);
    assert_int_equal(paths_open(&h->p, &e), 0);
}

static void home_done(struct home *h)
{
    paths_done(&h->p);
    (void)fs_remove_tree(AT_FDCWD, h->dir, NULL);
}

static void write_file(const char *dir, const char *name, struct span text)
{
    struct err e = { 0 };
    AUTO(free_p) char *path = fs_join(dir, name);
    if (fs_mkdirs(dir, 0700, &e) < 0 || fs_write_atomic(AT_FDCWD, path, text, 0600, false, &e) < 0)
        fail_msg("%s", e.msg);
}

/* A job of two workers, as the pool makes it. Returns its directory. */
static char *make_job(struct home *h, uint32_t number, char id[APP_ID_MAX])
{
    struct err e = { 0 };
    AUTO(conf_freep) struct conf *c = conf_new();
    assert_int_equal(conf_set(c, CL_JOB, "tony.application.name", "digits", "t", false, &e), 0);
    assert_int_equal(conf_set(c, CL_JOB, "tony.worker.instances", "2", "t", false, &e), 0);
    assert_int_equal(conf_set(c, CL_JOB, "tony.containers.command", "./run", "t", false, &e), 0);
    struct job_file f = { .conf = c,
                          .user = (char *)(uintptr_t) "ann",
                          .host = (char *)(uintptr_t) "h",
                          .cwd = (char *)(uintptr_t) "/",
                          .version = (char *)(uintptr_t) "1",
                          .wall_ms = T0 * 1000LL };
    AUTO(buf_done) struct buf text = { 0 };
    assert_int_equal(job_file_encode(&f, &text, &e), 0);
    app_id_format(id, T0 * 1000LL, number);
    char *dir = paths_job(&h->p, id);
    write_file(dir, "job.conf", buf_span(&text));
    return dir;
}

static void add_record(struct journal *j, const struct job_event *ev, int64_t t_ms)
{
    AUTO(buf_done) struct buf text = { 0 };
    assert_int_equal(job_event_encode(ev, t_ms, &text), 0);
    assert_int_equal(journal_add(j, buf_span(&text)), 0);
}

static void write_events(const char *dir, const struct job_event *ev, const int64_t *t, size_t n)
{
    struct err e = { 0 };
    struct journal j;
    AUTO(free_p) char *path = fs_join(dir, "journal");
    AUTO(history_freep) struct history_job *h = NULL;
    struct job_actions ignored = { 0 };
    assert_int_equal(history_load(dir, &h, &e), 0);
    struct job *job = job_new(h->spec, &e);
    assert_int_equal(journal_open(&j, path, &e), 0);
    for (size_t i = 0; i < n; i++) { /* the order of a master: decisions first */
        struct job_event decision;
        assert_int_equal(job_feed(job, &ev[i], t[i], &ignored, &e), 0);
        for (size_t k = 0; job_decision(job, k, &decision); k++)
            add_record(&j, &decision, t[i]);
        add_record(&j, &ev[i], t[i]);
    }
    assert_int_equal(journal_flush(&j, false, &e), 0);
    journal_close(&j);
    vec_done(&ignored);
    job_free(job);
}

/* Submitted, a master, both workers placed and registered; one exits with 0, one with 3. */
static const struct job_event story[] = {
    { .type = EV_SUBMITTED,
      .submitted = { .application_id = "application_1700000000000_0001",
                     .user = "ann",
                     .wall_ms = T0 * 1000LL } },
    { .type = EV_MASTER_STARTED, .master_started = { .epoch = 1, .wall_ms = T0 * 1000LL + 500 } },
    { .type = EV_RESYNCED },
    { .type = EV_ALLOCATED, .allocated = { .slot = 0, .container = "c_1" } },
    { .type = EV_ALLOCATED, .allocated = { .slot = 1, .container = "c_2" } },
    { .type = EV_REGISTERED,
      .registered = { .slot = 0, .container = "c_1", .address = "127.0.0.1:1" } },
    { .type = EV_REGISTERED,
      .registered = { .slot = 1, .container = "c_2", .address = "127.0.0.1:2" } },
    { .type = EV_ATTEMPT_ENDED,
      .attempt_ended = { .slot = 1,
                         .generation = 1,
                         .attempt = 1,
                         .exit_code = 3,
                         .reason = END_EXITED } },
    { .type = EV_ATTEMPT_ENDED,
      .attempt_ended = { .slot = 0,
                         .generation = 1,
                         .attempt = 1,
                         .exit_code = 3,
                         .reason = END_EXITED } },
};
static const int64_t times[] = { 0, 400, 400, 410, 410, 500, 500, 900, 1400 };

static void a_waiting_job(void **state)
{
    (void)state;
    struct home h;
    char id[APP_ID_MAX];
    home_init(&h);
    AUTO(free_p) char *dir = make_job(&h, 1, id);
    AUTO(history_freep) struct history_job *job = NULL;
    assert_int_equal(history_load(dir, &job, NULL), 0);
    assert_int_equal(job_state(job->job), JOB_WAITING);
    assert_string_equal(job_application_id(job->job), id);
    assert_int_equal(job->started_wall_ms, 0);
    assert_int_equal(job->ended_wall_ms, 0);
    home_done(&h);
}

static void a_job_from_every_prefix(void **state)
{
    (void)state;
    for (size_t n = 0; n <= ARRAY_LEN(story); n++) {
        struct home h;
        char id[APP_ID_MAX];
        home_init(&h);
        AUTO(free_p) char *dir = make_job(&h, 1, id);
        write_events(dir, story, times, n);
        AUTO(history_freep) struct history_job *job = NULL;
        assert_int_equal(history_load(dir, &job, NULL), 0);
        bool over = n == ARRAY_LEN(story);
        assert_int_equal(history_decided(job->job), over);
        assert_int_equal(job->started_wall_ms, n > 1 ? T0 * 1000LL + 500 : 0);
        assert_int_equal(job->ended_wall_ms, over ? T0 * 1000LL + 500 + 1000 : 0);
        home_done(&h);
    }
}

static void torn_and_damaged(void **state)
{
    (void)state;
    struct home h;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    home_init(&h);
    AUTO(free_p) char *dir = make_job(&h, 1, id);
    write_events(dir, story, times, 7);
    AUTO(free_p) char *path = fs_join(dir, "journal");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 5), 0);
    struct history_job *job = NULL;
    assert_int_equal(history_load(dir, &job, &e), 0);
    assert_true(job->torn);
    history_free(job);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "X", 1, 40), 1);
    close(fd);
    assert_int_equal(history_load(dir, &job, &e), -EBADMSG);
    assert_non_null(strstr(e.msg, id));
    struct history_rows rows = { 0 };
    assert_int_equal(history_list(&h.p, 0, &rows, &e), 0);
    assert_int_equal(rows.n, 1);
    assert_string_equal(rows.v[0].state, "DAMAGED");
    history_rows_done(&rows);
    assert_int_equal(history_load("/nonexistent/x", &job, &e), -ENOENT);
    home_done(&h);
}

/* Its first task has started at 500 ms; the last event was at 900 ms. */
static void the_run_time_of_a_live_job(void **state)
{
    (void)state;
    struct home h;
    char id[APP_ID_MAX];
    home_init(&h);
    AUTO(free_p) char *dir = make_job(&h, 1, id);
    assert_int_equal(history_ran_ms(&h.p, id), 0);
    write_events(dir, story, times, 8);
    assert_true(history_ran_ms(&h.p, id) >= 400);
    assert_int_equal(history_ran_ms(&h.p, "application_1_0001"), -1);
    home_done(&h);
}

/* Open the journal of a job, which will not write a header. */
static void open_without_header(struct journal *j, const char *dir)
{
    struct err e = { 0 };
    AUTO(free_p) char *path = fs_join(dir, "journal");
    assert_int_equal(journal_open(j, path, &e), 0);
    j->header_due = false;
}

/* A journal of a later version: the error names its format, and no record is read. */
static void a_newer_format(void **state)
{
    (void)state;
    struct home h;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    home_init(&h);
    AUTO(free_p) char *dir = make_job(&h, 1, id);
    struct journal j;
    open_without_header(&j, dir);
    assert_int_equal(journal_add(&j, SPAN("{\"e\":\"journal\",\"format\":3}")), 0);
    assert_int_equal(journal_flush(&j, false, &e), 0);
    journal_close(&j);
    struct history_job *job = NULL;
    assert_int_equal(history_load(dir, &job, &e), -EINVAL);
    assert_non_null(strstr(e.msg, "has format 3; this tony reads formats 1 to 2"));
    assert_non_null(strstr(e.hint, "the version of tony that wrote it"));
    struct history_rows rows = { 0 };
    assert_int_equal(history_list(&h.p, 0, &rows, &e), 0);
    assert_string_equal(rows.v[0].state, "NEWER");
    history_rows_done(&rows);
    home_done(&h);
}

/* A journal of tony 0.1.0, which had no header. */
static void an_older_format(void **state)
{
    (void)state;
    struct home h;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    home_init(&h);
    AUTO(free_p) char *dir = make_job(&h, 1, id);
    struct journal j;
    open_without_header(&j, dir);
    for (size_t i = 0; i < ARRAY_LEN(story); i++) {
        AUTO(buf_done) struct buf text = { 0 };
        assert_int_equal(job_event_encode(&story[i], times[i], &text), 0);
        assert_int_equal(journal_add(&j, buf_span(&text)), 0);
    }
    assert_int_equal(journal_flush(&j, false, &e), 0);
    journal_close(&j);
    struct history_job *job = NULL;
    assert_int_equal(history_load(dir, &job, &e), 0);
    assert_true(job_state(job->job) > JOB_WAITING);
    history_free(job);
    home_done(&h);
}

/* The keeper moves a job while this program reads it. Then the reader finds no job, but never a job
 * without a journal. */
static void a_job_that_is_moved_while_it_is_read(void **state)
{
    (void)state;
    struct home h;
    char id[APP_ID_MAX];
    home_init(&h);
    for (uint32_t i = 1; i <= 150; i++) {
        AUTO(free_p) char *dir = make_job(&h, i, id);
        AUTO(free_p) char *to = paths_history(&h.p, id);
        write_events(dir, story, times, 7);
        pid_t mover = fork();
        if (mover == 0) {
            usleep(100 + i * 7 % 300);
            _exit(rename(dir, to) == 0 ? 0 : 1);
        }
        int rc = 0;
        while (rc == 0) {
            struct history_job *job = NULL;
            rc = history_load(dir, &job, NULL);
            if (rc == 0)
                assert_int_equal(job_epoch(job->job), 1);
            history_free(job);
        }
        assert_int_equal(rc, -ENOENT);
        int status;
        assert_int_equal(waitpid(mover, &status, 0), mover);
        assert_int_equal(status, 0);
    }
    home_done(&h);
}

/* How far each abort gets, and the state of the job after it. */
static const struct abort_case {
    size_t n_events; /* number of events of the story */
    enum job_event_type type;
    const char *state, *message;
} aborts[] = {
    { 0, EV_STOP, "KILLED", "ann" },
    { 0, EV_LAUNCH_FAILED_JOB, "FAILED", "no master" },
    { 1, EV_STOP, "KILLED", "ann" },
    { 3, EV_LAUNCH_FAILED_JOB, "FAILED", "no master" },
    { 7, EV_STOP, "KILLED", "ann" },
    { 7, EV_LAUNCH_FAILED_JOB, "FAILED", "no master" },
    { 8, EV_LAUNCH_FAILED_JOB, "FAILED", "no master" },
    { 9, EV_STOP, "FAILED", "worker:1" },
};

static void a_job_without_a_master_is_ended(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(aborts); i++) {
        const struct abort_case *c = &aborts[i];
        struct home h;
        char id[APP_ID_MAX];
        struct err e = { 0 };
        home_init(&h);
        AUTO(free_p) char *dir = make_job(&h, 1, id);
        AUTO(free_p) char *work = str_printf("%s/containers/c_1", dir);
        write_file(work, "big", SPAN("x"));
        if (c->n_events)
            write_events(dir, story, times, c->n_events);
        struct job_event ev = { .type = c->type };
        if (c->type == EV_STOP)
            ev.stop = (struct ev_stop){ .who = "ann", .why = "no master" };
        else
            ev.launch_failed_job.why = "no master";
        if (history_abort(&h.p, id, &ev, &e) < 0)
            fail_msg("case %zu: %s", i, e.msg);
        assert_int_equal(history_abort(&h.p, id, &ev, &e), 0);

        AUTO(free_p) char *done = paths_history(&h.p, id);
        AUTO(free_p) char *left = fs_join(done, "containers");
        struct stat st;
        assert_int_equal(stat(dir, &st), -1);
        assert_int_equal(stat(left, &st), -1);
        AUTO(history_freep) struct history_job *job = NULL;
        assert_int_equal(history_load(done, &job, &e), 0);
        struct job_verdict v;
        job_verdict(job->job, &v);
        if (!str_eq(job_state_name(v.state), c->state) || !strstr(v.message, c->message))
            fail_msg("case %zu: %s, %s", i, job_state_name(v.state), v.message);

        struct history_rows rows = { 0 };
        assert_int_equal(history_list(&h.p, 0, &rows, &e), 0);
        assert_int_equal(rows.n, 1);
        assert_string_equal(rows.v[0].state, c->state);
        assert_string_equal(rows.v[0].user, "ann");
        assert_false(rows.v[0].live);
        history_rows_done(&rows);
        home_done(&h);
    }
}

/* The job had running tasks when its last master died. The abort tells the core that no container
 * is left, so the stop alone ends the job. */
static void an_abort_with_running_tasks(void **state)
{
    (void)state;
    struct home h;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    home_init(&h);
    AUTO(free_p) char *dir = make_job(&h, 1, id);
    write_events(dir, story, times, 7);
    struct job_event ev = { .type = EV_STOP, .stop = { .who = "ann", .why = "no master" } };
    assert_int_equal(history_abort(&h.p, id, &ev, &e), 0);
    AUTO(free_p) char *done = paths_history(&h.p, id);
    AUTO(free_p) char *path = fs_join(done, "journal");
    AUTO(buf_done) struct buf text = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, path, &text, &e), 0);
    const char *stop = strstr(buf_cstr(&text), "\"e\":\"stop\"");
    assert_non_null(stop);
    assert_non_null(strstr(stop, "\"e\":\"resynced\""));
    assert_null(strstr(stop, "\"e\":\"launch_failed"));
    AUTO(history_freep) struct history_job *job = NULL;
    assert_int_equal(history_load(done, &job, &e), 0);
    struct job_verdict v;
    job_verdict(job->job, &v);
    assert_int_equal(v.state, JOB_KILLED);
    home_done(&h);
}

static void an_abort_is_completed_after_a_crash(void **state)
{
    (void)state;
    struct home h;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    home_init(&h);
    AUTO(free_p) char *dir = make_job(&h, 1, id);
    write_events(dir, story, times, ARRAY_LEN(story)); /* the verdict stays */
    struct job_event ev = { .type = EV_STOP, .stop = { .who = "bob" } };
    assert_int_equal(history_abort(&h.p, id, &ev, &e), 0);
    AUTO(free_p) char *done = paths_history(&h.p, id);
    AUTO(free_p) char *path = fs_join(done, "journal");
    AUTO(buf_done) struct buf text = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, path, &text, &e), 0);
    assert_null(strstr(buf_cstr(&text), "bob")); /* nothing was added */
    home_done(&h);
}

/* A full disk: the job goes to history anyway. There it reads as failed. */
static void an_abort_on_a_full_disk(void **state)
{
    (void)state;
    struct home h;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    home_init(&h);
    AUTO(free_p) char *dir = make_job(&h, 1, id);
    write_events(dir, story, times, 7);
    struct rlimit old, none;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    none = old;
    none.rlim_cur = 0;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    struct job_event ev = { .type = EV_STOP, .stop = { .who = "ann" } };
    int rc = history_abort(&h.p, id, &ev, &e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(rc, 0);
    AUTO(free_p) char *done = paths_history(&h.p, id);
    AUTO(history_freep) struct history_job *job = NULL;
    assert_int_equal(history_load(done, &job, &e), 0);
    struct job_verdict v;
    job_verdict(job->job, &v);
    assert_int_equal(v.state, JOB_FAILED);
    assert_non_null(strstr(v.message, "without a verdict"));
    home_done(&h);
}

static void the_newest_first(void **state)
{
    (void)state;
    struct home h;
    struct err e = { 0 };
    home_init(&h);
    struct job_event ev = { .type = EV_STOP, .stop = { .who = "ann" } };
    for (uint32_t n = 1; n <= 12; n++) {
        char id[APP_ID_MAX];
        AUTO(free_p) char *dir = make_job(&h, n, id);
        if (n % 3)
            assert_int_equal(history_abort(&h.p, id, &ev, &e), 0);
    }
    AUTO(free_p) char *odd = fs_join(h.p.jobs, ".tmp-1234");
    assert_int_equal(mkdir(odd, 0700), 0);
    struct history_rows rows = { 0 };
    assert_int_equal(history_list(&h.p, 0, &rows, &e), 0);
    assert_int_equal(rows.n, 12);
    for (uint32_t i = 0; i < 12; i++) {
        char id[APP_ID_MAX];
        app_id_format(id, T0 * 1000LL, 12 - i);
        assert_string_equal(rows.v[i].application_id, id);
        assert_int_equal(rows.v[i].live, (12 - i) % 3 == 0);
        assert_string_equal(rows.v[i].state, (12 - i) % 3 ? "KILLED" : "WAITING");
        assert_int_equal(rows.v[i].n_tasks, 2);
        assert_int_equal(rows.v[i].submitted_wall_ms, T0 * 1000LL);
        assert_string_equal(rows.v[i].name, "digits");
    }
    history_rows_done(&rows);
    assert_int_equal(history_list(&h.p, 5, &rows, &e), 0);
    assert_int_equal(rows.n, 5);
    history_rows_done(&rows);
    assert_int_equal(history_list_finished(&h.p, 5, &rows, &e), 0);
    assert_int_equal(rows.n, 5);
    for (size_t i = 0; i < rows.n; i++)
        assert_string_equal(rows.v[i].state, "KILLED");
    history_rows_done(&rows);
    home_done(&h);
}

static void a_job_is_read_without_its_summary(void **state)
{
    (void)state;
    struct home h;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    home_init(&h);
    AUTO(free_p) char *dir = make_job(&h, 1, id);
    struct job_event ev = { .type = EV_STOP, .stop = { .who = "ann" } };
    assert_int_equal(history_abort(&h.p, id, &ev, &e), 0);
    AUTO(free_p) char *done = paths_history(&h.p, id);
    static const char *const texts[] = { NULL, "", "{", "[]", "{\"state\":7}", "null" };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        AUTO(free_p) char *path = fs_join(done, "summary");
        if (texts[i])
            write_file(done, "summary", span_of(texts[i]));
        else
            assert_int_equal(unlink(path), 0);
        struct history_rows rows = { 0 };
        assert_int_equal(history_list(&h.p, 0, &rows, &e), 0);
        assert_string_equal(rows.v[0].state, "KILLED");
        history_rows_done(&rows);
    }
    home_done(&h);
}

/* In a shared history another user may have written the files. Numbers that can be no times count
 * as missing, so that no sum of them overflows. */
static void a_damaged_summary(void **state)
{
    struct history_row row = { 0 };
    struct history_rows rows = { .v = &row, .n = 1 };
    struct err e = { 0 };
    json_t *doc = NULL;
    (void)state;
    const struct span summary =
        SPAN("{\"state\":\"FAILED\",\"started_wall_ms\":-9223372036854775808,"
             "\"ended_wall_ms\":9223372036854775807}");
    assert_int_equal(history_row_parse(summary, &row), 0);
    assert_int_equal(row.started_wall_ms, 0);
    assert_int_equal(row.ended_wall_ms, 0);
    assert_int_equal(row.ran_ms, 0);
    rows.v = malloc(sizeof row);
    *rows.v = row;
    history_rows_done(&rows);
    assert_int_equal(history_status_parse(SPAN("{\"state\":"), &doc, &e), -EBADMSG);
    assert_int_equal(e.num, EBADMSG);
    assert_null(doc);
}

/* A newer version of tony wrote the summary: its members may mean something else, so the row comes
 * from status.json. If that is newer as well, the row only says so, as `tony status` does. */
static void a_newer_summary(void **state)
{
    (void)state;
    struct home h;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    home_init(&h);
    AUTO(free_p) char *dir = make_job(&h, 1, id);
    struct job_event ev = { .type = EV_STOP, .stop = { .who = "ann" } };
    assert_int_equal(history_abort(&h.p, id, &ev, &e), 0);
    AUTO(free_p) char *done = paths_history(&h.p, id);
    struct history_rows rows = { 0 };
    struct history_row row = { 0 };
    const struct span newer = SPAN("{\"format\":2,\"state\":\"SUCCEEDED\"}");
    assert_int_equal(history_row_parse(newer, &row), -EINVAL);
    write_file(done, "summary", newer);
    assert_int_equal(history_list(&h.p, 0, &rows, &e), 0);
    assert_string_equal(rows.v[0].state, "KILLED");
    history_rows_done(&rows);
    write_file(done, "status.json", newer);
    assert_int_equal(history_list(&h.p, 0, &rows, &e), 0);
    assert_string_equal(rows.v[0].state, "NEWER");
    assert_string_equal(rows.v[0].name, "");
    history_rows_done(&rows);
    home_done(&h);
}

/* A status.json with more than JOB_STATUS_MAX bytes is not read: the journal has the same
 * data. */
static void a_status_that_is_too_large(void **state)
{
    (void)state;
    struct home h;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    json_t *doc = NULL;
    home_init(&h);
    AUTO(free_p) char *dir = make_job(&h, 1, id);
    struct job_event ev = { .type = EV_STOP, .stop = { .who = "ann" } };
    assert_int_equal(history_abort(&h.p, id, &ev, &e), 0);
    AUTO(free_p) char *done = paths_history(&h.p, id);
    AUTO(free_p) char *path = fs_join(done, "status.json");
    AUTO(free_p) char *summary = fs_join(done, "summary");
    write_file(done, "status.json", SPAN("{\"state\": \"SUCCEEDED\"}"));
    assert_int_equal(truncate(path, JOB_STATUS_MAX + 1), 0); /* takes no space */
    assert_int_equal(history_read_status(done, &doc, &e), -EFBIG);
    assert_int_equal(history_status(done, &doc, &e), 0);
    assert_string_equal(json_string_value(json_object_get(doc, "state")), "KILLED");
    json_decref(doc);
    (void)unlink(summary);
    struct history_rows rows = { 0 };
    assert_int_equal(history_list(&h.p, 0, &rows, &e), 0);
    assert_string_equal(rows.v[0].state, "KILLED");
    history_rows_done(&rows);
    home_done(&h);
}

static void aged(const struct home *h, const char *name, int64_t hours)
{
    struct timespec t[2] = { { .tv_sec = T0 - hours * 3600 }, { .tv_sec = T0 - hours * 3600 } };
    AUTO(free_p) char *path = str_printf("%s/%s", h->p.history, name);
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static bool kept(const struct home *h, const char *name)
{
    AUTO(free_p) char *path = str_printf("%s/%s", h->p.history, name);
    return access(path, F_OK) == 0;
}

/* The time of the summary, which is written last, decides. Half-removed jobs are removed;
 * directories that are no jobs stay. */
static void old_jobs_are_removed(void **state)
{
    static const char *const dirs[] = { "application_1700000000000_0001",
                                        "application_1700000000000_0002",
                                        "application_1700000000000_0003",
                                        ".gone-application_1700000000000_0004", "notes" };
    struct home h;
    struct err e = { 0 };
    (void)state;
    home_init(&h);
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        AUTO(free_p) char *dir = str_printf("%s/%s/logs/worker-0", h.p.history, dirs[i]);
        assert_int_equal(fs_mkdirs(dir, 0700, &e), 0);
    }
    AUTO(free_p) char *first = str_printf("%s/%s", h.p.history, dirs[0]);
    write_file(first, "summary", SPAN("{}"));
    aged(&h, "application_1700000000000_0001/summary", 1);
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        aged(&h, dirs[i], i == 2 ? 1 : 100);
    assert_int_equal(history_retain(h.p.history, 99 * 3600000, (int64_t)T0 * 1000, &e), 2);
    assert_true(kept(&h, dirs[0]) && !kept(&h, dirs[1]) && kept(&h, dirs[2]) &&
                !kept(&h, dirs[3]) && kept(&h, dirs[4]));
    assert_int_equal(history_retain(h.p.history, 0, (int64_t)T0 * 1000, &e), 2);
    assert_true(!kept(&h, dirs[0]) && !kept(&h, dirs[2]) && kept(&h, dirs[4]));
    home_done(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_waiting_job),
        cmocka_unit_test(a_job_from_every_prefix),
        cmocka_unit_test(torn_and_damaged),
        cmocka_unit_test(a_newer_format),
        cmocka_unit_test(an_older_format),
        cmocka_unit_test(a_job_that_is_moved_while_it_is_read),
        cmocka_unit_test(a_job_without_a_master_is_ended),
        cmocka_unit_test(an_abort_with_running_tasks),
        cmocka_unit_test(an_abort_is_completed_after_a_crash),
        cmocka_unit_test(an_abort_on_a_full_disk),
        cmocka_unit_test(the_newest_first),
        cmocka_unit_test(the_run_time_of_a_live_job),
        cmocka_unit_test(a_job_is_read_without_its_summary),
        cmocka_unit_test(a_damaged_summary),
        cmocka_unit_test(a_newer_summary),
        cmocka_unit_test(a_status_that_is_too_large),
        cmocka_unit_test(old_jobs_are_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
