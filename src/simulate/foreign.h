/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of other clusters: the published ones of Philly (Microsoft), Helios (SenseTime) and PAI
 * (Alibaba), and any CSV whose columns the caller names. docs/simulate.md says how tony uses their
 * columns.
 *
 * A trace of another cluster has no nodes: use trace_set_nodes() afterwards. Nor does it say how a
 * job could be resized: jobs keep their size unless foreign_options gives bounds.
 */
#ifndef TONY_SIMULATE_FOREIGN_H
#define TONY_SIMULATE_FOREIGN_H

#include "simulate/trace.h"

struct err;

/* The names of the formats, separated by ", ". */
extern const char foreign_formats[];

struct foreign_options {
    const char *format;  /* NULL: any of them, found by the header or the keys */
    const char *columns; /* "submit=submit_time,gpus=gpu_num"; NULL: those of the format */
    /* A job that had n containers may have low * n (at least 1) to high * n. n containers do
     * n^exponent of work in a second. */
    double low, high, exponent; /* all 0: jobs keep their size */
};

struct foreign_result {
    size_t left_out; /* jobs that never ran or have not ended, and jobs that demand nothing */
};

/* Is the text a trace of another cluster, and not in our own format (trace.h)? */
bool foreign_is(struct span text);

/* "LOW,HIGH,EXPONENT", such as "0.25,2,0.9". 0 or -EINVAL. */
int foreign_elastic(struct span text, struct foreign_options *o, struct err *e);

/*
 * Read a trace. `what` names the text in errors: "<what>:<line>: ...". The caller zeroes *out, and
 * ends it with trace_done(), after a failure too. The jobs are in the order of their arrival, and
 * the first one arrives at 0. 0, -EINVAL, -ENOMEM.
 */
int foreign_parse(const char *what, struct span text, const struct foreign_options *o,
                  struct trace *out, struct foreign_result *result, struct err *e);

#endif
