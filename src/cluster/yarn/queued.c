/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job on YARN that waits for its first master. `tony resize` leaves the new sizes in the staging
 * directory of the job; scheduler/yarn/resizefile.h describes the files. The rules for sizes are
 * those of the core: this client feeds it the job and the requests, as the master will do.
 */
#include <errno.h>
#include <inttypes.h>
#include <sys/random.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/link.h"
#include "cluster/yarn/stage.h"
#include "cluster/yarn/yarn.h"
#include "codec/frame.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"
#include "history/history.h"
#include "job/job.h"
#include "proto/tony.pb-c.h"
#include "scheduler/yarn/resizefile.h"
#include "storage/jobfile.h"

enum {
    TRIES = 5, /* retries if other clients resize the job at the same time */
};

/* A queued job, with the size with which it would start now. */
struct queued {
    struct yarn *y;
    const char *id;
    char *staging, *dir; /* paths in HDFS; dir: of the requests */
    /* number of the newest request, which replaces the others; 0 = there is none */
    uint32_t newest;
    int64_t bytes; /* its size */
    struct job_file *file;
    struct job_spec *spec;
    struct job *job;
    struct job_actions actions;
};

static void queued_done(struct queued *q)
{
    vec_done(&q->actions);
    job_free(q->job);
    job_spec_free(q->spec);
    job_file_free(q->file);
    free(q->staging);
    free(q->dir);
}

static int no_memory(const struct queued *q, struct err *e)
{
    return err_set(e, ENOMEM, "cannot read job '%s': %m", q->id);
}

bool yarn_is_queued(const struct yarn_report *r)
{
    return !yarn_app_state_is_final(r->state) &&
           r->state != HADOOP__YARN_APPLICATION_STATE__RUNNING && r->attempt <= 1;
}

/* ---- reading the job ---- */

struct listing {
    struct yarn_join join;
    struct queued *q;
};

static void on_listed(const struct files_result *r, const struct err *e, void *arg)
{
    struct listing *l = arg;
    if (r)
        l->q->newest = resize_file_newest(NULL, r->stats, r->n_stats, &l->q->bytes);
    yarn_join_end(&l->join, e);
}

static int find_newest(struct queued *q, struct err *e)
{
    struct listing l = { .join = { .loop = q->y->loop, .n = 1 }, .q = q };
    int rc = webhdfs_list(q->y->fs, q->dir, on_listed, &l, NULL, e);
    if (rc < 0)
        return rc;
    yarn_join_wait(&l.join);
    if (l.join.e.num)
        *e = l.join.e;
    return -l.join.e.num;
}

/* *file is set even if the spec cannot be built. */
static int read_spec(struct yarn *y, const char *id, struct job_file **file, struct job_spec **spec,
                     struct err *e)
{
    AUTO(free_p) char *path = str_printf("%s/%s/job.conf", y->dir, id);
    AUTO(buf_done) struct buf text = { .max = JOB_FILE_MAX };
    if (!path)
        return err_set(e, ENOMEM, "cannot read job '%s': %m", id);
    int rc = yarn_read(y, path, JOB_FILE_MAX, &text, e);
    if (rc == 0)
        rc = job_file_decode(buf_span(&text), file, e);
    return rc == 0 ? job_spec_build((*file)->conf, spec, e) : rc;
}

int yarn_job_spec(struct yarn *y, const char *id, struct job_spec **out, struct err *e)
{
    AUTO(job_file_freep) struct job_file *file = NULL;
    return yarn_home(y, e) < 0 ? -e->num : read_spec(y, id, &file, out, e);
}

