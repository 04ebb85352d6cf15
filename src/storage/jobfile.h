/*
 * job.conf: all that a job is, as the client submitted it: the final configuration, what is
 * shipped, who submitted it from where.
 *
 *   {"format":1,"conf":[...conf_encode...],
 *   "ship":[{"kind":"src","name":"","role":"","digest":"..","path":"..","source":"..",
 *            "bytes":1,"files":1}...],
 *   "submit":{"user":"..","host":"..","cwd":"..","wall_ms":1,"pid":1,"version":".."}}
 */
#ifndef TONY_STORAGE_JOBFILE_H
#define TONY_STORAGE_JOBFILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct conf;
struct err;
struct ship_item;

enum { JOB_FILE_SHIP_MAX = 10000 }; /* whoever ships more ships a directory of them */

struct job_file {
    struct conf *conf;
    struct ship_item *ship;
    size_t n_ship;
    char *user, *host, *cwd, *version;
    int64_t wall_ms;
    int pid; /* written only: tells two submissions of one moment apart */
};

int job_file_encode(const struct job_file *f, struct buf *out, struct err *e);
int job_file_decode(struct span text, struct job_file **out, struct err *e);
void job_file_free(struct job_file *f);
void job_file_freep(struct job_file **f);

#endif
