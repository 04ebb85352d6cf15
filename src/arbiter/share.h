/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arbiter's knowledge about one job. Its needs come from its specification or a tag of its
 * application, its state from its master. No I/O.
 */
#ifndef TONY_ARBITER_SHARE_H
#define TONY_ARBITER_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct err;
struct job_spec;

/* The needs of a job of which one role may be resized. In containers, MiB and GPUs. */
struct share_needs {
    uint32_t n;        /* of the elastic role, as submitted */
    uint32_t min, max; /* 1 <= min < max */
    uint32_t each_gpus, fixed_gpus;
    uint32_t each_vcores;      /* 0 = they do not count */
    uint32_t fixed_containers; /* containers of all other roles, without the master's */
    uint64_t each_mib, fixed_mib, master_mib;
    uint32_t weight;
    double budget; /* 0 = the weight */
};

/* Compute the needs. unit_mib: YARN rounds the memory of each container up to a multiple of it. 1;
 * 0: no policy may resize the job (job_spec_elastic() in conf/conf.h); -ENOMEM. */
int share_needs_of(const struct job_spec *s, uint64_t master_mib, int64_t unit_mib,
                   struct share_needs *out);

/*
 * The needs as a tag of the application:
 *
 *   tony-size:n:min:max:each_mib:each_gpus:fixed_containers:fixed_mib:fixed_gpus:master_mib:weight:budget
 *
 * The client of another user writes the tag. share_needs_read() accepts only values that the
 * policies can compute with.
 */
#define SHARE_TAG "tony-size:"
enum { SHARE_TAG_MAX = 101 };
bool share_needs_tag(const struct share_needs *s, char out[SHARE_TAG_MAX]); /* false: too long */
int share_needs_read(const char *tag, struct share_needs *out, struct err *e);

/* The answer of a master to SHARE; docs/json.md "share". */
struct share_state {
    bool runs;       /* all containers of the elastic role run */
    bool changing;   /* a resize is under way, or containers end */
    uint32_t n;      /* instances of the elastic role */
    uint32_t target; /* instances after the resize under way; at least n */
    int64_t left_ms; /* -1 = unknown */
    int64_t cost_ms; /* of a resize; -1 = unknown */
};
/*
 * node: called for each node that has containers of the elastic role. The name is valid during the
 * call only. All calls together name at most out->n containers.
 *
 * 0, -ENOMEM (from node), or -EINVAL: it is no such answer, it names more containers than
 * instances, or the job runs without a container.
 */
int share_state_read(struct span json, struct share_state *out,
                     int (*node)(const char *name, uint32_t n, void *arg), void *arg,
                     struct err *e);

/*
 * Does a job with n instances of its elastic role still need containers? used_mib: what YARN counts
 * as its memory, with the master's container.
 *
 * A job that restarts for a resize gives back all its containers for a moment. The room is not
 * free for others.
 */
bool share_lacks(const struct share_needs *s, uint32_t n, uint64_t used_mib);

#endif
