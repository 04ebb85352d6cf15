#include "client/status.h"

#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/link.h"
#include "history/history.h"
#include "job/job.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

static int parse(struct span text, json_t **out, struct err *e)
{
    json_t *doc = json_loadb(text.p ? text.p : "", text.len, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(doc)) {
        json_decref(doc);
        return err_set(e, EBADMSG, "the job's status is not what it should be");
    }
    *out = doc;
    return 0;
}

static int from_directory(const char *dir, json_t **out, struct err *e)
{
    AUTO(history_freep) struct history_job *h = NULL;
    int rc = history_load(dir, &h, e);
    AUTO(buf_done) struct buf text = { 0 };
    if (rc == 0 && (rc = job_status_json(h->job, true, &text)) < 0)
        return err_set(e, -rc, "cannot read the status of the job in '%s': %m", dir);
    return rc < 0 ? rc : parse(buf_span(&text), out, e);
}

/* Takes conn. */
static int from_conn(struct client *c, struct conn *conn, const char *id, json_t **out,
                     struct err *e)
{
    struct answer a = { 0 };
    int rc = link_ask_what(c, &conn, TONY__CLIENT_ASK__WHAT__STATUS, id, false, &a, e);
    if (rc == 0)
        rc = parse(buf_span(&a.json), out, e);
    answer_done(&a);
    conn_close(conn);
    return rc;
}

static int from_live(struct client *c, const char *id, json_t **out, struct err *e)
{
    AUTO(free_p) char *path = paths_socket(&c->paths, id, "m");
    struct conn *conn = NULL;
    if (!path)
        return err_set(e, ENOMEM, "cannot ask for job '%s': %m", id);
    if (link_dial_master(c, path, &conn, NULL) == 0 && from_conn(c, conn, id, out, NULL) == 0)
        return 0;
    int rc = link_dial_pool(c, true, &conn, e);
    return rc < 0 ? rc : from_conn(c, conn, id, out, e);
}

int status_load(struct client *c, const char *id, json_t **out, struct err *e)
{
    int rc = client_open_paths(c, e);
    bool live = false;
    json_t *doc = NULL;
    for (int tries = 0; rc == 0 && !doc && tries < 3; tries++) {
        AUTO(free_p) char *dir = NULL;
        rc = paths_find_job(&c->paths, id, &dir, &live, e);
        if (rc < 0)
            return rc;
        if (!live || from_live(c, id, &doc, e) < 0) {
            /* Between two masters, or without a pool, the journal tells all but who is connected.
             */
            rc = from_directory(dir, &doc, e);
            if (rc == -ENOENT && live)
                rc = 0; /* it went to the history meanwhile */
        }
        if (doc)
            (void)json_object_set_new(doc, "directory", json_string(dir));
    }
    if (rc < 0)
        return rc;
    if (!doc)
        return e->num ? -e->num : err_set(e, EIO, "cannot get the status of job '%s'", id);
    (void)json_object_set_new(doc, "live", json_boolean(live));
    *out = doc;
    return 0;
}
