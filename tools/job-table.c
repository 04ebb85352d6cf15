/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the state table of a slot for docs/job-states.md, as a table or as a diagram. With
 * --events it prints the events and their fields for docs/journal.md.
 *
 *     job-table [--mermaid | --events]
 */
#include <stdio.h>
#include <string.h>

#include "job/job_int.h"

static void print_cell(enum slot_state from, enum slot_input in)
{
    const struct slot_cell *c = &slot_table[from][in];

    if (c->to == SLOT_NONE) {
        printf(" |");
        return;
    }
    printf(" %s%s%s%s |", c->to == from ? "(stays)" : slot_state_name(c->to), c->act ? ", *" : "",
           slot_do_name(c->act), c->act ? "*" : "");
}

static void print_table(void)
{
    printf("| when |");
    for (enum slot_state s = SLOT_NONE + 1; s < SLOT_STATE_COUNT; s++)
        printf(" %s |", slot_state_name(s));
    printf("\n|---|");
    for (enum slot_state s = SLOT_NONE + 1; s < SLOT_STATE_COUNT; s++)
        printf("---|");
    printf("\n");
    for (enum slot_input in = IN_NONE + 1; in < IN_COUNT; in++) {
        printf("| %s |", slot_input_name(in));
        for (enum slot_state s = SLOT_NONE + 1; s < SLOT_STATE_COUNT; s++)
            print_cell(s, in);
        printf("\n");
    }
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

static void print_events(void)
{
    printf("| event | in the journal | when | fields |\n|---|---|---|---|\n");
    for (int t = EV_NONE + 1; t < EV_COUNT; t++) {
        const struct event_info *info = job_event_info((enum job_event_type)t);
        printf("| `%s` | %s | %s |", info->name, info->durable == DURABLE ? "yes" : "no",
               info->text);
        for (const struct field *f = info->fields; f->name; f++)
            printf("%s `%s` (%s%s%s)", f == info->fields ? "" : ",", f->name, kind_name(f->kind),
                   *f->text ? ": " : "", f->text);
        printf(" |\n");
    }
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";

    if (argc == 1) {
        print_table();
    } else if (argc == 2 && strcmp(what, "--mermaid") == 0) {
        print_mermaid();
    } else if (argc == 2 && strcmp(what, "--events") == 0) {
        print_events();
    } else {
        (void)fprintf(stderr, "usage: job-table [--mermaid | --events]\n");
        return 2;
    }
    return 0;
}
