/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How texts for people name jobs: "train-bert (12)", the name of the job and the number that
 * `tony why 12` takes. JSON and logs have the whole application id.
 *
 * Another job may have the same name, so the number always stands behind it. If the number means
 * another job, for example of another cluster, the whole id stands in its place:
 * "train-bert (application_1700000000000_0012)". If the name is not known, the id stands alone.
 *
 * A name may have been chosen to deceive. So quotation marks, parentheses and the characters that
 * change the direction of text become '?', and a long name is cut.
 */
#ifndef TONY_CLIENT_SHOW_NAMES_H
#define TONY_CLIENT_SHOW_NAMES_H

#include <jansson.h>
#include <stdbool.h>

struct client;
struct job_names;

/* A copy of the document, for texts; the caller frees it. Its sentences, and those of its members
 * that are the id of another job ("behind", "holder", ...), name jobs in this way. Texts are as
 * doc_shown() makes them; lines: as there. */
json_t *names_shown(struct client *c, const json_t *doc, bool lines);
enum {
    NAMES_COLUMNS = 40,                                /* a longer name is cut */
    NAMES_CELL_MAX = 4 * NAMES_COLUMNS + sizeof "...", /* UTF-8: at most 4 bytes for each */
};

/* The name as a cell of a table: a long one is cut. Returns `out`. */
const char *names_cell(const char *name, char out[NAMES_CELL_MAX]);
/* The name and number of one job. Its name is that in the last document of names_shown(), else that
 * of the job's files. Borrowed from c. */
const char *names_label(struct client *c, const char *application_id);
void names_free(struct job_names *n);

#endif
