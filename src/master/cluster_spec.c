/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cluster spec: the addresses of all tasks, in the form that executors get.
 *
 * With n tasks it has about 20 n bytes. Sending it to each task would cost 20 n^2 bytes. So on one
 * machine the master writes it once into a file in the job's directory, which all tasks share. On a
 * cluster no directory is shared: the master sends it to each executor once, as Peers, and the
 * executor writes a file of its own. Start then has only the first address of each role. Executors
 * of older versions do not set reads_spec_file; they get all addresses with each Start.
 *
 * A job of n tasks may have n changes of an address, one after the other: in FCFS mode, or when
 * tasks restart alone. Rendering n addresses n times would also cost n^2. So the master spends at
 * most 1/RENDER_SHARE of its time on rendering. Until the next rendering is due, it delays the
 * messages that need one: new addresses for running tasks, and in GANG mode the starts of single
 * tasks. In FCFS mode a start does not wait; such a task may get older addresses.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/frame.h"
#include "codec/json.h"
#include "conf/conf.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"
#include "runtime/runtime.h"

enum {
    FCFS_LAG_MS = 100, /* in FCFS mode, a start may use addresses of this age */
    RENDER_SHARE = 20,
    /* The longest wait: the machine may have been stopped during a rendering. */
    RENDER_WAIT_MAX_MS = 5000,
    DISK_RETRY_MS = 500,  /* after a failed write of the file */
    START_SPEC_FIELD = 4, /* number of Start.spec in proto/tony.proto */
};

/* The structs of protobuf-c have no const members, but packing does not write to them. */
#define MUTABLE(p) ((char *)(uintptr_t)(p))

/* ---- the message ---- */

struct spec_message {
    Tony__ClusterSpec spec;
    Tony__SpecRole *roles;
    Tony__SpecRole **list;
    struct buf *addresses; /* by role: its addresses as a JSON list without brackets */
    size_t n;
};

static void message_done(struct spec_message *s)
{
    for (size_t i = 0; s->addresses && i < s->n; i++)
        buf_done(&s->addresses[i]);
    free(s->roles);
    free(s->list);
    free(s->addresses);
}

/* With preprocessing on, the last role is the preprocess task. It ends before the others start, so
 * it is not part of the spec. */
static int message_open(const struct master *m, struct spec_message *s)
{
    s->n = m->spec->single_node ? 1 : m->spec->n_roles - m->spec->preprocess;
    s->roles = calloc(s->n + 1, sizeof *s->roles);
    s->list = calloc(s->n + 1, sizeof *s->list);
    s->addresses = calloc(s->n + 1, sizeof *s->addresses);
    tony__cluster_spec__init(&s->spec);
    s->spec.generation = job_generation(m->job);
    s->spec.n_roles = s->n;
    s->spec.roles = s->list;
    return s->roles && s->list && s->addresses ? 0 : -ENOMEM;
}

/* Add the tasks of role i that belong to the job now: a resize changes their number. */
static int add_role(const struct master *m, struct spec_message *s, uint32_t i, bool firsts)
{
    const struct job_spec *job = m->spec;
    Tony__SpecRole *r = s->list[i] = &s->roles[i];
    struct buf *text = &s->addresses[i];
    struct slot_view v;
    tony__spec_role__init(r);
    r->kind = job->single_node ? ROLE_TRACKED : (uint32_t)job->roles[i].kind;
    r->ranks = job->single_node ? 1 : job->roles[i].ranks;
    r->name = job->single_node ? MUTABLE("") : job->roles[i].name;
    r->n = job_role_tasks(m->job, i);
    for (uint32_t k = 0; k < (firsts ? MIN(r->n, 1u) : r->n); k++) {
        job_slot(m->job, job_task(m->job, i, k), &v);
        r->name = MUTABLE(v.role);
        if (k)
            buf_addc(text, ',');
        (void)json_add_str(text, span_of(v.address ? v.address : "")); /* sets text->failed */
    }
    r->addresses = MUTABLE(buf_cstr(text));
    return text->failed ? -ENOMEM : 0;
}

/* firsts: only the first address of each role. */
static int message_build(const struct master *m, bool firsts, struct spec_message *s)
{
    int rc = message_open(m, s);
    for (uint32_t i = 0; rc == 0 && i < s->n; i++)
        rc = add_role(m, s, i, firsts);
    return rc;
}

struct packed *cluster_spec_pack_firsts(const struct master *m, Tony__Frame *f,
                                        Tony__ClusterSpec **field)
{
    AUTO(message_done) struct spec_message s = { 0 };
    if (message_build(m, true, &s) < 0)
        return NULL;
    *field = &s.spec;
    struct packed *packed = packed_new(f);
    *field = NULL;
    return packed;
}

