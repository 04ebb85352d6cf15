/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper of one node of a job on a cluster (docs/decisions/0019-slurm.md). It differs from the
 * keeper of the pool in three ways:
 *
 * - It connects to the master, over TCP with TLS. If the connection breaks, it reconnects.
 * - It has neither a master's process nor a pool. The cluster says what it may use.
 * - Its directory is nodes/<number>/ in the job's directory, since all nodes see the same files.
 *
 * If there is no master for AWAY_MS and no container runs, the keeper ends. Containers end
 * themselves before that: their executors have a lease.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "executor/keeper_int.h"

enum {
    AWAY_MS = 600000, /* without a master and containers: the keeper ends */
    BEAT_MS = 5000,   /* a node that is silent for 30 s is lost (scheduler/slurm/nodes.c) */
    FAST_TRIES = 30,  /* attempts to connect with short pauses: the master is starting */
    FAST_PAUSE_MS = 50,
    ADDRESS_MAX = 4 << 10, /* bytes of master.json */
    PROTOCOL = TONY__VERSION__PROTOCOL_VERSION,
};

/* ---- the address of the master ---- */

static void set_port(struct remote *r, uint16_t port)
{
    r->master_port = port;
    if (r->master.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&r->master)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)&r->master)->sin_port = htons(port);
}

int remote_read_port(struct remote *r)
{
    AUTO(buf_done) struct buf text = { .max = ADDRESS_MAX };
    int rc = fs_read(AT_FDCWD, r->address_file, &text, &r->why);
    if (rc < 0)
        return rc;
    json_t *o = json_loadb(text.p, text.len, JSON_REJECT_DUPLICATES, NULL);
    int64_t port = json_integer_value(json_object_get(o, r->address_name));
    json_decref(o);
    if (port < 1 || port > 65535)
        return err_set(&r->why, EBADMSG, "file '%s' has no valid port as its member '%s'",
                       r->address_file, r->address_name);
    set_port(r, (uint16_t)port);
    return 0;
}

/* ---- the connection ---- */

static struct peer *node_peer(const struct keeper *k)
{
    for (size_t i = 0; i < k->peers.n; i++)
        if (k->peers.v[i].link.tls && k->peers.v[i].link.fd >= 0)
            return &k->peers.v[i];
    return NULL;
}

static void say_hello(struct keeper *k, struct peer *p)
{
    Tony__KeeperHello m = TONY__KEEPER_HELLO__INIT;
    m.version = PROTOCOL;
    m.node = (char *)(uintptr_t)k->node.name;
    m.index = k->node.index;
    m.memory_mib = k->memory_mib;
    m.vcores = k->node.vcores;
    m.n_gpus = k->n_gpus;
    m.run = k->run;
    m.started_ms = (uint64_t)k->node.started_ms;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_KEEPER_HELLO;
    f.keeper_hello = &m;
    keeper_send(k, p, &f);
    k->node.beat_at_ms = clock_mono_ms() + BEAT_MS;
}

static void dial(struct keeper *k, int64_t now)
{
    struct peer p = { .link.fd = -1 };
    struct remote *r = &k->node.remote;
    int rc = remote_dial(r, &p.link);
    if (rc == 0 && vec_push(&k->peers, p) < 0)
        link_close(&p.link);
    else if (rc == 0 && !p.link.connecting)
        say_hello(k, &k->peers.v[k->peers.n - 1]);
    unsigned n = k->node.tries++;
    k->node.dial_at_ms = now + (n < FAST_TRIES ? FAST_PAUSE_MS : remote_pause_ms(r, n));
}

void node_connected(struct keeper *k, struct peer *p)
{
    int rc = link_connected(&p->link);
    if (rc == 0)
        say_hello(k, p);
    else if (rc != -EINPROGRESS)
        link_close(&p->link); /* node_tick() tries again */
}

void node_registered(struct keeper *k, const Tony__RegisterMaster *m)
{
    k->epoch = m->epoch;
    k->node.tries = 0;
    k->node.has_master = true;
    log_event(LOG_INFO, "keeper.master", f_int("epoch", m->epoch));
}

static void send_beat(struct keeper *k, struct peer *p, int64_t now)
{
    Tony__Beat beat = TONY__BEAT__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_BEAT;
    f.beat = &beat;
    k->node.beat_at_ms = now + BEAT_MS;
    keeper_send(k, p, &f);
}

