/* SPDX-License-Identifier: Apache-2.0 */
/* events: prints what happens in a job, as lines of JSON. */
#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "codec/json.h"

/* Each line is written at once, so that a reader of a pipe sees it when it happens. */
static int print_event(const json_t *event, void *arg)
{
    (void)arg;
    return client_print_json_line(event);
}

int cmd_events(struct client *c)
{
    struct err e = { 0 };
    char id[APP_ID_MAX];
    struct cluster *k = NULL;
    int rc = client_find(c, c->o.args[0], &k, id, &e);
    if (rc < 0)
        return client_fail(-rc, &e);
    rc = cluster_events(k, id, options_has(&c->o, OPT_FOLLOW), print_event, NULL, &e);
    if (rc == -EPIPE)
        return EXIT_DONE; /* the reader has closed the pipe, as `head` does */
    return rc < 0 ? client_fail(rc == -ENOENT || rc == -EINVAL ? EXIT_MISUSE : EXIT_CLUSTER, &e)
                  : EXIT_DONE;
}
