/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/yarn/yarnfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/json.h"

enum {
    TEXT_MAX = 32 << 20, /* bytes of yarn.json; a resource takes about 300 */
    LIST_MAX = 10000,    /* elements of a list */
    FORMAT = 1,
};

static const char *const visibilities[YARN_VISIBILITY_COUNT] = {
    [YARN_PUBLIC] = "PUBLIC",
    [YARN_PRIVATE] = "PRIVATE",
    [YARN_APPLICATION] = "APPLICATION",
};

/* The name in yarn.json: "PUBLIC", "PRIVATE" or "APPLICATION". */
static const char *yarn_visibility_name(enum yarn_visibility v)
{
    return v > YARN_VISIBILITY_NONE && v < YARN_VISIBILITY_COUNT ? visibilities[v] : "NONE";
}

void yarn_resource_done(struct yarn_resource *r)
{
    free(r->name);
    free(r->role);
    free(r->scheme);
    free(r->host);
    free(r->file);
    *r = (struct yarn_resource){ 0 };
}

void yarn_role_done(struct yarn_role *r)
{
    free(r->name);
    free(r->label);
    strv_done(&r->types);
    strv_done(&r->env);
    *r = (struct yarn_role){ 0 };
}

void yarn_file_free(struct yarn_file *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->resources.n; i++)
        yarn_resource_done(&f->resources.v[i]);
    for (size_t i = 0; i < f->roles.n; i++)
        yarn_role_done(&f->roles.v[i]);
    vec_done(&f->resources);
    vec_done(&f->roles);
    strv_done(&f->rm);
    strv_done(&f->scheduler);
    strv_done(&f->namenodes);
    free(f->user);
    free(f->queue);
    free(f->default_fs);
    free(f->protection);
    free(f->staging);
    free(f->history);
    free(f);
}

void yarn_file_freep(struct yarn_file **f)
{
    yarn_file_free(*f);
}

const struct yarn_role *yarn_file_role(const struct yarn_file *f, const char *role)
{
    for (size_t i = 0; i < f->roles.n; i++)
        if (str_eq(f->roles.v[i].name, role))
            return &f->roles.v[i];
    return NULL;
}

/* ---- tables of members, for reading and writing ---- */

static const struct text_member {
    const char *key;
    size_t offset;
    bool needed; /* not empty */
} texts[] = {
#define TEXT(member, needed)                                                                       \
    {                                                                                              \
#member, offsetof(struct yarn_file, member), needed                                        \
    }
    TEXT(user, true),        TEXT(queue, false),  TEXT(default_fs, true),
    TEXT(protection, false), TEXT(staging, true), TEXT(history, true),
#undef TEXT
};

static const struct list_member {
    const char *key;
    size_t offset;
    bool needed; /* not empty */
} lists[] = {
#define LIST(member, needed)                                                                       \
    {                                                                                              \
#member, offsetof(struct yarn_file, member), needed                                        \
    }
    LIST(rm, true),
    LIST(scheduler, true),
    LIST(namenodes, true),
#undef LIST
};

static char **text_of(struct yarn_file *f, const struct text_member *m)
{
    return (char **)(void *)((char *)f + m->offset);
}

static struct strv *list_of(struct yarn_file *f, const struct list_member *m)
{
    return (struct strv *)(void *)((char *)f + m->offset);
}

static int bad_member(struct err *e, const char *what)
{
    return err_set(e, EBADMSG, "yarn.json has no valid '%.60s'", what);
}

static int no_memory(struct err *e)
{
    return err_set(e, ENOMEM, "no memory for yarn.json");
}

/* Check a resource, before writing and after reading. */
static int check_resource(const struct yarn_resource *r, struct err *e)
{
    if (!r->name || !*r->name || r->name[0] == '/')
        return bad_member(e, "resources.name");
    if (!r->scheme || !*r->scheme || !r->file || r->file[0] != '/')
        return bad_member(e, "resources.file");
    if (r->port < -1 || r->port > 65535 || r->port == 0)
        return bad_member(e, "resources.port");
    if (r->size < -1 || r->timestamp_ms < 0)
        return bad_member(e, "resources.size");
    if (r->visibility <= YARN_VISIBILITY_NONE || r->visibility >= YARN_VISIBILITY_COUNT)
        return bad_member(e, "resources.visibility");
    return 0;
}

