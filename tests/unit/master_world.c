/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job on disk, the executors, and the life of masters. The scheduler is in
 * master_world_sched.c.
 */
#include "master_world.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "master/archive.h"
#include "master_world_int.h"
#include "proto/tony.pb-c.h"
#include "scheduler/scheduler.h"
#include "storage/jobfile.h"

enum { WATCHDOG_MS = 60000 };

/* ---- the job on disk ---- */

void world_die(const char *what, const struct err *e)
{
    fprintf(stderr, "world: %s: %s\n", what, e->msg);
    abort();
}

static void write_job(struct world *w, const char *const *conf)
{
    struct err e = { 0 };
    AUTO(conf_freep) struct conf *c = conf_new();
    for (; *conf; conf++) {
        AUTO(free_p) char *key = str_dup(*conf);
        char *eq = strchr(key, '=');
        *eq = '\0';
        if (conf_set(c, CL_JOB, key, eq + 1, "test", false, &e) < 0)
            world_die("conf_set", &e);
    }
    struct job_file f = { .conf = c,
                          .user = (char *)(uintptr_t) "tester",
                          .host = (char *)(uintptr_t) "here",
                          .cwd = (char *)(uintptr_t) "/",
                          .version = (char *)(uintptr_t) "1",
                          .wall_ms = clock_wall_ms() };
    AUTO(buf_done) struct buf text = { 0 };
    if (job_file_encode(&f, &text, &e) < 0)
        world_die("job_file_encode", &e);
    AUTO(free_p) char *path = fs_join(w->job_dir, "job.conf");
    if (fs_mkdirs(w->job_dir, 0700, &e) < 0 ||
        fs_write_atomic(AT_FDCWD, path, buf_span(&text), 0600, false, &e) < 0)
        world_die("job.conf", &e);
}

static const struct script *script_of(const struct world *w, const char *role, uint32_t index)
{
    static const struct script fine = { .task = "" };
    char name[80];
    (void)snprintf(name, sizeof name, "%s:%u", role, index);
    for (const struct script *s = w->scripts; s && s->task; s++)
        if (str_eq(s->task, name))
            return s;
    return &fine;
}

/* ---- executors ---- */

static void box_quiet(struct box *b)
{
    conn_close(TAKE(b->conn));
    listener_close(TAKE(b->listener));
    b->greeted = false;
    loop_timer_free(TAKE(b->timer));
    loop_timer_free(TAKE(b->work));
    b->running = false;
}

void world_box_complete(struct box *b, int exit_code, enum end_reason reason)
{
    if (b->completed)
        return;
    box_quiet(b);
    b->completed = true;
    b->exit_code = exit_code;
    b->reason = reason;
    world_pump_soon(b->w);
}

static Tony__AttemptEnded ended_of(const struct box *b)
{
    Tony__AttemptEnded x = TONY__ATTEMPT_ENDED__INIT;
    x.generation = b->generation;
    x.attempt = b->attempt;
    x.exit_code = b->killed ? 0 : b->task_code;
    x.signal = b->killed ? 15 : 0;
    x.reason = b->killed ? TONY__REASON__KILLED_BY_MASTER : TONY__REASON__EXITED;
    x.ended_mono_us = b->w->other_clock ? 1 : 0;
    x.stderr_tail = (char *)(uintptr_t)(b->task_code && !b->killed ? "Traceback\nValueError" : "");
    return x;
}

static void box_report(struct box *b)
{
    Tony__AttemptEnded x = ended_of(b);
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_ATTEMPT_ENDED;
    f.attempt_ended = &x;
    if (b->greeted) /* otherwise the hello reports the end */
        (void)conn_send(b->conn, &f);
}

void world_box_end(struct box *b, bool killed)
{
    if (!b->running)
        return;
    b->running = false;
    b->ended = true;
    b->acked = false;
    b->killed = killed;
    loop_timer_free(TAKE(b->work));
    box_report(b);
    if (b->lost)
        world_lost_ended(b->w);
}

static void on_work_done(void *arg)
{
    world_box_end(arg, false);
}

static void on_work_dies(void *arg)
{
    world_box_complete(arg, 137, END_EXITED);
}

