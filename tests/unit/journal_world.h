/* SPDX-License-Identifier: Apache-2.0 */
/* A journal in a directory of its own, and a probe that lets its system calls fail. */
#ifndef TONY_TESTS_JOURNAL_WORLD_H
#define TONY_TESTS_JOURNAL_WORLD_H

#include <stdint.h>

#include "base/base.h"
#include "storage/journal.h"

extern char dir[64], path[96], beside[96]; /* beside: the file of an unfinished segment */

int setup(void **state); /* makes the directory */
int teardown(void **state);

void add(struct journal *j, const char *what, int i);
void flush(struct journal *j, bool sync);
void open_it(struct journal *j);
void fresh(struct journal *j); /* removes the file, and opens the journal */
int snapshot(struct journal *j, int n, struct err *e);

/* The records of the file in short: "H1:2 S E3" is a header with number 1 that promises snapshots
 * up to number 2, a snapshot, an event with number 3. */
const char *content(struct err *e);
void expect(const char *want);
void write_text(const char *p, size_t len);

struct fault {
    enum journal_call call; /* JOURNAL_CALL_NONE: all calls are counted */
    int number;             /* the number of the call that fails, from 1; 0 = none */
    int n;                  /* how many calls fail, from that one on; 0 = only that one */
    int rc;                 /* the call returns this -errno; 1 = the process dies */
    int64_t drop_from; /* > 0: the file loses its bytes from there on, as if the page cache were
                          dropped */
    int count;
};
extern struct fault fault;
extern const struct journal_probe probe; /* lets calls fail as `fault` says */

#endif
