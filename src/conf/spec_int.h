/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to conf: the parts of building a job out of its configuration.
 */
#ifndef TONY_CONF_SPEC_INT_H
#define TONY_CONF_SPEC_INT_H

#include "conf/conf_int.h"

enum {
    SPEC_TASKS_MAX = 100000, /* of one job; numbers of slots and frames are sized for it */
    SPEC_ROLES_MAX = 2000,   /* edges between roles grow with the square */
    JOB_NAME_MAX = 255,      /* it is for people, and stands in every list */
    ROLE_KEY_MAX = 128,      /* "tony." + 63 + the longest suffix */
};

struct build {
    const struct conf *c;
    struct job_spec *s;
    struct err *e;
    bool tensorboard_added; /* the role is not in the user's file */
};

/* "<origin of key>: <sentence>"; of what was not set, the name of the job file stands in front. */
int build_fail(struct build *b, const char *key, int num, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int build_no_memory(struct build *b);
/* tony.<role>.<suffix> */
const char *role_key(char buf[static ROLE_KEY_MAX], const char *role, const char *suffix);
/* The index of a role of the job, or -1. */
int64_t build_role(const struct build *b, const char *name);
/* A role that `key` names: its index, or an error with the nearest role in the hint. */
int build_role_of(struct build *b, const char *key, const char *name, uint32_t *out);

int build_roles(struct build *b); /* roles with sizes, commands, kinds, resources, environment */
int build_restart(struct build *b, struct role_spec *r); /* what follows the end of its tasks */
int build_stages(struct build *b);                       /* waits_for, gates; that it is a DAG */
/* tony.<role>.depends-on, .stops and .ready; the edges of stages are there already. */
int build_depends(struct build *b);
int build_add_role(struct build *b, uint32_t **list, size_t *n, uint32_t role); /* once */
int build_groups(struct build *b);                                              /* group timeouts */
int build_preprocess(struct build *b); /* the task that all others wait for */
int build_caps(struct build *b); /* min-instances, max-instances, max-total-*; after the kinds */
int build_resize(struct build *b, struct role_spec *r); /* min-instances, resize, resume-command */
/* The role has exactly one task, for the reason `why`: the job file may not say otherwise. */
int build_fixed_size(struct build *b, struct role_spec *r, const char *why);
/* The place of a value among its choices, from 1; 0 = unset. The key table has checked it. */
unsigned build_choice(const struct build *b, const char *key, const char *const *names, unsigned n);
int build_watch(struct build *b); /* progress and checkpoints */
int build_resources(struct build *b, const char *key, struct resource_spec **out, size_t *out_n);

#endif
