/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks for another size of a job: its master, or the cluster if the job waits for its first master.
 */
#include "cluster/resize.h"

#include <errno.h>

#include "base/base.h"
#include "cluster/link.h"
#include "cluster/remote.h"
#include "codec/json.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

enum {
    MASTER_MS = 60000,   /* time for an accepted job on a remote cluster to get a master */
    ASK_MS = 30000,      /* limit for asking again while the master restarts */
    PAUSE_MS = 200,      /* pause between two requests to a remote cluster */
    LOCAL_PAUSE_MS = 50, /* the same on this machine */
    /* The pool may refuse the size of a role that has not started within this time. */
    REFUSAL_MS = 2000,
    REFUSAL_PAUSE_MS = 20, /* between the first two checks for a refusal; it doubles */
};

#define MUTABLE(p) ((char *)(uintptr_t)(p))

/* ---- checking the wish against the job ---- */

static const json_t *role_named(const json_t *roles, const char *name)
{
    size_t i;
    json_t *role;
    json_array_foreach(roles, i, role)
    {
        if (str_eq(json_str(role, "name", ""), name))
            return role;
    }
    return NULL;
}

static int unknown_role(const json_t *doc, const char *name, struct err *e)
{
    enum { NAMES_MAX = 64 };
    const char *names[NAMES_MAX];
    const json_t *roles = json_object_get(doc, "roles");
    size_t n = MIN(json_array_size(roles), (size_t)NAMES_MAX);
    for (size_t i = 0; i < n; i++)
        names[i] = json_str(json_array_get(roles, i), "name", "");
    const char *near = str_nearest(name, names, n);
    (void)err_set(e, EINVAL, "job %s has no role '%s'", json_str(doc, "application_id", ""), name);
    if (near)
        err_hint(e, "did you mean '%s'?", near);
    else
        err_hint(e, "tony status %s shows its roles", json_str(doc, "application_id", ""));
    return EXIT_MISUSE;
}

/* Add the sizes of the wish to out: "worker 2, ps 1 and eval 3". */
static void list_sizes(const struct cluster_resize *w, struct buf *out)
{
    for (size_t i = 0; i < w->sizes.n; i++)
        (void)buf_addf(out, "%s%s %u",
                       i == 0                ? ""
                       : i + 1 == w->sizes.n ? " and "
                                             : ", ",
                       w->sizes.v[i].role, w->sizes.v[i].instances);
}

int resize_check(const struct cluster_resize *w, const json_t *doc, struct err *e)
{
    const char *id = json_str(doc, "application_id", "");
    const json_t *roles = json_object_get(doc, "roles");
    bool changes = false;
    if (json_is_integer(json_object_get(doc, "exit_code"))) {
        (void)err_set(e, EINVAL, "job %s is over: %s", id, json_str(doc, "state", ""));
        return EXIT_JOB_FAILED;
    }
    if (!json_is_array(roles)) /* only the master knows the roles */
        return EXIT_DONE;
    for (size_t i = 0; i < w->sizes.n; i++) {
        const json_t *role = role_named(roles, w->sizes.v[i].role);
        if (!role)
            return unknown_role(doc, w->sizes.v[i].role, e);
        changes = changes || json_int(role, "instances", -1) != w->sizes.v[i].instances;
    }
    /* While a resize is under way, asking for the present size withdraws it. */
    if (changes || json_is_object(json_object_get(doc, "resize")))
        return EXIT_DONE;
    AUTO(buf_done) struct buf sizes = { 0 };
    list_sizes(w, &sizes);
    (void)err_set(e, EINVAL, "job %s has %s already; nothing would change", id, buf_cstr(&sizes));
    return EXIT_MISUSE;
}

/* ---- asking ---- */

