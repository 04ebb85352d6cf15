/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the state table of a slot for docs/job-states.md, as a list or as a diagram. With
 * --events it prints the events and their fields for docs/journal.md.
 *
 *     job-table [--mermaid | --events]
 */
#include <stdio.h>
#include <string.h>

#include "job/job_int.h"
#include "wrap.h"

/* The states in which `in` has the same outcome as in `first`, and that outcome. Nothing is added
 * if a state before `first` has the same one. */
static int add_outcome(struct buf *out, enum slot_input in, enum slot_state first)
{
    AUTO(buf_done) struct buf text = { 0 };
    const struct slot_cell *c = &slot_table[first][in];
    bool stays = c->to == first;
    const char *sep = "";
    int rc = 0;

    for (enum slot_state s = SLOT_NONE + 1; s < SLOT_STATE_COUNT && rc == 0; s++) {
        const struct slot_cell *other = &slot_table[s][in];
        bool same = other->to != SLOT_NONE && other->act == c->act &&
                    (stays ? other->to == s : other->to != s && other->to == c->to);
        if (same && s < first)
            return 0;
        if (!same)
            continue;
        rc = buf_addf(&text, "%s%s", sep, slot_state_name(s));
        sep = ", ";
    }
    if (rc == 0)
        rc = stays ? buf_adds(&text, ": stays") : buf_addf(&text, " → %s", slot_state_name(c->to));
    if (rc == 0 && c->act)
        rc = buf_addf(&text, ", *%s*", slot_do_name(c->act));
    return rc < 0 ? rc : wrap_item(out, 2, buf_span(&text));
}

static int add_table(struct buf *out)
{
    int rc = 0;

    for (enum slot_input in = IN_NONE + 1; in < IN_COUNT && rc == 0; in++) {
        rc = buf_addf(out, "- **%s**\n", slot_input_name(in));
        for (enum slot_state s = SLOT_NONE + 1; s < SLOT_STATE_COUNT && rc == 0; s++)
            if (slot_table[s][in].to != SLOT_NONE)
                rc = add_outcome(out, in, s);
    }
    return rc;
}

/* Print one arrow for each pair of states, with all inputs that lead there. Inputs that do not
 * change the state are only in the table. */
static void print_mermaid(void)
{
    printf("stateDiagram-v2\n    [*] --> held\n");
    for (enum slot_state from = SLOT_NONE + 1; from < SLOT_STATE_COUNT; from++) {
        for (enum slot_state to = SLOT_NONE + 1; to < SLOT_STATE_COUNT; to++) {
            bool any = false;
            for (enum slot_input in = IN_NONE + 1; in < IN_COUNT && to != from; in++) {
                if (slot_table[from][in].to != to)
                    continue;
                if (any)
                    printf(", %s", slot_input_name(in));
                else
                    printf("    %s --> %s: %s", slot_state_name(from), slot_state_name(to),
                           slot_input_name(in));
                any = true;
            }
            if (any)
                printf("\n");
        }
    }
    printf("    ended --> [*]\n");
}

static const char *kind_name(enum field_kind kind)
{
    static const char *const names[F_COUNT] = {
        [F_SLOT] = "slot",  [F_U32] = "number",  [F_INT] = "number", [F_I64] = "number",
        [F_U64] = "number", [F_FLAG] = "flag",   [F_TEXT] = "text",  [F_LIST] = "text",
        [F_TAIL] = "text",  [F_REASON] = "name", [F_LIMIT] = "name",
    };
    return names[kind];
}

static int add_event(struct buf *out, const struct event_info *info)
{
    AUTO(buf_done) struct buf text = { 0 };
    int rc = buf_addf(&text, "`%s`%s: %s", info->name,
                      info->durable == DURABLE ? "" : " (not in the journal)", info->text);

    if (rc == 0)
        rc = wrap_item(out, 0, buf_span(&text));
    for (const struct field *f = info->fields; f->name && rc == 0; f++) {
        text.len = 0;
        rc = buf_addf(&text, "`%s` (%s)%s%s", f->name, kind_name(f->kind), *f->text ? ": " : "",
                      f->text);
        if (rc == 0)
            rc = wrap_item(out, 2, buf_span(&text));
    }
    return rc;
}

static int add_events(struct buf *out)
{
    int rc = 0;

    for (int t = EV_NONE + 1; t < EV_COUNT && rc == 0; t++)
        rc = add_event(out, job_event_info((enum job_event_type)t));
    return rc;
}

int main(int argc, char **argv)
{
    AUTO(buf_done) struct buf out = { 0 };
    const char *what = argc == 2 ? argv[1] : "";
    int rc = 0;

    if (argc == 1) {
        rc = add_table(&out);
    } else if (argc == 2 && strcmp(what, "--mermaid") == 0) {
        print_mermaid();
    } else if (argc == 2 && strcmp(what, "--events") == 0) {
        rc = add_events(&out);
    } else {
        (void)fprintf(stderr, "usage: job-table [--mermaid | --events]\n");
        return 2;
    }
    return rc == 0 && fwrite(out.p, 1, out.len, stdout) == out.len && fflush(stdout) == 0 ? 0 : 1;
}
