/* SPDX-License-Identifier: Apache-2.0 */
/* Registers a job with the arbiter of its queue: docs/decisions/0018-jobs-of-other-users.md. */
#include <errno.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/yarn/submit.h"
#include "conf/conf.h"

#define KEYS "tony.yarn.arbiter-keys"

enum { TAGS_MAX = 10 }; /* of YARN */

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
            rc = err_set(e, EINVAL, "queue '%s' has two keys", queue);
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

/* ---- the offer ---- */

/* Is there room for the two tags? */
static bool has_room(const struct submission *s)
{
    struct strv tags = { 0 };
    struct err unread = { 0 };
    bool fits = yarn_tags(s->j, &tags, &unread) == 0 && tags.n + 2 <= TAGS_MAX;
    strv_done(&tags);
    return fits;
}

int submission_offer(struct submission *s, struct err *e)
{
    const struct job_spec *spec = s->j->spec;
    struct arbiter_key arbiter;
    struct share_needs needs;
    int rc = arbiter_key_of_queue(s->j->conf, spec->queue, &arbiter, e);
    if (rc < 0)
        return -yarn_exit_code(e);
    if (rc == 1)
        rc = share_needs_of(spec, yarn_master_memory_mib(spec), yarn_unit_mib(s->y), &needs);
    if (rc < 0) {
        (void)err_set(e, ENOMEM, "cannot submit the job: %m");
        return -EXIT_CLUSTER;
    }
    if (rc == 0)
        return 0;
    if (!share_needs_tag(&needs, s->size_tag) || !has_room(s)) {
        host_note(s->y->host,
                  "the arbiter of queue '%s' cannot resize the job: YARN takes %d tags of 100 "
                  "characters, and two of them are needed",
                  spec->queue, TAGS_MAX);
        return 0;
    }
    rc = resize_key_offer(&arbiter, s->id, &s->resize_key, s->resize_tag, e);
    if (rc < 0)
        (void)err_wrap(e, rc, "the key of the arbiter of queue '%s'", spec->queue);
    return rc < 0 ? -yarn_exit_code(e) : 0;
}
