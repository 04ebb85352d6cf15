/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields of a snapshot. Each part of the core is stored as a record with the members listed
 * here. How they are stored:
 *
 *   - A state, an outcome or a cause: its name.
 *   - A list of numbers: a text, with commas between the numbers.
 *   - A time or an id that may be missing: the value plus 1, or 0 for "missing". The name of such a
 *     time has no unit: `started` is started_ms + 1.
 *
 * A field with the value 0, false or NULL is not written. No field may be named e, n or c: every
 * record of the journal has these members itself.
 *
 * The lists work like those of event.h. A new field needs no new JOURNAL_FORMAT if its value 0
 * describes the jobs of older versions correctly. Any other change needs one.
 */
#ifndef TONY_JOB_SNAPSHOT_H
#define TONY_JOB_SNAPSHOT_H

#include <stddef.h>

#include "job/costs.h"
#include "job/record.h"
#include "job/resize.h"
#include "job/slot.h"

/* clang-format off */

#define SNAP_RECORDS(RECORD) \
    RECORD(job) RECORD(gang) RECORD(restarts) RECORD(failures) RECORD(checkpoints) RECORD(resize) RECORD(costs) \
    RECORD(role) RECORD(group) RECORD(node) RECORD(slot) RECORD(saver) RECORD(report) RECORD(past)

#define SNAP_job(FIELD) \
    FIELD(TEXT, application_id) FIELD(TEXT, user) FIELD(TEXT, state) FIELD(TEXT, decided) \
    FIELD(U32, epoch) FIELD(U32, generation) FIELD(I64, now_ms) FIELD(LIST, ready) \
    FIELD(FLAG, resyncing) FIELD(FLAG, check_groups) FIELD(FLAG, check_depends) FIELD(FLAG, owned) \
    FIELD(I64, submitted_wall_ms) FIELD(I64, submitted_ms) FIELD(I64, started) FIELD(I64, ended) \
    FIELD(I64, master_ms) FIELD(I64, stalled_ms) FIELD(I64, beats_from) FIELD(I64, client_due) \
    FIELD(U32, tensorboard) FIELD(FLAG, by_task) FIELD(FLAG, own_words) FIELD(U32, wait_ms) \
    FIELD(U32, save_ms) FIELD(TEXT, message) FIELD(U32, n_slots)
#define SNAP_gang(FIELD) \
    FIELD(FLAG, gives_back) FIELD(I64, asked) FIELD(U32, round) FIELD(I64, granted_ms) \
    FIELD(I64, pause_due) FIELD(U32, had) FIELD(U32, wanted) FIELD(I64, after_ms)
#define SNAP_restarts(FIELD) \
    FIELD(FLAG, mending) FIELD(FLAG, hopeless) FIELD(U32, retries) FIELD(U32, count) FIELD(I64, due) \
    FIELD(I64, paused_ms) FIELD(FLAG, had_old) FIELD(U32, slot) FIELD(U32, attempt) \
    FIELD(REASON, reason) FIELD(INT, exit_code) FIELD(INT, signal) FIELD(I64, at_us) FIELD(TEXT, cause) \
    FIELD(TEXT, kind) FIELD(U64, step)
#define SNAP_failures(FIELD) \
    FIELD(U32, first) FIELD(I64, first_us) FIELD(TEXT, first_cause) FIELD(U32, fatal) \
    FIELD(I64, fatal_us) FIELD(TEXT, fatal_cause) FIELD(U32, n_past)
#define SNAP_checkpoints(FIELD) \
    FIELD(FLAG, has) FIELD(U32, generation) FIELD(U64, step) FIELD(U32, first) FIELD(U64, furthest) \
    FIELD(I64, ms) FIELD(U32, timeline)
#define SNAP_resize(FIELD) \
    FIELD(TEXT, state) FIELD(LIST, target) FIELD(LIST, from) FIELD(LIST, fallback) FIELD(LIST, to) \
    FIELD(LIST, by_restart) FIELD(I64, asked_ms) \
    FIELD(I64, due) FIELD(I64, save_due_ms) FIELD(FLAG, failed) FIELD(TEXT, who) FIELD(TEXT, why) \
    FIELD(U32, count) FIELD(TEXT, outcome) FIELD(I64, ended_ms) FIELD(TEXT, detail) \
    FIELD(U32, below) FIELD(FLAG, kept) FIELD(U32, kept_n) FIELD(I64, kept_due_ms) FIELD(TEXT, kept_why) \
    FIELD(FLAG, saved) FIELD(U32, saved_generation) FIELD(U64, saved_step) FIELD(FLAG, kept_saved) \
    FIELD(LIST, leave)
