/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a test, found by a text in their environment. */
#ifndef TONY_TESTS_MARKED_PROCESSES_H
#define TONY_TESTS_MARKED_PROCESSES_H

#include <stdbool.h>

/* The number of processes, besides this one, whose environment contains the text. They are killed
 * if kill_them. A process can have forked meanwhile: to kill all, repeat until none is found. */
int marked_processes(const char *text, bool kill_them);

#endif
