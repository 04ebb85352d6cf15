/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The digest of a plan: of all containers that a job asks for, all commands that it runs, and all
 * content that it ships. `tony plan` prints it. The master makes it again from what it has done,
 * and the final status has both. They are equal if the job did what was planned. The digest does
 * not depend on the cluster.
 *
 * The digest is that of a text in a canonical form:
 *
 *     tony plan 1
 *     ask <role> <containers> <MiB> <cores> <GPUs> <ranks>
 *     run <role> <name>=<length>:<value>
 *
 * The lines are sorted. The names of `run` are: command, resume, framework, mode, image, ready,
 * python, `env <variable>`, `task env <variable>`, `secret <variable>` (without its value) and
 * `ship <name>`. Empty values are left out.
 */
#ifndef TONY_STORAGE_PLAN_H
#define TONY_STORAGE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"
#include "storage/digest.h"

struct job_spec;
struct ship_item;

/* The lines of a plan. A failure is remembered, and plan_digest() returns it. */
struct plan {
    struct strv lines;
    int rc;
};
void plan_ask(struct plan *p, const char *role, uint32_t n, uint64_t memory_mib, uint32_t vcores,
              uint32_t gpus, uint32_t ranks);
/* value: NULL and "" are left out. */
void plan_run(struct plan *p, const char *role, const char *name, const char *value);
/* entry: the digest of the content, or the path of its entry in the store, which ends with the
 * digest. */
void plan_ship(struct plan *p, const char *role, const char *name, const char *entry);
/* Sorts the lines. 0 or -errno. */
int plan_digest(struct plan *p, char out[DIGEST_HEX]);
void plan_done(struct plan *p);

bool plan_is_secret(const struct job_spec *s, const char *variable);

/* Compute the digest of a job that has not run yet. The caller has set the digests of the items. */
int plan_of_job(const struct job_spec *s, const struct ship_item *items, size_t n_items,
                char out[DIGEST_HEX]);

#endif
