/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/conf.h"
#include "pool/pool_int.h"
#include "storage/jobfile.h"
#include "storage/secrets.h"

enum {
    CONF_MAX = 8 << 20, /* bytes of job.conf: twice the limit of a job file (4 MiB) */
};

/* ---- the needs of a job ---- */

static int no_memory(struct err *e)
{
    return err_set(e, ENOMEM, "the pool cannot accept the job: %m");
}

static int load_spec(struct span text, struct job_spec **out, int64_t *out_submitted_wall_ms,
                     struct err *e)
{
    AUTO(job_file_freep) struct job_file *file = NULL;
    int rc = job_file_decode(text, &file, e);
    if (rc < 0)
        return rc;
    *out_submitted_wall_ms = file->wall_ms;
    return job_spec_build(file->conf, out, e);
}

int submit_take_figures(struct pool_job *j, const struct job_spec *spec, struct err *e)
{
    struct job_demand demand;
    job_spec_demand(spec, &demand);
    j->needs = (struct admission_amount){ demand.memory_mib, demand.gpus };
    j->vcores = demand.vcores;
    j->n_containers = demand.n_containers;
    j->priority = spec->priority;
    j->client_away_ms = spec->client_away_ms;
    j->restart_on_boot = spec->restart_on_boot;
    j->allocation_ms = spec->gang ? (int64_t)spec->allocation_timeout_ms : 0;
    sharing_read_job(j, spec);
    free(j->name);
    j->name = str_dup(spec->name ? spec->name : "");
    return j->name ? 0 : no_memory(e);
}

int submit_load(struct pool_job *j, const char *dir, struct err *e)
{
    AUTO(free_p) char *path = fs_join(dir, "job.conf");
    AUTO(buf_done) struct buf text = { .max = CONF_MAX };
    AUTO(job_spec_freep) struct job_spec *spec = NULL;
    int64_t submitted = 0;
    if (!path)
        return no_memory(e);
    int rc = fs_read(AT_FDCWD, path, &text, e);
    if (rc == 0)
        rc = load_spec(buf_span(&text), &spec, &submitted, e);
    j->waited_ms = MAX(clock_wall_ms() - submitted, (int64_t)0);
    j->submitted_wall_ms = submitted;
    return rc < 0 ? err_wrap(e, rc, "job '%s'", j->id) : submit_take_figures(j, spec, e);
}

/* The role whose tasks need the most memory in all, for the error sentence. */
static const struct role_spec *heaviest(const struct job_spec *spec)
{
    const struct role_spec *most = spec->single_node ? &spec->am : NULL;
    for (size_t i = 0; !spec->single_node && i < spec->n_roles; i++) {
        const struct role_spec *r = &spec->roles[i];
        if (!most || r->memory_mib * r->instances > most->memory_mib * most->instances)
            most = r;
    }
    return most;
}

static int refuse_memory(const struct pool *p, const struct job_spec *spec, uint64_t needs_mib,
                         struct err *e)
{
    const struct role_spec *r = heaviest(spec);
    char need[32], have[32], each[32];
    (void)str_size(needs_mib << 20, need, sizeof need);
    (void)str_size(p->machine.memory_mib << 20, have, sizeof have);
    if (!r)
        return err_set(
            e, ERANGE, "the job needs %s of memory (%llu MiB), the pool has %s (%llu MiB)", need,
            (unsigned long long)needs_mib, have, (unsigned long long)p->machine.memory_mib);
    (void)str_size(r->memory_mib << 20, each, sizeof each);
    const char *origin = r->memory_origin ? r->memory_origin : "default";
    (void)err_set(e, ERANGE,
                  "the job needs %s of memory at once (%llu MiB), the pool has %s (%llu MiB): "
                  "%u x '%s' at %s each, tony.%s.memory from %s",
                  need, (unsigned long long)needs_mib, have,
                  (unsigned long long)p->machine.memory_mib, spec->single_node ? 1 : r->instances,
                  r->name, each, r->name, origin);
    return err_hint(e,
                    str_eq(origin, "default")
                        ? "the default of tony.%s.memory is %s: set it to what a task needs"
                        : "lower tony.%s.memory (now %s) or the number of instances",
                    r->name, each);
}

