/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key of an arbiter: the cluster keeps the private half for its user, and the public half is in
 * the site's file, where the clients of all users find it
 * (docs/decisions/0018-jobs-of-other-users.md).
 */
#include <errno.h>
#include <sys/random.h>

#include "client/arbiter/arbiter.h"
#include "client/client_int.h"

/* Make the key, unless another command has made one meanwhile. */
static int make_secret(const struct arbiter_at *at, struct arbiter_key *out, struct err *e)
{
    struct arbiter_key k;
    if (getrandom(k.bytes, sizeof k.bytes, 0) != (ssize_t)sizeof k.bytes)
        return err_set(e, errno, "cannot make the arbiter's key: %m");
    int rc = at->ops->secret_write(at->k, &k, e);
    explicit_bzero(&k, sizeof k);
    if (rc < 0 && rc != -EEXIST)
        return rc;
    *e = (struct err){ 0 };
    return at->ops->secret_read(at->k, out, e);
}

static int read_or_make(struct client *c, struct arbiter_at *at, struct arbiter_key *secret,
                        struct err *e)
{
    int rc = arbiter_open(c, at, e);
    if (rc == 0)
        rc = at->ops->secret_read(at->k, secret, e);
    if (rc == -ENOENT) {
        *e = (struct err){ 0 };
        rc = make_secret(at, secret, e);
    }
    arbiter_close(at);
    return rc;
}

int arbiter_key_print(struct client *c, struct arbiter_at *at)
{
    struct err e = { 0 };
    struct arbiter_key secret, public;
    char text[ARBITER_KEY_HEX];
    if (!at->ops->secret_read) {
        (void)err_set(&e, EINVAL, "an arbiter on cluster '%s' has no key: %s", at->cluster->name,
                      at->ops->no_keys);
        return client_fail(EXIT_MISUSE, &e);
    }
    int rc = read_or_make(c, at, &secret, &e);
    if (rc == 0)
        rc = arbiter_key_public(&secret, &public, &e);
    explicit_bzero(&secret, sizeof secret);
    if (rc < 0)
        return client_fail(EXIT_CLUSTER, &e);
    arbiter_key_text(&public, text);
    if (options_has(&c->o, OPT_JSON))
        return client_print_json(json_pack("{s:s, s:s}", "queue", at->queue, "key", text));
    client_note(
        "add this to %s in the site's file, so that you may resize the jobs of others in the "
        "queue",
        at->ops->keys_setting);
    (void)printf("%s=%s\n", at->queue, text);
    return client_flush_stdout();
}
