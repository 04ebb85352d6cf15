/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container of a cluster with the real program in it, and this test as its node manager and its
 * master. A test starts with container_setup() and ends with container_teardown().
 */
#ifndef TONY_TESTS_CONTAINER_WORLD_H
#define TONY_TESTS_CONTAINER_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "codec/tls.h"
#include "executor/link.h"
#include "proto/tony.pb-c.h"

enum { LONG_MS = 60000, LOG_MAX = 1 << 20 };

#define CONTAINER "container_e17_1700000000000_0007_01_000003"
/* The job's key. Executors wait for calls at ports that follow from it: each run has one of its
 * own, else two of them on one machine would call each other's. */
#define SECRET container_secret()
const char *container_secret(void);

extern struct world {
    char dir[64], work[80], logs[2][80], program[160], mark[100];
    int listen_fd, held[2]; /* sockets that keep its addresses while nobody listens there */
    uint16_t port;
    pid_t executor; /* and its process group; 0 = not running */
    int status;
    struct link link;  /* the greeted one */
    struct link guest; /* one that has not said hello yet */
    const char *key;
    /* what it is told */
    const char *command;
    uint32_t epoch, away_ms, grace_ms;
    bool src, hold_start, hold_ack, keep, refuse, moved;
    /* what it said */
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
} * w; /* the running test's */

int container_setup(void **state);
int container_teardown(void **state); /* also after a failure: kills what is left */

/* ---- the node ---- */

/* As a node manager does: a session, a directory, an environment of its own. Our own log lies on
 * the second disk. without: a variable that is left out ("A="); more: others, "A=1", NULL at the
 * end. */
void launch(const char *without, const char *const *more);
int exit_status(void); /* waits for it; 1000 + signal */
bool is_gone(void);
int processes(bool kill_them); /* of this container, by their environment */
void write_bytes(const char *path, const void *p, size_t n, mode_t mode);
void write_tokens(const char *alias, const char *secret);
const char *path_of(const char *name); /* below the test's directory; borrowed */
char *text_of(const char *name);       /* "" when it is not there; borrowed */
void wait_said(const char *what);      /* in the stdout of its first attempt */

/* ---- the master ---- */

void make_listener(void); /* at w->port, if it is set */
void tell_start(uint32_t attempt);
void tell_start_apart(uint32_t attempt, const char *addresses, uint32_t n);
void tell_ack(uint32_t attempt, bool finish);
void cut(void); /* all connections */
/* Call the executor where its key says, as a new master does; false: it is not there, or hangs up
 * on who has another key. */
bool call_it(const char *key);

#define SEND(which, case_, msg)                                                                    \
    do {                                                                                           \
        Tony__Frame f_ = TONY__FRAME__INIT;                                                        \
        f_.body_case = TONY__FRAME__BODY_##case_;                                                  \
        f_.which = (msg);                                                                          \
        (void)link_send(&w->link, &f_);                                                            \
    } while (0)

/* Handle what comes until done() or the deadline; false: the deadline. */
bool until(bool (*done)(void), int ms);

#endif
