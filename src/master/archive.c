/* SPDX-License-Identifier: Apache-2.0 */
#include "master/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "loop/loop.h"
#include "master/copies.h"
#include "storage/jobfile.h"

enum { FILE_MAX = COPIES_PIECE_MAX }; /* bytes; a journal is far smaller (storage/journal.h) */

/* The phases of the archive: archive_begin(), archive_end() and archive_clear() have one each. */
enum archive_phase { AP_NONE = 0, AP_BEGIN, AP_END, AP_CLEAR };

enum { F_CONF, F_JOURNAL, F_STATUS, F_SUMMARY, F_METRICS, F_COUNT };
static const char *const file_names[F_COUNT] = {
    [F_CONF] = "job.conf",   [F_JOURNAL] = "journal", [F_STATUS] = "status.json",
    [F_SUMMARY] = "summary", [F_METRICS] = "metrics",
};

/* An operation of the file system. done() is called once, unless the archive is freed before. */
struct archive_op {
    struct archive *a;
    enum archive_phase phase; /* the phase of its last start, even if that start failed */
    int file;
    bool under_way;
};

struct archive {
    struct archive_config cfg;
    enum archive_phase phase;
    bool started; /* on_timer() has started the work of this phase */
    char *dir;    /* NULL = no history is stored */
    bool dir_made, have[F_COUNT];
    struct buf text[F_COUNT]; /* of the files that are being written */
    struct archive_op file_ops[F_COUNT], dir_op, clear_op;
    struct err why; /* the first failure of this phase */
    struct loop_timer *timer;
    void (*done)(const struct err *e, void *arg);
    void *arg;
};

/* ---- life ---- */

static void on_timer(void *arg);

int archive_new(const struct archive_config *cfg, struct archive **out, struct err *e)
{
    struct archive *a = calloc(1, sizeof *a);
    if (a) {
        a->cfg = *cfg;
        a->dir = cfg->history_dir ? fs_join(cfg->history_dir, cfg->application_id) : NULL;
        a->timer = loop_timer_new(cfg->loop, on_timer, a);
    }
    if (!a || !a->timer || (cfg->history_dir && !a->dir)) {
        archive_free(a);
        return err_set(e, ENOMEM, "no memory to keep the job's history");
    }
    for (int i = 0; i < F_COUNT; i++) {
        a->text[i].max = FILE_MAX;
        a->file_ops[i] = (struct archive_op){ .a = a, .file = i };
    }
    a->dir_op = a->clear_op = (struct archive_op){ .a = a };
    *out = a;
    return 0;
}

void archive_free(struct archive *a)
{
    if (!a)
        return;
    loop_timer_free(a->timer);
    for (int i = 0; i < F_COUNT; i++)
        buf_done(&a->text[i]);
    free(a->dir);
    free(a);
}

/* ---- steps ----
 *
 * step() is called after each event. It starts each operation that can start now, at most once in a
 * phase.
 */

static void step(struct archive *a);

static bool is_writing(const struct archive *a)
{
    bool any = a->dir_op.under_way;
    for (int i = 0; i < F_COUNT; i++)
        any |= a->file_ops[i].under_way;
    return any;
}

static void note_error(struct archive *a, const struct err *e)
{
    if (!a->why.num)
        a->why = *e;
}

/* Record that the operation was started (rc 0), or that starting it failed. */
static void op_started(struct archive_op *op, int rc, const struct err *e)
{
    op->phase = op->a->phase;
    op->under_way = rc == 0;
    if (rc < 0)
        note_error(op->a, e);
}

/* Has the operation succeeded? An error of an operation that an earlier phase started does not
 * count, because this phase tries it again. */
static bool op_succeeded(struct archive_op *op, const struct err *e)
{
    op->under_way = false;
    if (e->num && op->phase == op->a->phase)
        note_error(op->a, e);
    return e->num == 0;
}

static void on_dir(const struct files_result *r, const struct err *e, void *arg)
{
    struct archive_op *op = arg;
    (void)r;
    op->a->dir_made |= op_succeeded(op, e);
    step(op->a);
}

static void on_file(const struct files_result *r, const struct err *e, void *arg)
{
    struct archive_op *op = arg;
    (void)r;
    op->a->have[op->file] |= op_succeeded(op, e);
    step(op->a);
}

static void on_cleared(const struct files_result *r, const struct err *e, void *arg)
{
    struct archive_op *op = arg;
    (void)r;
    (void)op_succeeded(op, e);
    step(op->a);
}

static void make_dir(struct archive *a)
{
    struct err e = { 0 };
    int rc = a->cfg.files->mkdirs(a->cfg.fs, a->dir, a->cfg.shared ? 0750 : 0700, on_dir,
                                  &a->dir_op, &e);
    op_started(&a->dir_op, rc, &e);
}

