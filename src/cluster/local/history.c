/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the directories of TONY_HOME: the verdicts of jobs, the list of jobs, and the files of
 * finished jobs.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/local/job_keeper.h"
#include "cluster/local/local.h"
#include "cluster/local/status.h"
#include "cluster/remote.h"
#include "codec/json.h"
#include "history/history.h"

int local_verdict(struct cluster_host *h, const char *id, json_t **out, struct err *e)
{
    int rc = host_look_paths(h, e);
    AUTO(free_p) char *dir = NULL;
    bool live = false;
    if (rc == 0)
        rc = paths_find_job(&h->paths, id, &dir, &live, e);
    if (rc < 0)
        return rc;
    AUTO(json_freep) json_t *doc = NULL;
    rc = history_status(dir, &doc, e);
    bool over = rc == 0 && json_is_integer(json_object_get(doc, "exit_code"));
    if (live && !over) /* this includes a job that is being moved to the history */
        return err_set(e, EBUSY, "job '%s' is not over", id);
    if (rc == 0)
        *out = TAKE(doc);
    return rc;
}

/* ---- the list ---- */

static json_t *time_or_null(int64_t wall_ms)
{
    return wall_ms > 0 ? json_integer(wall_ms) : json_null();
}

static json_t *row_json(const struct history_row *r)
{
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:b, s:i, s:o, s:o, s:o, s:o, s:s*}", "application_id",
        r->application_id, "name", r->name, "user", r->user, "state", r->state, "live", r->live,
        "tasks", (int)r->n_tasks, "submitted_ms", time_or_null(r->submitted_wall_ms), "started_ms",
        time_or_null(r->started_wall_ms), "ended_ms", time_or_null(r->ended_wall_ms), "ran_ms",
        r->ran_ms >= 0 ? json_integer(r->ran_ms) : json_null(), "note", r->note);
}

/* Add the first role that has reported progress. */
static void add_progress(const json_t *doc, json_t *row)
{
    size_t i;
    json_t *role;
    json_array_foreach(json_object_get(doc, "roles"), i, role)
    {
        if (json_int(role, "step", 0) <= 0)
            continue;
        /* Without memory, a member is missing. */
        (void)json_object_set_new(row, "step", json_integer(json_int(role, "step", 0)));
        (void)json_object_set_new(row, "total", json_integer(json_int(role, "total", 0)));
        (void)json_object_set(row, "left_ms", json_object_get(role, "left_ms"));
        return;
    }
}

/* Ask the master for the progress: the journal has none. */
static int ask_master(struct cluster_host *h, const struct history_row *r, json_t *row)
{
    json_t *doc = NULL;
    if (!r->live || !str_eq(r->state, "RUNNING"))
        return 0;
    int rc = status_of_master(h, r->application_id, &doc);
    if (rc < 0)
        return rc;
    add_progress(doc, row);
    if (json_int(doc, "restarts", 0))
        (void)json_object_set_new(row, "restarts", json_integer(json_int(doc, "restarts", 0)));
    json_decref(doc);
    return 0;
}

bool local_is_of_slurm(const struct paths *p, const char *id)
{
    struct err unread = { 0 };
    AUTO(free_p) char *dir = NULL;
    bool live;
    if (paths_find_job(p, id, &dir, &live, &unread) < 0)
        return false;
    AUTO(free_p) char *mark = fs_join(dir, "slurm.json");
    return mark && access(mark, F_OK) == 0;
}

/* Move the jobs of the pool, or those on Slurm, before the others. Returns how many there are. */
static size_t select_rows(const struct cluster_host *h, struct history_rows *rows, bool slurm)
{
    size_t n = 0;
    for (size_t i = 0; i < rows->n; i++) {
        struct history_row row = rows->v[i];
        if (local_is_of_slurm(&h->paths, row.application_id) != slurm)
            continue;
        rows->v[i] = rows->v[n];
        rows->v[n++] = row;
    }
    return n;
}