/* ---- a Start with all addresses, in two parts ---- */

/* A field of protobuf that has a length: its number, and the length. */
static void add_field_head(struct buf *b, uint32_t number, uint64_t len)
{
    uint64_t values[] = { number << 3 | 2, len };
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        uint64_t v = values[i];
        for (; v >= 0x80; v >>= 7)
            (void)buf_addc(b, (char)(v | 0x80));
        (void)buf_addc(b, (char)v);
    }
}

static struct packed *pack_whole(const struct spec_message *s)
{
    AUTO(buf_done) struct buf b = { 0 };
    size_t n = tony__cluster_spec__get_packed_size(&s->spec);
    add_field_head(&b, START_SPEC_FIELD, n);
    void *to = buf_reserve(&b, n);
    if (!to)
        return NULL;
    buf_commit(&b, tony__cluster_spec__pack(&s->spec, to));
    return packed_part(b.p, b.len);
}

/* Pack the first part of a Start: all fields but the cluster spec. */
struct packed *cluster_spec_pack_before_whole(const struct master *m, const Tony__Start *s)
{
    AUTO(buf_done) struct buf b = { 0 }, head = { 0 };
    size_t own = tony__start__get_packed_size(s), whole = packed_len(m->cluster_spec.whole);
    add_field_head(&head, TONY__FRAME__BODY_START, own + whole);
    size_t len = head.len + own + whole;
    for (int shift = 24; shift >= 0; shift -= 8)
        (void)buf_addc(&b, (char)(len >> shift));
    (void)buf_add(&b, head.p, head.len);
    void *to = len <= FRAME_MAX ? buf_reserve(&b, own) : NULL;
    if (!to || head.failed)
        return NULL;
    buf_commit(&b, tony__start__pack(s, to));
    return packed_part(b.p, b.len);
}

static struct packed *pack_peers(const struct spec_message *s)
{
    Tony__Peers peers = TONY__PEERS__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_PEERS;
    f.peers = &peers;
    peers.spec = (Tony__ClusterSpec *)(uintptr_t)&s->spec;
    return packed_new(&f);
}

/* ---- the file ---- */

static int message_json(const struct spec_message *s, struct buf *out)
{
    AUTO(free_p) struct rt_role *roles = calloc(s->n + 1, sizeof *roles);
    for (size_t i = 0; roles && i < s->n; i++)
        roles[i] =
            (struct rt_role){ .name = s->roles[i].name,
                              .n = s->roles[i].n,
                              .list = span_mem(buf_cstr(&s->addresses[i]), s->addresses[i].len) };
    return roles ? runtime_spec_json(roles, s->n, NULL, NULL, out) : -ENOMEM;
}

/* Call on_later() at this time, unless the timer fires earlier already. */
static void wake_at(struct master *m, int64_t at_ms)
{
    if (m->cluster_spec.later_ms && m->cluster_spec.later_ms <= at_ms)
        return;
    m->cluster_spec.later_ms = at_ms;
    loop_timer_set(m->cluster_spec.later, at_ms);
}

/* If the master cannot write the file, executors get all addresses with the Start and write files
 * of their own. An executor that cannot write its file reports that as the end of its task. */
static void write_file(struct master *m, struct span json)
{
    struct err e = { 0 };
    AUTO(free_p) char *dir = str_printf("%s/containers", m->job_dir);
    AUTO(free_p) char *path = str_printf("%s/containers/.spec.json", m->job_dir);
    if (dir)
        (void)mkdir(dir, 0700); /* the keeper may have made it already */
    int rc = path ? fs_write_atomic(AT_FDCWD, path, json, 0400, false, &e) : -ENOMEM;
    if (rc < 0)
        log_err(LOG_WARN, "master.spec_file", &e);
    free(m->cluster_spec.path);
    m->cluster_spec.path = rc < 0 ? NULL : TAKE(path);
    if (rc < 0) /* retry, so that running tasks get new addresses */
        wake_at(m, m->cluster_spec.rendered_ms + DISK_RETRY_MS);
}

/* ---- keeping message and file up to date ---- */

static bool is_current(const struct master *m)
{
    bool stored = m->remote || m->cluster_spec.path ||
                  clock_mono_ms() < m->cluster_spec.rendered_ms + DISK_RETRY_MS;
    return m->cluster_spec.rendered && stored && m->cluster_spec.version == m->addresses_version &&
           m->cluster_spec.generation == job_generation(m->job);
}

