/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has happened in a job, as documents for people and tools (docs/json.md, "events"). They are
 * made from the records of its journal: each record is fed to a job (src/job), and what has changed
 * afterwards is an event. So they have the same form whichever version of tony wrote the journal.
 */
#ifndef TONY_HISTORY_EVENTS_H
#define TONY_HISTORY_EVENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct err;
struct history_events;

/* Gets one event; borrowed. 0, or -errno to end the reading with it. */
typedef int history_event_fn(const json_t *event, void *arg);

/* conf: the text of job.conf, whose secrets may be masked. -ENOMEM, -EBADMSG, -EINVAL. */
int history_events_new(struct span conf, struct history_events **out, struct err *e);
void history_events_free(struct history_events *h); /* NULL is fine */
void history_events_freep(struct history_events **h);
/*
 * Read records: whole lines of a journal.
 *
 * first    the text begins with the first record of a segment. Otherwise it continues the text
 *          before it. A text with records that were read before is fine: they cause no event again.
 * Errors   -EBADMSG damaged, or records are missing; -EINVAL a newer version of tony wrote it; that
 *          of fn; -ENOMEM. Afterwards *h can only be freed.
 */
int history_events_feed(struct history_events *h, struct span text, bool first,
                        history_event_fn *fn, void *arg, struct err *e);
/* The last event that was told was the verdict: no other one follows. */
bool history_events_over(const struct history_events *h);

#endif