static int check(struct yarn_file *f, struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const char *s = *text_of(f, &texts[i]);
        if (texts[i].needed && (!s || !*s))
            return bad_member(e, texts[i].key);
    }
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        if (lists[i].needed && list_of(f, &lists[i])->n == 0)
            return bad_member(e, lists[i].key);
    if (f->staging[0] != '/' || f->history[0] != '/')
        return bad_member(e, f->staging[0] != '/' ? "staging" : "history");
    for (size_t i = 0; i < f->resources.n; i++) {
        int rc = check_resource(&f->resources.v[i], e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- writing ---- */

static bool is_text(const char *s)
{
    size_t bad_at;
    return !s || span_utf8(span_of(s), &bad_at);
}

static bool are_texts(const struct strv *v)
{
    for (size_t i = 0; i < v->n; i++)
        if (!is_text(v->v[i]))
            return false;
    return true;
}

/* Are all texts UTF-8, as JSON demands? */
static bool all_texts(struct yarn_file *f)
{
    bool ok = true;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        ok &= is_text(*text_of(f, &texts[i]));
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        ok &= are_texts(list_of(f, &lists[i]));
    for (size_t i = 0; i < f->resources.n; i++) {
        const struct yarn_resource *r = &f->resources.v[i];
        ok &= is_text(r->name) && is_text(r->role) && is_text(r->scheme) && is_text(r->host) &&
              is_text(r->file);
    }
    for (size_t i = 0; i < f->roles.n; i++) {
        const struct yarn_role *r = &f->roles.v[i];
        ok &= is_text(r->name) && is_text(r->label) && are_texts(&r->types) && are_texts(&r->env);
    }
    return ok;
}

static json_t *encode_strv(const struct strv *v)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < v->n; i++)
        if (json_array_append_new(list, json_string(v->v[i])) < 0) { /* takes it, also on failure */
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *encode_resource(const struct yarn_resource *r)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:I, s:I, s:s, s:s}", "name", r->name, "role",
                     r->role ? r->role : "", "scheme", r->scheme, "host", r->host ? r->host : "",
                     "port", r->port, "file", r->file, "size", (json_int_t)r->size, "timestamp_ms",
                     (json_int_t)r->timestamp_ms, "type", r->archive ? "ARCHIVE" : "FILE",
                     "visibility", yarn_visibility_name(r->visibility));
}

static json_t *encode_role(const struct yarn_role *r)
{
    return json_pack("{s:s, s:o, s:s, s:o}", "name", r->name ? r->name : "", "types",
                     encode_strv(&r->types), "label", r->label ? r->label : "", "env",
                     encode_strv(&r->env));
}

static int encode_lists(const struct yarn_file *f, json_t *root)
{
    json_t *resources = json_array(), *roles = json_array();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < f->resources.n; i++)
        rc = json_array_append_new(resources, encode_resource(&f->resources.v[i]));
    for (size_t i = 0; rc == 0 && i < f->roles.n; i++)
        rc = json_array_append_new(roles, encode_role(&f->roles.v[i]));
    rc |= json_object_set_new(root, "resources", resources);
    rc |= json_object_set_new(root, "roles", roles);
    return rc;
}

int yarn_file_encode(const struct yarn_file *from, struct buf *out, struct err *e)
{
    /* The tables give pointers without const; nothing is written through them here. */
    struct yarn_file *f = (struct yarn_file *)(uintptr_t)from;
    int rc = check(f, e);
    if (rc < 0) {
        if (e)
            e->num = EINVAL;
        return -EINVAL;
    }
    if (!all_texts(f))
        return err_set(e, EINVAL, "cannot write yarn.json: a name in it is not UTF-8");
    AUTO(json_freep)
    json_t *root = json_pack("{s:i, s:I, s:b, s:b}", "format", FORMAT, "am_expiry_ms",
                             (json_int_t)f->am_expiry_ms, "https", f->https, "keep_containers",
                             f->keep_containers);
    rc = root ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(texts); i++) {
        const char *s = *text_of(f, &texts[i]);
        rc = json_object_set_new(root, texts[i].key, json_string(s ? s : ""));
    }
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(lists); i++)
        rc = json_object_set_new(root, lists[i].key, encode_strv(list_of(f, &lists[i])));
    if (rc == 0)
        rc = encode_lists(f, root);
    AUTO(free_p) char *text = rc == 0 ? json_dumps(root, JSON_COMPACT) : NULL;
    if (!text)
        return no_memory(e);
    if (buf_adds(out, text) < 0 || buf_addc(out, '\n') < 0)
        return no_memory(e);
    return 0;
}

/* ---- reading ---- */

static int take_text(const json_t *obj, const char *key, char **out, struct err *e)
{
    const char *s = json_string_value(json_object_get(obj, key));
    if (!s)
        return bad_member(e, key);
    *out = str_dup(s);
    return *out ? 0 : no_memory(e);
}

static int take_number(const json_t *obj, const char *key, int64_t min, int64_t max, int64_t *out,
                       struct err *e)
{
    const json_t *v = json_object_get(obj, key);
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return bad_member(e, key);
    *out = json_integer_value(v);
    return 0;
}

static int take_flag(const json_t *obj, const char *key, bool *out, struct err *e)
{
    const json_t *v = json_object_get(obj, key);
    if (!json_is_boolean(v))
        return bad_member(e, key);
    *out = json_is_true(v);
    return 0;
}

static int take_strv(const json_t *obj, const char *key, struct strv *out, struct err *e)
{
    const json_t *list = json_object_get(obj, key), *v;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) > LIST_MAX)
        return bad_member(e, key);
    json_array_foreach(list, i, v)
    {
        if (!json_is_string(v))
            return bad_member(e, key);
        if (strv_push(out, json_string_value(v)) < 0)
            return no_memory(e);
    }
    return 0;
}