/* Read one more row than requested, to learn whether there are more. *out_n: the rows that are
 * wanted; they come first. */
static int read_rows(struct cluster_host *h, size_t max, bool slurm, struct history_rows *out,
                     size_t *out_n, struct err *e)
{
    int rc = host_look_paths(h, e);
    if (rc == 0)
        rc = history_list(&h->paths, max ? max + 1 : 0, out, e);
    if (rc < 0)
        return rc;
    *out_n = select_rows(h, out, slurm);
    if (!max || *out_n > max || out->n <= max)
        return 0;
    history_rows_done(out); /* some of them were of the other cluster: read all */
    rc = history_list(&h->paths, 0, out, e);
    *out_n = rc == 0 ? select_rows(h, out, slurm) : 0;
    return rc;
}

int local_rows(struct cluster_host *h, size_t max, bool slurm, json_t *rows, bool *out_more,
               struct err *e)
{
    struct history_rows found = { 0 };
    size_t n_found = 0;
    if (read_rows(h, max, slurm, &found, &n_found, e) < 0)
        return -EXIT_CLUSTER;
    /* The home could not be opened: report that instead of an empty list. */
    if (found.n == 0 && h->looks_only) {
        *e = h->not_opened;
        return -EXIT_CLUSTER;
    }
    *out_more = max && n_found > max;
    size_t n = *out_more ? max : n_found;
    int asked = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *row = row_json(&found.v[i]);
        /* After the first timeout, ask no further master. */
        if (row && asked != -ETIMEDOUT && !slurm)
            asked = ask_master(h, &found.v[i], row);
        (void)json_array_append_new(rows, row);
    }
    for (size_t i = 0; i < n_found && !slurm; i++)
        if (found.v[i].live && start_pool_if_orphaned(h, found.v[i].application_id))
            break; /* the pool that this call started takes care of all jobs */
    history_rows_done(&found);
    return 0;
}

int local_list(struct cluster *k, size_t max, json_t *rows, bool *out_more, struct err *e)
{
    return local_rows(cluster_head(k)->cfg.host, max, false, rows, out_more, e);
}

/* ---- members of struct cluster_ops ---- */

static struct cluster_host *host_of(const struct cluster *k)
{
    return cluster_head(k)->cfg.host;
}

int local_history(struct cluster *k, const char *id, json_t **out, struct err *e)
{
    int rc = local_verdict(host_of(k), id, out, e);
    return rc == -EBUSY ? -ENOENT : rc;
}

char *local_place(struct cluster *k, const char *id, bool over)
{
    struct cluster_host *h = host_of(k);
    struct err unread = { 0 };
    if (host_look_paths(h, &unread) < 0)
        return NULL;
    return over ? paths_history(&h->paths, id) : paths_job(&h->paths, id);
}

int local_verdict_or_report(struct cluster *k, const struct cluster_report *r, json_t **out,
                            int *out_code, struct err *e)
{
    int rc = local_verdict(host_of(k), r->id, out, e);
    if (rc < 0)
        err_clear(e); /* without a document, the report has the exit code */
    *out_code = rc == 0 ? (int)json_int(*out, "exit_code", r->exit_code) : r->exit_code;
    return 0;
}

int local_history_list(struct cluster *k, struct history_rows *out, struct err *e)
{
    struct cluster_host *h = host_of(k);
    int rc = host_look_paths(h, e);
    return rc < 0 ? rc : history_list(&h->paths, 0, out, e);
}

int local_history_file(struct cluster *k, const char *id, const char *name, struct buf *out,
                       struct err *e)
{
    AUTO(free_p) char *dir = paths_history(&host_of(k)->paths, id);
    AUTO(free_p) char *path = dir ? fs_join(dir, name) : NULL;
    return path ? fs_read_file(AT_FDCWD, path, out, e)
                : err_set(e, ENOMEM, "cannot read the history: %m");
}
