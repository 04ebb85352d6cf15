/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service that each job has attained, for the policy las-elastic: the integral over time of its
 * dominant share, which is the larger of its part of the memory and its part of the GPUs.
 *
 * The pool always counts it. Under las-elastic it also stores it in the file pool/service, whenever
 * a job gets or returns something. The file has for each job what it had attained at a moment, and
 * its share from then on. So the next pool also counts the time in which there was no pool: jobs
 * keep their containers meanwhile. If the machine was booted in between, that time does not count.
 * Under another policy, the pool removes the file.
 *
 * If the file is damaged, or the last pool had another policy, a running job begins with 0.
 */
#ifndef TONY_POOL_SERVICE_H
#define TONY_POOL_SERVICE_H

#include <stdint.h>

#include "codec/json.h"

struct err;
struct pool;
struct pool_job;

/* Of one job. */
struct service {
    double attained_s; /* at the time at_ms of the monotonic clock */
    double share;      /* from then on */
    int64_t at_ms;
};

struct service_file {
    char *path;
    json_t *loaded; /* of the last pool; NULL once its jobs have taken their parts */
    bool is_old;    /* the file does not have the present shares */
    bool may_exist;
};

/* Read the file of the last pool. 0 or -ENOMEM. */
int service_load(struct pool *p, struct err *e);
/* Jobs may hold other amounts than before: count with them from now on, and store that. */
void service_update(struct pool *p);
double service_attained_s(const struct pool_job *j);
void service_done(struct pool *p);

#endif