#define SNAP_costs(FIELD) \
    FIELD(U32, phase) FIELD(LIST, parts) FIELD(I64, since_ms) \
    FIELD(FLAG, delayed) FIELD(FLAG, resumed) FIELD(U64, step) FIELD(I64, kept_ms) FIELD(U32, count) \
    FIELD(LIST, recent)
#define SNAP_role(FIELD) \
    FIELD(SLOT, role) FIELD(U32, instances) FIELD(U32, of) FIELD(FLAG, spares) FIELD(FLAG, forming) \
    FIELD(FLAG, gated) FIELD(U32, restarts) FIELD(U32, row) FIELD(LIST, times) FIELD(U32, n_unmet) \
    FIELD(FLAG, awaited) FIELD(FLAG, stopped) FIELD(U32, kind)
#define SNAP_group(FIELD) \
    FIELD(SLOT, group) FIELD(FLAG, armed) FIELD(FLAG, over) FIELD(I64, due_ms)
#define SNAP_node(FIELD) \
    FIELD(TEXT, name) FIELD(U32, failures) FIELD(LIST, times) FIELD(I64, until)
#define SNAP_slot(FIELD) \
    FIELD(SLOT, slot) FIELD(U32, role) FIELD(TEXT, state) FIELD(TEXT, result) FIELD(REASON, reason) FIELD(FLAG, seen) \
    FIELD(FLAG, ready) FIELD(U32, stop_tries) FIELD(U32, generation) FIELD(U32, attempt) \
    FIELD(U32, tb_port) FIELD(U32, pid) FIELD(U32, rank) FIELD(INT, exit_code) FIELD(INT, signal) \
    FIELD(I64, since_ms) FIELD(I64, stop) FIELD(I64, started) FIELD(I64, ended) FIELD(I64, ended_us) \
    FIELD(TEXT, cause) FIELD(U64, step) FIELD(U64, total) FIELD(U64, first_step) FIELD(I64, first_ms) \
    FIELD(I64, step_ms) FIELD(TEXT, container) FIELD(TEXT, address) FIELD(TEXT, gpus) \
    FIELD(TEXT, tensorboard) FIELD(TEXT, detail) FIELD(TAIL, tail) FIELD(TEXT, cause_line) \
    FIELD(TEXT, note) FIELD(U32, restarts) FIELD(U32, row) FIELD(LIST, times) FIELD(LIST, spent) \
    FIELD(I64, due_ms) FIELD(U32, node) FIELD(LIST, quick) FIELD(U32, lent_to) FIELD(FLAG, moved) \
    FIELD(U32, elsewhere) FIELD(FLAG, given_up) FIELD(I64, taken_ms) FIELD(FLAG, leaves) \
    FIELD(U32, index) FIELD(U32, attempts_before)
#define SNAP_saver(FIELD) \
    FIELD(SLOT, slot) FIELD(U32, reported) FIELD(FLAG, awaited)
#define SNAP_report(FIELD) \
    FIELD(SLOT, slot) FIELD(U32, generation) FIELD(U32, attempt) FIELD(U32, parts) FIELD(U64, step) \
    FIELD(TEXT, path) FIELD(FLAG, counts)
#define SNAP_past(FIELD) \
    FIELD(SLOT, slot) FIELD(U32, generation) FIELD(U32, attempt) FIELD(REASON, reason) \
    FIELD(INT, exit_code) FIELD(INT, signal) FIELD(I64, at_us) FIELD(U64, step) FIELD(TEXT, detail) \
    FIELD(TAIL, tail) FIELD(TEXT, cause_line) FIELD(U32, node) FIELD(TEXT, note) FIELD(TEXT, done) \
    FIELD(TEXT, cause)

#define FIELD(kind, name) field_##kind name;
#define RECORD(name) struct snap_##name { SNAP_##name(FIELD) };
SNAP_RECORDS(RECORD)
#undef RECORD
#undef FIELD

/* clang-format on */

/* ---- snapshot.c, for snapshot_read.c ---- */

enum { SNAP_SAMPLE = COST_PART_COUNT + 1 }; /* numbers that store one struct cost_sample */

enum snap_kind {
    SNAP_NONE = 0,
#define RECORD(name) SNAP_KIND_##name,
    SNAP_RECORDS(RECORD)
#undef RECORD
        SNAP_KIND_COUNT,
};

struct snap_record {
    const char *name;           /* the member "e" of the record */
    const struct field *fields; /* ends with a field of kind F_NONE */
};
extern const struct snap_record snap_records[SNAP_KIND_COUNT];

/* The names that stand for these values in a record, by value. Value 0 has no name. */
extern const char *const snap_resize_states[RESIZE_STATE_COUNT];
extern const char *const snap_resize_outcomes[RESIZE_OUTCOME_COUNT];
extern const char *const snap_notes[NOTE_COUNT];
extern const char *const snap_restart_kinds[RESTARTED_COUNT];
extern const char *const snap_results[RES_LOST + 1];

#endif
