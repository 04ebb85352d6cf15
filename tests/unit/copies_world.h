/* SPDX-License-Identifier: Apache-2.0 */
/* Files in the memory of a test, and masters that copy their journals into them. */
#ifndef TONY_TESTS_COPIES_WORLD_H
#define TONY_TESTS_COPIES_WORLD_H

#include <stdint.h>

#include "base/base.h"
#include "loop/loop.h"
#include "master/copies.h"
#include "storage/journal.h"

enum op_type { OP_PUT = 1, OP_REMOVE, OP_LIST, OP_GET };

struct op {
    enum op_type type;
    char *path;
    struct span text; /* borrowed by a put */
    files_done_fn *done;
    void *arg;
};

struct file {
    char *path;
    struct buf text;
};

struct files {
    struct loop *loop;
    struct loop_timer *timer, *end;
    VEC(struct file) files;
    VEC(struct op) ops; /* operations that have begun and not ended, in order */
    size_t most_files, n_puts, n_removes;
    uint64_t bytes_put;
    unsigned faults; /* one in so many operations fails; 0 = none */
    unsigned seed;
    int hang, fail_removes;
    bool hang_at_list;   /* the next listing sets hang when it begins */
    unsigned fail_puts;  /* so many puts fail; each of them writes half of the file */
    unsigned n_begun;    /* puts that have begun */
    char last_put[128];  /* the path of the last one, */
    int64_t last_put_ms; /* and the monotonic clock when it began */
    unsigned ops_left, idle;
    bool (*until)(void);
    void (*after_list)(void); /* called once, after the next listing; NULL = nothing happens */
};
extern struct files f;
extern const struct files_ops files; /* operations on f */
extern char dir[64];

int setup(void **state);
int teardown(void **state);

unsigned dice(unsigned n);
struct file *find(const char *path);
void file_put(const char *path, struct span text);
void file_remove(const char *path);
void run_until(bool (*until)(void));
void run_ops(unsigned n);
/* The master with these copies died: each of its operations has happened, or a part of it, or
 * nothing. */
void drop_ops_of(const void *copies);

enum { EVENTS_MAX = 4000, EPOCHS_MAX = 400 };

struct sim {
    uint32_t epoch;
    char path[128];
    struct journal j;
    struct copies *c;
    struct buf events; /* all events of the job so far, one byte each */
    bool added;
    size_t n_stored; /* how many of them were stored when copies_stored() was last true */
    unsigned n_on_stored;
};

/* The times of the copies of sim_open(); a patience of 0 stands for the real one. */
struct sim_times {
    int64_t delay_ms, retry_ms, patience_ms;
};
extern struct sim_times sim_times; /* setup() sets all to 0 */

struct sim *sim_open(uint32_t epoch);
void sim_close(struct sim *s);
void sim_add(struct sim *s, unsigned n);
void sim_segment(struct sim *s);
void sim_look(struct sim *s);

struct fetched {
    bool over;
    struct copies_found found;
    struct err why;
};
extern struct fetched got; /* the result of fetch() */
void fetch(uint32_t epoch);
void fetch_kind(enum copies_kind kind, const char *from, const char *path);

#endif
