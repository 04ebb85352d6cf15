/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The final configuration as JSON: a list of [key, value] for defaults and [key, value, layer,
 * origin, final] for other entries, in order. Defaults are written, too: a newer version with other
 * defaults must not change a job that runs.
 */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/json.h"
#include "conf/conf_int.h"

#define MASK "***"

/* Append the value with MASK in place of secrets: If the key has the name of a secret, the whole
 * value is masked. In an environment, the variables with such names are masked. */
static int add_masked(struct buf *out, const struct entry *x)
{
    bool secret = conf_key_is_secret(x->key) && *x->value;
    if (x->row && x->row->type == CT_STR)
        return buf_adds(out, secret ? MASK : x->value);
    /* tony.application.secrets has the sources of secrets, and no value: build_secrets() sees to
     * it. */
    if (!x->row || x->row->type != CT_ENVS || str_eq(x->key, "tony.application.secrets"))
        return buf_adds(out, x->value);
    struct strv env = { 0 };
    int rc = conf_env_parse(span_of(x->value), &env, NULL);
    for (size_t i = 0; rc == 0 && i < env.n; i++) {
        struct span value = span_of(env.v[i]), name;
        (void)span_split(&value, '=', &name);
        AUTO(free_p) char *n = span_dup(name);
        secret = n && value.len > 0 && conf_key_is_secret(n);
        rc = n ? conf_env_add(out, n, secret ? span_of(MASK) : value) : -ENOMEM;
    }
    strv_done(&env);
    return rc;
}

bool conf_has_secrets(const struct conf *c)
{
    for (size_t i = 0; i < c->n; i++) {
        AUTO(buf_done) struct buf text = { 0 };
        const struct entry *x = &c->v[i];
        if (x->layer == CL_DEFAULT || !*x->value)
            continue;
        if (add_masked(&text, x) < 0 || strcmp(buf_cstr(&text), x->value) != 0)
            return true; /* without memory, assume the worst */
    }
    return false;
}

static int add_value(struct buf *out, const struct entry *x, bool masked)
{
    AUTO(buf_done) struct buf text = { 0 };
    if (!masked)
        return json_add_str(out, span_of(x->value));
    int rc = add_masked(&text, x);
    return rc < 0 ? rc : json_add_str(out, span_of(buf_cstr(&text)));
}

static int encode(const struct conf *c, bool masked, struct buf *out, struct err *e)
{
    int rc = buf_addc(out, '[');
    for (size_t i = 0; i < c->n && rc == 0; i++) {
        const struct entry *x = &c->v[i];
        rc = buf_adds(out, i > 0 ? ",\n[" : "\n[");
        if (rc == 0)
            rc = json_add_str(out, span_of(x->key));
        if (rc == 0)
            rc = buf_addc(out, ',');
        if (rc == 0)
            rc = add_value(out, x, masked);
        if (rc == 0 && x->layer != CL_DEFAULT) {
            rc = buf_addf(out, ",%d,", (int)x->layer);
            if (rc == 0)
                rc = json_add_str(out, span_of(x->origin));
            if (rc == 0)
                rc = buf_adds(out, x->final ? ",true" : ",false");
        }
        if (rc == 0)
            rc = buf_addc(out, ']');
    }
    if (rc == 0)
        rc = buf_adds(out, "]");
    return rc < 0 ? err_set(e, -rc, "cannot write the configuration: %m") : 0;
}

int conf_encode(const struct conf *c, struct buf *out, struct err *e)
{
    return encode(c, false, out, e);
}

int conf_encode_masked(const struct conf *c, struct buf *out, struct err *e)
{
    return encode(c, true, out, e);
}

/* Add an entry; its strings are copied, unless they are those of the table. */
static int add_decoded(struct conf *c, struct entry *x, struct err *e)
{
    if (conf_find(c, x->key))
        return err_set(e, EINVAL, "configuration: '%s' is given twice", x->key);
    x->row = conf_key_find(span_of(x->key), NULL);
    /* Most entries are defaults of this version. */
    x->borrowed = x->row && x->layer == CL_DEFAULT && str_eq(x->key, x->row->name) &&
                  str_eq(x->value, x->row->dflt);
    if (x->borrowed) {
        x->key = x->row->name;
        x->value = x->row->dflt;
        return conf_put(c, x, e);
    }
    int rc = x->row ? conf_check_value(x->row, x->key, x->value, e) : 0;
    return rc < 0 ? err_wrap(e, rc, "configuration") : conf_put(c, x, e);
}

static int decode_one(struct conf *c, json_t *j, size_t i, struct err *e)
{
    const char *key = json_string_value(json_array_get(j, 0));
    const char *value = json_string_value(json_array_get(j, 1));
    size_t n = json_array_size(j);
    if (!key || !value || (n != 2 && n != 5))
        return err_set(e, EINVAL, "configuration: entry %zu is not valid", i);
    struct entry x = { .key = key, .value = value, .origin = "default", .layer = CL_DEFAULT };
    if (n == 5) {
        const char *origin = json_string_value(json_array_get(j, 3));
        json_int_t layer = json_integer_value(json_array_get(j, 2));
        if (!origin || layer < CL_SITE || layer > CL_CONF)
            return err_set(e, EINVAL, "configuration: entry '%s' is not valid", key);
        x.layer = (enum conf_layer)layer;
        x.origin = origin;
        x.final = json_is_true(json_array_get(j, 4));
    }
    return add_decoded(c, &x, e);
}