static int check_possible(const struct pool *p, const struct job_spec *spec,
                          const struct admission_amount *needs, struct err *e)
{
    struct admission_amount capacity = { p->machine.memory_mib, p->machine.n_gpus };
    if (admission_possible(&capacity, needs))
        return 0;
    if (needs->gpus <= capacity.gpus)
        return refuse_memory(p, spec, needs->memory_mib, e);
    (void)err_set(e, ERANGE, "the job needs %u GPU%s at once, the pool has %u", needs->gpus,
                  needs->gpus == 1 ? "" : "s", capacity.gpus);
    return err_hint(e, "lower tony.<role>.gpus or the number of instances; tony doctor shows the "
                       "devices that were found");
}

/* Is the limit of open files large enough? The master has a connection to each executor. With a
 * lower limit the gang would never be complete. */
int submit_check_files(uint32_t n_containers, struct err *e)
{
    enum { OTHER_FILES = 24 };
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == -1 || r.rlim_max >= (rlim_t)n_containers + OTHER_FILES)
        return 0;
    (void)err_set(e, ERANGE, "the job has %u tasks at once, and a process may open %llu files only",
                  n_containers, (unsigned long long)r.rlim_max);
    return err_hint(e,
                    "raise the limit (ulimit -Hn) to more than %u, and restart the pool with it: "
                    "tony pool stop",
                    n_containers + OTHER_FILES);
}

int submit_check_size(const struct pool *p, const struct job_spec *spec, struct err *e)
{
    struct job_demand demand;
    job_spec_demand(spec, &demand);
    int rc =
        check_possible(p, spec, &(struct admission_amount){ demand.memory_mib, demand.gpus }, e);
    return rc < 0 ? rc : submit_check_files(demand.n_containers, e);
}

/* ---- its directory ---- */

/* Give the job a number and write it to pool/next. That file only saves time: after a crash,
 * recover.c finds the used numbers in jobs/ and history/. So the file is neither synced nor
 * replaced by a rename, but overwritten. */
static int next_number(struct pool *p, uint32_t *out, struct err *e)
{
    AUTO(free_p) char *path = fs_join(p->paths.pool, "next");
    char text[16];
    if (!path || p->last_number == UINT32_MAX)
        return err_set(e, path ? EOVERFLOW : ENOMEM, "cannot give the job a number: %m");
    uint32_t number = p->last_number + 1;
    int n = snprintf(text, sizeof text, "%u\n", number);
    AUTO(close_p) int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = fd == -1 ? -errno : fs_write_all(fd, text, (size_t)n);
    if (rc < 0 || ftruncate(fd, n) == -1)
        return err_set(e, rc < 0 ? -rc : errno, "cannot write '%s': %m", path);
    p->last_number = *out = number;
    return 0;
}

static int fill_dir(struct pool *p, const char *dir, struct span conf_text, struct span secrets,
                    bool owned, struct err *e)
{
    int rc = ready_dir_take(p, dir) ? 0 : job_dir_make(dir, e);
    if (rc == 0)
        rc = job_dir_write(dir, "job.conf", conf_text.p, conf_text.len, e);
    if (rc == 0 && secrets.len)
        rc = job_dir_write(dir, SECRETS_FILE, secrets.p, secrets.len, e);
    if (rc == 0 && owned)
        rc = job_dir_write(dir, "owned", "", 0, e);
    return rc;
}

static int make_dir(struct pool *p, const char *id, struct span conf_text, struct span secrets,
                    bool owned, char **out_dir, struct err *e)
{
    AUTO(free_p) char *dir = paths_job(&p->paths, id);
    AUTO(free_p) char *half = str_printf("%s/.new-%s", p->paths.jobs, id);
    if (!dir || !half)
        return no_memory(e);
    int rc = fill_dir(p, half, conf_text, secrets, owned, e);
    if (rc == 0 && rename(half, dir) == -1)
        rc = err_set(e, errno, "cannot rename '%s' to '%s': %m", half, dir);
    if (rc < 0) {
        (void)fs_remove_tree(AT_FDCWD, half, NULL); /* if this fails, the next pool removes it */
        return err_wrap(e, rc, "the pool cannot accept the job");
    }
    *out_dir = TAKE(dir);
    return 0;
}

int submit_mark_owned(const struct pool_job *j)
{
    AUTO(free_p) char *dir = paths_job(&j->pool->paths, j->id);
    AUTO(free_p) char *path = dir ? fs_join(dir, "owned") : NULL;
    if (!path)
        return -ENOMEM;
    AUTO(close_p) int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return fd == -1 ? -errno : 0;
}

/* ---- a submission ---- */

void submission_free(struct submission *s)
{
    if (!s)
        return;
    free(s->dir);
    free(s->jobs_dir);
    free(s);
}

