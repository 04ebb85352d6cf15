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
    unsigned faults; /* on average one of this number of operations fails; 0 = none fails */
    unsigned seed;
    int hang, fail_removes;
    bool hang_at_list;   /* the next listing sets hang when it begins */
    unsigned fail_puts;  /* the number of next puts that fail; each writes half of the file */
    unsigned n_begun;    /* puts that have begun */
    char last_put[128];  /* the path of the last put */
    int64_t last_put_ms; /* the monotonic clock when it began */
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
/* The master with these copies dies. Each operation that it has begun takes place, takes place in
 * part, or does not take place. */
void drop_ops_of(const void *copies);

enum { EVENTS_MAX = 4000, EPOCHS_MAX = 400 };

struct sim {
    uint32_t epoch;
    char path[128];
    struct journal j;
    struct copies *c;
    struct buf events; /* all events of the job so far, one byte each */
    bool added;
    size_t n_stored; /* the number of events when copies_stored() was last true */
    unsigned n_on_stored;
};

/* The times that sim_open() gives to the copies. patience_ms: 0 = as outside of tests */
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