/* A task has begun to run. The client's plan may wait for this. */
static void box_start(struct box *b, const Tony__Start *s, const char *role, uint32_t index)
{
    struct world *w = b->w;
    if (s->attempt == b->attempt && s->generation == b->generation) {
        if (b->ended && !b->acked)
            box_report(b);
        return; /* the new master repeats the Start */
    }
    assert(!b->running);
    b->generation = s->generation;
    b->attempt = s->attempt;
    b->running = true;
    b->ended = false;
    w->n_runs[b->slot]++;
    Tony__AttemptStarted a = TONY__ATTEMPT_STARTED__INIT;
    a.generation = s->generation;
    a.attempt = s->attempt;
    a.pid = 4711;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_ATTEMPT_STARTED;
    f.attempt_started = &a;
    (void)conn_send(b->conn, &f);

    const struct script *script = script_of(w, role, index);
    b->task_code = script->exit_code;
    b->until_outlook = script->until_outlook;
    if (!script->hangs || w->lost_ended) {
        b->work = loop_timer_new(w->loop, script->dies_first ? on_work_dies : on_work_done, b);
        if (!b->until_outlook)
            loop_timer_set(b->work, clock_mono_ms() + script->run_ms);
    }
    world_task_runs(w);
}

static void box_log(struct box *b, const Tony__ReadLog *q)
{
    char text[80];
    if (b->w->box_hides_log)
        return;
    int n = snprintf(text, sizeof text, "%s of slot %u from %lld", q->stream, q->slot,
                     (long long)q->offset);
    Tony__LogData a = TONY__LOG_DATA__INIT;
    a.number = q->number;
    a.data.data = (uint8_t *)text;
    a.data.len = (size_t)n;
    a.size = n;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_LOG_DATA;
    f.log_data = &a;
    (void)conn_send(b->conn, &f);
}

static void note_addresses(const Tony__ClusterSpec *s, char out[static 200])
{
    snprintf(out, 200, "%s %u %s", s->roles[0]->name, s->roles[0]->n, s->roles[0]->addresses);
}

static void note_start(struct world *w, const Tony__Start *s)
{
    struct buf text = { 0 };
    w->spec.n_starts++;
    w->spec.bytes = s->spec_bytes;
    note_addresses(s->spec, w->spec.in_start);
    snprintf(w->spec.file, sizeof w->spec.file, "%s", s->spec_file);
    if (s->spec_file[0] && fs_read(AT_FDCWD, s->spec_file, &text, NULL) == 0)
        snprintf(w->spec.file_text, sizeof w->spec.file_text, "%s", buf_cstr(&text));
    buf_done(&text);
}

static void box_ready(struct box *b, const Tony__Renew *renew)
{
    uint32_t port = 1000 + b->slot;
    Tony__Ready r = TONY__READY__INIT;
    r.generation = renew->generation;
    r.host = (char *)(uintptr_t) "127.0.0.1";
    r.n_ports = 1;
    r.ports = &port;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_READY;
    f.ready = &r;
    (void)conn_send(b->conn, &f);
}

static void box_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    struct box *b = arg;
    static char role[64][32];
    static uint32_t index[64];
    (void)c;
    switch ((int)f->body_case) {
    case TONY__FRAME__BODY_WELCOME:
        assert(f->welcome->epoch >= b->epoch_seen);
        b->epoch_seen = f->welcome->epoch;
        (void)str_copy(role[b->slot], sizeof role[0], f->welcome->role);
        index[b->slot] = f->welcome->index;
        break;
    case TONY__FRAME__BODY_START:
        note_start(b->w, f->start);
        box_start(b, f->start, role[b->slot], index[b->slot]);
        break;
    case TONY__FRAME__BODY_PEERS:
        b->w->spec.n_peers++;
        note_addresses(f->peers->spec, b->w->spec.in_peers);
        break;
    case TONY__FRAME__BODY_STOP_ATTEMPT:
        if (f->stop_attempt->exit_code) { /* act as if the program had exited with this code */
            b->task_code = f->stop_attempt->exit_code;
            b->w->exits_asked[b->slot] = b->task_code;
        }
        if (f->stop_attempt->attempt == b->attempt)
            world_box_end(b, f->stop_attempt->exit_code == 0);
        break;
    case TONY__FRAME__BODY_ACK_ENDED:
        b->acked = true;
        if (f->ack_ended->finish)
            world_box_complete(b, b->killed ? 143 : b->task_code, END_EXITED);
        break;
    case TONY__FRAME__BODY_FINISH_EXECUTOR:
        world_box_end(b, true);
        if (!b->lost) /* a lost executor waits until its report is acknowledged */
            world_box_complete(b, 0, END_EXITED);
        break;
    case TONY__FRAME__BODY_REFUSED:
        world_box_complete(b, 1, END_EXITED);
        break;
    case TONY__FRAME__BODY_RENEW:
        box_ready(b, f->renew);
        break;
    case TONY__FRAME__BODY_READ_LOG:
        box_log(b, f->read_log);
        break;
    default:
        break;
    }
}

