/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of `tony list`, and the file `summary`, from which a finished job's row is read.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "history/history_int.h"
#include "storage/jobfile.h"
#include "storage/paths.h"

enum { SUMMARY_MAX = 64 << 10, SUMMARY_FORMAT = 1, NOTE_MAX = 1024 };

bool history_dir_is_final(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    const char *parent = "/history";
    size_t n = strlen(parent);
    return slash && (size_t)(slash - dir) >= n && memcmp(slash - n, parent, n) == 0;
}

/* ---- the file `summary` ---- */

/* The summary is a small JSON object next to the journal. It lets tony list a thousand finished
 * jobs without replaying a journal. */
int history_summarize(const char *dir, const struct job *job, const struct job_file *f,
                      const struct job_spec *spec, int64_t started_wall_ms, int64_t ended_wall_ms,
                      struct err *e)
{
    json_t *o =
        json_pack("{s:i,s:s?,s:s?,s:s,s:I,s:I,s:I,s:I,s:I}", "format", SUMMARY_FORMAT, "name",
                  spec->name, "user", f->user, "state", job_state_name(job_state(job)),
                  "submitted_wall_ms", (json_int_t)f->wall_ms, "started_wall_ms",
                  (json_int_t)started_wall_ms, "ended_wall_ms", (json_int_t)ended_wall_ms, "ran_ms",
                  (json_int_t)job_ran_ms(job, 0), "n_tasks", (json_int_t)job_n_tasks(job));
    AUTO(free_p) char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    AUTO(free_p) char *path = fs_join(dir, "summary");
    json_decref(o);
    if (!text || !path)
        return err_set(e, ENOMEM, "no memory for the summary of job '%s'", dir);
    return fs_write_atomic(AT_FDCWD, path, span_of(text), 0600, false, e);
}

/* Times of a damaged file must not overflow when they are added. */
#define TIME_MAX_MS ((int64_t)1 << 52)

/* A number of the object; `none` if it is missing, or can be no time in ms. */
static int64_t time_field(const json_t *o, const char *key, int64_t none)
{
    int64_t t = json_int(o, key, none);
    return t >= -TIME_MAX_MS && t <= TIME_MAX_MS ? t : none;
}

static char *str_field(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return str_dup(s ? s : "");
}

int history_row_parse(struct span summary, struct history_row *row)
{
    json_t *o = json_loadb(summary.p ? summary.p : "", summary.len, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(o) || !json_is_string(json_object_get(o, "state"))) {
        json_decref(o);
        return -EBADMSG;
    }
    if (json_int(o, "format", 0) > SUMMARY_FORMAT) {
        json_decref(o);
        return -EINVAL;
    }
    row->name = str_field(o, "name");
    row->user = str_field(o, "user");
    row->state = str_field(o, "state");
    row->submitted_wall_ms = time_field(o, "submitted_wall_ms", 0);
    row->started_wall_ms = time_field(o, "started_wall_ms", 0);
    row->ended_wall_ms = time_field(o, "ended_wall_ms", 0);
    row->ran_ms = time_field(o, "ran_ms", 0);
    if (!json_object_get(o, "ran_ms")) /* an older version of tony wrote the summary */
        row->ran_ms = row->ended_wall_ms - row->started_wall_ms;
    row->n_tasks = (uint32_t)json_int(o, "n_tasks", 0);
    json_decref(o);
    return 0;
}

/* Read a row from the summary. -errno: it is missing, damaged or newer. */
static int row_from_summary(const char *dir, struct history_row *row)
{
    AUTO(free_p) char *path = fs_join(dir, "summary");
    AUTO(buf_done) struct buf text = { .max = SUMMARY_MAX };
    int rc = path ? fs_read_file(AT_FDCWD, path, &text, NULL) : -ENOMEM;
    return rc < 0 ? rc : history_row_parse(buf_span(&text), row);
}

/* Read a row from status.json. -errno as of history_read_status(). The file has only one time of
 * the wall clock, that of the submission. The times of start and end count from there. */