static int read_conf(struct queued *q, struct err *e)
{
    int rc = read_spec(q->y, q->id, &q->file, &q->spec, e);
    if (rc < 0)
        return rc;
    /* The core carries out a resize only with a master. */
    const struct job_event events[] = {
        history_submitted(q->file, q->id),
        { .type = EV_MASTER_STARTED, .master_started = { .epoch = 1, .gives_back = true } },
        { .type = EV_RESYNCED },
    };
    q->job = job_new(q->spec, e);
    if (!q->job)
        return no_memory(q, e);
    for (size_t i = 0; i < ARRAY_LEN(events); i++) {
        q->actions.n = 0;
        if (job_feed(q->job, &events[i], 0, &q->actions, e) != 0)
            return err_wrap(e, -(e->num ? e->num : EINVAL), "cannot read job '%s'", q->id);
    }
    return 0;
}

/* Feed the core a request. 0, or -errno: it is refused. */
static int feed(struct queued *q, const Tony__ResizeJob *r, struct err *e)
{
    AUTO(buf_done) struct buf targets = { 0 };
    for (size_t i = 0; i < r->n_roles; i++)
        if (buf_addf(&targets, "%s%s=%u", i ? "," : "", r->roles[i]->role, r->roles[i]->instances) <
            0)
            return no_memory(q, e);
    struct job_event ev = { .type = EV_RESIZE,
                            .resize = { .who = "a client", .targets = buf_cstr(&targets) } };
    q->actions.n = 0;
    int rc = job_feed(q->job, &ev, 0, &q->actions, e);
    return rc == 1 ? -(e->num ? e->num : EINVAL) : rc;
}

/* Feed the newest request in HDFS. Ignore an invalid one, as the master does. */
static int feed_newest(struct queued *q, struct err *e)
{
    AUTO(frame_freep) Tony__Frame *f = NULL;
    AUTO(buf_done) struct buf text = { .max = RESIZE_FILE_MAX };
    struct err unread = { 0 };
    if (!q->newest || q->bytes > RESIZE_FILE_MAX)
        return 0;
    AUTO(free_p) char *path = str_printf("%s/%" PRIu32, q->dir, q->newest);
    int rc = path ? yarn_read(q->y, path, RESIZE_FILE_MAX, &text, e) : no_memory(q, e);
    if (rc == -ENOENT)
        return -EEXIST; /* a newer request has replaced it, or a master has taken both */
    if (rc < 0)
        return rc;
    if (resize_file_decode(buf_span(&text), q->id, &f, &unread) == 0)
        (void)feed(q, f->resize_job, &unread);
    return 0;
}

/* 0 or -errno. -ENOENT: a master has taken the requests, job.conf is not written yet, or a tony of
 * another version has submitted the job. -EEXIST: another client has changed them in the meantime.
 */
static int load(struct queued *q, struct err *e)
{
    if (yarn_home(q->y, e) < 0)
        return -e->num;
    q->staging = str_printf("%s/%s", q->y->dir, q->id);
    q->dir = q->staging ? fs_join(q->staging, RESIZE_QUEUED_DIR) : NULL;
    int rc = q->dir ? find_newest(q, e) : no_memory(q, e);
    if (rc == 0)
        rc = read_conf(q, e);
    if (rc == -EBADMSG) /* the client that submits the job is still writing it */
        return -ENOENT;
    return rc == 0 ? feed_newest(q, e) : rc;
}

/* The member "roles" of the job's status document. The caller frees it; NULL = no memory. */
static json_t *roles(const struct queued *q)
{
    AUTO(buf_done) struct buf text = { .max = SIZE_MAX / 4 };
    if (job_status_json(q->job, false, &text) < 0)
        return NULL;
    json_t *doc = json_loadb(text.p, text.len, 0, NULL);
    json_t *list = json_incref(json_object_get(doc, "roles"));
    json_decref(doc);
    return list;
}

json_t *yarn_queued_roles(struct yarn *y, const char *id)
{
    struct queued q = { .y = y, .id = id };
    struct err unread = { 0 };
    json_t *list = load(&q, &unread) == 0 ? roles(&q) : NULL;
    queued_done(&q);
    return list;
}

/* ---- a new request ---- */

