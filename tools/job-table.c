/*
 * Prints the state table of a slot, for docs/job-states.md: as a table, or as a diagram.
 *
 *     job-table [--mermaid]
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

/* One arrow per pair of states, with all that leads there; what changes nothing is left to the
 * table. */
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

int main(int argc, char **argv)
{
    if (argc > 2 || (argc == 2 && strcmp(argv[1], "--mermaid") != 0)) {
        (void)fprintf(stderr, "usage: job-table [--mermaid]\n");
        return 2;
    }
    if (argc == 2)
        print_mermaid();
    else
        print_table();
    return 0;
}
