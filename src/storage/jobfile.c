/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/jobfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "storage/store.h"

/* The beginning of every job.conf. Only tony writes this file, so its first bytes are fixed, and
 * the reader finds the configuration behind them without a JSON parser. */
static const char head[] = "{\"format\":1,\"conf\":";

void job_file_free(struct job_file *f)
{
    if (!f)
        return;
    conf_free(f->conf);
    for (size_t i = 0; i < f->n_ship; i++)
        ship_item_done(&f->ship[i]);
    free(f->ship);
    free(f->user);
    free(f->host);
    free(f->cwd);
    free(f->version);
    free(f);
}

void job_file_freep(struct job_file **f)
{
    job_file_free(*f);
}

/* ---- writing ---- */

static const char *text_or_empty(const char *s)
{
    return s ? s : "";
}

/* Refuse a text that is not UTF-8: a path may contain any bytes, but JSON can only hold UTF-8. */
static int check_text(const char *what, const char *s, struct err *e)
{
    size_t bad;
    if (!s || span_utf8(span_of(s), &bad))
        return 0;
    (void)err_set(e, EILSEQ, "%s '%s' is not UTF-8 (byte %zu)", what, s, bad);
    return err_hint(e, "rename it, or use a link with another name");
}

static int check_texts(const struct job_file *f, struct err *e)
{
    const struct {
        const char *what, *text;
    } rows[] = {
        { "user name", f->user },
        { "host name", f->host },
        { "working directory", f->cwd },
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(rows); i++)
        rc = check_text(rows[i].what, rows[i].text, e);
    for (size_t i = 0; rc == 0 && i < f->n_ship; i++) {
        rc = check_text("path", f->ship[i].source, e);
        if (rc == 0)
            rc = check_text("path", f->ship[i].path, e);
        if (rc == 0)
            rc = check_text("name", f->ship[i].name, e);
    }
    return rc;
}

static json_t *encode_item(const struct ship_item *it)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I}", "kind", ship_kind_name(it->kind),
                     "name", text_or_empty(it->name), "role", text_or_empty(it->role), "digest",
                     text_or_empty(it->digest), "path", text_or_empty(it->path), "source",
                     text_or_empty(it->source), "bytes", (json_int_t)it->bytes, "files",
                     (json_int_t)it->n_files);
}

