/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A standby: a program that was started before it is needed, so that nobody waits for its
 * execve(). It waits for its arguments and descriptors, which come in one message. If the process
 * that has started it closes the connection or dies, the standby exits.
 *
 * The command line of a standby is "tony-standby --standby ...". When its arguments come, it shows
 * the name and the command line that it would have without this.
 */
#ifndef TONY_BASE_STANDBY_H
#define TONY_BASE_STANDBY_H

#include <stddef.h>

enum {
    STANDBY_FD = 3,      /* of the standby: one end of a socketpair of type SOCK_SEQPACKET */
    STANDBY_FDS_MAX = 4, /* descriptors in the message */
    STANDBY_TEXT_MAX = 8192,
    STANDBY_ARGS_MAX = 64,
};

/* In the standby: wait for the message. Returns the number of arguments, 0 if the standby has to
 * exit, or -errno. Afterwards
 *
 * - *out_argv has the arguments, and then the strings of `more` (NULL = none);
 * - the descriptors of the message are those from STANDBY_FD on;
 * - standard output and error are the end of the log that the message names. */
int standby_wait(const char *name, const char *more, char ***out_argv);

/* Send it. log: the path of the log. Returns 0, or -errno if the standby will not run. */
int standby_send(int fd, const char *log, char *const *argv, const int *fds, size_t n_fds);

#endif