static int check(struct queued *q, const struct cluster_resize *w, struct err *e)
{
    Tony__RoleSize sizes[RESIZE_ROLES_MAX], *list[RESIZE_ROLES_MAX];
    Tony__ResizeJob r = TONY__RESIZE_JOB__INIT;
    json_t *doc = json_pack("{s:s, s:o?}", "application_id", q->id, "roles", roles(q));
    int code = doc ? resize_check(w, doc, e) : -no_memory(q, e);
    json_decref(doc);
    if (code)
        return doc ? -code : -EXIT_CLUSTER;
    for (size_t i = 0; i < w->sizes.n && i < RESIZE_ROLES_MAX; i++) {
        tony__role_size__init(&sizes[i]);
        sizes[i].role = w->sizes.v[i].role;
        sizes[i].instances = w->sizes.v[i].instances;
        list[r.n_roles++] = &sizes[i];
    }
    r.roles = list;
    int rc = feed(q, &r, e);
    return rc == -ENOMEM ? -EXIT_CLUSTER : rc < 0 ? -EXIT_JOB_FAILED : 0;
}

/* The text of the file: the new size of all roles, since it replaces the files before it. */
static int encode(const struct queued *q, const struct cluster_resize *w, struct buf *out,
                  struct err *e)
{
    char who[LINK_CLIENT_MAX];
    Tony__ResizeJob r = TONY__RESIZE_JOB__INIT;
    json_t *all = roles(q), *role;
    size_t n = json_array_size(all), i;
    AUTO(free_p) Tony__RoleSize *sizes = calloc(n + 1, sizeof *sizes);
    AUTO(free_p) Tony__RoleSize **list = calloc(n + 1, sizeof *list);
    int rc = all && sizes && list ? 0 : no_memory(q, e);
    json_array_foreach(rc == 0 ? all : NULL, i, role)
    {
        const struct role_spec *spec = job_spec_role(q->spec, json_str(role, "name", ""));
        int64_t instances = json_int(role, "instances", 0);
        bool named = false;
        for (size_t k = 0; k < w->sizes.n; k++)
            named |= str_eq(w->sizes.v[k].role, json_str(role, "name", ""));
        if (!spec || (!named && instances == (int64_t)spec->instances))
            continue;
        tony__role_size__init(&sizes[i]);
        sizes[i].role = (char *)(uintptr_t)json_str(role, "name", "");
        sizes[i].instances = (uint32_t)instances;
        list[r.n_roles++] = &sizes[i];
    }
    link_describe_client(who);
    r.roles = list;
    r.application_id = (char *)(uintptr_t)q->id;
    r.who = who;
    r.reason = (char *)(uintptr_t)(w->reason ? w->reason : "");
    r.within_ms = (uint64_t)w->within_ms;
    if (rc == 0)
        rc = resize_file_encode(&r, out, e);
    json_decref(all);
    return rc;
}

/* Write the file under a temporary name, and rename it. The temporary name is in cache/, because a
 * put makes missing directories: in the directory of the requests it could undo the master's
 * removal of that directory. Old temporary files in cache/ are removed by later clients.
 *
 * 0, or -errno. -ENOENT: a master has taken the requests; -EEXIST: another client was faster. */
static int put(struct queued *q, struct span text, struct err *e)
{
    uint64_t number = 0;
    (void)!getrandom(&number, sizeof number, 0); /* never fails for so few bytes */
    AUTO(free_p)
    char *temp = str_printf("%s/cache/" YARN_HALF_PREFIX "%016" PRIx64, q->y->dir, number);
    AUTO(free_p) char *path = str_printf("%s/%" PRIu32, q->dir, q->newest + 1);
    AUTO(free_p)
    char *old = q->newest ? str_printf("%s/%" PRIu32, q->dir, q->newest) : NULL;
    int rc = temp && path ? yarn_write(q->y, temp, text, e) : no_memory(q, e);
    if (rc < 0)
        return rc;
    rc = yarn_rename(q->y, temp, path, e);
    /* If the answer to a rename was lost and the request repeated, WebHDFS reports the same for a
     * success as for a missing directory. */
    if (rc == 0 && yarn_exists(q->y, temp))
        rc = err_set(e, ENOENT, "there is no '%s' in HDFS", q->dir);
    if (rc < 0)
        (void)yarn_remove(q->y, temp, NULL); /* if that fails, a later client removes it */
    else if (old)
        (void)yarn_remove(q->y, old, NULL); /* if both files exist, the newer one is used */
    return rc;
}

