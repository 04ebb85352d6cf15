/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the readers of traces share. Private to src/simulate. */
#ifndef TONY_SIMULATE_TRACE_INT_H
#define TONY_SIMULATE_TRACE_INT_H

#include "base/buf.h"

struct err;

#define SECONDS_MAX 1e10 /* 300 years: a double still counts milliseconds */

/* A decimal number in [min, max]. `name` names the number in errors. 0 or -EINVAL. */
int trace_real(struct span s, const char *name, double min, double max, double *out, struct err *e);

#endif