void world_box_open(struct conn *c, void *arg)
{
    struct box *b = arg;
    Tony__ExecutorHello h = TONY__EXECUTOR_HELLO__INIT;
    h.version = TONY__VERSION__PROTOCOL_VERSION;
    h.slot = b->slot;
    h.container_id = b->id;
    h.epoch_seen = b->epoch_seen;
    h.host = (char *)(uintptr_t) "127.0.0.1";
    uint32_t port = 1000 + b->slot;
    h.n_ports = 1;
    h.ports = &port;
    h.generation = b->generation;
    h.attempt = b->attempt;
    h.running = b->running;
    h.reads_spec_file = b->w->reads_spec_file;
    Tony__AttemptEnded x = ended_of(b), *list = &x;
    if (b->ended && !b->acked) {
        h.n_unacked = 1;
        h.unacked = &list;
    }
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_EXECUTOR_HELLO;
    f.executor_hello = &h;
    (void)conn_send(c, &f);
    b->greeted = true;
}

static void box_closed(struct conn *c, const struct err *e, void *arg)
{
    struct box *b = arg;
    (void)c;
    (void)e;
    b->conn = NULL;
    b->greeted = false;
    if (!b->lost)
        loop_timer_set(b->timer, clock_mono_ms() + WORLD_AGAIN_MS);
}

const struct conn_ops world_box_ops = { .on_open = world_box_open,
                                        .on_frame = box_frame,
                                        .on_close = box_closed };

int world_dial(struct world *w, const char *identity, const struct tls_key *key,
               const struct conn_ops *ops, void *arg, struct conn **out)
{
    if (!w->sched)
        return -ECONNREFUSED;
    w->listened_at = w->sched->master_port;
    struct conn_target to = {
        .host = "127.0.0.1", .port = w->sched->master_port, .identity = identity, .key = key
    };
    return conn_dial_tls(w->loop, &to, ops, arg, out, NULL);
}

int world_dial_master(struct world *w, const struct box *box, const struct conn_ops *ops, void *arg,
                      struct conn **out)
{
    if (w->remote.key) {
        char identity[TLS_IDENTITY_MAX] = JOB_KEY_CLIENT;
        struct tls_key key;
        job_key_client(&w->key, &key);
        if (box) {
            (void)job_key_identity(box->id, identity);
            job_key_container(&w->key, box->id, &key);
        }
        return world_dial(w, identity, &key, ops, arg, out);
    }
    AUTO(free_p) char *path = paths_socket(&w->paths, w->id, "m");
    return conn_dial_unix(w->loop, path, ops, arg, out, NULL);
}

void world_box_dial(void *arg)
{
    struct box *b = arg;
    if (world_dial_master(b->w, b, &world_box_ops, b, &b->conn) < 0) {
        b->conn = NULL;
        loop_timer_set(b->timer, clock_mono_ms() + WORLD_AGAIN_MS);
    }
}

/* ---- life ---- */

static int on_write(void *arg, bool written)
{
    struct world *w = arg;
    if (!written && w->before_write)
        w->before_write(w);
    if (!written) {
        if (++w->n_writes == w->kill_at)
            w->lines_before = world_journal_lines(w);
        bool over = w->fail_n && w->n_writes >= w->fail_at + w->fail_n;
        return w->fail_at && w->n_writes >= w->fail_at && !over ? -w->fail_errno : 0;
    }
    bool there = w->kill_event && w->n_masters == 1 && world_wrote(w, w->kill_event, w->kill_slot);
    return there || w->n_writes == w->kill_at;
}

static int on_journal_call(void *arg, enum journal_call call)
{
    struct world *w = arg;
    if (call != JOURNAL_CALL_SYNC)
        return 0;
    AUTO(free_p) char *path = fs_join(w->job_dir, "journal");
    struct stat st;
    if (!path || stat(path, &st) == -1)
        abort();
    if (!w->fail_syncs) {
        w->journal_synced = st.st_size;
        return 0;
    }
    w->fail_syncs--;
    if (w->drop_unsynced && truncate(path, w->journal_synced) == -1)
        abort();
    return -w->fail_errno;
}

static void on_watchdog(void *arg)
{
    struct world *w = arg;
    w->timed_out = true;
    loop_stop(w->loop);
}

