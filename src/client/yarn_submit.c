/*
 * A checked job onto the cluster: what is asked, what is staged, and the handing over.
 */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/submit.h"
#include "client/yarn_submit.h"
#include "hadoop/yarn.h"

static int no_memory(struct err *e)
{
    (void)err_set(e, ENOMEM, "cannot submit the job: %m");
    return -EXIT_CLUSTER;
}

/* ---- the job's own directory ---- */

static void op_done(const struct webhdfs_result *r, const struct err *e, void *arg)
{
    struct submission *s = arg;
    (void)r;
    yarn_join_end(&s->join, e);
}

struct file_stat {
    struct submission *s;
    struct job_file_at *at;
};

static void file_looked(const struct webhdfs_result *r, const struct err *e, void *arg)
{
    struct file_stat *f = arg;
    if (r) {
        f->at->size = r->stats->length;
        f->at->mtime_ms = r->stats->mtime_ms;
    }
    yarn_join_end(&f->s->join, e);
}

static int begin_put(struct submission *s, const char *name, struct span data, struct err *e)
{
    AUTO(free_p) char *path = fs_join(s->dir, name);
    /* Under its own name: nobody looks before the job is submitted. */
    const struct webhdfs_put put = {
        .path = path, .mode = 0600, .overwrite = true, .direct = true, .data = data
    };
    int rc = path ? webhdfs_put(s->y->fs, &put, op_done, s, NULL, e) : -ENOMEM;
    s->join.n += rc == 0;
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

static int write_dir(struct submission *s, struct err *e)
{
    char key[JOB_KEY_HEX];
    job_key_text(&s->client_key, key);
    s->made = true;
    if (webhdfs_mkdirs(s->y->fs, s->dir, 0700, op_done, s, NULL, e) < 0)
        return -EXIT_CLUSTER;
    s->join.n++;
    int rc = join_end(s, e);
    if (rc < 0)
        return rc;
    if (begin_put(s, s->files[0].name, buf_span(&s->job_conf), e) < 0 ||
        begin_put(s, s->files[1].name, buf_span(&s->yarn_json), e) < 0 ||
        begin_put(s, JOB_KEY_CLIENT_FILE, span_of(key), e) < 0)
        rc = -EXIT_CLUSTER;
    int ended = join_end(s, e);
    job_key_wipe(key, sizeof key);
    if (rc < 0 || ended < 0)
        return -EXIT_CLUSTER;
    s->staging.bytes_sent += s->job_conf.len + s->yarn_json.len;
    struct file_stat looks[2];
    for (size_t i = 0; i < ARRAY_LEN(looks); i++) {
        AUTO(free_p) char *path = fs_join(s->dir, s->files[i].name);
        looks[i] = (struct file_stat){ s, &s->files[i] };
        if (!path || webhdfs_stat(s->y->fs, path, file_looked, &looks[i], NULL, e) < 0)
            rc = -EXIT_CLUSTER;
        else
            s->join.n++;
    }
    ended = join_end(s, e);
    return rc < 0 ? rc : ended;
}

/* ---- all of it ---- */

static int say_notes(const struct strv *notes)
{
    for (size_t i = 0; i < notes->n; i++)
        client_note("%s", notes->v[i]);
    return 0;
}

/* All that is asked, and all that can be refused; nothing was sent yet. */
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
        yarn_join_wait(&s->staging.join);
        s->staging.join.waits_for = NULL;
        rc = yarn_ask_finish(ask, e);
    }
    if (rc == 0 && yarn_check(&s->facts, s->j, &notes, e) < 0)
        rc = -yarn_exit_code(e);
    if (rc == 0)
        rc = yarn_stage_answer(&s->staging, e);
    if (rc == 0)
        rc = say_notes(&notes);
    yarn_ask_free(ask);
    strv_done(&notes);
    return rc;
}

static int stage(struct submission *s, struct err *e)
{
    int rc = yarn_stage_send(&s->staging, e);
    if (rc < 0)
        return rc;
    say_notes(&s->staging.notes);
    char id[YARN_ID_TEXT_MAX];
    (void)str_copy(s->id, sizeof s->id, yarn_app_text(&s->app, id));
    s->dir = str_printf("%s/%s", s->y->dir, s->id);
    if (!s->dir)
        return no_memory(e);
    if (job_key_new(&s->key, e) < 0)
        return -EXIT_CLUSTER;
    job_key_client(&s->key, &s->client_key);
    if (submit_encode(s->y->c, s->j, &s->job_conf, e) < 0)
        return e->num == EILSEQ ? -EXIT_MISUSE : -EXIT_CLUSTER;
    rc = submission_yarn_json(s, e);
    return rc == 0 ? write_dir(s, e) : rc;
}

int yarn_submit(struct yarn *y, struct client_job *j, bool owned, struct yarn_job *out,
                struct err *e)
{
    struct submission s = {
        .y = y,
        .j = j,
        .owned = owned,
        .join = { .loop = y->loop },
        .files = { { .name = "job.conf" }, { .name = "yarn.json" } },
    };
    s.staging.y = y;
    s.staging.j = j;
    s.staging.join.loop = y->loop;
    int rc = 0;
    if (client_open_paths(y->c, e) < 0)
        rc = -EXIT_CLUSTER;
    if (rc == 0)
        rc = prepare(&s, e);
    if (rc == 0)
        rc = stage(&s, e);
    if (rc == 0)
        rc = submission_send(&s, e);
    if (rc == 0) {
        (void)str_copy(out->id, sizeof out->id, s.id);
        out->key = s.client_key;
        out->staging = yarn_stage_json(&s.staging);
        yarn_sweep(&s.staging, s.id);
    } else if (s.made) {
        (void)yarn_remove(y, s.dir, NULL); /* else the next client does it */
    }
    yarn_facts_done(&s.facts);
    yarn_stage_done(&s.staging);
    free(s.dir);
    buf_done(&s.job_conf);
    buf_done(&s.yarn_json);
    strv_done(&s.texts);
    job_key_wipe(&s.key, sizeof s.key);
    job_key_wipe(&s.client_key, sizeof s.client_key);
    return rc;
}

void yarn_job_done(struct yarn_job *j)
{
    json_decref(j->staging);
    job_key_wipe(&j->key, sizeof j->key);
    *j = (struct yarn_job){ 0 };
}
