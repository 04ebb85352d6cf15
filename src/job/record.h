/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes structs as JSON objects, and reads them back, by a table of their fields.
 *
 * The events, and the parts of a snapshot, are lists of fields (event.h, snapshot.c). The kind of a
 * field determines its type in C and how it is written. A field with the value 0, false or NULL is
 * not written, and a missing field is read as 0, false or NULL.
 */
#ifndef TONY_JOB_RECORD_H
#define TONY_JOB_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/reason.h"

struct err;

/* clang-format off */

/* ---- limits: an EV_TIMER says which one has expired ---- */

#define JOB_LIMITS(X) \
    X(LIMIT_APPLICATION, "application") /* tony.application.timeout: the job is killed */ \
    X(LIMIT_ALLOCATION, "allocation") /* tony.container.allocation.timeout: the job fails */ \
    X(LIMIT_GANG, "gang") /* an incomplete gang got no further container: it gives all back */ \
    X(LIMIT_PAUSE, "pause") /* a gang that gave its containers back requests them again */ \
    X(LIMIT_REGISTRATION, "registration") /* of a slot: tony.container.registration.timeout */ \
    X(LIMIT_SILENCE, "silence") /* of a slot: max(3, tony.task.max-missed-heartbeats) beats */ \
    X(LIMIT_STOP, "stop") /* of a slot: its container should have ended by now */ \
    X(LIMIT_LEASE, "lease") /* of a slot: its node is lost; its executor has ended by now */ \
    X(LIMIT_RESTART, "restart") /* the pause before a restart is over */ \
    X(LIMIT_NODE, "node") /* an avoided node may be used again */ \
    X(LIMIT_RESIZE, "resize") /* the containers for a larger size were not granted in time */ \
    X(LIMIT_CLIENT, "client") /* tony.client.away-limit: the job is killed */ \
    X(LIMIT_GROUP, "group") /* tony.application.dependency.<role>.timeout.after.<group> */

enum job_limit {
    LIMIT_NONE = 0,
#define X(id, name) id,
    JOB_LIMITS(X)
#undef X
    LIMIT_COUNT,
};

/* ---- the kinds of fields ---- */

/* kind, type in C */
#define FIELD_KINDS(X) \
    X(SLOT, uint32_t) /* the number of a slot; also written if it is 0 */ \
    X(U32, uint32_t) \
    X(INT, int) \
    X(I64, int64_t) \
    X(U64, uint64_t) /* up to INT64_MAX */ \
    X(FLAG, bool) \
    X(TEXT, const char *) /* borrowed; at most JOB_TEXT_MAX bytes, the rest is cut off */ \
    X(LIST, const char *) /* borrowed; numbers or names with commas, never cut off */ \
    X(TAIL, const char *) /* borrowed; its last JOB_TAIL_MAX bytes */ \
    X(REASON, enum end_reason) /* by name */ \
    X(LIMIT, enum job_limit) /* by name */

enum {
    JOB_TEXT_MAX = 1024, /* bytes of a text that the core keeps and the journal has */
    JOB_TAIL_MAX = 4096, /* the same for the end of a task's output */
};

enum field_kind {
    F_NONE = 0,
#define X(kind, type) F_##kind,
    FIELD_KINDS(X)
#undef X
    F_COUNT,
};

#define X(kind, type) typedef type field_##kind;
FIELD_KINDS(X)
#undef X

/* clang-format on */

struct field {
    const char *name; /* of the JSON member; NULL ends a table */
    enum field_kind kind;
    size_t offset;    /* in the struct that the table describes */
    const char *text; /* for the tables in docs/ */
};

/* Appends ,"name":value for each field that has a value. A failed append shows in out->failed. */
void record_add(struct buf *out, const struct field *fields, const void *from);
/* Appends the decimal digits. Faster than buf_addf(): a snapshot of 10,000 tasks has many numbers.
 */
void record_add_number(struct buf *out, int64_t v);
/* Appends ,"name": */
void record_add_key(struct buf *out, const char *name);
/* Appends ,"name":value; for a time or another number that is not a field of a struct. */
void record_add_int(struct buf *out, const char *name, int64_t value);

bool record_field_same(const struct field *f, const void *a, const void *b); /* equal values? */

/* NULL = the table has no such field. */
const struct field *record_field(const struct field *fields, const char *name);
/* Reads one JSON value into its field of *to. Texts point into v. -EBADMSG: the value has another
 * kind, or is out of the field's range; the error names the field. */
int record_read(const struct field *f, const json_t *v, void *to, struct err *e);

#endif