void world_init(struct world *w, const char *const *conf, const struct script *scripts)
{
    struct err e = { 0 };
    *w = (struct world){ .home = "/tmp/tony-w-XXXXXX", .scripts = scripts };
    log_setup(2, getenv("TONY_TEST_LOG") ? LOG_DEBUG : LOG_ERROR, false);
    if (!mkdtemp(w->home))
        abort();
    (void)setenv("TONY_HOME", w->home, 1);
    (void)setenv("XDG_RUNTIME_DIR", w->home, 1);
    if (paths_open(&w->paths, &e) < 0)
        world_die("paths", &e);
    app_id_format(w->id, 1700000000000, 1);
    w->job_dir = paths_job(&w->paths, w->id);
    write_job(w, conf);
    w->loop = loop_new(&e);
    if (!w->loop)
        world_die("loop", &e);
    world_sched_init(w);
    w->client_timer = loop_timer_new(w->loop, world_client_dial, w);
    w->watchdog = loop_timer_new(w->loop, on_watchdog, w);
    w->journal_probe = (struct journal_probe){ .before = on_journal_call, .arg = w };
    w->probe = (struct master_probe){ .patience_ms = 20000,
                                      .on_write = on_write,
                                      .arg = w,
                                      .retry_ms = 2,
                                      .journal = &w->journal_probe };
}

void world_done(struct world *w)
{
    for (unsigned i = 0; i < w->n_boxes; i++)
        box_quiet(&w->boxes[i]);
    conn_close(w->client);
    world_sched_done(w);
    loop_timer_free(w->client_timer);
    loop_timer_free(w->watchdog);
    loop_free(w->loop);
    paths_done(&w->paths);
    (void)fs_remove_tree(AT_FDCWD, w->home, NULL);
    buf_done(&w->client_json);
    buf_done(&w->resize_answer);
    buf_done(&w->bounds);
    strv_done(&w->files.log);
    buf_done(&w->files.conf);
    buf_done(&w->files.request);
    free(w->job_dir);
}

enum master_exit world_run_once(struct world *w)
{
    struct err e = { 0 };
    struct master_config cfg = {
        .loop = w->loop,
        .paths = &w->paths,
        .application_id = w->id,
        .epoch = ++w->epoch,
        .sched = &world_sched_ops,
        .probe = &w->probe,
        .remote = w->remote.key ? &w->remote : NULL,
    };
    w->n_masters++;
    world_sched_ops.gives_back = w->gives_back;
    int rc = master_open(&cfg, &w->master, &e);
    if (rc < 0)
        world_die("master_open", &e);
    loop_timer_set(w->watchdog, clock_mono_ms() + WATCHDOG_MS);
    loop_timer_set(w->client_timer, clock_mono_ms());
    if (w->client)
        loop_timer_stop(w->client_timer);
    (void)loop_run(w->loop);
    enum master_exit code = master_exit_code(w->master);
    master_close(TAKE(w->master));
    /* Operations that this master began must not complete for the next master. */
    w->files.n_waiting = 0;
    loop_timer_stop(w->fate_timer);
    if (w->lost_slot && w->n_masters == 1)
        world_lose(w);
    if (code == MASTER_HOPELESS)
        world_end_leftovers(w);
    return w->timed_out ? MASTER_CRASHED : code;
}

enum master_exit world_run(struct world *w)
{
    enum master_exit code;
    do {
        code = world_run_once(w);
    } while (code == MASTER_CRASHED && !w->timed_out && w->n_masters < 100);
    /* The master's last messages may still be on their way to the client. */
    for (int i = 0; i < 100 && w->client && w->n_finished == 0; i++) {
        loop_timer_set(w->watchdog, clock_mono_ms() + 5);
        bool timed_out = w->timed_out;
        (void)loop_run(w->loop);
        w->timed_out = timed_out;
    }
    return code;
}

unsigned world_alive(const struct world *w)
{
    unsigned n = 0;
    for (unsigned i = 0; i < w->n_boxes; i++)
        n += !w->boxes[i].completed && !w->boxes[i].given_back;
    return n;
}

static void read_journal(const struct world *w, struct buf *out)
{
    AUTO(free_p) char *path = fs_join(w->job_dir, "journal");
    struct err e = { 0 };
    if (fs_read(AT_FDCWD, path, out, &e) < 0)
        world_die("journal", &e);
}

unsigned world_journal_lines(const struct world *w)
{
    AUTO(buf_done) struct buf text = { 0 };
    read_journal(w, &text);
    unsigned n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += text.p[i] == '\n';
    return n;
}

void world_cut_journal(struct world *w, unsigned n)
{
    AUTO(buf_done) struct buf text = { 0 };
    read_journal(w, &text);
    size_t len = text.len;
    while (n > 0 && len > 0) {
        len--;
        while (len > 0 && text.p[len - 1] != '\n')
            len--;
        n--;
    }
    AUTO(free_p) char *path = fs_join(w->job_dir, "journal");
    if (truncate(path, (off_t)len) == -1)
        abort();
}
