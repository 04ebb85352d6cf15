/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resizes a waiting job: replaces its job.conf.
 *
 * 1. A thread writes the new text to job.conf.new and syncs it.
 * 2. If the job still waits, the loop renames the file to job.conf and changes the figures of the
 *    job. No keeper can start between these two actions.
 * 3. A thread syncs the directory. Then the client gets its answer.
 *
 * If the pool dies before the rename, the next pool removes job.conf.new. If it dies after the
 * rename, the job has the new size.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "conf/conf.h"
#include "loop/loop.h"
#include "pool/pool_int.h"
#include "storage/jobfile.h"

enum { CONF_MAX = 8 << 20 }; /* as in submit.c */

static void resizing_free(struct resizing *r)
{
    if (!r)
        return;
    if (r->client)
        r->client->resizing = NULL;
    free(r->dir);
    free(r->path);
    free(r->new_path);
    buf_done(&r->text);
    job_spec_free(r->spec);
    free(r);
}

static void resizing_freep(struct resizing **r)
{
    resizing_free(*r);
}

static int no_memory(struct err *e)
{
    return err_set(e, ENOMEM, "cannot resize the job: %m");
}

static struct resizing *resizing_new(struct pool *p, const char *id)
{
    struct resizing *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->pool = p;
    (void)str_copy(r->id, sizeof r->id, id); /* always fits: both have APP_ID_MAX bytes */
    r->dir = paths_job(&p->paths, id);
    r->path = r->dir ? fs_join(r->dir, "job.conf") : NULL;
    r->new_path = r->dir ? fs_join(r->dir, "job.conf.new") : NULL;
    if (r->path && r->new_path)
        return r;
    resizing_free(r);
    return NULL;
}

/* ---- checks ---- */

/* Does the job wait, with an empty journal? A job that had a keeper and waits again for its GPUs
 * may have records in its journal, and its master has read the old size from job.conf. */
static int check_waits(const struct pool_job *j, const char *dir, struct err *e)
{
    AUTO(free_p) char *journal = fs_join(dir, "journal");
    if (!journal)
        return no_memory(e);
    if (!pool_job_admitted(j) && !fs_has_text(journal))
        return 0;
    return err_set(e, EREMOTE, "job '%s' has a master: ask the master to resize it", j->id);
}

static int refuse_role(const struct job_spec *spec, const char *role, struct err *e)
{
    AUTO(buf_done) struct buf names = { 0 };
    for (size_t i = 0; i < spec->n_roles; i++)
        (void)buf_addf(&names, "%s'%s'", i ? ", " : "", spec->roles[i].name);
    (void)err_set(e, ENOENT, "the job has no role '%s'", role);
    return spec->n_roles ? err_hint(e, "its roles are %s", buf_cstr(&names)) : -ENOENT;
}

static int set_role(struct conf *c, const struct job_spec *spec, const Tony__RoleSize *m,
                    const char *origin, struct err *e)
{
    char value[16];
    if (!job_spec_role(spec, m->role) || str_eq(m->role, PREPROCESS_ROLE))
        return refuse_role(spec, m->role, e);
    AUTO(free_p) char *key = str_printf("tony.%s.instances", m->role);
    (void)snprintf(value, sizeof value, "%u", m->instances);
    return key ? conf_set(c, CL_CONF, key, value, origin, false, e) : no_memory(e);
}

/* Check the new size by the same rules as for a running job. */
static int check_size(const struct job_spec *spec, const Tony__ResizeJob *m, struct err *e)
{
    AUTO(free_p) uint32_t *now = calloc(2 * spec->n_roles + 1, sizeof *now);
    if (!now)
        return no_memory(e);
    uint32_t *target = now + spec->n_roles;
    for (size_t i = 0; i < spec->n_roles; i++) {
        now[i] = target[i] = spec->roles[i].instances;
        for (size_t k = 0; k < m->n_roles; k++)
            if (str_eq(m->roles[k]->role, spec->roles[i].name))
                target[i] = m->roles[k]->instances;
    }
    return job_spec_check_size(spec, now, target, e);
}

