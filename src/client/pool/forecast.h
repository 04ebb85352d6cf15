/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Estimates when the jobs that wait in the pool will start. The pool reports its queue (QUEUE), and
 * the client computes the estimate with partition/estimate.h.
 *
 * The run time of a job comes from the best of these sources:
 *
 *   progress  what its tasks report (job_outlook())
 *   history   earlier jobs of the same name that have succeeded, at most HISTORY_MAX rows back:
 *             between 3/4 of the shortest and 5/4 of the longest of their run times, likely the
 *             median; of one earlier job between its half and its double. A job that has run longer
 *             than that has an unknown end.
 *   limit     tony.application.timeout: the job ends at any time up to it
 *   unknown   the job ends at any time, or never
 *
 * A time limit also bounds the times of the other sources. If it comes before the shortest of them,
 * the source is "limit".
 */
#ifndef TONY_CLIENT_POOL_FORECAST_H
#define TONY_CLIENT_POOL_FORECAST_H

#include <jansson.h>
#include <stdint.h>

#include "base/buf.h"

struct client;
struct forecast;
struct job_spec;

/* Ask the pool, and estimate. NULL: the pool does not answer, or there is no memory. Free with
 * forecast_free(). */
struct forecast *forecast_load(struct client *c);
void forecast_free(struct forecast *f);
/* The expected start of a waiting job: a new object (docs/json.md, "expected"). NULL: the job does
 * not wait. */
json_t *forecast_json(const struct forecast *f, const char *id);
/* The same for a job that is not submitted. "shrinks" and "delays" list the jobs that its start
 * would change. NULL: no memory. */
json_t *forecast_plan(struct forecast *f, const struct job_spec *spec);

/* Add "expected" to the member "waiting" of a status document, if the job waits for the pool. */
void forecast_add(struct client *c, json_t *doc);
/* Append "in 4 m 00 s to 12 m 00 s, likely in 6 m 00 s; by the progress of 1 job". false: nothing
 * is known. waiting: the object that has "expected". */
bool forecast_text(const json_t *waiting, struct buf *out);
/* The same without what it rests on: "in 4 m 00 s to 12 m 00 s, likely in 6 m 00 s". */
bool forecast_times(const json_t *waiting, struct buf *out);
/* Append "1.0 GiB; train (1) holds most". false: no resource is missing. The names of jobs are
 * those that names_shown() has put into `waiting` (show/names.h). */
bool forecast_missing(const json_t *waiting, struct buf *out);
/* Print the answer of `tony plan --when`. */
void forecast_print_plan(struct client *c, const json_t *when);
/* All waiting jobs: a new array of objects with "application_id", "name" and "expected". */
json_t *forecast_queue(const struct forecast *f);
void forecast_print_queue(struct client *c, const json_t *waiting); /* the same as text */

#endif
