/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to src/conf: the steps that build a job from its configuration.
 */
#ifndef TONY_CONF_SPEC_INT_H
#define TONY_CONF_SPEC_INT_H

#include "conf/conf_int.h"

enum {
    /* Of one job; the numbers of slots and the size of frames allow for it. */
    SPEC_TASKS_MAX = 100000,
    SPEC_ROLES_MAX = 2000, /* the number of edges between roles may grow with its square */
    SPEC_SECRETS_MAX = 64,
    JOB_NAME_MAX = 255, /* the name appears in every list of jobs */
    ROLE_KEY_MAX = 128, /* "tony." + 63 + the longest suffix */
};

struct build {
    const struct conf *c;
    struct job_spec *s;
    struct err *e;
    bool tensorboard_added; /* the configuration does not mention this role */
};

/* Set an error "<origin of key>: <sentence>". If the key is not set, the job file's name comes
 * first. */
int build_fail(struct build *b, const char *key, int num, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int build_no_memory(struct build *b);
/* tony.<role>.<suffix> */
const char *role_key(char buf[static ROLE_KEY_MAX], const char *role, const char *suffix);
/* The index of a role of the job, or -1. */
int64_t build_role(const struct build *b, const char *name);
/* Find the role that the value of `key` names. Unknown: an error whose hint has the nearest
 * role. */
int build_role_of(struct build *b, const char *key, const char *name, uint32_t *out);

int build_roles(struct build *b); /* sizes, commands, kinds, resources, environment */
/* Read the keys about restarts of tasks: restart, restart-scope and so on. */
int build_restart(struct build *b, struct role_spec *r);
int build_stages(struct build *b); /* waits_for and gates; checks that there is no cycle */
/* tony.<role>.depends-on, .stops and .ready. The stages must have been built before. */
int build_depends(struct build *b);
/* Adds no role twice. */
int build_add_role(struct build *b, uint32_t **list, size_t *n, uint32_t role);
int build_groups(struct build *b);     /* group timeouts */
int build_preprocess(struct build *b); /* adds the role of the preprocess task */
/* min-instances, max-instances, max-total-*; call it after the kinds are known. */
int build_caps(struct build *b);
int build_resize(struct build *b, struct role_spec *r); /* min-instances, resize, resume-command */
/* Check that the role has exactly one task. why: the reason, for the error. */
int build_fixed_size(struct build *b, struct role_spec *r, const char *why);
/* The position of a key's value in its list of choices, from 1; 0 = unset. The table has checked
 * it. */
unsigned build_choice(const struct build *b, const char *key, const char *const *names, unsigned n);
int build_watch(struct build *b); /* progress and checkpoints */
int build_secrets(struct build *b);
int build_on_end(struct build *b); /* checks tony.application.on-end; call build_secrets() before */
int build_resources(struct build *b, const char *key, struct resource_spec **out, size_t *out_n);

#endif