static int sync_path(const char *path, int flags, struct err *e)
{
    AUTO(close_p) int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (fd == -1 && errno == ENOENT)
        return 0; /* the job has ended already, and its keeper has moved the directory */
    if (fd == -1 || fsync(fd) == -1)
        return err_set(e, errno,
                       "the pool cannot accept the job: cannot write '%s' to the disk: %m", path);
    return 0;
}

/* The pool starts the processes of the job at the same time. If the machine crashes before this
 * function has returned, the job and its results are lost. That is correct: no client has been told
 * yet that the job was accepted. */
int submission_sync(struct submission *s)
{
    AUTO(free_p) char *conf_path = fs_join(s->dir, "job.conf");
    AUTO(free_p) char *secrets_path = fs_join(s->dir, SECRETS_FILE);
    if (!conf_path || !secrets_path)
        return no_memory(&s->e);
    int rc = sync_path(conf_path, 0, &s->e);
    if (rc == 0)
        rc = sync_path(secrets_path, 0, &s->e); /* most jobs have no such file */
    if (rc == 0)
        rc = sync_path(s->dir, O_DIRECTORY, &s->e);
    if (rc == 0)
        rc = sync_path(s->jobs_dir, O_DIRECTORY, &s->e);
    return rc;
}

static struct submission *submission_new(struct pool *p, const char *id, const char *dir)
{
    struct submission *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->pool = p;
    (void)str_copy(s->id, sizeof s->id, id); /* always fits: both have APP_ID_MAX bytes */
    s->dir = str_dup(dir);
    s->jobs_dir = str_dup(p->paths.jobs);
    if (s->dir && s->jobs_dir)
        return s;
    submission_free(s);
    return NULL;
}

static int check(struct pool *p, struct span conf_text, struct span secrets, struct job_spec **out,
                 int64_t *out_submitted_wall_ms, struct err *e)
{
    if (p->stopping)
        return err_set(e, ESHUTDOWN, "the pool is being stopped and takes no more jobs");
    if (conf_text.len > CONF_MAX)
        return err_set(e, E2BIG, "the job's configuration of %zu bytes is over the limit of %d",
                       conf_text.len, CONF_MAX);
    if (secrets.len > SECRETS_TEXT_MAX)
        return err_set(e, E2BIG, "the job's secrets of %zu bytes are over the limit of %d",
                       secrets.len, SECRETS_TEXT_MAX);
    int rc = load_spec(conf_text, out, out_submitted_wall_ms, e);
    if (rc < 0)
        return rc == -ENOMEM ? rc
                             : -(e->num = EINVAL); /* every other error is a fault of the job */
    if (!str_eq((*out)->cluster, "local"))
        return err_set(e, EINVAL, "the pool runs jobs of cluster 'local', not '%s'",
                       (*out)->cluster);
    return submit_check_size(p, *out, e);
}

static int hint_disk(const struct pool *p, int rc, struct err *e)
{
    if (e->hint[0])
        return rc;
    if (fs_no_room(-rc))
        return fs_hint_room(rc, e);
    if (rc == -EROFS || rc == -EACCES)
        return err_hint(e, "the pool must be able to write to '%s'", p->paths.home);
    return rc;
}

int submit(struct pool *p, struct span conf_text, struct span secrets, bool owned,
           struct submission **out, struct err *e)
{
    AUTO(job_spec_freep) struct job_spec *spec = NULL;
    AUTO(free_p) char *dir = NULL;
    uint32_t number = 0;
    int64_t submitted = 0;
    char id[APP_ID_MAX];
    int rc = check(p, conf_text, secrets, &spec, &submitted, e);
    if (rc < 0)
        return rc;
    rc = next_number(p, &number, e);
    if (rc < 0)
        return hint_disk(p, rc, e);
    app_id_format(id, p->start_ms, number);
    rc = make_dir(p, id, conf_text, secrets, owned, &dir, e);
    if (rc < 0)
        return hint_disk(p, rc, e);

    struct submission *s = submission_new(p, id, dir);
    struct pool_job *j = s ? pool_job_new(p, id, e) : NULL;
    if (!j || submit_take_figures(j, spec, e) < 0) {
        if (j)
            pool_job_remove(j);
        submission_free(s);
        /* If this fails, the next pool finds a complete job and runs it, although the client was
         * told that it was refused. */
        (void)fs_remove_tree(AT_FDCWD, dir, NULL);
        return no_memory(e);
    }
    j->phase = PH_WAITING;
    j->submitted_wall_ms = submitted;
    j->owned = owned;
    j->fresh = true;
    pool_job_limit_wait(j);
    *out = s;
    return 0;
}
