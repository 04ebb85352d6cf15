/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tests: a job, a script of events, and the tasks and the resize that must follow. */
#ifndef TESTS_UNIT_RESIZE_ROWS_H
#define TESTS_UNIT_RESIZE_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "drive.h"
#include "job/job_int.h"

struct resize_row {
    const char *job, *script, *shape, *state;
    enum resize_outcome outcome; /* RESIZE_OPEN: not checked */
    bool charged;                /* a task also fails and restarts */
};

/* Run the script, and compare: the test fails and prints the row if something differs. */
void resize_check(const struct resize_row *r);
void resize_check_all(const struct resize_row *rows, size_t n);
const char *resize_state(const struct drive *d); /* "steady", "waiting" or "forming" */
/* Append "worker:0=1.1 worker:1=1.1": generation and attempt of each running task, or else its
 * state. */
void resize_shape(const struct drive *d, struct buf *out);

#endif