/* ---- the usual text, without a JSON parser ---- */

/*
 * There are two readers for the same format, because a client waits while the pool reads the
 * configuration and then the master reads it again. Parsing it with jansson took half of that time.
 * So decode_plain() reads the exact text that conf_encode() writes, as long as no string has an
 * escape sequence. For every other text (an escape sequence, other white space, an older version)
 * it returns 0, and decode_any() parses the text with jansson.
 */

static bool plain_char(char **p, char c)
{
    if (**p != c)
        return false;
    ++*p;
    return true;
}

/* Read a string. Its closing quote is replaced by a NUL, so nothing is copied. NULL = the string
 * has an escape sequence or is incomplete. */
static const char *plain_string(char **p)
{
    if (!plain_char(p, '"'))
        return NULL;
    char *s = *p;
    while (**p != '"') {
        if ((unsigned char)**p < 0x20 || **p == '\\')
            return NULL;
        ++*p;
    }
    *(*p)++ = '\0';
    return s;
}

static bool plain_word(char **p, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*p, word, n) != 0)
        return false;
    *p += n;
    return true;
}

static bool plain_entry(char **p, struct entry *out)
{
    *out = (struct entry){ .origin = "default", .layer = CL_DEFAULT };
    if (!plain_word(p, "\n[") || !(out->key = plain_string(p)) || !plain_char(p, ',') ||
        !(out->value = plain_string(p)))
        return false;
    if (plain_char(p, ']'))
        return true;
    if (!plain_char(p, ',') || **p < '0' + CL_SITE || **p > '0' + CL_CONF)
        return false;
    out->layer = (enum conf_layer)(*(*p)++ - '0');
    if (!plain_char(p, ',') || !(out->origin = plain_string(p)) || !plain_char(p, ','))
        return false;
    out->final = plain_word(p, "true");
    return (out->final || plain_word(p, "false")) && plain_char(p, ']');
}

/* 1: the text was read. 0: the text has another form; c may have some of its entries. */
static int decode_plain(struct conf *c, char *text, size_t len, struct err *e)
{
    struct entry x;
    char *p = text;
    if (!plain_char(&p, '['))
        return 0;
    do {
        if (!plain_entry(&p, &x))
            return 0;
        int rc = add_decoded(c, &x, e);
        if (rc < 0)
            return rc;
    } while (plain_char(&p, ','));
    return plain_char(&p, ']') && p == text + len;
}

/* ---- any text ---- */

/* Keys that an older version did not know get the value that matches its behaviour. So a job of
 * that version continues unchanged. */
static int add_former(struct conf *c, struct err *e)
{
    static const char *const keys[] = { "tony.task.restarts.preempted",
                                        "tony.task.restarts.node-lost",
                                        "tony.task.restarts.disk-failed",
                                        "tony.task.restarts.launch-failed" };
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(keys) && rc == 0; i++) {
        struct entry x = { .key = keys[i], .value = "0", .origin = "default", .layer = CL_DEFAULT };
        x.row = conf_key_find(span_of(keys[i]), NULL);
        if (!conf_find(c, keys[i]))
            rc = conf_put(c, &x, e);
    }
    return rc;
}

static int conf_decode_json(struct conf *c, const json_t *list, struct err *e)
{
    if (!json_is_array(list))
        return err_set(e, EINVAL, "configuration: not a list");
    int rc = 0;
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
        rc = decode_one(c, json_array_get(list, i), i, e);
    return rc;
}

static int decode_any(struct conf *c, struct span text, struct err *e)
{
    AUTO(json_freep) json_t *j = NULL;
    int rc = json_parse("configuration", text, &j, e);
    return rc < 0 ? rc : conf_decode_json(c, j, e);
}

int conf_decode(struct span text, struct conf **out, struct err *e)
{
    AUTO(conf_freep) struct conf *c = calloc(1, sizeof *c);
    AUTO(free_p) char *copy = span_dup(text);
    size_t bad;
    if (!c || !copy)
        return err_set(e, ENOMEM, "cannot read the configuration: %m");
    int rc = span_utf8(text, &bad) ? decode_plain(c, copy, text.len, e) : 0;
    if (rc == 0) {
        conf_free(c);
        c = calloc(1, sizeof *c);
        rc = c ? decode_any(c, text, e) : err_set(e, ENOMEM, "cannot read the configuration: %m");
    }
    if (rc >= 0)
        rc = add_former(c, e);
    if (rc == 0)
        rc = conf_add_defaults(c, e);
    if (rc == 0)
        *out = TAKE(c);
    return rc;
}