static int build(struct resizing *r, const Tony__ResizeJob *m, struct err *e)
{
    AUTO(buf_done) struct buf text = { .max = CONF_MAX };
    AUTO(job_file_freep) struct job_file *file = NULL;
    AUTO(job_spec_freep) struct job_spec *spec = NULL;
    int rc = fs_read(AT_FDCWD, r->path, &text, e);
    if (rc == 0)
        rc = job_file_decode(buf_span(&text), &file, e);
    if (rc == 0)
        rc = job_spec_build(file->conf, &spec, e);
    AUTO(free_p) char *origin = str_printf("tony resize%s%s", m->who[0] ? " by " : "", m->who);
    if (rc == 0 && !origin)
        rc = no_memory(e);
    for (size_t i = 0; i < m->n_roles && rc == 0; i++)
        rc = set_role(file->conf, spec, m->roles[i], origin, e);
    if (rc == 0)
        rc = check_size(spec, m, e);
    if (rc == 0) {
        rc = job_spec_build(file->conf, &r->spec, e);
        if (rc < 0 && rc != -ENOMEM)
            rc = -(e->num = EINVAL); /* the new numbers make the job invalid */
    }
    if (rc == 0)
        rc = submit_check_size(r->pool, r->spec, e);
    if (rc == 0) {
        r->text.max = CONF_MAX;
        rc = job_file_encode(file, &r->text, e);
    }
    return rc < 0 ? err_wrap(e, rc, "cannot resize job '%s'", r->id) : 0;
}

/* A second resize of the same job would write the same file. */
static int check_idle(const struct pool_job *j, struct err *e)
{
    if (!j->conf_busy)
        return 0;
    (void)err_set(e, EBUSY, "job '%s' is being resized already", j->id);
    return err_hint(e, "ask again");
}

/* ---- the three steps ---- */

static int sync_text(struct resizing *r)
{
    AUTO(close_p)
    int fd = open(r->new_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = fd == -1 ? -errno : fs_write_all(fd, r->text.p, r->text.len);
    if (rc == 0 && fsync(fd) == -1)
        rc = -errno;
    return rc < 0 ? err_set(&r->e, -rc, "cannot resize the job: cannot write '%s': %m", r->new_path)
                  : 0;
}

static int write_work(void *arg)
{
    return sync_text(arg);
}

static int dir_work(void *arg)
{
    struct resizing *r = arg;
    AUTO(close_p) int fd = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1 && errno == ENOENT)
        return 0; /* the job has ended already */
    return fd == -1 || fsync(fd) == -1
               ? err_set(&r->e, errno, "cannot write '%s' to the disk: %m", r->dir)
               : 0;
}

static void finish(struct resizing *r)
{
    if (!r->pool->ended)
        clients_resized(r, &r->e);
    resizing_free(r);
}

/* Report a failure to the policy now. Success is reported as soon as the job has its new size. */
static void report_to_policy(const struct resizing *r, int rc)
{
    struct pool_job *j = r->by_policy ? pool_job_find(r->pool, r->id) : NULL;
    if (j)
        sharing_sized(j, rc);
}

static void dir_done(void *arg, int rc)
{
    struct resizing *r = arg;
    if (rc < 0 && !r->e.num)
        (void)err_set(&r->e, -rc, "cannot resize the job: %m");
    finish(r);
}

/* Give the job its new size. */
static int take_size(struct resizing *r)
{
    struct pool_job *j = pool_job_find(r->pool, r->id);
    int rc = j ? check_waits(j, r->dir, &r->e)
               : err_set(&r->e, ENOENT, "job '%s' neither waits nor runs any more", r->id);
    if (rc == 0 && rename(r->new_path, r->path) == -1)
        rc = err_set(&r->e, errno, "cannot rename '%s' to '%s': %m", r->new_path, r->path);
    if (rc < 0)
        return rc;
    rc = submit_take_figures(j, r->spec, &r->e);
    log_event(LOG_INFO, "job.resized", f_str("job", r->id), f_int("containers", j->n_containers),
              f_int("memory_mib", (int64_t)j->needs.memory_mib), f_int("gpus", j->needs.gpus));
    return rc;
}