/* Set the time of the next rendering: after RENDER_SHARE times the duration of this one. */
static void set_next_rendering(struct master *m, int64_t began_us)
{
    m->cluster_spec.n_rendered++;
    int64_t took_us = clock_mono_us() - began_us;
    m->cluster_spec.due_ms =
        clock_mono_ms() + MIN(took_us * RENDER_SHARE / 1000, (int64_t)RENDER_WAIT_MAX_MS);
}

static int render(struct master *m)
{
    AUTO(message_done) struct spec_message s = { 0 };
    AUTO(buf_done) struct buf json = { 0 };
    int64_t began_us = clock_mono_us();
    int rc = message_build(m, false, &s);
    if (rc == 0)
        rc = message_json(&s, &json);
    struct packed *peers = rc == 0 && m->remote ? pack_peers(&s) : NULL;
    if (rc < 0 || (m->remote && !peers))
        return -ENOMEM;
    packed_unref(m->cluster_spec.peers);
    m->cluster_spec.peers = peers;
    m->cluster_spec.bytes = json.len;
    m->cluster_spec.version = m->addresses_version;
    m->cluster_spec.generation = job_generation(m->job);
    m->cluster_spec.rendered_ms = clock_mono_ms();
    m->cluster_spec.rendered = true;
    if (!m->remote)
        write_file(m, buf_span(&json));
    set_next_rendering(m, began_us);
    return 0;
}

static bool is_whole_current(const struct master *m)
{
    return m->cluster_spec.whole && m->cluster_spec.whole_version == m->addresses_version &&
           m->cluster_spec.whole_generation == job_generation(m->job);
}

static int render_whole(struct master *m)
{
    AUTO(message_done) struct spec_message s = { 0 };
    int64_t began_us = clock_mono_us();
    struct packed *whole = message_build(m, false, &s) < 0 ? NULL : pack_whole(&s);
    if (!whole)
        return -ENOMEM;
    packed_unref(m->cluster_spec.whole);
    m->cluster_spec.whole = whole;
    m->cluster_spec.whole_version = m->addresses_version;
    m->cluster_spec.whole_generation = job_generation(m->job);
    m->cluster_spec.whole_ms = clock_mono_ms();
    set_next_rendering(m, began_us);
    return 0;
}

static int refresh(struct master *m)
{
    return is_current(m) ? 0 : render(m);
}

/* May a start use addresses that were rendered at this time? Only in FCFS mode, and for a while. */
static bool may_lag(const struct master *m, int64_t rendered_ms)
{
    return !m->spec->gang &&
           clock_mono_ms() < MAX(rendered_ms + FCFS_LAG_MS, m->cluster_spec.due_ms);
}

int cluster_spec_refresh_for_start(struct master *m, const struct peer *p)
{
    int rc = 0;
    if (p->reads_spec_file && !is_current(m)) {
        if (!m->cluster_spec.rendered || !may_lag(m, m->cluster_spec.rendered_ms))
            rc = render(m);
        else if (!m->remote)
            wake_at(m, MAX(m->cluster_spec.rendered_ms + FCFS_LAG_MS, m->cluster_spec.due_ms));
    }
    if (rc == 0 && !cluster_spec_is_separate(m, p) && !is_whole_current(m) &&
        (!m->cluster_spec.whole || !may_lag(m, m->cluster_spec.whole_ms)))
        rc = render_whole(m);
    return rc;
}

/* ---- starts that wait for the next rendering ---- */

bool cluster_spec_awaited(struct master *m, const struct peer *p, const struct act_start *a)
{
    bool current = p->reads_spec_file ? is_current(m) : is_whole_current(m);
    if (!m->spec->gang || current || clock_mono_ms() >= m->cluster_spec.due_ms)
        return false;
    if (vec_push(&m->cluster_spec.waiting_starts, *a) < 0)
        master_exit_now(m, MASTER_CRASHED);
    wake_at(m, m->cluster_spec.due_ms);
    return true;
}

void cluster_spec_start_waiting(struct master *m)
{
    struct act_start *starts = TAKE(m->cluster_spec.waiting_starts.v);
    size_t n = m->cluster_spec.waiting_starts.n;
    m->cluster_spec.waiting_starts.n = m->cluster_spec.waiting_starts.cap = 0;
    if (n > 0)
        m->cluster_spec.due_ms = 0; /* executor_start() renders now, once for all */
    for (size_t i = 0; i < n && m->phase == MP_RUNNING; i++) {
        struct slot_view v;
        job_slot(m->job, starts[i].slot, &v);
        bool alive = v.state == SLOT_RUNNING || v.state == SLOT_STOPPING ||
                     v.state == SLOT_HALTING || v.state == SLOT_LEAVING;
        if (v.generation == starts[i].generation && v.attempt == starts[i].attempt && alive)
            executor_start(m, &starts[i]);
    }
    free(starts);
}

