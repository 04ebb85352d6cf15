/* SPDX-License-Identifier: Apache-2.0 */
/* Registers a job with the arbiter of its queue: docs/decisions/0018-jobs-of-other-users.md. */
#include <errno.h>

#include "base/base.h"
#include "client/arbiter/arbiter.h"
#include "client/client_int.h"
#include "client/job/jobconf.h"
#include "cluster/yarn/submit.h"
#include "conf/conf.h"

enum { TAGS_MAX = 10 }; /* of YARN */

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
        client_note("the arbiter of queue '%s' cannot resize the job: YARN takes %d tags of 100 "
                    "characters, and two of them are needed",
                    spec->queue, TAGS_MAX);
        return 0;
    }
    rc = resize_key_offer(&arbiter, s->id, &s->resize_key, s->resize_tag, e);
    if (rc < 0)
        (void)err_wrap(e, rc, "the key of the arbiter of queue '%s'", spec->queue);
    return rc < 0 ? -yarn_exit_code(e) : 0;
}
