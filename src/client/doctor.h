/*
 * What `doctor` found: one entry each, shown in this order.
 */
#ifndef TONY_CLIENT_DOCTOR_H
#define TONY_CLIENT_DOCTOR_H

#include <jansson.h>

enum finding { FINE = 1, NOTE, WRONG }; /* WRONG makes the command fail */

/* hint: what to do about it, shown unless all is fine; may be NULL. */
void doctor_add(json_t *checks, const char *name, enum finding f, const char *hint, const char *fmt,
                ...) __attribute__((format(printf, 5, 6)));

#endif
