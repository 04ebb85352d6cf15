/* SPDX-License-Identifier: Apache-2.0 */
/* Private to drive.c and drive_spec.c. */
#ifndef TONY_TESTS_DRIVE_INT_H
#define TONY_TESTS_DRIVE_INT_H

#include "drive.h"

/* End the program: a script or a job has something that does not exist. */
_Noreturn void drive_fail(const char *what, const char *text);
int64_t drive_number(struct span text);

#endif
