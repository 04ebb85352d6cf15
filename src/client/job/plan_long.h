/* SPDX-License-Identifier: Apache-2.0 */
/* For `tony plan`: variables that are too long for the environment, if a job has many tasks. */
#ifndef TONY_CLIENT_JOB_PLAN_LONG_H
#define TONY_CLIENT_JOB_PLAN_LONG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "runtime/runtime.h"

struct err;
struct job_spec;

struct plan_lengths {
    struct rt_length v[RT_LENGTHS_MAX];
    size_t n;
};

int plan_lengths(const struct job_spec *s, struct plan_lengths *out, struct err *e);
/* Is the variable too long even with the shortest addresses? */
bool plan_left_out(const struct plan_lengths *l, const char *variable);
json_t *plan_lengths_json(const struct plan_lengths *l); /* the caller frees it; NULL = no memory */
void plan_lengths_print(const json_t *doc);

#endif
