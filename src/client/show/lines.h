/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats the output of several tasks for people: each line begins with the name of its task.
 *
 *     worker:0 | epoch 3 loss 0.31
 *     worker:1 | epoch 3 loss 0.32
 *     worker:1 | [1,204 lines (3.1 MB) left out]
 *
 * Text arrives in pieces, which may end within a line. A line is written when it is complete, so
 * the lines of two tasks never mix.
 */
#ifndef TONY_CLIENT_SHOW_LINES_H
#define TONY_CLIENT_SHOW_LINES_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cluster_log_text;
struct lines;

struct lines_config {
    bool prefix; /* the name of the task in front of each line */
    bool color;  /* write the name in the colour of the task */
    /* The reader is a terminal: escape sequences that do more than colour are left out. Of a line
     * that a progress bar writes again and again, the newest state is shown once a second. */
    bool terminal;
    const regex_t *grep; /* only lines that match it; NULL = all */
    /* Write whole lines. 0, or -errno, which ends the call of lines_...(). */
    int (*put)(const char *p, size_t n, bool is_stderr, void *arg);
    void *arg;
};

struct lines *lines_new(const struct lines_config *cfg); /* copies cfg; NULL = no memory */
/* 0, -ENOMEM, or the error of put(). */
int lines_add(struct lines *l, const struct cluster_log_text *t, int64_t now_ms);
/* Put out the states of progress bars that are due. Call it about once a second. */
int lines_tick(struct lines *l, int64_t now_ms);
int lines_end(struct lines *l); /* write the lines whose end has not arrived */
void lines_free(struct lines *l);

#endif