static json_t *encode_ship(const struct job_file *f)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < f->n_ship; i++) {
        /* The list owns the item from now on, even if this call fails. */
        if (json_array_append_new(list, encode_item(&f->ship[i])) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static int add_json(struct buf *out, const char *name, json_t *value)
{
    AUTO(json_freep) json_t *v = value;
    AUTO(free_p) char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    return text ? buf_addf(out, ",\n\"%s\":%s", name, text) : -ENOMEM;
}

static int encode(const struct job_file *f, bool masked, struct buf *out, struct err *e)
{
    int rc = check_texts(f, e);
    if (rc < 0)
        return rc;
    rc = buf_adds(out, head);
    if (rc == 0) {
        rc = masked ? conf_encode_masked(f->conf, out, e) : conf_encode(f->conf, out, e);
        if (rc < 0)
            return rc;
        rc = add_json(out, "ship", encode_ship(f));
    }
    if (rc == 0)
        rc = add_json(out, "submit",
                      json_pack("{s:s, s:s, s:s, s:I, s:i, s:s, s:s}", "user",
                                text_or_empty(f->user), "host", text_or_empty(f->host), "cwd",
                                text_or_empty(f->cwd), "wall_ms", (json_int_t)f->wall_ms, "pid",
                                f->pid, "version", text_or_empty(f->version), "plan", f->plan));
    if (rc == 0)
        rc = buf_adds(out, "}\n");
    return rc < 0 ? err_set(e, -rc, "cannot write the text of job.conf: %m") : 0;
}

int job_file_encode(const struct job_file *f, struct buf *out, struct err *e)
{
    return encode(f, false, out, e);
}

int job_file_encode_masked(const struct job_file *f, struct buf *out, struct err *e)
{
    return encode(f, true, out, e);
}

int job_file_mask(const char *job_dir, const struct job_file *f, struct err *e)
{
    AUTO(free_p) char *path = fs_join(job_dir, "job.conf");
    AUTO(buf_done) struct buf text = { .max = JOB_FILE_MAX };
    AUTO(job_file_freep) struct job_file *own = NULL;
    int rc = path ? 0 : err_set(e, ENOMEM, "no memory to write job.conf");
    if (rc == 0 && !f) {
        rc = fs_read(AT_FDCWD, path, &text, e);
        if (rc == 0)
            rc = job_file_decode(buf_span(&text), &own, e);
        f = own;
    }
    if (rc < 0 || !conf_has_secrets(f->conf))
        return rc;
    buf_clear(&text);
    rc = job_file_encode_masked(f, &text, e);
    return rc == 0 ? fs_write_atomic(AT_FDCWD, path, buf_span(&text), 0600, false, e) : rc;
}

/* ---- reading ---- */

static int bad_field(struct err *e, const char *what)
{
    return err_set(e, EBADMSG, "job.conf has no valid '%s'", what);
}

static int read_text(json_t *obj, const char *key, char **out, struct err *e)
{
    const char *s = json_string_value(json_object_get(obj, key));
    if (!s)
        return bad_field(e, key);
    *out = str_dup(s);
    return *out ? 0 : err_set(e, ENOMEM, "cannot read job.conf: %m");
}

static int read_number(json_t *obj, const char *key, int64_t max, int64_t *out, struct err *e)
{
    json_t *v = json_object_get(obj, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > max)
        return bad_field(e, key);
    *out = json_integer_value(v);
    return 0;
}

static int decode_item(json_t *obj, struct ship_item *it, struct err *e)
{
    const char *kind = json_string_value(json_object_get(obj, "kind"));
    it->kind = kind ? ship_kind_parse(kind) : SHIP_NONE;
    if (it->kind == SHIP_NONE)
        return bad_field(e, "kind");
    int64_t bytes = 0, files = 0;
    int rc = read_text(obj, "name", &it->name, e);
    if (rc == 0)
        rc = read_text(obj, "role", &it->role, e);
    if (rc == 0)
        rc = read_text(obj, "digest", &it->digest, e);
    if (rc == 0)
        rc = read_text(obj, "path", &it->path, e);
    if (rc == 0)
        rc = read_text(obj, "source", &it->source, e);
    if (rc == 0)
        rc = read_number(obj, "bytes", INT64_MAX, &bytes, e);
    if (rc == 0)
        rc = read_number(obj, "files", UINT32_MAX, &files, e);
    it->bytes = (uint64_t)bytes;
    it->n_files = (uint32_t)files;
    return rc;
}

static int decode_ship(json_t *list, struct job_file *f, struct err *e)
{
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > JOB_FILE_SHIP_MAX)
        return bad_field(e, "ship");
    f->ship = calloc(n > 0 ? n : 1, sizeof *f->ship);
    if (!f->ship)
        return err_set(e, ENOMEM, "cannot read job.conf: %m");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        f->n_ship = i + 1; /* before reading: job_file_free() must free a half-read item, too */
        rc = decode_item(json_array_get(list, i), &f->ship[i], e);
    }
    return rc;
}

static int decode_submit(json_t *obj, struct job_file *f, struct err *e)
{
    int rc = read_text(obj, "user", &f->user, e);
    if (rc == 0)
        rc = read_text(obj, "host", &f->host, e);
    if (rc == 0)
        rc = read_text(obj, "cwd", &f->cwd, e);
    if (rc == 0)
        rc = read_text(obj, "version", &f->version, e);
    int64_t pid = 0;
    if (rc == 0)
        rc = read_number(obj, "wall_ms", INT64_MAX, &f->wall_ms, e);
    if (rc == 0 && json_object_get(obj, "pid"))
        rc = read_number(obj, "pid", INT32_MAX, &pid, e);
    f->pid = (int)pid;
    const char *plan = json_string_value(json_object_get(obj, "plan"));
    if (plan && !str_copy(f->plan, sizeof f->plan, plan))
        f->plan[0] = '\0';
    return rc;
}