static void write_done(void *arg, int rc)
{
    struct resizing *r = arg;
    struct pool *p = r->pool;
    struct pool_job *busy = pool_job_find(p, r->id);
    if (busy)
        busy->conf_busy = false;
    if (rc < 0 && !r->e.num)
        (void)err_set(&r->e, -rc, "cannot resize the job: %m");
    if (p->ended) {
        (void)unlink(r->new_path);
        finish(r);
        return;
    }
    if (rc < 0 || take_size(r) < 0) {
        (void)unlink(r->new_path); /* it may be missing */
        report_to_policy(r, -EIO);
        finish(r);
        pool_admit(p);
        return;
    }
    report_to_policy(r, 0);
    struct pool_job *j = pool_job_find(p, r->id);
    clients_tell(j);
    rc = loop_work(p->loop, dir_work, dir_done, r);
    pool_admit(p);
    if (rc < 0)
        dir_done(r, dir_work(r));
}

static int start_writing(struct resizing *r, struct pool_job *j, struct err *e)
{
    struct pool *p = r->pool;
    if (loop_work(p->loop, write_work, write_done, r) < 0)
        return no_memory(e);
    j->conf_busy = true;
    p->n_submissions++; /* so that the pool does not exit meanwhile */
    return 0;
}

int resize_waiting(struct pool_client *c, const Tony__ResizeJob *m, struct err *e)
{
    struct pool *p = c->pool;
    struct pool_job *j = pool_job_find(p, m->application_id);
    if (c->resizing)
        return err_set(e, EBUSY,
                       "a resize that was requested on this connection is still under way");
    if (!j) {
        (void)err_set(e, ENOENT, "no job '%s' waits or runs", m->application_id);
        return err_hint(e, "tony list shows the jobs that wait or run");
    }
    if (m->n_roles == 0)
        return err_set(e, EINVAL, "the request for a resize names no role");
    AUTO(resizing_freep) struct resizing *r = resizing_new(p, j->id);
    if (!r)
        return no_memory(e);
    int rc = check_waits(j, r->dir, e);
    if (rc == 0)
        rc = check_idle(j, e);
    if (rc == 0)
        rc = build(r, m, e);
    if (rc == 0)
        rc = start_writing(r, j, e);
    if (rc < 0)
        return rc;
    r->client = c;
    c->resizing = TAKE(r);
    return 0;
}

int resize_by_policy(struct pool_job *j, const char *role, uint32_t n, struct err *e)
{
    struct pool *p = j->pool;
    Tony__RoleSize size = TONY__ROLE_SIZE__INIT, *list[] = { &size };
    Tony__ResizeJob m = TONY__RESIZE_JOB__INIT;
    AUTO(free_p) char *who = str_printf("the pool's policy '%s'", sharing_name(p));
    AUTO(resizing_freep) struct resizing *r = resizing_new(p, j->id);
    if (!r || !who)
        return no_memory(e);
    r->by_policy = true;
    size.role = (char *)(uintptr_t)role;
    size.instances = n;
    m.roles = list;
    m.n_roles = 1;
    m.who = who;
    int rc = check_waits(j, r->dir, e);
    if (rc == 0)
        rc = build(r, &m, e);
    if (rc == 0)
        rc = start_writing(r, j, e);
    if (rc < 0)
        return rc;
    (void)TAKE(r);
    return 0;
}

void resize_cleanup(const struct pool_job *j)
{
    AUTO(free_p) char *dir = paths_job(&j->pool->paths, j->id);
    AUTO(free_p) char *path = dir ? fs_join(dir, "job.conf.new") : NULL;
    if (path)
        (void)unlink(path); /* it may be missing */
}
