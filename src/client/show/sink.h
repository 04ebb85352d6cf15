/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes text to standard output or standard error without waiting for its reader. If a pipe is
 * full, text is queued; if the queue is full, whole calls of sink_put() are dropped, and their
 * lines counted. So a client whose output is not read still follows its job, and Ctrl-C reaches it.
 *
 * Terminals and files accept text at once, and are written directly. A terminal that was stopped
 * by Ctrl-S continues with Ctrl-C.
 */
#ifndef TONY_CLIENT_SHOW_SINK_H
#define TONY_CLIENT_SHOW_SINK_H

#include <stddef.h>

struct loop;
struct sink;

struct sink *sink_new(struct loop *l, int fd); /* NULL = no memory */
/* p: whole lines. After an error of the descriptor, text is dropped. */
void sink_put(struct sink *s, const char *p, size_t n);
/* Write the queue, and wait for the reader. Use it when the loop does not run any more. */
void sink_drain(struct sink *s);
void sink_free(struct sink *s); /* NULL is fine */

#endif
