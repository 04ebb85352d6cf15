/* SPDX-License-Identifier: Apache-2.0 */
/* The findings of `tony doctor`, in the order of the output. */
#ifndef TONY_CLIENT_SHOW_DOCTOR_H
#define TONY_CLIENT_SHOW_DOCTOR_H

#include <jansson.h>

enum finding { FINE = 1, NOTE, WRONG }; /* WRONG makes the command fail */

/* Add a finding. hint: what the user can do, printed unless f is FINE; may be NULL. */
void doctor_add(json_t *checks, const char *name, enum finding f, const char *hint, const char *fmt,
                ...) __attribute__((format(printf, 5, 6)));

#endif
