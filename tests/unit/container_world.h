/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world with one container of a cluster. The real program runs in the container. The test plays
 * the node manager and the master. A test starts with container_setup() and ends with
 * container_teardown().
 */
#ifndef TONY_TESTS_CONTAINER_WORLD_H
#define TONY_TESTS_CONTAINER_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "codec/tls.h"
#include "executor/link.h"
#include "proto/tony.pb-c.h"
#include "storage/jobkey.h"

enum { LONG_MS = 60000, LOG_MAX = 1 << 20 };

#define CONTAINER "container_e17_1700000000000_0007_01_000003"
/* The job's key. An executor listens for a new master on ports that are computed from this key.
 * Each run has its own key, so that two runs on one machine do not share ports. */
#define SECRET container_secret()
const char *container_secret(void);

extern struct world {
    char dir[64], work[80], logs[2][80], program[160], mark[100];
    int listen_fd, held[2]; /* held: bound sockets that reserve the master's address while no
                               process listens there */
    uint16_t port;
    pid_t executor; /* also its process group; 0 = not running */
    int status;
    struct link link;  /* the connection whose hello has arrived */
    struct link guest; /* a new connection whose hello has not arrived yet */
    const char *key;
    /* what the master tells the executor */
    const char *command;
    uint32_t epoch, away_ms, grace_ms;
    struct job_ports ports; /* of tony.port-range; 0 = not set */
    bool src, hold_start, hold_ack, keep, refuse, moved;
    /* what the executor reported */
    int n_dials, n_hellos, n_ended, n_logs;
    char host[80], container[80], identity[TLS_IDENTITY_MAX];
    uint32_t slot, port_told, epoch_seen, hello_attempt;
    bool running, started, ended, unacked;
    pid_t task;
    int exit_code, signal;
    uint32_t attempt;
    Tony__Reason reason;
    char detail[256], tail[5000];
    /* of the last LogData */
    uint32_t log_number, log_num;
    int64_t log_offset, log_size;
    size_t log_len;
    char log_text[LOG_MAX + 1], log_message[256];
} * w; /* the world of the running test */

int container_setup(void **state);
/* Also runs after a failed test: kills the processes that are left. */
int container_teardown(void **state);

/* ---- the node ---- */

/* Start the executor as a node manager does: with its own session, directory and environment. The
 * executor's log is on the second disk. without: a variable to leave out ("A="). more: variables to
 * add ("A=1"), NULL at the end. */
void launch(const char *without, const char *const *more);
int exit_status(void); /* waits for the exit; 1000 + signal if a signal killed it */
bool is_gone(void);
int processes(bool kill_them); /* number of processes whose environment names this container */
void write_bytes(const char *path, const void *p, size_t n, mode_t mode);
void write_tokens(const char *alias, const char *secret);
const char *path_of(const char *name); /* below the test's directory; borrowed */
char *text_of(const char *name);       /* "" when it is not there; borrowed */
void wait_said(const char *what);      /* waits for this text in stdout of the first attempt */

/* ---- the master ---- */

void make_listener(void); /* at w->port, unless that is 0 */
void send_start(uint32_t attempt);
void send_peers_and_start(uint32_t attempt, const char *addresses, uint32_t n);
void send_ack(uint32_t attempt, bool finish);
void close_connections(void); /* closes all connections */
/* Connect to the executor's ports as a new master does. false: nothing listens there, or the
 * executor refused the key. */
bool connect_as_new_master(const char *key);

#define SEND(which, case_, msg)                                                                    \
    do {                                                                                           \
        Tony__Frame f_ = TONY__FRAME__INIT;                                                        \
        f_.body_case = TONY__FRAME__BODY_##case_;                                                  \
        f_.which = (msg);                                                                          \
        (void)link_send(&w->link, &f_);                                                            \
    } while (0)

/* Handle events until done() is true; false: the deadline came first. */
bool until(bool (*done)(void), int ms);

#endif
