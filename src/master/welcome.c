/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames Welcome (settings of a role, sent when an executor connects) and Start (settings of
 * one attempt).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "conf/conf.h"
#include "loop/tcp.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"
#include "storage/jobfile.h"
#include "storage/plan.h"
#include "storage/secrets.h"
#include "storage/store.h"

/* The structs of protobuf-c have no const members, but packing does not write to them. */
#define MUTABLE(p) ((char *)(uintptr_t)(p))

struct role_welcome {
    Tony__Welcome w;
    struct strv container_env;  /* for executor and task; add_pairs() replaces each = by a NUL */
    struct strv task_env;       /* for the task only: the job's variables, then the role's */
    VEC(Tony__KeyValue) pairs;  /* all of both; they point into container_env and task_env */
    VEC(Tony__KeyValue *) list; /* points to the pairs */
    VEC(Tony__Mount) mounts;
    VEC(Tony__Mount *) mount_list;
};

/* ---- Welcome: the settings that all tasks of a role share ---- */

static int add_pairs(struct role_welcome *r, const struct strv *env)
{
    for (size_t i = 0; i < env->n; i++) {
        char *eq = strchr(env->v[i], '=');
        if (!eq)
            continue;
        *eq = '\0';
        Tony__KeyValue kv = TONY__KEY_VALUE__INIT;
        kv.key = env->v[i];
        kv.value = eq + 1;
        if (vec_push(&r->pairs, kv) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int copy_env(struct strv *to, const struct strv *from)
{
    int rc = 0;
    for (size_t i = 0; i < from->n && rc == 0; i++) {
        AUTO(free_p) char *key = str_dup(from->v[i]);
        char *eq = key ? strchr(key, '=') : NULL;
        if (!key)
            return -ENOMEM;
        if (!eq)
            continue;
        *eq = '\0';
        rc = strv_env_set(to, key, eq + 1); /* replaces an earlier value */
    }
    return rc;
}

static int build_env(struct role_welcome *r, const struct master *m, const struct role_spec *role)
{
    const struct job_spec *s = m->spec;
    int rc = copy_env(&r->container_env, &s->container_env);
    if (rc == 0)
        rc = copy_env(&r->task_env, &s->execution_env);
    if (rc == 0)
        rc = copy_env(&r->task_env, &role->env);
    if (rc == 0)
        rc = secrets_add_to(buf_span(&m->secrets), &r->task_env);
    if (rc == 0)
        rc = add_pairs(r, &r->container_env);
    size_t n = r->pairs.n;
    if (rc == 0)
        rc = add_pairs(r, &r->task_env);
    for (size_t i = 0; i < r->pairs.n && rc == 0; i++)
        rc = vec_push(&r->list, &r->pairs.v[i]); /* pairs.v does not move any more */
    if (rc < 0)
        return rc;
    r->w.n_container_env = n;
    r->w.container_env = r->list.v;
    r->w.n_execution_env = r->list.n - n;
    r->w.execution_env = r->list.v ? r->list.v + n : NULL;
    return 0;
}

static int build_mounts(struct role_welcome *r, const struct job_file *f, const char *role)
{
    for (size_t i = 0; i < f->n_ship; i++) {
        const struct ship_item *it = &f->ship[i];
        if (it->role && *it->role && !str_eq(it->role, role))
            continue;
        Tony__Mount mount = TONY__MOUNT__INIT;
        mount.kind = it->kind == SHIP_SRC ? TONY__MOUNT__KIND__SRC_COPY : TONY__MOUNT__KIND__LINK;
        mount.path = it->path && *it->path ? it->path : it->source; /* no path: used in place */
        mount.name = it->name ? it->name : MUTABLE("");
        if (vec_push(&r->mounts, mount) < 0)
            return -ENOMEM;
    }
    for (size_t i = 0; i < r->mounts.n; i++)
        if (vec_push(&r->mount_list, &r->mounts.v[i]) < 0)
            return -ENOMEM;
    r->w.n_mounts = r->mount_list.n;
    r->w.mounts = r->mount_list.v;
    return 0;
}

/* On a cluster the NodeManager has put everything in its place, except for the source directory:
 * tasks may write there, so the executor copies it. */
static int build_remote_mounts(struct role_welcome *r, const struct job_file *f)
{
    for (size_t i = 0; i < f->n_ship; i++) {
        if (f->ship[i].kind != SHIP_SRC)
            continue;
        Tony__Mount mount = TONY__MOUNT__INIT;
        mount.kind = TONY__MOUNT__KIND__SRC_COPY;
        mount.path = MUTABLE(".tony-src");
        if (vec_push(&r->mounts, mount) < 0 || vec_push(&r->mount_list, &r->mounts.v[0]) < 0)
            return -ENOMEM;
        break;
    }
    r->w.n_mounts = r->mount_list.n;
    r->w.mounts = r->mount_list.v;
    return 0;
}

static char *or_empty(const char *s)
{
    return MUTABLE(s ? s : "");
}

/*
 * How long an executor may be quiet (executor/quiet.h): an executor that hangs is noticed later by
 * this time. So it is at most a fifth of the time after which an executor counts as dead. With
 * frequent heartbeats the user wants to notice a hang soon: then no executor is quiet. Nor is one
 * on a cluster.
 */
static uint32_t quiet_ms(const struct master *m)
{
    enum { BEAT_MIN_MS = 1000, QUIET_MAX_MS = 5000, SHARE = 5 };
    const struct job_spec *s = m->spec;
    uint64_t ms = (uint64_t)s->heartbeat_ms * s->max_missed_heartbeats / SHARE;
    ms = MIN(MAX(ms, (uint64_t)s->heartbeat_ms), (uint64_t)QUIET_MAX_MS);
    bool few = s->max_missed_heartbeats < SHARE || ms < s->heartbeat_ms;
    return m->remote || few || s->heartbeat_ms < BEAT_MIN_MS ? 0 : (uint32_t)ms;
}

static void build_fixed(struct master *m, Tony__Welcome *w, const struct role_spec *role)
{
    const struct job_spec *s = m->spec;
    tony__welcome__init(w);
    w->epoch = m->epoch;
    w->application_id = m->application_id;
    w->heartbeat_ms = s->heartbeat_ms;
    w->quiet_ms = quiet_ms(m);
    w->framework = or_empty(s->framework);
    w->distributed_mode = MUTABLE(s->gang ? "GANG" : "FCFS");
    w->command = or_empty(role->command);
    w->resume_command = or_empty(role->resume_command);
    /* Without shared directories: $LOG_DIRS */
    w->log_dir = m->remote && !m->remote->shared_dirs ? MUTABLE("") : m->log_dir;
    w->kill_grace_ms = s->kill_grace_ms;
    w->has_umask = true;
    w->umask = s->umask;
    w->execution_timeout_ms = s->execution_timeout_ms;
    w->master_away_ms = s->master_away_ms;
    w->stderr_tail_lines = s->stderr_lines;
    w->memory_bytes = role->memory_mib << 20;
    w->ranks = role->ranks;
    w->vcores = role->vcores;
    w->max_restarts = role_spec_restarts(role);
    w->n_tracked = job_n_tracked(m->job);
    w->file_only = s->addresses_in_file_only;
    w->job_name = or_empty(s->name);
    w->single_node = s->single_node;
    w->driver = s->horovod_driver && str_eq(role->name, "driver");
    w->preprocess = s->preprocess && str_eq(role->name, PREPROCESS_ROLE);
    w->python = or_empty(s->python_binary);
    w->ready = or_empty(role->ready);
    w->docker_image = or_empty(role->docker_image);
    w->docker_mounts = or_empty(s->docker_mounts);
    w->metrics_ms = s->metrics_ms;
    w->gpu_metrics = s->gpu_metrics && role->gpus > 0;
    w->progress_pattern = or_empty(role->progress_pattern);
    w->checkpoint_dir = or_empty(s->checkpoint_dir);
    w->checkpoint_pattern = or_empty(s->checkpoint_pattern);
    w->checkpoint_marker = or_empty(s->checkpoint_marker);
}

static const struct role_spec *role_of(const struct job_spec *s, size_t i)
{
    return s->single_node ? &s->am : &s->roles[i];
}

int welcome_build(struct master *m, struct err *e)
{
    size_t n = m->spec->single_node ? 1 : m->spec->n_roles;
    m->welcomes = calloc(n ? n : 1, sizeof *m->welcomes);
    int rc = m->welcomes ? 0 : -ENOMEM;
    m->n_welcomes = m->welcomes ? n : 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct role_welcome *r = &m->welcomes[i];
        const struct role_spec *role = role_of(m->spec, i);
        build_fixed(m, &r->w, role);
        rc = build_env(r, m, role);
        if (rc == 0)
            rc = m->remote && !m->remote->shared_dirs ? build_remote_mounts(r, m->file)
                                                      : build_mounts(r, m->file, role->name);
    }
    if (rc == -EBADMSG)
        return err_set(e, EBADMSG, "the secrets of the job are damaged");
    return rc < 0 ? err_set(e, -rc, "no memory to start the master") : 0;
}

void welcome_done(struct master *m)
{
    for (size_t i = 0; i < m->n_welcomes; i++) {
        struct role_welcome *r = &m->welcomes[i];
        strv_done(&r->container_env);
        strv_done(&r->task_env);
        vec_done(&r->pairs);
        vec_done(&r->list);
        vec_done(&r->mounts);
        vec_done(&r->mount_list);
    }
    free(m->welcomes);
    m->welcomes = NULL;
    m->n_welcomes = 0;
    packed_unref(m->start.frame);
    m->start.frame = NULL;
    free(TAKE(m->start.checkpoint));
}

bool welcome_allows_quiet(const struct master *m)
{
    return m->n_welcomes > 0 && m->welcomes[0].w.quiet_ms > 0;
}

/* A spare may become the task of rank 0, so its executor hosts a server as well. */
static Tony__Welcome__Server server_of(const struct master *m, const struct slot_view *v)
{
    if (!m->spec->server)
        return TONY__WELCOME__SERVER__NO_SERVER;
    bool here = v->role_index == m->spec->server_role && (v->index == 0 || v->spare);
    return here ? TONY__WELCOME__SERVER__HERE : TONY__WELCOME__SERVER__ELSEWHERE;
}

bool welcome_is_plain(const struct master *m, uint32_t slot)
{
    struct slot_view v;
    job_slot(m->job, slot, &v);
    const Tony__Welcome *w = &m->welcomes[m->spec->single_node ? 0 : v.role_index].w;
    bool copies = false;
    for (size_t i = 0; i < w->n_mounts; i++)
        copies |= w->mounts[i]->kind == TONY__MOUNT__KIND__SRC_COPY;
    /* To copy a directory or to look through one takes long if it is large or its disk is slow. */
    bool waits_for_disk = copies || w->checkpoint_dir[0];
    return !m->remote && !waits_for_disk && !w->docker_image[0] && w->ranks <= 1 && !w->driver &&
           !w->preprocess && !w->single_node && !w->gpu_metrics &&
           server_of(m, &v) != TONY__WELCOME__SERVER__HERE;
}

int welcome_send(struct master *m, struct peer *p, const struct slot_view *v)
{
    size_t i = m->spec->single_node ? 0 : v->role_index;
    Tony__Welcome w = m->welcomes[i].w;
    w.role = MUTABLE(v->role);
    w.index = v->index;
    w.chief = v->chief;
    w.server = server_of(m, v);
    char address[96] = "";
    if (m->remote && m->epoch > 1 && m->host) /* the executor may know only an earlier master */
        (void)snprintf(address, sizeof address, strchr(m->host, ':') ? "[%s]:%u" : "%s:%u", m->host,
                       listener_port(m->listener));
    w.master_address = address;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_WELCOME;
    f.welcome = &w;
    return conn_send(p->conn, &f);
}

static void plan_pairs(const struct master *m, struct plan *p, const char *role, const char *kind,
                       Tony__KeyValue **v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool secret = plan_is_secret(m->spec, v[i]->key);
        AUTO(free_p) char *name = str_printf("%s %s", secret ? "secret" : kind, v[i]->key);
        if (name)
            plan_run(p, role, name, secret ? "set" : v[i]->value);
        else
            p->rc = -ENOMEM;
    }
}

/* On YARN the NodeManagers have fetched what job.conf lists. */
static void plan_shipped(const struct master *m, const char *role, struct plan *p)
{
    const char *own = m->spec->single_node ? m->spec->am.name : role;
    for (size_t i = 0; i < m->file->n_ship; i++) {
        const struct ship_item *it = &m->file->ship[i];
        if (!it->role || !*it->role || str_eq(it->role, own))
            plan_ship(p, role, it->name, it->digest);
    }
}

void welcome_plan(const struct master *m, size_t i, const char *role, struct plan *p)
{
    const Tony__Welcome *w = &m->welcomes[i].w;
    plan_run(p, role, "command", w->command);
    plan_run(p, role, "resume", w->resume_command);
    plan_run(p, role, "framework", w->framework);
    plan_run(p, role, "mode", w->distributed_mode);
    plan_run(p, role, "image", w->docker_image);
    plan_run(p, role, "ready", w->ready);
    plan_run(p, role, "python", w->python);
    plan_pairs(m, p, role, "env", w->container_env, w->n_container_env);
    plan_pairs(m, p, role, "task env", w->execution_env, w->n_execution_env);
    if (m->remote && !m->remote->shared_dirs)
        plan_shipped(m, role, p);
    else
        for (size_t k = 0; k < w->n_mounts; k++)
            plan_ship(p, role, w->mounts[k]->name, w->mounts[k]->path);
}

/* ---- Start: packed once for all tasks with equal settings ---- */

/* With preprocessing on, the last role is the preprocess task. The kept end of its output contains
 * the model parameters. */
static const char *model_params(const struct master *m)
{
    struct slot_view v;
    if (!m->spec->preprocess)
        return "";
    job_slot(m->job, job_task(m->job, job_n_roles(m->job) - 1, 0), &v);
    return v.result == RES_SUCCEEDED && v.tail ? v.tail : "";
}

/* apart: the executor has the addresses in a file, so the frame has only the first one of each
 * role. Else cluster_spec.whole follows. */
static struct packed *start_pack(const struct master *m, const struct act_start *a,
                                 const struct slot_view *v, bool apart)
{
    Tony__Start s = TONY__START__INIT;
    s.generation = a->generation;
    s.attempt = a->attempt;
    s.restart_count = v->restart_count;
    s.session = job_retries(m->job);
    s.n_tracked = job_n_tracked(m->job); /* a resize changes it */
    s.renamed = v->moved;
    s.index = v->moved ? v->index : 0;
    s.chief = v->moved && v->chief;
    s.checkpoint = or_empty(job_checkpoint(m->job, a->slot, &s.checkpoint_step));
    s.driver = MUTABLE(m->driver_plan.address);
    s.plan = m->driver_plan.text ? m->driver_plan.text : MUTABLE("");
    s.model_params = MUTABLE(model_params(m));
    if (!apart)
        return cluster_spec_pack_before_whole(m, &s);
    s.spec_bytes = m->cluster_spec.bytes;
    s.spec_file = or_empty(m->cluster_spec.path);
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_START;
    f.start = &s;
    return cluster_spec_pack_firsts(m, &f, &s.spec);
}

struct packed *start_frame(struct master *m, const struct act_start *a, const struct slot_view *v,
                           bool apart)
{
    uint64_t step;
    const char *checkpoint = job_checkpoint(m->job, a->slot, &step);
    uint64_t version = apart ? m->cluster_spec.version : m->cluster_spec.whole_version;
    bool same = m->start.frame && m->start.generation == a->generation &&
                m->start.attempt == a->attempt && m->start.restart_count == v->restart_count &&
                str_eq(m->start.checkpoint, checkpoint) && m->start.apart == apart &&
                m->start.addresses_version == version;
    if (same && !v->moved && !m->start.moved)
        return m->start.frame;
    packed_unref(m->start.frame);
    m->start.frame = start_pack(m, a, v, apart);
    m->start.moved = v->moved;
    m->start.apart = apart;
    m->start.generation = a->generation;
    m->start.attempt = a->attempt;
    m->start.restart_count = v->restart_count;
    m->start.addresses_version = version;
    free(m->start.checkpoint);
    m->start.checkpoint = str_dup(checkpoint);
    return m->start.frame;
}