/* The master asks the cluster what the signal means. */
void node_signalled(struct keeper *k, int signal)
{
    struct peer *p = k->kind == KEEPER_OF_NODE ? keeper_peer(k, PEER_MASTER) : NULL;
    Tony__ClusterSignal m = TONY__CLUSTER_SIGNAL__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    m.signal = (uint32_t)signal;
    f.body_case = TONY__FRAME__BODY_CLUSTER_SIGNAL;
    f.cluster_signal = &m;
    if (p)
        keeper_send(k, p, &f);
}

void node_tick(struct keeper *k, int64_t now)
{
    struct keeper_node *n = &k->node;
    if (k->kind != KEEPER_OF_NODE)
        return;
    struct peer *p = node_peer(k);
    if (p && p->kind == PEER_MASTER && now >= n->beat_at_ms)
        send_beat(k, p, now);
    if (p)
        return;
    if (n->has_master) {
        n->has_master = false;
        n->away_since_ms = now;
        n->dial_at_ms = now;
        log_event(LOG_WARN, "keeper.master_away", f_str("why", n->remote.why.msg));
    }
    if (k->state == KEEPER_RUNNING && k->n_alive == 0 && now - n->away_since_ms >= AWAY_MS)
        keeper_abort_job(k, "there was no master for 600 s");
    if (k->state == KEEPER_RUNNING && now >= n->dial_at_ms)
        dial(k, now);
}

int64_t node_deadline(const struct keeper *k)
{
    if (k->kind != KEEPER_OF_NODE)
        return INT64_MAX;
    const struct peer *p = node_peer(k);
    if (p)
        return p->kind == PEER_MASTER ? k->node.beat_at_ms : INT64_MAX;
    return k->state == KEEPER_RUNNING ? k->node.dial_at_ms : INT64_MAX;
}

/* ---- executors ---- */

/* Runs before the fork. The child has a copy. */
struct remote *node_remote(const struct keeper *k, const struct container *c, const char *id)
{
    static struct remote r;
    r = k->node.remote;
    r.address_name = "port";
    r.container_id = id;
    r.slot = c->slot;
    r.why = (struct err){ 0 };
    if (!job_key_identity(id, r.identity))
        return NULL;
    job_key_container(&k->node.key, id, &r.key);
    return &r;
}

/* ---- start and end ---- */

/* The directory of this node. Nodes share the job's directory, but not this one. */
static int make_dir(struct keeper *k, struct err *e)
{
    AUTO(free_p) char *job = TAKE(k->job_dir);
    k->job_dir = str_printf("%s/nodes/%u", job, k->node.index);
    k->node.address_file = str_printf("%s/master.json", job);
    if (!k->job_dir || !k->node.address_file)
        return err_set(e, ENOMEM, "cannot start: %m");
    int rc = job_key_open(job, &k->node.key, e);
    if (rc == 0)
        rc = fs_mkdirs(k->job_dir, 0700, e);
    free(TAKE(k->spare_dir)); /* working directories are made anew: other nodes cannot race then */
    return rc;
}

int node_open(struct keeper *k, struct err *e)
{
    struct keeper_node *n = &k->node;
    struct remote *r = &n->remote;
    AUTO(free_p) char *address = NULL;
    *r = (struct remote){ .listen_fd = -1 };
    for (size_t i = 0; i < CALLERS_MAX; i++)
        r->callers[i].link.fd = -1;
    int rc = make_dir(k, e);
    if (rc < 0)
        return rc;
    const char *host = n->master_host;
    address = host ? str_printf(strchr(host, ':') ? "[%s]:1" : "%s:1", host) : NULL;
    if (!address)
        return err_set(e, EINVAL, "--node needs --master-host");
    rc = remote_parse_master(address, r, e); /* the port comes from master.json */
    r->address_file = n->address_file;
    r->address_name = "keepers_port";
    job_key_keeper_identity(n->index, r->identity);
    job_key_keeper(&n->key, n->index, &r->key);
    n->away_since_ms = clock_mono_ms();
    n->started_ms = clock_wall_ms();
    return rc;
}

/* The numbers of containers are unique in the job: this is the third part of their ids. */
uint32_t node_life(const struct keeper *k)
{
    enum { LIVES_MAX = 1000 };
    return k->kind == KEEPER_OF_NODE ? (k->node.index + 1) * LIVES_MAX + k->life % LIVES_MAX
                                     : k->life;
}

void node_done(struct keeper *k)
{
    job_key_wipe(&k->node.key, sizeof k->node.key);
    free(k->node.address_file);
}
