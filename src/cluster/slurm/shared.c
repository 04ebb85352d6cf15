/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finished jobs in the directory of tony.history.location, which users share (storage/publish.h).
 * Only what the owner of a job wrote is believed: the name of the user in it must be that of the
 * owner of its files.
 */
#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/local/local.h"
#include "cluster/slurm/slurm_int.h"
#include "codec/json.h"
#include "history/history.h"
#include "storage/publish.h"

static bool is_of(uid_t owner, const char *user)
{
    /* Not getpwuid_r(): main/no_passwd.c knows no user there. Only the main thread comes here. */
    const struct passwd *pw = owner == getuid() ? NULL : getpwuid(owner);
    return owner == getuid() || (pw && str_eq(pw->pw_name, user));
}

/* Read the status of a job, if it may be believed. Nothing of it is read before publish_check(): a
 * named pipe would block the reader. 0 or -errno. */
static int read_status(const char *place, const char *id, json_t **out, struct err *e)
{
    uid_t owner;
    int rc = publish_check(place, id, &owner, e);
    AUTO(free_p) char *dir = rc == 0 ? fs_join(place, id) : NULL;
    AUTO(json_freep) json_t *doc = NULL;
    if (rc == 0)
        rc = dir ? history_status(dir, &doc, e) : err_set(e, ENOMEM, "no memory to read a history");
    if (rc == 0 && !is_of(owner, json_str(doc, "user", "")))
        rc = err_set(e, EPERM, "'%s' is not used: it names the user %s, and another user owns it",
                     dir, json_str(doc, "user", "?"));
    if (rc == 0)
        *out = TAKE(doc);
    return rc;
}

int slurm_find_app(struct cluster_host *h, const char *word, char out[APP_ID_MAX], struct err *e)
{
    const char *place = publish_place(h->history_location);
    int64_t start;
    uint32_t number;
    struct err why = { 0 };
    int rc = local_find_app(h, word, out, e);
    if (rc != -ENOENT || !place || app_id_parse(word, &start, &number, NULL) < 0 ||
        str_eq(h->paths.history, place))
        return rc;
    AUTO(json_freep) json_t *doc = NULL;
    if (read_status(place, word, &doc, &why) < 0) {
        if (why.num != ENOENT)
            rc = err_set(e, why.num, "%s", why.msg);
        return rc;
    }
    char *history = str_dup(place);
    if (!history)
        return rc;
    err_clear(e);
    free(h->paths.history);
    h->paths.history = history;
    return str_copy(out, APP_ID_MAX, word) ? 0 : -EINVAL;
}

/* ---- the list ---- */

struct shared_job {
    char id[APP_ID_MAX];
    int64_t start_ms;
    uint32_t number;
};
typedef VEC(struct shared_job) shared_jobs;

static int newer_first(const void *a, const void *b)
{
    const struct shared_job *x = a, *y = b;
    if (x->start_ms != y->start_ms)
        return x->start_ms < y->start_ms ? 1 : -1;
    return x->number < y->number ? 1 : x->number > y->number ? -1 : 0;
}

static bool has(const json_t *rows, const char *id)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        if (str_eq(json_str(row, "application_id", ""), id))
            return true;
    }
    return false;
}

/* The jobs of the directory that are not in the list yet, newest first. */
static int scan(const char *place, const json_t *rows, shared_jobs *out)
{
    DIR *d = opendir(place);
    int rc = 0;
    for (struct dirent *x; d && rc == 0 && (x = readdir(d));) {
        struct shared_job j;
        if (app_id_parse(x->d_name, &j.start_ms, &j.number, NULL) == 0 &&
            str_copy(j.id, sizeof j.id, x->d_name) && !has(rows, j.id))
            rc = vec_push(out, j);
    }
    if (d)
        closedir(d);
    if (out->n > 1)
        qsort(out->v, out->n, sizeof *out->v, newer_first);
    return rc;
}

static json_t *row_of(const json_t *doc, const char *id)
{
    const json_t *times = json_object_get(doc, "times");
    int64_t begun = json_int(times, "submitted_wall_ms", 0);
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:i, s:I, s:I, s:I, s:I}", "application_id", id,
                     "name", json_str(doc, "name", ""), "user", json_str(doc, "user", ""), "state",
                     json_str(doc, "state", ""), "live", 0, "tasks",
                     (int)json_array_size(json_object_get(doc, "tasks")), "submitted_ms",
                     (json_int_t)begun, "started_ms",
                     (json_int_t)(begun + json_int(times, "started_ms", 0)), "ended_ms",
                     (json_int_t)(begun + json_int(times, "ended_ms", 0)), "ran_ms",
                     (json_int_t)json_int(doc, "ran_ms", 0));
}

/* Insert a row at its place: the newest job is first. */
static int insert(json_t *rows, const struct shared_job *j, json_t *row)
{
    size_t at = 0;
    for (; at < json_array_size(rows); at++) {
        struct shared_job other = { .number = 0 };
        const char *id = json_str(json_array_get(rows, at), "application_id", "");
        if (app_id_parse(id, &other.start_ms, &other.number, NULL) == 0 &&
            newer_first(j, &other) < 0)
            break;
    }
    return json_array_insert_new(rows, at, row);
}

int slurm_shared_rows(struct cluster_host *h, size_t max, json_t *rows, bool *out_more,
                      struct err *e)
{
    const char *place = publish_place(h->history_location);
    shared_jobs found = { 0 };
    int rc = place ? scan(place, rows, &found) : 0;
    size_t n = 0;
    for (size_t i = 0; i < found.n && rc == 0 && (!max || n < max); i++) {
        AUTO(json_freep) json_t *doc = NULL;
        struct err unread = { 0 };
        if (read_status(place, found.v[i].id, &doc, &unread) < 0)
            continue; /* `tony status` says why */
        rc = insert(rows, &found.v[i], row_of(doc, found.v[i].id));
        n++;
    }
    *out_more = *out_more || (max && found.n > n && n == max);
    vec_done(&found);
    while (rc == 0 && max && json_array_size(rows) > max) {
        *out_more = true;
        (void)json_array_remove(rows, json_array_size(rows) - 1);
    }
    return rc < 0 ? err_set(e, ENOMEM, "no memory to list the jobs") : 0;
}