int resize_ask(struct cluster_host *h, struct conn **conn, const char *id,
               const struct cluster_resize *w, struct answer *out, struct err *e)
{
    Tony__RoleSize sizes[RESIZE_ROLES_MAX], *list[RESIZE_ROLES_MAX];
    Tony__ResizeJob ask = TONY__RESIZE_JOB__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    char who[LINK_CLIENT_MAX];
    link_describe_client(who);
    for (size_t i = 0; i < w->sizes.n && i < RESIZE_ROLES_MAX; i++) {
        tony__role_size__init(&sizes[i]);
        sizes[i].role = w->sizes.v[i].role;
        sizes[i].instances = w->sizes.v[i].instances;
        list[ask.n_roles++] = &sizes[i];
    }
    ask.roles = list;
    ask.application_id = MUTABLE(id);
    ask.who = who;
    ask.reason = MUTABLE(w->reason ? w->reason : "");
    ask.within_ms = (uint64_t)w->within_ms;
    f.body_case = TONY__FRAME__BODY_RESIZE_JOB;
    f.resize_job = &ask;
    return link_ask(h, conn, &f, out, e);
}

static const struct conn_ops no_ops = { 0 };

/* Ask the master once. 0 or -errno; out->refused: the master has refused. */
static int ask_master(struct cluster *k, const struct cluster_report *r,
                      const struct cluster_resize *w, struct answer *out, struct err *e)
{
    struct conn *conn = NULL;
    int rc = cluster_dial(k, r, &no_ops, NULL, &conn, e);
    if (rc == 0)
        rc = resize_ask(cluster_head(k)->cfg.host, &conn, r->id, w, out, e);
    conn_close(conn);
    return rc;
}

struct asking {
    struct cluster *k;
    const char *id;
    const struct cluster_resize *w;
    bool maybe_accepted; /* a master that has died since may have accepted the wish */
    bool said;           /* the user knows that the job has no master yet */
    int64_t until;       /* if no master has answered until this time, give up */
};

/* Ask the master once. 1: *out is the answer; 0: ask again later; or minus the exit code. */
static int try_master(struct asking *a, const struct cluster_report *r, json_t **out, struct err *e)
{
    AUTO(answer_done) struct answer answer = { 0 };
    int rc = ask_master(a->k, r, a->w, &answer, e);
    if (rc == 0)
        return status_parse(buf_span(&answer.json), out, e) < 0 ? -EXIT_CLUSTER : 1;
    if (answer.refused && rc == -EALREADY && a->maybe_accepted)
        return (rc = cluster_head(a->k)->ops->status(a->k, a->id, out, e)) == 0 ? 1 : rc;
    if (answer.refused && rc != -EAGAIN)
        return -EXIT_JOB_FAILED;
    /* ESHUTDOWN: a TLS connection whose other side was killed. */
    a->maybe_accepted =
        a->maybe_accepted || (!answer.refused && (link_broke(rc) || rc == -ESHUTDOWN));
    /* Do not ask a master again that is connected but silent, or that has another key. */
    return rc == -ETIMEDOUT || rc == -EACCES || rc == -ENOKEY || rc == -ENOMEM ? -EXIT_CLUSTER : 0;
}

/* The cluster itself takes the wish, if the job waits for its first master. As try_master(). */
static int try_waiting(struct asking *a, json_t **out, struct err *e)
{
    const struct cluster_ops *ops = cluster_head(a->k)->ops;
    int rc =
        ops->resize_waiting ? ops->resize_waiting(a->k, a->id, a->w, out, e) : CLUSTER_ASK_MASTER;
    a->maybe_accepted = a->maybe_accepted || rc == CLUSTER_LEFT;
    return rc < 0 ? rc : rc == CLUSTER_RESIZED ? 1 : 0;
}

static int no_master(const struct cluster_report *r, struct err *e)
{
    (void)err_set(e, EAGAIN, "job %s has no master yet, and only its master can resize it (%s%s%s)",
                  r->id, r->state, r->why ? ": " : "", r->why ? r->why : "");
    err_hint(e, "ask again when it runs: tony status %s", r->id);
    return -EXIT_CLUSTER;
}