/* Read everything but the configuration, for which conf_decode() has its own parser. before and
 * after are the text before and after the configuration; `null` takes its place for the JSON
 * parser. */
static int decode_rest(struct span before, struct span after, struct job_file *f, struct err *e)
{
    AUTO(buf_done) struct buf text = { 0 };
    (void)buf_add(&text, before.p, before.len);
    (void)buf_adds(&text, "null");
    if (buf_add(&text, after.p, after.len) < 0)
        return err_set(e, ENOMEM, "cannot read job.conf: %m");
    AUTO(json_freep) json_t *root = NULL;
    int rc = json_parse("job.conf", buf_span(&text), &root, e);
    if (rc == 0)
        rc = decode_ship(json_object_get(root, "ship"), f, e);
    return rc < 0 ? rc : decode_submit(json_object_get(root, "submit"), f, e);
}

int job_file_decode(struct span text, struct job_file **out, struct err *e)
{
    if (text.len > JOB_FILE_MAX)
        return err_set(e, EFBIG, "job.conf has %zu bytes; the limit is %d", text.len, JOB_FILE_MAX);
    if (text.len < sizeof head || memcmp(text.p, head, sizeof head - 1) != 0)
        return err_set(e, EBADMSG, "job.conf is damaged, or another version of tony wrote it");
    struct span before = { text.p, sizeof head - 1 };
    struct span rest = { text.p + before.len, text.len - before.len };
    struct span conf = { rest.p, json_value_len(rest) };
    if (conf.len == 0)
        return err_set(e, EBADMSG, "job.conf is damaged: the configuration has no end");
    AUTO(job_file_freep) struct job_file *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, ENOMEM, "cannot read job.conf: %m");
    int rc = conf_decode(conf, &f->conf, e);
    if (rc == 0)
        rc = decode_rest(before, (struct span){ conf.p + conf.len, rest.len - conf.len }, f, e);
    if (rc < 0)
        return rc;
    *out = TAKE(f);
    return 0;
}

/* ---- the files of all jobs ---- */

/* -ENOENT or -ENOTDIR of fs_read(): the job has just moved to the history, the entry is not a job,
 * or it lacks the file. */
static int each_one(int jobs_fd, const char *id, const char *name,
                    int (*fn)(struct span text, void *arg), void *arg, struct err *e)
{
    AUTO(free_p) char *path = str_printf("%s/%s", id, name);
    AUTO(buf_done) struct buf text = { 0 };
    int rc = path ? fs_read_file(jobs_fd, path, &text, e) : -ENOMEM;
    if (rc == -ENOENT || rc == -ENOTDIR) {
        err_clear(e);
        return 0;
    }
    if (rc == 0)
        rc = fn(buf_span(&text), arg);
    return rc == -ENOMEM ? err_set(e, ENOMEM, "cannot read %s of job '%s': %m", name, id) : rc;
}

int job_files_each(const char *jobs_dir, const char *name, int (*fn)(struct span text, void *arg),
                   void *arg, struct err *e)
{
    DIR *d = opendir(jobs_dir);
    int rc = 0;
    if (!d)
        return err_set(e, errno, "cannot read directory '%s': %m", jobs_dir);
    for (const struct dirent *x; rc == 0 && (x = readdir(d));)
        if (x->d_name[0] != '.')
            rc = each_one(dirfd(d), x->d_name, name, fn, arg, e);
    (void)closedir(d); /* the directory was only read, so no failure can lose data */
    return rc;
}
