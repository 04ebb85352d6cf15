/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/local/submit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/local/pool.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/jobfile.h"

/* The exit code for a refusal by the pool. These errors mean that the job is wrong; all others mean
 * that the pool or the machine has failed. */
static int refusal_code(const struct err *e)
{
    return e->num == EINVAL || e->num == ERANGE || e->num == E2BIG || e->num == ENAMETOOLONG
               ? EXIT_MISUSE
               : EXIT_CLUSTER;
}

/* Was this job.conf written from the same submission? Its text may differ: the pool may have
 * resized the job before it died. */
static bool same_job(const char *dir, const char *id, const struct job_file *mine, int64_t since_s)
{
    AUTO(buf_done) struct buf there = { 0 };
    AUTO(job_file_freep) struct job_file *f = NULL;
    AUTO(free_p) char *path = str_printf("%s/%s/job.conf", dir, id);
    struct stat st;
    return path && stat(path, &st) == 0 && st.st_mtime >= since_s &&
           fs_read(AT_FDCWD, path, &there, NULL) == 0 &&
           job_file_decode(buf_span(&there), &f, NULL) == 0 && f->pid == mine->pid &&
           f->wall_ms == mine->wall_ms && str_eq(f->host, mine->host);
}

/* Find the job that the pool accepted before it died without an answer. If the pool accepted it,
 * its directory exists; a short job may be in the history already. since_s: wall-clock time before
 * the submission. */
static bool find_accepted(struct cluster_host *h, const struct buf *text, int64_t since_s,
                          char out_id[APP_ID_MAX])
{
    /* A job moves from the first to the second directory. */
    const char *const dirs[] = { h->paths.jobs, h->paths.history };
    AUTO(job_file_freep) struct job_file *mine = NULL;
    bool found = false;
    if (job_file_decode(buf_span(text), &mine, NULL) < 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(dirs) && !found; i++) {
        DIR *d = opendir(dirs[i]);
        for (struct dirent *de; d && !found && (de = readdir(d));)
            found = de->d_name[0] != '.' && same_job(dirs[i], de->d_name, mine, since_s) &&
                    str_copy(out_id, APP_ID_MAX, de->d_name);
        if (d)
            (void)closedir(d);
    }
    return found;
}

/* Submit once. -ECONNRESET: the connection broke before an answer. */
static int submit_once(struct cluster_host *h, const struct cluster_job *j, const struct buf *text,
                       bool owned, struct answer *a, struct conn **pool, struct err *e)
{
    int rc = link_dial_pool(h, true, pool, e);
    if (rc < 0)
        return rc;
    Tony__Submit submit = TONY__SUBMIT__INIT;
    submit.version = TONY__VERSION__PROTOCOL_VERSION;
    submit.conf = (ProtobufCBinaryData){ .data = (uint8_t *)text->p, .len = text->len };
    submit.owned = owned;
    submit.secrets =
        (ProtobufCBinaryData){ .data = (uint8_t *)j->secrets.p, .len = j->secrets.len };
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_SUBMIT;
    f.submit = &submit;
    rc = link_ask(h, pool, &f, a, e);
    if (rc == 0 && !a->application_id) {
        (void)err_set(e, EPROTO, "the pool's answer does not say whether it accepted the job");
        rc = err_hint(e, LINK_OTHER_VERSION);
    }
    return rc;
}

/* The pool refuses a job by its total. Add to the error the line of the job that requests the
 * largest part. Returns -EXIT_MISUSE. */
static int blame(const struct cluster_job *j, struct err *e)
{
    const struct job_spec *s = j->spec;
    const char *origin = NULL;
    bool gpus = strstr(e->msg, "GPUs") != NULL;
    uint64_t most = 0;
    for (size_t i = 0; i < s->n_roles; i++) {
        const struct role_spec *r = &s->roles[i];
        uint64_t asks = r->instances * (gpus ? (uint64_t)r->gpus : r->memory_mib);
        AUTO(free_p)
        char *key = str_printf("tony.%s.%s", r->name, gpus ? "gpus" : "instances");
        if (asks <= most || !key)
            continue;
        most = asks;
        origin = conf_origin(j->conf, key);
    }
    if (s->single_node)
        origin = conf_origin(j->conf, gpus ? "tony.am.gpus" : "tony.containers.command");
    if (e->num == ERANGE && origin && !strstr(e->msg, origin))
        (void)err_wrap(e, -e->num, "%s", origin);
    return -EXIT_MISUSE;
}

/* If the pool dies during a submission, the job is accepted exactly if its directory exists: no
 * later pool creates it. The pool handles received requests on one thread, before it closes the
 * connection. */
static int submit_text(struct cluster_host *h, const struct cluster_job *j, const struct buf *text,
                       bool owned, char out_id[APP_ID_MAX], struct conn **out_pool, struct err *e)
{
    enum { TRIES = 5, CLOCK_SLACK_S = 60 };
    int64_t since_s = clock_wall_ms() / 1000 - CLOCK_SLACK_S;
    for (int i = 0;; i++) {
        struct answer a = { 0 };
        struct conn *pool = NULL;
        int rc = submit_once(h, j, text, owned, &a, &pool, e);
        bool ok = rc == 0 && str_copy(out_id, APP_ID_MAX, a.application_id);
        bool refused = a.refused;
        answer_done(&a);
        if (ok) {
            *out_pool = pool;
            return 0;
        }
        conn_close(pool);
        if (refused)
            return -refusal_code(e);
        if (!link_broke(rc))
            return -EXIT_CLUSTER;
        if (find_accepted(h, text, since_s, out_id))
            return 0;
        if (i + 1 == TRIES)
            return -EXIT_CLUSTER;
    }
}

int local_submit_text(struct cluster_host *h, const struct cluster_job *j, bool owned,
                      char out_id[APP_ID_MAX], struct conn **out_pool, struct err *e)
{
    *out_pool = NULL;
    AUTO(buf_done) struct buf text = { 0 };
    if (job_conf_text(h, j, &text, e) < 0)
        return e->num == EILSEQ ? -EXIT_MISUSE : -EXIT_CLUSTER;
    if (owned)
        signals_hold();
    int rc = submit_text(h, j, &text, owned, out_id, out_pool, e);
    return rc == -EXIT_MISUSE ? blame(j, e) : rc;
}
