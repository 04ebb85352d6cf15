/*
 * The framework's rendezvous server (rendezvous/service.h) in the executor of rank 0's task, on the
 * port that it has reserved and told: so it outlives rank 0, which is started again beside it, and
 * any master. Where this container is lost the gang begins anew, elsewhere, and with nothing in it.
 */
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
    BYTES_MAX = 512 << 20, /* 2000 ranks that all tell each other 128 bytes */
    OF_MEMORY = 4,         /* a node counts ours with the task's: at most this part of it */
    HOST_SIZE = 280,
};

static size_t bytes_max(const struct executor *x)
{
    uint64_t memory = x->cfg->remote ? x->role->memory_bytes / OF_MEMORY : 0;
    return memory ? (size_t)MIN(memory, (uint64_t)BYTES_MAX) : BYTES_MAX;
}

/* Where the other ranks will look for it, and nowhere else: whoever reaches it can change it. */
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

/* One for each rank of all tasks. The task gets what was given to us. */
static void raise_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == -1)
        return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files); /* then there is room for fewer */
}

static void on_refused(const struct err *why, void *arg)
{
    executor_warn(arg, "server.refused", why);
}

/* Of several that abort, what the first one says is the job's end. */
static void on_abort(uint32_t rank, int exit_code, void *arg)
{
    struct executor *x = arg;
    if (x->server.aborted)
        return;
    x->server.aborted = true;
    x->server.abort_rank = rank;
    x->server.abort_code = exit_code;
    serve_tell(x);
}

static void close_it(struct executor *x)
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
                                  .on_refused = on_refused,
                                  .on_abort = on_abort,
                                  .arg = x };
    if (service_open(rt->server, &cfg, &x->server.s, &x->server.why_not) < 0)
        x->server.s = NULL; /* the attempt says why it cannot start */
    else if (x->cfg->remote)
        log_event(LOG_INFO, "server.open", f_str("name", rt->server), f_str("host", host),
                  f_int("port", x->port));
}

void serve_renew(struct executor *x)
{
    close_it(x);
    serve_open(x);
}

/* The hosts of all ranks in their order, as pointers into one block behind them. */
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
    size_t n;
    struct err *e = &x->server.why_not;
    if (!x->server.s || x->server.begun)
        return;
    AUTO(free_p) struct rt_role *roles = executor_roles(s->spec, &n);
    struct service_job job = { .application_id = x->role->application_id };
    job.n_ranks = roles ? runtime_world_size(roles, n) : 0;
    AUTO(free_p) const char **hosts = roles ? hosts_of(roles, n, job.n_ranks) : NULL;
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
    serve_tell(x);
}

/* Again and again: there may be no master now, or it may not have found that rank's executor. Who
 * aborts does nothing more but wait for its end. */
void serve_tell(struct executor *x)
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