static int row_from_status(const char *dir, struct history_row *row)
{
    AUTO(json_freep) json_t *doc = NULL;
    int rc = history_read_status(dir, &doc, NULL);
    if (rc < 0)
        return rc;
    const json_t *times = json_object_get(doc, "times");
    int64_t submitted_ms = time_field(times, "submitted_wall_ms", 0);
    row->name = str_field(doc, "name");
    row->user = str_field(doc, "user");
    row->state = str_field(doc, "state");
    row->submitted_wall_ms = submitted_ms;
    int64_t started_ms = time_field(times, "started_ms", -1);
    row->started_wall_ms = started_ms >= 0 ? submitted_ms + started_ms : 0;
    row->ended_wall_ms = submitted_ms + time_field(times, "ended_ms", 0);
    row->ran_ms = time_field(doc, "ran_ms", -1);
    row->n_tasks = (uint32_t)json_array_size(json_object_get(doc, "tasks"));
    return 0;
}

static void row_done(struct history_row *row)
{
    free(row->application_id);
    free(row->name);
    free(row->user);
    free(row->state);
    free(row->note);
}

/* The pool writes these files when the machine has stopped under a job (pool/boot.c): `interrupted`
 * if the job continues, `lost` if the stop has ended it. */
static char *read_note(const char *dir, bool live)
{
    AUTO(free_p) char *path = fs_join(dir, live ? "interrupted" : "lost");
    AUTO(buf_done) struct buf text = { .max = NOTE_MAX };
    if (!path || fs_read_file(AT_FDCWD, path, &text, NULL) < 0)
        return NULL;
    return span_dup(span_trim(buf_span(&text)));
}

/* A row for a job that cannot be read. */
static void row_unread(struct history_row *row, const char *state)
{
    row->name = str_dup("");
    row->user = str_dup("");
    row->state = str_dup(state);
}

/* Replay the journal for the row. If the journal is damaged, the row has the state DAMAGED; if a
 * newer version of tony wrote it, NEWER. */
static int row_from_journal(const char *dir, struct history_row *row)
{
    AUTO(history_freep) struct history_job *h = NULL;
    int rc = history_load(dir, &h, NULL);
    if (rc == 0) {
        row->name = str_dup(h->spec->name ? h->spec->name : "");
        row->user = str_dup(h->file->user ? h->file->user : "");
        row->state = str_dup(job_state_name(job_state(h->job)));
        row->submitted_wall_ms = h->file->wall_ms;
        row->started_wall_ms = h->started_wall_ms;
        row->ended_wall_ms = h->ended_wall_ms;
        row->ran_ms = job_ran_ms(h->job, h->now_ms);
        row->n_tasks = job_n_tasks(h->job);
    } else if (rc != -ENOENT && rc != -ENOMEM) {
        row_unread(row, rc == -EINVAL ? "NEWER" : "DAMAGED");
        rc = 0;
    }
    return rc;
}

/* Make the row of one job. If a newer version of tony wrote status.json, the row has the state
 * NEWER, as `tony status` refuses such a file. -ENOENT: the directory was moved or removed
 * meanwhile. */
static int row_read(const char *dir, const char *id, bool live, struct history_row *out)
{
    struct history_row row = { .live = live, .ran_ms = -1, .application_id = str_dup(id) };
    int rc = live ? -ENOENT : row_from_summary(dir, &row);
    if (rc < 0 && !live)
        rc = row_from_status(dir, &row);
    if (rc == -EINVAL) {
        row_unread(&row, "NEWER");
        rc = 0;
    }
    if (rc < 0)
        rc = row_from_journal(dir, &row);
    if (rc == 0 && !(row.application_id && row.name && row.user && row.state))
        rc = -ENOMEM;
    if (rc < 0) {
        row_done(&row);
        return rc;
    }
    row.note = read_note(dir, live);
    *out = row;
    return 0;
}

/* ---- the list ---- */

/* A job's directory, found in jobs/ or history/. */
struct found_job {
    int64_t start_ms;
    uint32_t number;
    bool live;
    char id[APP_ID_MAX];
};
struct found_jobs {
    struct found_job *v;
    size_t n, cap;
};

