#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "loop/tcp.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"
#include "storage/jobfile.h"
#include "storage/store.h"

/* protobuf-c's structs know no const; packing writes nothing. */
#define MUTABLE(p) ((char *)(uintptr_t)(p))

struct role_welcome {
    Tony__Welcome w;
    struct strv container_env;  /* of executor and task: K=V, cut in two at the = */
    struct strv task_env;       /* of the task only: the job's, then the role's */
    VEC(Tony__KeyValue) pairs;  /* of both; they point into the two above */
    VEC(Tony__KeyValue *) list; /* likewise */
    VEC(Tony__Mount) mounts;
    VEC(Tony__Mount *) mount_list;
};

/* ---- once per role ---- */

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
        rc = strv_env_set(to, key, eq + 1); /* what comes later wins */
    }
    return rc;
}

static int build_env(struct role_welcome *r, const struct job_spec *s, const struct role_spec *role)
{
    int rc = copy_env(&r->container_env, &s->container_env);
    if (rc == 0)
        rc = copy_env(&r->task_env, &s->execution_env);
    if (rc == 0)
        rc = copy_env(&r->task_env, &role->env);
    if (rc == 0)
        rc = add_pairs(r, &r->container_env);
    size_t n = r->pairs.n;
    if (rc == 0)
        rc = add_pairs(r, &r->task_env);
    for (size_t i = 0; i < r->pairs.n && rc == 0; i++)
        rc = vec_push(&r->list, &r->pairs.v[i]); /* pairs no longer move */
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
        mount.path = it->path && *it->path ? it->path : it->source; /* in place: where it is */
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

/* Elsewhere the node has put everything in its place but what tasks may write to. */
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

static void build_fixed(struct master *m, Tony__Welcome *w, const struct role_spec *role)
{
    const struct job_spec *s = m->spec;
    tony__welcome__init(w);
    w->epoch = m->epoch;
    w->application_id = m->application_id;
    w->heartbeat_ms = s->heartbeat_ms;
    w->framework = or_empty(s->framework);
    w->distributed_mode = MUTABLE(s->gang ? "GANG" : "FCFS");
    w->command = or_empty(role->command);
    w->log_dir = m->remote ? MUTABLE("") : m->log_dir; /* elsewhere it is the container's */
    w->kill_grace_ms = s->kill_grace_ms;
    w->execution_timeout_ms = s->execution_timeout_ms;
    w->master_away_ms = s->master_away_ms;
    w->stderr_tail_lines = s->stderr_lines;
    w->memory_bytes = role->memory_mib << 20;
    w->ranks = role->ranks;
    w->vcores = role->vcores;
    w->max_restarts = role_spec_restarts(role);
    w->n_tracked = job_n_tracked(m->job);
    w->job_name = or_empty(s->name);
    w->single_node = s->single_node;
    w->driver = s->horovod_driver && str_eq(role->name, "driver");
    w->preprocess = s->preprocess && str_eq(role->name, PREPROCESS_ROLE);
    w->python = or_empty(s->python_binary);
    w->ready = or_empty(role->ready);
    w->docker_image = or_empty(role->docker_image);
    w->docker_mounts = or_empty(s->docker_mounts);
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
        rc = build_env(r, m->spec, role);
        if (rc == 0)
            rc = m->remote ? build_remote_mounts(r, m->file) : build_mounts(r, m->file, role->name);
    }
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

/* A spare of the role may become the task of rank 0. */
static Tony__Welcome__Server server_of(const struct master *m, const struct slot_view *v)
{
    if (!m->spec->server)
        return TONY__WELCOME__SERVER__NO_SERVER;
    bool here = v->role_index == m->spec->server_role && (v->index == 0 || v->spare);
    return here ? TONY__WELCOME__SERVER__HERE : TONY__WELCOME__SERVER__ELSEWHERE;
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
    if (m->remote && m->epoch > 1 && m->host) /* it knows that of a master before us */
        (void)snprintf(address, sizeof address, strchr(m->host, ':') ? "[%s]:%u" : "%s:%u",
                       m->host, listener_port(m->listener));
    w.master_address = address;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_WELCOME;
    f.welcome = &w;
    return conn_send(p->conn, &f);
}

/* ---- the cluster spec: packed once for all tasks that get the same Start ---- */

struct spec_room {
    Tony__SpecRole *roles;
    Tony__SpecRole **list;
    struct buf *addresses; /* of each role */
    size_t n;
};

static int spec_room_open(struct spec_room *room, size_t n)
{
    room->n = n;
    room->roles = calloc(n + 1, sizeof *room->roles);
    room->list = calloc(n + 1, sizeof *room->list);
    room->addresses = calloc(n + 1, sizeof *room->addresses);
    return room->roles && room->list && room->addresses ? 0 : -ENOMEM;
}

static void spec_room_done(struct spec_room *room)
{
    for (size_t i = 0; room->addresses && i < room->n; i++)
        buf_done(&room->addresses[i]);
    free(room->roles);
    free(room->list);
    free(room->addresses);
}

/* Slots are in the order of the roles. */
static int spec_fill(const struct master *m, struct spec_room *room)
{
    const struct job_spec *s = m->spec;
    uint32_t slot = 0, n_slots = job_n_tasks(m->job);
    for (size_t i = 0; i < room->n; i++) {
        Tony__SpecRole *r = room->list[i] = &room->roles[i];
        struct buf *text = &room->addresses[i];
        tony__spec_role__init(r);
        r->kind = s->single_node ? ROLE_TRACKED : s->roles[i].kind;
        r->ranks = s->single_node ? 1 : s->roles[i].ranks;
        r->name = s->single_node ? MUTABLE("") : s->roles[i].name;
        for (; slot < n_slots; slot++, r->n++) {
            struct slot_view v;
            job_slot(m->job, slot, &v);
            if (!s->single_node && v.role_index != i)
                break;
            r->name = MUTABLE(v.role);
            if (r->n)
                buf_addc(text, ',');
            (void)json_add_str(text, span_of(or_empty(v.address))); /* a failure sticks to text */
        }
        if (text->failed)
            return -ENOMEM;
        r->addresses = MUTABLE(text->len ? buf_cstr(text) : "");
    }
    return 0;
}

static struct packed *spec_pack(const struct master *m, uint32_t generation, Tony__Frame *f,
                                Tony__ClusterSpec **out_spec)
{
    AUTO(spec_room_done) struct spec_room room = { 0 };
    const struct job_spec *s = m->spec; /* what ran before them is nobody's peer: the last role */
    if (spec_room_open(&room, s->single_node ? 1 : s->n_roles - s->preprocess) < 0 ||
        spec_fill(m, &room) < 0)
        return NULL;
    Tony__ClusterSpec spec = TONY__CLUSTER_SPEC__INIT;
    spec.generation = generation;
    spec.n_roles = room.n;
    spec.roles = room.list;
    *out_spec = &spec;
    struct packed *packed = packed_new(f);
    *out_spec = NULL;
    return packed;
}

/* The last task of all is the one before the others; what it had to say is what is kept of its
 * output. */
static const char *model_params(const struct master *m)
{
    struct slot_view v;
    if (!m->spec->preprocess)
        return "";
    job_slot(m->job, job_n_tasks(m->job) - 1, &v);
    return v.result == RES_SUCCEEDED && v.tail ? v.tail : "";
}

static struct packed *start_pack(const struct master *m, const struct job_action *a,
                                 const struct slot_view *v)
{
    Tony__Start s = TONY__START__INIT;
    s.generation = a->generation;
    s.attempt = a->attempt;
    s.restart_count = v->restart_count;
    s.session = job_retries(m->job);
    s.renamed = v->moved;
    s.index = v->moved ? v->index : 0;
    s.chief = v->moved && v->chief;
    s.checkpoint = or_empty(job_checkpoint(m->job, a->slot, &s.checkpoint_step));
    s.driver = MUTABLE(m->plan.address);
    s.plan = m->plan.text ? m->plan.text : MUTABLE("");
    s.model_params = MUTABLE(model_params(m));
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_START;
    f.start = &s;
    return spec_pack(m, a->generation, &f, &s.spec);
}

struct packed *start_frame(struct master *m, const struct job_action *a, const struct slot_view *v)
{
    uint64_t step;
    const char *checkpoint = job_checkpoint(m->job, a->slot, &step);
    bool same = m->start.frame && m->start.generation == a->generation &&
                m->start.attempt == a->attempt && m->start.restart_count == v->restart_count &&
                str_eq(m->start.checkpoint, checkpoint) &&
                m->start.addresses_version == m->addresses_version;
    if (same && !v->moved && !m->start.moved)
        return m->start.frame;
    packed_unref(m->start.frame);
    m->start.frame = start_pack(m, a, v);
    m->start.moved = v->moved;
    m->start.peers = false;
    m->start.generation = a->generation;
    m->start.attempt = a->attempt;
    m->start.restart_count = v->restart_count;
    m->start.addresses_version = m->addresses_version;
    free(m->start.checkpoint);
    m->start.checkpoint = str_dup(checkpoint);
    return m->start.frame;
}

struct packed *peers_frame(struct master *m)
{
    Tony__Peers s = TONY__PEERS__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_PEERS;
    f.peers = &s;
    if (m->start.peers && m->start.frame && m->start.addresses_version == m->addresses_version)
        return m->start.frame;
    packed_unref(m->start.frame); /* kept in the same place: the next start is packed anew */
    m->start.peers = true;
    m->start.addresses_version = m->addresses_version;
    m->start.frame = spec_pack(m, job_generation(m->job), &f, &s.spec);
    m->start.moved = true;
    return m->start.frame;
}