static int decode_resource(const json_t *obj, struct yarn_resource *r, struct err *e)
{
    AUTO(free_p) char *type = NULL, *visibility = NULL;
    int64_t port = 0;
    int rc = take_text(obj, "name", &r->name, e);
    if (rc == 0)
        rc = take_text(obj, "role", &r->role, e);
    if (rc == 0)
        rc = take_text(obj, "scheme", &r->scheme, e);
    if (rc == 0)
        rc = take_text(obj, "host", &r->host, e);
    if (rc == 0)
        rc = take_text(obj, "file", &r->file, e);
    if (rc == 0)
        rc = take_number(obj, "port", -1, 65535, &port, e);
    if (rc == 0)
        rc = take_number(obj, "size", -1, INT64_MAX, &r->size, e);
    if (rc == 0)
        rc = take_number(obj, "timestamp_ms", 0, INT64_MAX, &r->timestamp_ms, e);
    if (rc == 0)
        rc = take_text(obj, "type", &type, e);
    if (rc == 0)
        rc = take_text(obj, "visibility", &visibility, e);
    if (rc < 0)
        return rc;
    r->port = (int)port;
    r->archive = str_eq(type, "ARCHIVE");
    if (!r->archive && !str_eq(type, "FILE"))
        return bad_member(e, "resources.type");
    for (int v = YARN_VISIBILITY_NONE + 1; v < YARN_VISIBILITY_COUNT; v++)
        if (str_eq(visibility, visibilities[v]))
            r->visibility = (enum yarn_visibility)v;
    return 0; /* check() checks the values */
}

static int decode_role(const json_t *obj, struct yarn_role *r, struct err *e)
{
    int rc = take_text(obj, "name", &r->name, e);
    if (rc == 0)
        rc = take_strv(obj, "types", &r->types, e);
    if (rc == 0)
        rc = take_text(obj, "label", &r->label, e);
    if (rc == 0)
        rc = take_strv(obj, "env", &r->env, e);
    if (rc == 0 && !*r->label) {
        free(r->label);
        r->label = NULL;
    }
    for (size_t i = 0; rc == 0 && i < r->types.n; i++) {
        const char *v = strchr(r->types.v[i], '=');
        int64_t n;
        if (!v || v == r->types.v[i] || str_i64(span_of(v + 1), 0, INT64_MAX, "n", &n, NULL) < 0)
            rc = bad_member(e, "roles.types");
    }
    for (size_t i = 0; rc == 0 && i < r->env.n; i++)
        if (!strchr(r->env.v[i], '=') || r->env.v[i][0] == '=')
            rc = bad_member(e, "roles.env");
    return rc;
}

static int decode_lists(const json_t *root, struct yarn_file *f, struct err *e)
{
    const json_t *list = json_object_get(root, "resources"), *v;
    size_t i;
    int rc = 0;
    if (!json_is_array(list) || json_array_size(list) > LIST_MAX)
        return bad_member(e, "resources");
    json_array_foreach(list, i, v)
    {
        if (vec_push(&f->resources, (struct yarn_resource){ 0 }) < 0)
            return no_memory(e);
        rc = decode_resource(v, &f->resources.v[i], e);
        if (rc < 0)
            return rc;
    }
    list = json_object_get(root, "roles");
    if (!json_is_array(list) || json_array_size(list) > LIST_MAX)
        return bad_member(e, "roles");
    json_array_foreach(list, i, v)
    {
        if (vec_push(&f->roles, (struct yarn_role){ 0 }) < 0)
            return no_memory(e);
        rc = decode_role(v, &f->roles.v[i], e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int decode_all(const json_t *root, struct yarn_file *f, struct err *e)
{
    int64_t format = 0;
    int rc = take_number(root, "format", FORMAT, FORMAT, &format, e);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(texts); i++)
        rc = take_text(root, texts[i].key, text_of(f, &texts[i]), e);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(lists); i++)
        rc = take_strv(root, lists[i].key, list_of(f, &lists[i]), e);
    if (rc == 0)
        rc = take_number(root, "am_expiry_ms", 0, INT32_MAX, &f->am_expiry_ms, e);
    if (rc == 0)
        rc = take_flag(root, "https", &f->https, e);
    if (rc == 0)
        rc = take_flag(root, "keep_containers", &f->keep_containers, e);
    if (rc == 0)
        rc = decode_lists(root, f, e);
    return rc < 0 ? rc : check(f, e);
}

int yarn_file_decode(struct span text, struct yarn_file **out, struct err *e)
{
    if (text.len > TEXT_MAX)
        return err_set(e, EFBIG, "yarn.json has %zu bytes; the limit is %d", text.len, TEXT_MAX);
    AUTO(json_freep) json_t *root = NULL;
    int rc = json_parse("yarn.json", text, &root, e);
    if (rc < 0)
        return rc;
    AUTO(yarn_file_freep) struct yarn_file *f = calloc(1, sizeof *f);
    if (!f)
        return no_memory(e);
    rc = decode_all(root, f, e);
    if (rc < 0)
        return rc;
    *out = TAKE(f);
    return 0;
}