static int newest_first(const void *a, const void *b)
{
    const struct found_job *x = a, *y = b;
    if (x->start_ms != y->start_ms)
        return x->start_ms < y->start_ms ? 1 : -1;
    if (x->number != y->number)
        return x->number < y->number ? 1 : -1;
    return (int)y->live - (int)x->live; /* both scans found it: it moved to history/ meanwhile */
}

/* Add the jobs in a directory. Skip names that are not application ids, for example those of
 * directories that are still being filled. */
static int scan(const char *dir, bool live, struct found_jobs *out, struct err *e)
{
    DIR *d = opendir(dir);
    if (!d)
        return errno == ENOENT ? 0 : err_set(e, errno, "cannot list '%s': %m", dir);
    int rc = 0;
    for (struct dirent *entry; rc == 0 && (entry = readdir(d));) {
        struct found_job f = { .live = live };
        if (app_id_parse(entry->d_name, &f.start_ms, &f.number, NULL) < 0 ||
            !str_copy(f.id, sizeof f.id, entry->d_name))
            continue;
        if (vec_push(out, f) < 0)
            rc = err_set(e, ENOMEM, "no memory to list '%s'", dir);
    }
    closedir(d);
    return rc;
}

/* Append the row of one job, unless the job was removed meanwhile. */
static int add_row(const struct paths *p, const struct found_job *f, struct history_rows *out)
{
    AUTO(free_p) char *live_dir = paths_job(p, f->id);
    AUTO(free_p) char *final_dir = paths_history(p, f->id);
    if (!live_dir || !final_dir)
        return -ENOMEM;
    struct history_row row;
    int rc = f->live ? row_read(live_dir, f->id, true, &row) : -ENOENT;
    if (rc == -ENOENT) /* it was not live, or has moved to history/ since the scan */
        rc = row_read(final_dir, f->id, false, &row);
    if (rc == -ENOENT)
        return 0;
    if (rc == 0 && vec_push(out, row) < 0) {
        row_done(&row);
        rc = -ENOMEM;
    }
    return rc;
}

static int list_jobs(const struct paths *p, bool live, size_t max, struct history_rows *out,
                     struct err *e)
{
    struct found_jobs all = { 0 };
    struct history_rows rows = { 0 };
    /* Scan jobs/ first. A job moves only from jobs/ to history/, so this order finds it at least
     * once. */
    int rc = live ? scan(p->jobs, true, &all, e) : 0;
    if (rc == 0)
        rc = scan(p->history, false, &all, e);
    if (all.n > 0)
        qsort(all.v, all.n, sizeof *all.v, newest_first);
    for (size_t i = 0; i < all.n && rc == 0 && (max == 0 || rows.n < max); i++) {
        if (i > 0 && str_eq(all.v[i].id, all.v[i - 1].id))
            continue;
        rc = add_row(p, &all.v[i], &rows);
        if (rc < 0)
            err_set(e, -rc, "cannot read job '%s': %m", all.v[i].id);
    }
    vec_done(&all);
    if (rc < 0)
        history_rows_done(&rows);
    else
        *out = rows;
    return rc;
}

int history_list(const struct paths *p, size_t max, struct history_rows *out, struct err *e)
{
    return list_jobs(p, true, max, out, e);
}

int history_list_finished(const struct paths *p, size_t max, struct history_rows *out,
                          struct err *e)
{
    return list_jobs(p, false, max, out, e);
}

char *history_name(const struct paths *p, const char *id)
{
    AUTO(free_p) char *live = paths_job(p, id);
    AUTO(free_p) char *final = paths_history(p, id);
    struct history_row row;
    if (!live || !final ||
        (row_read(live, id, true, &row) < 0 && row_read(final, id, false, &row) < 0))
        return NULL;
    char *name = row.name[0] ? TAKE(row.name) : NULL;
    row_done(&row);
    return name;
}

int64_t history_ran_ms(const struct paths *p, const char *id)
{
    struct history_row row;
    AUTO(free_p) char *dir = paths_job(p, id);
    if (!dir || row_read(dir, id, true, &row) < 0)
        return -1;
    int64_t ran_ms = row.ran_ms;
    row_done(&row);
    return ran_ms;
}

void history_rows_done(struct history_rows *r)
{
    for (size_t i = 0; i < r->n; i++)
        row_done(&r->v[i]);
    vec_done(r);
}