static void tell_all(struct master *m);

static void on_later(void *arg)
{
    struct master *m = arg;
    m->cluster_spec.later_ms = 0;
    if (m->phase != MP_RUNNING)
        return;
    if (refresh(m) < 0)
        master_exit_now(m, MASTER_CRASHED);
    cluster_spec_start_waiting(m);
    if (m->cluster_spec.tell)
        tell_all(m);
    if (!m->remote && !m->cluster_spec.path)
        wake_at(m, m->cluster_spec.rendered_ms + DISK_RETRY_MS);
}

int cluster_spec_open(struct master *m, struct err *e)
{
    m->addresses_version = 1; /* not 0, which is the spec_version of an executor without Peers */
    m->cluster_spec.later = loop_timer_new(m->loop, on_later, m);
    return m->cluster_spec.later ? 0 : err_set(e, ENOMEM, "no memory for the master's timers");
}

void cluster_spec_close(struct master *m)
{
    log_event(LOG_INFO, "addresses.rendered", f_int("times", m->cluster_spec.n_rendered));
    loop_timer_free(m->cluster_spec.later);
    packed_unref(m->cluster_spec.peers);
    packed_unref(m->cluster_spec.whole);
    free(m->cluster_spec.path);
    vec_done(&m->cluster_spec.waiting_starts);
    m->cluster_spec.later = NULL;
    m->cluster_spec.peers = m->cluster_spec.whole = NULL;
    m->cluster_spec.path = NULL;
}

/* ---- telling executors ---- */

bool cluster_spec_is_separate(const struct master *m, const struct peer *p)
{
    return p->reads_spec_file && (m->remote || m->cluster_spec.path);
}

int cluster_spec_send(struct master *m, struct peer *p)
{
    if (!m->remote || p->spec_version == m->cluster_spec.version)
        return 0; /* the executor reads the shared file, or has this version */
    p->spec_version = m->cluster_spec.version;
    return conn_send_packed(p->conn, m->cluster_spec.peers);
}

/* Send Peers to an executor whose task runs and does not read the master's file. */
static int send_peers(struct master *m, struct peer *p, struct packed **all)
{
    struct slot_view v;
    if (!p->conn || (!m->remote && p->reads_spec_file))
        return 0;
    job_slot(m->job, p->slot, &v);
    if (v.state != SLOT_RUNNING)
        return 0;
    if (m->remote && p->reads_spec_file)
        return cluster_spec_send(m, p);
    if (!*all) {
        AUTO(message_done) struct spec_message s = { 0 };
        *all = message_build(m, false, &s) < 0 ? NULL : pack_peers(&s);
    }
    return *all ? conn_send_packed(p->conn, *all) : -ENOMEM;
}

/* After Peers was sent to one executor or to all: rc is the result. An executor whose connection is
 * broken gets the addresses when it reconnects. */
static void peers_sent(struct master *m, int rc, struct packed *all)
{
    packed_unref(all);
    if (rc == -ENOMEM)
        master_exit_now(m, MASTER_CRASHED);
}

static void tell_all(struct master *m)
{
    struct packed *all = NULL;
    int rc = refresh(m);
    int64_t began_us = clock_mono_us();
    m->cluster_spec.tell = false;
    m->cluster_spec.sent_version = m->addresses_version;
    for (uint32_t i = 0; rc != -ENOMEM && i < job_n_slots(m->job); i++)
        if (m->executors[i])
            rc = send_peers(m, m->executors[i], &all);
    if (all) /* packing for executors of older versions took time */
        set_next_rendering(m, began_us);
    peers_sent(m, rc, all);
}

void cluster_spec_announce_to_all(struct master *m)
{
    if (m->cluster_spec.sent_version == m->addresses_version)
        return; /* the restarted task has the same address */
    m->cluster_spec.tell = true;
    if (clock_mono_ms() >= m->cluster_spec.due_ms)
        tell_all(m);
    else
        wake_at(m, m->cluster_spec.due_ms);
}

void cluster_spec_announce(struct master *m, struct peer *p)
{
    struct packed *all = NULL;
    int rc = refresh(m);
    if (rc == 0)
        rc = send_peers(m, p, &all);
    peers_sent(m, rc, all);
}
