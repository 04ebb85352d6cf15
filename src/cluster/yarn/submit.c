/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Submits a checked job to the cluster: asks for the facts, stages the files, and submits the job.
 */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/yarn/stage.h"
#include "cluster/yarn/submit.h"
#include "conf/conf.h"
#include "hadoop/yarn.h"
#include "scheduler/yarn/resizefile.h"
#include "scheduler/yarn/yarnfile.h"
#include "storage/sealed.h"

static int no_memory(struct err *e)
{
    (void)err_set(e, ENOMEM, "cannot submit the job: %m");
    return -EXIT_CLUSTER;
}

/* ---- the staging directory of the job ---- */

static void op_done(const struct files_result *r, const struct err *e, void *arg)
{
    struct submission *s = arg;
    (void)r;
    yarn_join_end(&s->join, e);
}

/* One file of the staging directory that is being written. Afterwards its size and time are
 * requested. */
struct job_put {
    struct submission *s;
    struct job_file_at *at;
    char *path;
};

static void file_looked(const struct files_result *r, const struct err *e, void *arg)
{
    struct job_put *p = arg;
    if (r) {
        p->at->size = r->stats->length;
        p->at->mtime_ms = r->stats->mtime_ms;
    }
    yarn_join_end(&p->s->join, e);
}

static void file_put(const struct files_result *r, const struct err *e, void *arg)
{
    struct job_put *p = arg;
    struct err err = *e;
    if (!r || webhdfs_stat(p->s->y->fs, p->path, file_looked, p, NULL, &err) < 0)
        yarn_join_end(&p->s->join, &err);
}

static void key_put(const struct files_result *r, const struct err *e, void *arg)
{
    struct submission *s = arg;
    (void)r;
    yarn_join_end(&s->key_join, e);
}

/* Without this file, a resize of the job waits for the job's master, which knows the rules. */
static void conf_put(const struct files_result *r, const struct err *e, void *arg)
{
    struct submission *s = arg;
    (void)r;
    (void)e;
    yarn_join_end(&s->key_join, NULL);
}

static int begin_put(struct submission *s, const char *path, struct span data,
                     webhdfs_done_fn *done, void *arg, struct yarn_join *join, struct err *e)
{
    /* No temporary name is needed: no process reads the file before the job is submitted. */
    const struct webhdfs_put put = { .path = path, .mode = 0600, .overwrite = true, .data = data };
    int rc = path ? webhdfs_put(s->y->fs, &put, done, arg, NULL, e)
                  : err_set(e, ENOMEM, "cannot stage the job: %m");
    join->n += rc == 0;
    return rc;
}

static int join_end(struct submission *s, struct err *e)
{
    yarn_join_wait(&s->join);
    if (!s->join.e.num)
        return 0;
    *e = s->join.e;
    (void)err_wrap(e, -e->num, "cannot stage the job");
    return -EXIT_CLUSTER;
}

static int make_dir(struct submission *s, struct err *e)
{
    /* One request makes both directories. */
    AUTO(free_p) char *queued = fs_join(s->dir, RESIZE_QUEUED_DIR);
    s->made = true;
    if (!queued)
        return no_memory(e);
    if (webhdfs_mkdirs(s->y->fs, queued, 0700, op_done, s, NULL, e) < 0)
        return -EXIT_CLUSTER;
    s->join.n++;
    return join_end(s, e);
}

/* Write all files in parallel: a DataNode needs 20 to 420 ms for each. The key is for later
 * commands of the user: finish_key() waits for it after the submission. The same holds for job.conf
 * if the launch context carries it: `tony resize` reads that file while the job waits for its
 * master. */
