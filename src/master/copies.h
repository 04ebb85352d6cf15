/*
 * The journal, copied to where the master after us finds it: files beside what was staged for the
 * job, each made once,
 *
 *     <dir>/<epoch, 4 digits>-<number, 8 digits>     whole records, as in the journal
 *
 * One is under way at a time and carries all that has come since the last. Whoever reads them takes
 * them in the order of their names; a file that begins with a record that is there already cuts off
 * what was there from it on: an old master that does not know that it is over may write for a
 * while, and what its successor has not seen does not count. A file cut short ends with its last
 * whole record.
 *
 * The copy is behind the journal by a moment. What that may be is said in
 * docs/decisions/0007-a-second-master.md.
 */
#ifndef TONY_MASTER_COPIES_H
#define TONY_MASTER_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/vec.h"
#include "master/archive.h"

struct err;
struct loop;

enum {
    COPIES_DELAY_MS = 100,     /* of what nobody waits for, so that a burst is one file */
    COPIES_PATIENCE_MS = 5000, /* HDFS may keep those who wait for so long; then they go on */
    COPIES_RETRY_MS = 1000,
    COPIES_FILES_MAX = 64, /* in more than these a new master puts all of it into one */
};

struct copies_config { /* borrowed while it lives, but for the strings */
    struct loop *loop;
    const struct archive_files *files;
    void *fs;
    const char *dir, *journal;
    uint32_t epoch;
    uint64_t stored; /* bytes of the journal that are there already */
    void (*on_stored)(void *arg);
    void *arg;
};

struct copies;
int copies_new(const struct copies_config *cfg, struct copies **out, struct err *e);
void copies_free(struct copies *c);                 /* NULL is fine */
void copies_wrote(struct copies *c, uint64_t size); /* the journal has so many bytes now */
void copies_hurry(struct copies *c);                /* somebody waits */
/* All that was written is there, or it is not to be waited for any longer. */
bool copies_stored(const struct copies *c);
void copies_stop(struct copies *c); /* nothing more is copied; what waits goes on */

/* ---- reading them ---- */

/* Put the journal together and write it to `path`, a file that is not there. done: e->num 0, with
 * the bytes that the file has; 0 when there were none. Called once, not before it has returned. */
struct copies_found {
    uint64_t size;
    unsigned n_files;
};
typedef void copies_done_fn(const struct copies_found *f, const struct err *e, void *arg);
int copies_fetch(const struct archive_files *files, void *fs, const char *dir, const char *path,
                 copies_done_fn *done, void *arg, struct err *e);

/* The records of one more file behind those of out; offsets: where each of out's begins. 0,
 * -ENOMEM. */
struct copies_text {
    struct buf text;
    VEC(size_t) at;
};
int copies_join(struct copies_text *out, struct span file);
void copies_text_done(struct copies_text *t);

#endif
