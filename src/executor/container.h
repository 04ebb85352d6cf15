/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An executor in a container of a cluster: what the node manager gives it, and how it differs from
 * an executor that a keeper has forked. Both share executor.c and the other files.
 *
 *   tony-executor --container
 *
 * From the environment: CONTAINER_ID, TONY_MASTER_ADDRESS (numeric host:port), TONY_SLOT,
 * HADOOP_TOKEN_FILE_LOCATION (its secret tony.container.key is shared with the master), LOG_DIRS.
 * The working directory is that of the container.
 *
 * Exit codes: 2 if one of these variables is missing (stderr names the variable); 1 if no master
 * has accepted the executor; otherwise the exit code of the task, which is 128 + n after signal n.
 *
 * The node manager stops a container: it sends TERM to the process group, and KILL 250 ms later
 * (the default of the site's setting). So executor and task stay in one process group. Within these
 * 250 ms, the executor kills processes that the task has moved to other groups. It does not report
 * the end of the task, because only the scheduler knows the reason.
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
#include "storage/jobkey.h"

struct executor;

struct pollfd;

/* A connection to this executor whose handshake has not finished. */
struct caller {
    struct link link; /* fd -1 = none */
    int64_t until_ms;
    uint32_t from; /* its IPv4 address */
    bool proved;   /* its first message proves that it knows the key */
};

enum { CALLERS_MAX = 8, REMOTE_POLL_MAX = 1 + CALLERS_MAX };

struct remote {
    struct sockaddr_storage master;
    socklen_t master_len;
    char master_host[64];
    uint16_t master_port;
    const char *container_id;
    uint32_t slot;
    char identity[TLS_IDENTITY_MAX];
    struct tls_key key;
    struct job_ports ports; /* listen_fd is at one of these */
    char *workdir;
    struct strv log_dirs; /* the first one has the executor's own stderr */
    /* Attempts that ran here, in order; log files are numbered by this index + 1. */
    VEC(uint32_t) attempts;
    /* A file with the port of the master, read before each attempt to connect; NULL = the port
     * stays the same. address_name: the member of its JSON object. */
    const char *address_file, *address_name;
    unsigned refused; /* consecutive times that the master did not accept the key */
    struct err why;   /* the last error of the connection */
    int listen_fd;    /* a new master connects here; -1 = not listening */
    struct caller callers[CALLERS_MAX];
    struct tls_seen *seen; /* the proofs of earlier callers; NULL = no caller yet */
};

int container_main(void);

/* Parse "10.0.0.1:4242" or "[fe80::1]:4242" into the address of the master. */
int remote_parse_master(const char *text, struct remote *out, struct err *e);

int remote_dial(struct remote *r, struct link *l);
/* Read the port of the master from r->address_file. A failure sets r->why. */
int remote_read_port(struct remote *r);
/* The connection has ended or failed. Sets `why` to a sentence. Returns true if the master has
 * refused the key REFUSED_MAX times in a row. greeted: the master had sent Welcome on this
 * connection. */
bool remote_lost(struct remote *r, int rc, bool greeted);
/* The pause before the next attempt to connect, after n that failed. */
int remote_pause_ms(const struct remote *r, unsigned n);

/* ---- container_call.c: a new master connects to the executor ---- */

/* Start to listen. A failure is only logged: only a new master needs this socket. */
void remote_listen(struct remote *r);
void remote_listen_done(struct remote *r);
/* Write the descriptors to poll to out, and return their number. */
size_t remote_poll(const struct remote *r, struct pollfd *out);
/* Call this after the poll. true: a master of this job has connected, and *out is the
 * connection. */
bool remote_called(struct remote *r, const struct pollfd *v, size_t n, struct link *out);
int64_t remote_call_deadline(const struct remote *r);
/* Connect to this address of the master from now on. An invalid address is ignored. */
void remote_moved(struct remote *r, const char *address);

/* Put the mounts into the working directory, which the node manager has made. */
int remote_prepare(const struct remote *r, Tony__Mount *const *mounts, size_t n, struct err *e);
int remote_logs_open(struct remote *r, uint32_t attempt, struct logs *out, struct err *e);
/* Copy to out the variables of the executor's environment that a task gets. */
int remote_environment(const struct remote *r, struct strv *out);
/* Answer the master: a piece of a log of the task. */
void executor_read_log(struct executor *x, const Tony__ReadLog *m);
/* Open a log of the task, on the pool and on a cluster. A descriptor, or -errno. */
int executor_open_log(const struct executor *x, const char *stream, uint32_t attempt, uint32_t rank,
                      struct err *e);
/* Open a log of an attempt that ran in this container; attempt 0 = the last one. A descriptor, or
 * -errno. */
int remote_open_log(const struct remote *r, const char *stream, uint32_t attempt, uint32_t rank,
                    struct err *e);

/* Give memory that is not needed any more back to the kernel: the node manager counts it as the
 * task's. */
void remote_trim(void);

/* Kill all descendants that have left the process group. Returns how many there were. */
unsigned remote_kill_strays(void);

#endif