static int write_dir(struct submission *s, struct err *e)
{
    const struct span texts[] = { buf_span(&s->job_conf), buf_span(&s->yarn_json),
                                  buf_span(&s->sealed) };
    struct job_put puts[ARRAY_LEN(s->files)] = { 0 };
    int rc = make_dir(s, e);
    if (rc < 0)
        return rc;
    /* The daemons of YARN store what the launch context carries. So a job.conf with passwords is
     * staged. */
    s->carried =
        s->job_conf.len + s->yarn_json.len <= YARN_CARRIED_MAX && !conf_has_secrets(s->j->conf);
    s->files[0].staged = s->files[1].staged = !s->carried;
    s->files[2].staged = s->sealed.len > 0;
    for (size_t i = 0; i < ARRAY_LEN(puts); i++) {
        if (!s->files[i].staged)
            continue;
        puts[i] = (struct job_put){ s, &s->files[i], fs_join(s->dir, s->files[i].name) };
        if (begin_put(s, puts[i].path, texts[i], file_put, &puts[i], &s->join, e) < 0)
            rc = -EXIT_CLUSTER;
    }
    AUTO(free_p) char *key = fs_join(s->dir, JOB_KEY_CLIENT_FILE);
    AUTO(free_p) char *conf = s->carried ? fs_join(s->dir, "job.conf") : NULL;
    job_key_text(&s->client_key, s->key_text);
    if (begin_put(s, key, span_of(s->key_text), key_put, s, &s->key_join, e) < 0)
        rc = -EXIT_CLUSTER;
    AUTO(free_p) char *uses = fs_join(s->dir, YARN_USES_FILE);
    for (size_t i = 0; i < s->staging.v.n; i++)
        if (s->staging.v.v[i].digest)
            (void)yarn_uses_add(&s->uses, s->staging.v.v[i].digest);
    /* Without this file, no entry of the cache is removed while the job lives. */
    if (rc == 0 && !s->uses.failed)
        (void)begin_put(s, uses, buf_span(&s->uses), conf_put, s, &s->key_join, NULL);
    if (conf && rc == 0)
        (void)begin_put(s, conf, buf_span(&s->job_conf), conf_put, s, &s->key_join, NULL);
    int ended = join_end(s, e);
    for (size_t i = 0; i < ARRAY_LEN(puts); i++)
        free(puts[i].path);
    if (!s->carried)
        s->staging.bytes_sent += s->job_conf.len + s->yarn_json.len;
    s->staging.bytes_sent += s->sealed.len;
    return rc < 0 ? rc : ended;
}

/* Wait for the key and job.conf. */
static void finish_key(struct submission *s, bool accepted)
{
    yarn_join_wait(&s->key_join);
    job_key_wipe(s->key_text, sizeof s->key_text);
    if (accepted && s->key_join.e.num)
        host_note(s->y->host, "other commands will not reach the master of %s: %s", s->id,
                  s->key_join.e.msg);
}

/* ---- the whole submission ---- */

static int say_notes(const struct submission *s, const struct strv *notes)
{
    for (size_t i = 0; i < notes->n; i++)
        host_note(s->y->host, "%s", notes->v[i]);
    return 0;
}

/* Ask for all facts and make all checks, before anything is sent. */
static int prepare(struct submission *s, struct err *e)
{
    struct strv notes = { 0 };
    int rc = yarn_home(s->y, e);
    if (rc == 0)
        rc = yarn_stage_collect(&s->staging, e);
    struct yarn_ask *ask = NULL;
    AUTO(free_p) char *rm = site_addresses_text(&s->y->rm);
    AUTO(free_p) char *nn = site_addresses_text(&s->y->hdfs.http);
    AUTO(free_p)
    char *whom = str_printf("the ResourceManager at %s and the NameNode at %s", rm ? rm : "?",
                            nn ? nn : "?");
    if (rc == 0)
        rc = yarn_ask_begin(s->y, s->j, &s->staging.join, &s->facts, &s->app, &ask, e);
    if (rc == 0) {
        yarn_stage_ask(&s->staging);
        s->staging.join.waits_for = whom;
        s->staging.join.host = s->y->host;
        yarn_join_wait(&s->staging.join);
        s->staging.join.waits_for = NULL;
        rc = yarn_ask_finish(ask, e);
    }
    if (rc == 0 && !s->y->host->no_checks && yarn_check(&s->facts, s->j, &notes, e) < 0)
        rc = -yarn_exit_code(e);
    if (rc == 0)
        rc = yarn_stage_answer(&s->staging, e);
    if (rc == 0)
        rc = say_notes(s, &notes);
    yarn_ask_free(ask);
    strv_done(&notes);
    return rc;
}

