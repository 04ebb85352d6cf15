/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes and reads status.json, the final status of a job. history.h explains the file.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/util.h"
#include "codec/json.h"
#include "history/history_int.h"

enum { STATUS_FORMAT = 1, LEFT_MAX = 1000 };

int history_status_text(struct span status, struct buf *out)
{
    if (status.len < 2 || status.p[0] != '{')
        return -EINVAL;
    (void)buf_addf(out, "{\"format\":%d,\"version\":\"%s\",", STATUS_FORMAT, TONY_VERSION);
    (void)buf_add(out, status.p + 1, status.len - 1);
    return buf_addc(out, '\n');
}

int history_status_parse(struct span text, json_t **out, struct err *e)
{
    AUTO(json_freep) json_t *doc = NULL;
    struct err why = { 0 };
    int rc = json_parse("status", text, &doc, &why);
    if (rc < 0)
        return err_set(e, rc == -ENOMEM ? ENOMEM : EBADMSG, "%s", why.msg);
    if (!json_is_object(doc) || !json_is_string(json_object_get(doc, "state")))
        return err_set(e, EBADMSG, "the status of the job is not an object with a state");
    int64_t format = json_int(doc, "format", STATUS_FORMAT); /* version 0.1.0 wrote none */
    if (format > STATUS_FORMAT) {
        rc = err_set(e, EINVAL, "the status has format %lld; this tony reads formats up to %d",
                     (long long)format, STATUS_FORMAT);
        err_hint(e, "use the tony that ran the job%s%s, or a newer one",
                 *json_str(doc, "version", "") ? ": version " : "", json_str(doc, "version", ""));
        return rc;
    }
    /* These two members describe the file, not the job. */
    (void)json_object_del(doc, "format");
    (void)json_object_del(doc, "version");
    *out = TAKE(doc);
    return 0;
}

int history_write_status(const char *dir, struct span status, struct err *e)
{
    AUTO(free_p) char *path = fs_join(dir, "status.json");
    AUTO(buf_done) struct buf text = { .max = JOB_STATUS_MAX };
    if (!path || history_status_text(status, &text) < 0)
        return err_set(e, ENOMEM, "no memory to write the status of job '%s'", dir);
    return fs_write_atomic(AT_FDCWD, path, buf_span(&text), 0600, false, e);
}

/* Parse the text of a status, or all but its list of tasks. */
static int parse(struct span text, bool with_tasks, json_t **out, struct err *e)
{
    AUTO(buf_done) struct buf rest = { 0 };
    if (!with_tasks && json_leave_out(text, "tasks", &rest) == 0)
        text =
            buf_span(&rest); /* otherwise the text is damaged: history_status_parse() says where */
    int rc = history_status_parse(text, out, e);
    if (rc == 0 && !with_tasks)
        (void)json_object_del(*out, "tasks");
    return rc;
}

static int read_status(const char *dir, bool with_tasks, json_t **out, struct err *e)
{
    AUTO(free_p) char *path = fs_join(dir, "status.json");
    AUTO(buf_done) struct buf text = { .max = JOB_STATUS_MAX };
    int rc = path ? fs_read_file(AT_FDCWD, path, &text, e)
                  : err_set(e, ENOMEM, "no memory to read the status of the job");
    if (rc == 0)
        rc = parse(buf_span(&text), with_tasks, out, e);
    return rc < 0 ? err_wrap(e, rc, "cannot read '%s/status.json'", dir) : 0;
}

int history_read_status(const char *dir, json_t **out, struct err *e)
{
    return read_status(dir, true, out, e);
}

/* Add the containers that podman or docker did not remove (engine_left.h). Each has a file with its
 * name in engines/; the file contains the path of podman or docker. Without memory, the list is
 * left out. */
static void add_left(const char *dir, json_t *doc)
{
    AUTO(free_p) char *engines = fs_join(dir, "engines");
    DIR *d = engines ? opendir(engines) : NULL;
    AUTO(json_freep) json_t *list = json_array();
    for (struct dirent *x; d && json_array_size(list) < LEFT_MAX && (x = readdir(d));) {
        AUTO(free_p) char *path = fs_join(engines, x->d_name);
        AUTO(buf_done) struct buf text = { .max = PATH_MAX };
        if (strchr(x->d_name, '.') || !path || fs_read_file(AT_FDCWD, path, &text, NULL) < 0)
            continue; /* a name with a dot is a file that is being written */
        struct span engine = span_trim(buf_span(&text));
        (void)json_array_append_new(list, json_pack("{s:s, s:s%}", "name", x->d_name, "engine",
                                                    engine.p ? engine.p : "", engine.len));
    }
    if (d)
        (void)closedir(d);
    if (json_array_size(list) && json_is_integer(json_object_get(doc, "exit_code")))
        (void)json_object_set(doc, "containers_left", list);
}

static int load_status(const char *dir, bool with_tasks, json_t **out, struct err *e)
{
    struct err why = { 0 };
    int rc = read_status(dir, with_tasks, out, &why);
    if (rc == 0)
        add_left(dir, *out);
    if (rc == 0)
        return 0;
    if (rc != -ENOENT && rc != -EBADMSG && rc != -EFBIG) {
        if (e)
            *e = why;
        return rc;
    }
    AUTO(history_freep) struct history_job *h = NULL;
    AUTO(buf_done) struct buf text = { .max = JOB_STATUS_MAX };
    rc = history_load(dir, &h, e);
    if (rc == 0 && (rc = job_status_json(h->job, true, &text)) < 0)
        (void)err_set(e, -rc, "cannot read the status of the job in '%s': %m", dir);
    if (rc == 0)
        rc = parse(buf_span(&text), with_tasks, out, e);
    if (rc == 0)
        add_left(dir, *out);
    return rc;
}

int history_status(const char *dir, json_t **out, struct err *e)
{
    return load_status(dir, true, out, e);
}

int history_status_brief(const char *dir, json_t **out, struct err *e)
{
    return load_status(dir, false, out, e);
}
