/*
 * Torch's store (rendezvous/tcpstore.h) in the executor of rank 0's task, on the port that it has
 * reserved and told: so it outlives rank 0, which is started again beside it, and any master. Where
 * this container is lost the gang begins anew, elsewhere, and with an empty store.
 */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/executor_int.h"
#include "rendezvous/tcpstore_server.h"

enum {
    BYTES_MAX = 512 << 20, /* 2000 ranks that all tell each other 128 bytes */
    OF_MEMORY = 4,         /* a node counts ours with the task's: at most this part of it */
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

void store_open(struct executor *x)
{
    char host[80];
    if (x->store || x->role->store != TONY__WELCOME__STORE__HERE)
        return;
    host_of(x, host);
    raise_files();
    x->store_err.num = 0;
    if (tcpstore_server_open(host, x->port, bytes_max(x), &x->store, &x->store_err) < 0)
        x->store = NULL; /* the attempt says why it cannot start */
    else if (x->cfg->remote)
        log_event(LOG_INFO, "store.open", f_str("host", host), f_int("port", x->port));
}

void store_close(struct executor *x)
{
    tcpstore_server_close(x->store);
    x->store = NULL;
}

void store_renew(struct executor *x)
{
    store_close(x);
    store_open(x);
}

static void on_refused(const struct err *why, void *arg)
{
    executor_warn(arg, "store.refused", why);
}

void store_turn(struct executor *x)
{
    tcpstore_server_turn(x->store, on_refused, x);
}