/* Upload what the job ships. */
static int upload(struct submission *s, struct err *e)
{
    char id[YARN_ID_TEXT_MAX];
    int rc = yarn_stage_send(&s->staging, e);
    if (rc < 0)
        return rc;
    say_notes(s, &s->staging.notes);
    (void)str_copy(s->id, sizeof s->id, yarn_app_text(&s->app, id));
    s->dir = str_printf("%s/%s", s->y->dir, s->id);
    return s->dir ? 0 : no_memory(e);
}

/* Make the keys and the files for the master, and write them into the staging directory. */
static int write_files(struct submission *s, struct err *e)
{
    if (job_key_new(&s->key, e) < 0)
        return -EXIT_CLUSTER;
    job_key_client(&s->key, &s->client_key);
    int rc = submission_offer(s, e);
    if (rc < 0)
        return rc;
    if (job_conf_text(s->y->host, s->j, &s->job_conf, e) < 0)
        return e->num == EILSEQ ? -EXIT_MISUSE : -EXIT_CLUSTER;
    if (s->j->secrets.len &&
        sealed_write(&s->key, s->id, buf_span(&s->j->secrets), &s->sealed, e) < 0)
        return -EXIT_CLUSTER;
    rc = submission_yarn_json(s, e);
    return rc == 0 ? write_dir(s, e) : rc;
}

void yarn_submission_free(struct submission *s)
{
    if (!s)
        return;
    yarn_facts_done(&s->facts);
    yarn_stage_done(&s->staging);
    free(s->dir);
    buf_done(&s->job_conf);
    buf_done(&s->yarn_json);
    buf_done(&s->sealed);
    buf_done(&s->uses);
    job_key_wipe(s, sizeof *s);
    free(s);
}

int yarn_stage(struct cluster *k, struct cluster_job *j, struct err *e)
{
    struct yarn *y = yarn_of(k);
    struct submission *s = calloc(1, sizeof *s);
    if (!s)
        return no_memory(e);
    *s = (struct submission){
        .y = y,
        .j = j,
        .join = { .loop = y->loop },
        .key_join = { .loop = y->loop },
        .files = { { .name = "job.conf" }, { .name = "yarn.json" }, { .name = SEALED_FILE } }
    };
    s->staging.y = y;
    s->staging.j = j;
    s->staging.join.loop = y->loop;
    yarn_submission_free(y->staged);
    y->staged = s;
    if (host_open_paths(y->host, e) < 0)
        return -EXIT_CLUSTER;
    int rc = prepare(s, e);
    return rc == 0 ? upload(s, e) : rc;
}

static int say_submitted(const struct submission *s, struct cluster_submitted *out)
{
    int rc = strv_pushf(&out->said, "submitted %s as %s to queue %s", s->j->spec->name, out->id,
                        s->j->spec->queue);
    if (rc == 0 && s->y->web)
        rc = strv_pushf(&out->said, "http://%s/cluster/app/%s", s->y->web, out->id);
    return rc;
}

static void keep_result(struct submission *s, struct cluster_submitted *out)
{
    (void)str_copy(out->id, sizeof out->id, s->id);
    (void)str_copy(s->y->key_id, sizeof s->y->key_id, s->id);
    s->y->key = s->client_key;
    out->staging = yarn_stage_json(&s->staging);
    (void)say_submitted(s, out); /* without memory, a sentence is missing */
}

int yarn_submit(struct cluster *k, struct cluster_job *j, bool owned, struct cluster_submitted *out,
                struct err *e)
{
    struct yarn *y = yarn_of(k);
    struct submission *s = TAKE(y->staged);
    (void)j; /* the one that was staged */
    s->owned = owned;
    int rc = write_files(s, e);
    if (rc == 0)
        rc = submission_send(s, e);
    finish_key(s, rc == 0);
    if (rc == 0) {
        keep_result(s, out);
        yarn_sweep(&s->staging, s->id);
        host_tidy(y->host);
    } else if (s->made) {
        (void)yarn_remove(y, s->dir, NULL); /* on failure, the next client removes it */
    }
    yarn_submission_free(s);
    return rc;
}
