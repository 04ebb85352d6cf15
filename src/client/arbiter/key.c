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

/* ---- the private key ---- */

int arbiter_open(struct client *c, struct yarn **out, struct err *e)
{
    const struct cluster_config cfg = { .host = &c->host, .conf = client_site(c, e) };
    if (!cfg.conf)
        return -EXIT_MISUSE;
    return yarn_open(&cfg, out, e);
}

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
    int rc = arbiter_open(c, &y, &e);
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