/* Other users may read the history, so it does not contain the values of secrets. */
static int mask_conf(struct buf *text, struct err *e)
{
    AUTO(job_file_freep) struct job_file *f = NULL;
    int rc = job_file_decode(buf_span(text), &f, e);
    if (rc < 0)
        return rc;
    buf_clear(text);
    return job_file_encode_masked(f, text, e);
}

/* Read the file as it is now on this machine. archive_end() has set the text of F_STATUS. -ENOENT:
 * there is no such file. */
static int read_text(struct archive *a, int file, struct err *e)
{
    if (file == F_STATUS)
        return a->text[file].len > 0 ? 0 : -ENOENT;
    AUTO(free_p) char *from = fs_join(a->cfg.job_dir, file_names[file]);
    buf_clear(&a->text[file]);
    int rc = from ? fs_read(AT_FDCWD, from, &a->text[file], e)
                  : err_set(e, ENOMEM, "no memory to read the files of the job");
    return rc == 0 && file == F_CONF ? mask_conf(&a->text[file], e) : rc;
}

/* Write the file to the history. If the file is missing on this machine, the history lacks it. */
static void put_file(struct archive *a, int file)
{
    AUTO(free_p) char *to = fs_join(a->dir, file_names[file]);
    struct archive_op *op = &a->file_ops[file];
    struct err e = { 0 };
    int rc = to ? read_text(a, file, &e)
                : err_set(&e, ENOMEM, "no memory to write the history of the job");
    if (rc == -ENOENT) {
        op->phase = a->phase;
        return;
    }
    if (rc == 0)
        rc = a->cfg.files->put(a->cfg.fs, to, a->cfg.shared ? 0640 : 0600, buf_span(&a->text[file]),
                               on_file, op, &e);
    op_started(op, rc, &e);
}

static void end_phase(struct archive *a)
{
    void (*done)(const struct err *e, void *arg) = TAKE(a->done);
    loop_timer_stop(a->timer);
    a->phase = AP_NONE;
    if (done)
        done(&a->why, a->arg);
}

static void step_history(struct archive *a)
{
    if (!a->dir_made && !a->dir_op.under_way && a->dir_op.phase != a->phase)
        make_dir(a);
    int n = a->phase == AP_BEGIN ? F_CONF + 1 : F_COUNT;
    for (int i = 0; a->dir_made && i < n; i++)
        if (!a->have[i] && !a->file_ops[i].under_way && a->file_ops[i].phase != a->phase)
            put_file(a, i);
    if (!is_writing(a))
        end_phase(a);
}

static void step(struct archive *a)
{
    if (!a->started)
        return;
    if (a->phase == AP_BEGIN || a->phase == AP_END) {
        if (a->dir)
            step_history(a);
        else
            end_phase(a);
    } else if (a->phase == AP_CLEAR && !a->clear_op.under_way) {
        struct err e = { 0 };
        if (a->cfg.staging_dir && a->clear_op.phase != AP_CLEAR)
            op_started(
                &a->clear_op,
                a->cfg.files->remove(a->cfg.fs, a->cfg.staging_dir, on_cleared, &a->clear_op, &e),
                &e);
        if (!a->clear_op.under_way)
            end_phase(a);
    }
}

/* The timer fires twice in a phase: first to start the work, because done() may not be called
 * before the caller has returned; then at the deadline. */
static void on_timer(void *arg)
{
    struct archive *a = arg;
    if (!a->started) {
        int64_t max_ms = a->phase == AP_CLEAR ? ARCHIVE_CLEAR_MS : a->cfg.max_ms;
        a->started = true;
        loop_timer_set(a->timer, clock_mono_ms() + max_ms);
        step(a);
        return;
    }
    if (a->phase == AP_BEGIN)
        return; /* no caller waits for the result; archive_end() has its own deadline */
    struct err e = { 0 };
    err_set(&e, ETIMEDOUT, "HDFS takes too long");
    note_error(a, &e);
    end_phase(a);
}

static void enter_phase(struct archive *a, enum archive_phase phase,
                        void (*done)(const struct err *e, void *arg), void *arg)
{
    a->phase = phase;
    a->started = false;
    a->why = (struct err){ 0 };
    a->done = done;
    a->arg = arg;
    loop_timer_set(a->timer, clock_mono_ms());
}

void archive_begin(struct archive *a)
{
    enter_phase(a, AP_BEGIN, NULL, NULL);
}

void archive_end(struct archive *a, struct span status,
                 void (*done)(const struct err *e, void *arg), void *arg)
{
    enter_phase(a, AP_END, done, arg);
    struct err e = { 0 };
    if (buf_add(&a->text[F_STATUS], status.p, status.len) < 0 &&
        err_set(&e, ENOMEM, "no memory for the final status of the job"))
        note_error(a, &e);
}

void archive_clear(struct archive *a, void (*done)(const struct err *e, void *arg), void *arg)
{
    enter_phase(a, AP_CLEAR, done, arg);
    if (!a->clear_op.under_way) /* repeat it: files may have come since it was removed before */
        a->clear_op.phase = AP_NONE;
}