/* 1 = done; 0 = ask the master; or minus the exit code. *out_again: other clients have changed the
 * requests at the same time. */
static int try_resize(struct queued *q, const struct cluster_resize *w, bool *out_again,
                      struct err *e)
{
    AUTO(buf_done) struct buf text = { 0 };
    int rc = load(q, e);
    *out_again = rc == -EEXIST;
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return -EXIT_CLUSTER;
    rc = check(q, w, e);
    if (rc < 0)
        return rc;
    rc = encode(q, w, &text, e);
    if (rc == 0)
        rc = put(q, buf_span(&text), e);
    *out_again = rc == -EEXIST;
    if (rc == -ENOENT)
        return 0;
    return rc < 0 ? -EXIT_CLUSTER : 1;
}

int yarn_queued_resize(struct yarn *y, const char *id, const struct cluster_resize *w,
                       struct err *e)
{
    for (int i = 0; i < TRIES; i++) {
        struct queued q = { .y = y, .id = id };
        bool must_retry = false;
        *e = (struct err){ 0 };
        int rc = try_resize(&q, w, &must_retry, e);
        queued_done(&q);
        if (!must_retry)
            return rc;
    }
    (void)err_set(e, EBUSY, "cannot resize job '%s': other clients resize it at the same time", id);
    (void)err_hint(e, "try again");
    return -EXIT_CLUSTER;
}

/* ---- struct cluster_ops, resize_waiting ---- */

static bool has_master(const struct yarn_report *r)
{
    return r->state == HADOOP__YARN_APPLICATION_STATE__RUNNING && r->host[0] && r->rpc_port > 0;
}

/* The request is in HDFS. If the job has a master now, that master should be asked as well. It
 * usually has the request already, and asking twice has no effect. */
static int after_leaving(struct yarn *y, const char *id, json_t **out, struct err *e)
{
    struct yarn_report r = { 0 };
    struct err unread = { 0 };
    int rc = CLUSTER_RESIZED;
    /* Without a report the answer is the same: the master reads the request in HDFS. */
    bool has_report = yarn_report(y, id, &r, &unread) == 0;
    if (has_report && yarn_app_state_is_final(r.state)) {
        (void)err_set(e, EINVAL, "job %s is over: %s", id, yarn_app_state_name(r.state));
        rc = -EXIT_JOB_FAILED;
    } else if (has_report && has_master(&r)) {
        rc = CLUSTER_LEFT;
    } else if (!(*out = json_pack("{s:s, s:b}", "application_id", id, "resized", 1))) {
        (void)err_set(e, ENOMEM, "cannot show the answer: %m");
        rc = -EXIT_CLUSTER;
    }
    yarn_report_done(&r);
    return rc;
}

int yarn_resize_waiting(struct cluster *k, const char *id, const struct cluster_resize *w,
                        json_t **out, struct err *e)
{
    struct yarn *y = yarn_of(k);
    struct yarn_report r = { 0 };
    if (yarn_report(y, id, &r, e) < 0)
        return e->num == ENOENT || e->num == EINVAL ? -EXIT_MISUSE : -EXIT_CLUSTER;
    bool queued = yarn_is_queued(&r) && str_eq(r.user, y->user);
    yarn_report_done(&r);
    int rc = queued ? yarn_queued_resize(y, id, w, e) : 0;
    return rc <= 0 ? rc : after_leaving(y, id, out, e);
}
