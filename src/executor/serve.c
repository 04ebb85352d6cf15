/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous server of the framework (rendezvous/service.h). It runs in the executor of rank
 * 0's task, on the port that this executor has reserved and registered. So it outlives attempts of
 * rank 0 and any master. If this container is lost, the gang restarts as a new generation with an
 * empty server. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/executor_int.h"
#include "rendezvous/service.h"
#include "runtime/runtime.h"

enum {
    BYTES_MAX = 512 << 20, /* enough for 2000 ranks that send 128 bytes to each other */
    OF_MEMORY = 4,         /* at most 1/4 of the container's memory, which the task shares */
    HOST_SIZE = 280,
};

static size_t bytes_max(const struct executor *x)
{
    uint64_t memory = x->cfg->remote ? x->role->memory_bytes / OF_MEMORY : 0;
    return memory ? (size_t)MIN(memory, (uint64_t)BYTES_MAX) : BYTES_MAX;
}

/* The address to listen on: only the one that the ranks use. On one machine that is loopback, and
 * the server refuses processes of other users (own_peers). On a cluster, any program of another
 * machine that reaches the server can change its data; on Slurm it refuses those of other users of
 * its own node (own_here). On YARN, a container may have other users than the node. */
static void host_of(const struct executor *x, char host[static 80])
{
    if (!x->cfg->remote || link_host(&x->link, host, 80) < 0) {
        (void)str_copy(host, 80, "127.0.0.1");
        return;
    }
    size_t len = strlen(host);
    if (host[0] == '[' && len > 2) {
        memmove(host, host + 1, len - 2);
        host[len - 2] = '\0';
    }
}

/* Raise the limit of open files: the server needs one for each rank. Tasks get the old limit. */
static void raise_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == -1)
        return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files); /* if it fails, fewer ranks can connect */
}

static void on_refused(const struct err *why, void *arg)
{
    executor_warn(arg, "server.refused", why);
}

/* If a rank has aborted the job, tell the master. Repeated with each heartbeat: the master may be
 * away, or may not be connected to the executor of that rank. A rank that has aborted only waits to
 * be killed. */
static void report_abort(struct executor *x)
{
    if (!x->server.aborted || !x->greeted)
        return;
    Tony__RankAborts aborts = TONY__RANK_ABORTS__INIT;
    aborts.generation = x->a.generation;
    aborts.rank = x->server.abort_rank;
    aborts.exit_code = x->server.abort_code;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_RANK_ABORTS;
    f.rank_aborts = &aborts;
    (void)executor_send(x, &f);
}

/* If several ranks abort, the first one decides. */
static void on_abort(uint32_t rank, int exit_code, void *arg)
{
    struct executor *x = arg;
    if (x->server.aborted)
        return;
    x->server.aborted = true;
    x->server.abort_rank = rank;
    x->server.abort_code = exit_code;
    report_abort(x);
}

static void close_server(struct executor *x)
{
    service_close(x->server.s);
    x->server.s = NULL;
    x->server.begun = x->server.aborted = false;
}

void serve_open(struct executor *x)
{
    char host[80];
    const struct runtime *rt = runtime_find(x->role->framework);
    if (x->server.s || x->role->server != TONY__WELCOME__SERVER__HERE || !rt || !rt->server)
        return;
    host_of(x, host);
    raise_files();
    x->server.why_not.num = 0;
    struct service_config cfg = { .host = host,
                                  .port = x->port,
                                  .max_bytes = bytes_max(x),
                                  .own_peers = !x->cfg->remote,
                                  .own_here = executor_has_keeper(x),
                                  .on_refused = on_refused,
                                  .on_abort = on_abort,
                                  .arg = x };
    if (service_open(rt->server, &cfg, &x->server.s, &x->server.why_not) < 0)
        x->server.s = NULL; /* attempt_start() reports why_not */
    else if (x->cfg->remote)
        log_event(LOG_INFO, "server.open", f_str("name", rt->server), f_str("host", host),
                  f_int("port", x->port));
}

void serve_renew(struct executor *x)
{
    close_server(x);
    serve_open(x);
}

/* The hosts of all ranks, in the order of ranks. The strings are in the same block of memory. */
static const char **hosts_of(const struct rt_role *roles, size_t n_roles, uint32_t n_ranks)
{
    struct rt_walk w = { .roles = roles, .n = n_roles };
    struct rt_task t;
    const char **hosts = calloc(n_ranks + 1, sizeof *hosts + HOST_SIZE);
    char *text = hosts ? (char *)(hosts + n_ranks + 1) : NULL;
    for (uint32_t rank = 0; hosts && runtime_walk(&w, &t); text += HOST_SIZE) {
        if (!runtime_host(t.address, text, HOST_SIZE))
            text[0] = '\0';
        for (uint32_t i = 0; i < t.ranks && rank < n_ranks; i++)
            hosts[rank++] = text;
    }
    return hosts;
}

void serve_begin(struct executor *x, const Tony__Start *s)
{
    struct err *e = &x->server.why_not;
    AUTO(spec_done) struct spec spec = { 0 };
    if (!x->server.s || x->server.begun || !x->workdir || spec_open(x, s, true, &spec, e) < 0)
        return;
    struct service_job job = { .application_id = x->role->application_id };
    job.n_ranks = runtime_world_size(spec.roles, spec.n_roles);
    AUTO(free_p) const char **hosts = hosts_of(spec.roles, spec.n_roles, job.n_ranks);
    job.hosts = hosts;
    int rc = hosts ? service_begin(x->server.s, &job, e)
                   : err_set(e, ENOMEM, "cannot serve the ranks: %m");
    x->server.begun = rc == 0;
}

int serve_fd(const struct executor *x)
{
    return x->server.begun ? service_fd(x->server.s) : -1;
}

void serve_turn(struct executor *x)
{
    service_turn(x->server.s);
}

void serve_tick(struct executor *x, int64_t now_ms)
{
    if (x->server.begun)
        service_tick(x->server.s, now_ms);
    report_abort(x);
}
