/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key of an arbiter: private in the home of its user in HDFS, public in the site's file, where
 * the clients of all users find it (docs/decisions/0018-jobs-of-other-users.md).
 */
#include <errno.h>
#include <sys/random.h>

#include "client/arbiter/arbiter.h"
#include "client/client_int.h"
#include "conf/conf.h"

#define KEYS "tony.yarn.arbiter-keys"

enum { KEY_FILE_MAX = 4096 };

bool arbiter_is_same_queue(const char *a, const char *b)
{
    const char *a_dot = strrchr(a, '.'), *b_dot = strrchr(b, '.');
    if (a_dot && b_dot)
        return str_eq(a, b);
    return str_eq(a_dot ? a_dot + 1 : a, b_dot ? b_dot + 1 : b);
}

/* ---- the public keys ---- */

static int read_entry(const struct conf *c, const char *entry, const char *queue,
                      struct arbiter_key *out, bool *out_found, struct err *e)
{
    struct span text = span_of(entry), name;
    struct arbiter_key k;
    (void)span_split(&text, '=', &name);
    int rc = text.p ? arbiter_key_parse(span_trim(text), &k, e)
                    : err_set(e, EINVAL, "'%.80s' is not QUEUE=KEY", entry);
    AUTO(free_p) char *of = span_dup(span_trim(name));
    const char *origin = conf_origin(c, KEYS);
    if (rc == 0 && !of)
        rc = err_set(e, ENOMEM, "cannot read the keys of arbiters: %m");
    if (rc == 0 && arbiter_is_same_queue(of, queue)) {
        if (*out_found)
            rc = err_set(e, EINVAL, "two keys are for queue '%s'", queue);
        *out = k;
        *out_found = true;
    }
    return rc < 0 ? err_wrap(e, rc, "%s: " KEYS, origin ? origin : "conf") : 0;
}

int arbiter_key_of_queue(const struct conf *c, const char *queue, struct arbiter_key *out,
                         struct err *e)
{
    const char *text = conf_get(c, KEYS);
    struct strv entries = { 0 };
    bool found = false;
    int rc = text ? conf_list_parse(span_of(text), &entries) : 0;
    if (rc < 0)
        rc = err_set(e, ENOMEM, "cannot read the keys of arbiters: %m");
    for (size_t i = 0; rc == 0 && i < entries.n; i++)
        rc = read_entry(c, entries.v[i], queue, out, &found, e);
    strv_done(&entries);
    return rc < 0 ? rc : found;
}

/* ---- the private key ---- */

static char *secret_path(struct yarn *y, struct err *e)
{
    char *path = yarn_home(y, e) == 0 ? str_printf("%s/arbiter.key", y->dir) : NULL;
    if (!path && !e->num)
        (void)err_set(e, ENOMEM, "cannot read the arbiter's key: %m");
    return path;
}

int arbiter_secret_read(struct yarn *y, struct arbiter_key *out, struct err *e)
{
    AUTO(free_p) char *path = secret_path(y, e);
    AUTO(buf_done) struct buf text = { .max = KEY_FILE_MAX };
    if (!path)
        return -(e->num ? e->num : EIO);
    int rc = yarn_read(y, path, KEY_FILE_MAX, &text, e);
    if (rc == 0)
        rc = arbiter_key_parse(span_trim(buf_span(&text)), out, e);
    if (text.p)
        explicit_bzero(text.p, text.len);
    return rc < 0 ? err_wrap(e, rc, "cannot read the arbiter's key '%s' in HDFS", path) : 0;
}

/* Make the key, unless another command has made one meanwhile. */
static int make_secret(struct yarn *y, struct arbiter_key *out, struct err *e)
{
    AUTO(free_p) char *path = secret_path(y, e);
    char text[ARBITER_KEY_HEX];
    struct arbiter_key k;
    if (!path)
        return -(e->num ? e->num : EIO);
    if (getrandom(k.bytes, sizeof k.bytes, 0) != (ssize_t)sizeof k.bytes)
        return err_set(e, errno, "cannot make the arbiter's key: %m");
    arbiter_key_text(&k, text);
    int rc = yarn_write(y, path, span_of(text), e);
    explicit_bzero(text, sizeof text);
    explicit_bzero(&k, sizeof k);
    if (rc < 0 && rc != -EEXIST)
        return err_wrap(e, rc, "cannot write the arbiter's key '%s' to HDFS", path);
    *e = (struct err){ 0 };
    return arbiter_secret_read(y, out, e);
}

int arbiter_key_print(struct client *c, const char *queue)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    struct arbiter_key secret, public;
    char text[ARBITER_KEY_HEX];
    int rc = yarn_open(c, NULL, &y, &e);
    if (rc == 0)
        rc = arbiter_secret_read(y, &secret, &e);
    if (rc == -ENOENT) {
        e = (struct err){ 0 };
        rc = make_secret(y, &secret, &e);
    }
    if (rc == 0)
        rc = arbiter_key_public(&secret, &public, &e);
    explicit_bzero(&secret, sizeof secret);
    if (rc < 0)
        return client_fail(EXIT_CLUSTER, &e);
    arbiter_key_text(&public, text);
    if (options_has(&c->o, OPT_JSON))
        return client_print_json(json_pack("{s:s, s:s}", "queue", queue, "key", text));
    client_note("add this to " KEYS
                " in the site's file, so that you may resize the jobs of others "
                "in the queue");
    (void)printf("%s=%s\n", queue, text);
    return client_flush_stdout();
}