static int try_once(struct asking *a, json_t **out, struct err *e)
{
    const struct cluster_ops *ops = cluster_head(a->k)->ops;
    struct cluster_report r = { 0 };
    if (ops->report(a->k, a->id, &r, e) < 0)
        return e->num == ENOENT || e->num == EINVAL ? -EXIT_MISUSE : -EXIT_CLUSTER;
    bool late = clock_mono_ms() > a->until;
    int rc = 0;
    if (r.phase == CLUSTER_OVER) {
        (void)err_set(e, EINVAL, "job %s is over: %s", a->id, r.state);
        rc = -EXIT_JOB_FAILED;
    } else if (r.phase == CLUSTER_RUNNING) {
        rc = try_master(a, &r, out, e);
    }
    /* Ask the pool even if its files say that there is a master: the pool knows better. */
    if (rc == 0 && (r.phase < CLUSTER_RUNNING || !ops->remote) && !a->maybe_accepted)
        rc = try_waiting(a, out, e);
    if (rc == 0 && late) {
        rc = r.phase < CLUSTER_RUNNING ? no_master(&r, e) : -EXIT_CLUSTER;
    } else if (rc == 0 && r.phase < CLUSTER_RUNNING && ops->remote && !a->said) {
        host_note(cluster_head(a->k)->cfg.host, "job %s has no master yet; waiting for it", a->id);
        a->said = true;
    }
    cluster_report_done(&r);
    return rc;
}

int cluster_resize(struct cluster *k, const char *id, const struct cluster_resize *w, json_t **out,
                   struct err *e)
{
    bool remote = cluster_head(k)->ops->remote;
    int64_t patience =
        remote ? (w->within_ms ? w->within_ms : (int64_t)MASTER_MS) : (int64_t)ASK_MS;
    struct asking a = { .k = k, .id = id, .w = w, .until = clock_mono_ms() + patience };
    for (;;) {
        int rc = try_once(&a, out, e);
        if (rc)
            return MIN(rc, 0);
        host_pause(cluster_head(k)->cfg.host, remote ? PAUSE_MS : LOCAL_PAUSE_MS);
    }
}

/* ---- a refusal that comes late ---- */

static bool has_outcome(const json_t *doc, const char *outcome)
{
    return str_eq(json_str(json_object_get(doc, "last_resize"), "outcome", ""), outcome);
}

/* Has the last resize added tasks to a role that has no container yet? */
static bool is_grown_unstarted(const json_t *doc)
{
    const json_t *last = json_object_get(doc, "last_resize");
    size_t i;
    json_t *changed;
    json_array_foreach(json_object_get(last, "roles"), i, changed)
    {
        const json_t *role =
            role_named(json_object_get(doc, "roles"), json_str(changed, "name", ""));
        int64_t n = json_int(role, "instances", 0);
        if (json_int(changed, "to", 0) > json_int(changed, "from", 0) && n > 0 &&
            json_int(role, "waiting", 0) == n)
            return true;
    }
    return false;
}

void resize_await_refusal(struct cluster *k, const char *id, json_t **doc)
{
    int64_t until = clock_mono_ms() + REFUSAL_MS;
    int pause_ms = REFUSAL_PAUSE_MS;
    bool over = cluster_head(k)->ops->remote || json_is_object(json_object_get(*doc, "resize")) ||
                !has_outcome(*doc, "done");
    while (!over && clock_mono_ms() < until) {
        json_t *now = NULL;
        if (master_status(k, id, &now) < 0)
            return;
        over = has_outcome(now, "refused") || !is_grown_unstarted(now);
        json_decref(*doc);
        *doc = now;
        if (!over)
            host_pause(cluster_head(k)->cfg.host, pause_ms);
        pause_ms *= 2;
    }
}
