/* SPDX-License-Identifier: Apache-2.0 */
/* The record of submitted jobs, as commands use it. */
#include <stdlib.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/remote.h"
#include "codec/json.h"
#include "loop/loop.h"
#include "storage/submitted.h"

_Static_assert((int)CLUSTER_PLACE_MAX == (int)SUBMITTED_WORD_MAX, "sizes of a place");

struct record {
    char *home;
    bool is_new;
};

static int sync_record(void *arg)
{
    const struct record *r = arg;
    return submitted_sync(r->home, r->is_new);
}

static void synced(void *arg, int rc)
{
    struct record *r = arg;
    (void)rc; /* an error is ignored: after a power cut, `last` may then mean an older job */
    free(r->home);
    free(r);
}

void cluster_remember(struct cluster *k, const char *id, bool later)
{
    struct cluster_host *h = cluster_head(k)->cfg.host;
    const struct cluster_ops *ops = cluster_head(k)->ops;
    struct err e = { 0 };
    AUTO(free_p) char *place = ops->where ? ops->where(k) : NULL;
    int rc = host_open_paths(h, &e);
    if (rc < 0 || (rc = submitted_add(&h->paths, ops->name, id, place, &e)) < 0) {
        host_note(h, "job %s runs, but 'last' will not mean it: %s", id, e.msg);
        return;
    }
    struct record *r = calloc(1, sizeof *r);
    char *home = r ? str_dup(h->paths.home) : NULL;
    if (!home) {
        free(r);
        return;
    }
    *r = (struct record){ .home = home, .is_new = rc == 1 };
    if (later && h->loop && !ops->remote)
        loop_one_thread(h->loop); /* this client uses a thread for nothing else, so one is enough */
    if (!later || !h->loop || loop_work(h->loop, sync_record, synced, r) < 0)
        synced(r, sync_record(r));
}

void cluster_remember_end(struct cluster *k, const char *id, const char *state)
{
    struct cluster_host *h = cluster_head(k)->cfg.host;
    struct err unread = { 0 };
    /* Only clusters with other servers hear of the end later than this client. */
    if (cluster_head(k)->ops->remote && state[0] && host_open_paths(h, &unread) == 0)
        /* if this fails, `tony list` shows the end when the cluster knows it */
        (void)submitted_end(&h->paths, id, state, &unread);
}

const struct cluster_ops *cluster_recorded(struct cluster_host *h, const char *option,
                                           const char *word, char out_id[APP_ID_MAX],
                                           char out_place[CLUSTER_PLACE_MAX])
{
    struct submitted s;
    struct err unread = { 0 };
    const struct cluster_ops *wanted = option ? cluster_named(option) : NULL;
    if ((option && !wanted) || host_look_paths(h, &unread) < 0 ||
        submitted_find(&h->paths, wanted ? wanted->name : NULL, word, &s) < 0)
        return NULL;
    (void)str_copy(out_id, APP_ID_MAX, s.id);
    (void)str_copy(out_place, CLUSTER_PLACE_MAX, s.place);
    return cluster_named(s.cluster);
}

void cluster_add_ends(struct cluster_host *h, json_t *rows)
{
    char state[32];
    struct err unread = { 0 };
    size_t i;
    json_t *row;
    if (host_look_paths(h, &unread) < 0) /* there is no record */
        return;
    json_array_foreach(rows, i, row)
    {
        const char *id = json_str(row, "application_id", "");
        if (!json_is_true(json_object_get(row, "live")) ||
            submitted_state(&h->paths, id, state, sizeof state) < 0)
            continue;
        (void)json_object_set_new(row, "state", json_string(state));
        (void)json_object_set_new(row, "live", json_false());
    }
}
