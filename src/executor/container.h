/*
 * An executor in a container of a cluster's node manager: what the node gave it, and how it differs
 * from one that a keeper forked. The rest is executor.c, the same for both.
 *
 *   tony-executor --container
 *
 * From the environment: CONTAINER_ID, TONY_MASTER_ADDRESS (numeric host:port), TONY_SLOT,
 * HADOOP_TOKEN_FILE_LOCATION (its secret tony.container.key is shared with the master), LOG_DIRS.
 * The working directory is the container's. Exit codes: 2 something of that is missing, with a
 * sentence on stderr; 1 no master would have us; else the task's, 128 + n for signal n.
 *
 * The node manager stops a container with TERM to its process group and KILL a moment later (250 ms
 * unless the site says otherwise), and says itself why it did: nothing of ours leaves the group,
 * what a task moved out of it is killed before the moment is over, and the end of such a task is
 * not reported by us, since the scheduler knows the reason and we do not.
 */
#ifndef TONY_EXECUTOR_CONTAINER_H
#define TONY_EXECUTOR_CONTAINER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/vec.h"
#include "codec/tls.h"
#include "executor/link.h"
#include "executor/workdir.h"
#include "proto/tony.pb-c.h"

struct executor;

struct pollfd;

/* One that has dialled us and has not shown yet that it knows our key. */
struct caller {
    struct link link; /* fd -1 = none */
    int64_t until_ms;
};

enum { CALLERS_MAX = 2, REMOTE_POLL_MAX = 1 + CALLERS_MAX };

struct remote {
    struct sockaddr_storage master;
    socklen_t master_len;
    char master_host[64];
    uint16_t master_port;
    const char *container_id;
    uint32_t slot;
    char identity[TLS_IDENTITY_MAX];
    struct tls_key key;
    char *workdir;
    struct strv log_dirs;   /* the one that our own stderr lies in first */
    VEC(uint32_t) attempts; /* that ran here, in order: their logs are numbered by it */
    unsigned refused;       /* times in a row that the master did not know our key */
    struct err why;         /* what went wrong with the connection */
    int listen_fd;          /* where a new master calls; -1 = nowhere */
    struct caller callers[CALLERS_MAX];
};

int container_main(void);

/* Read the environment; what out points to lives as long as the environment. */
int remote_open(struct remote *out, struct err *e);
void remote_done(struct remote *r);
/* "10.0.0.1:4242" or "[fe80::1]:4242" into the master's address. */
int remote_parse_master(const char *text, struct remote *out, struct err *e);

int remote_dial(struct remote *r, struct link *l);
/* The connection is over, or was not made; `why` becomes a sentence. True: the master does not know
 * our key, again and again. greeted: it had its Welcome. */
bool remote_lost(struct remote *r, int rc, bool greeted);
/* How long to wait before the next dial, after n that failed. */
int remote_pause_ms(const struct remote *r, unsigned n);

/* ---- container_call.c: a new master does not wait to be found, it calls ---- */

/* Without a port to listen at only a new master misses something: it is logged. */
void remote_listen(struct remote *r);
void remote_listen_done(struct remote *r);
/* What to poll for callers; how many. */
size_t remote_poll(const struct remote *r, struct pollfd *out);
/* After the poll. True: a master of ours has called, *out is the connection to it. */
bool remote_called(struct remote *r, const struct pollfd *v, size_t n, struct link *out);
int64_t remote_call_deadline(const struct remote *r);
/* Where the new master wants to be dialled from now on; nonsense is ignored. */
void remote_moved(struct remote *r, const char *address);

/* The mounts into the working directory, which is there already. */
int remote_prepare(const struct remote *r, Tony__Mount *const *mounts, size_t n, struct err *e);
int remote_logs_open(struct remote *r, uint32_t attempt, struct logs *out, struct err *e);
/* What of our own environment a task gets. */
int remote_environment(const struct remote *r, struct strv *out);
void remote_read_log(struct executor *x, const Tony__ReadLog *m);

/* Give back the memory that only the start needed: a node counts ours with the task's. */
void remote_trim(void);

/* KILL to all below us that left our process group; how many there were. */
unsigned remote_kill_strays(void);

#endif
