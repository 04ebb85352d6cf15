/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts about this machine for `tony doctor`.
 */
#ifndef TONY_CLIENT_SHOW_MACHINE_H
#define TONY_CLIENT_SHOW_MACHINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;

struct machine_cgroup {
    int version; /* 2, 1, or 0 = none */
    char path[512];
    char controllers[256];
    bool memory;   /* memory can be limited */
    bool writable; /* this user may make groups there */
    bool off;      /* TONY_CGROUPS=none: tony does not use them */
};

int machine_memory(uint64_t *out_total, uint64_t *out_available); /* bytes; -errno */
int machine_gpus(json_t *gpus, struct err *e); /* appends what tony-gpu prints; within 10 s */
void machine_cgroup(struct machine_cgroup *out);
char *machine_which(const char *program); /* on PATH; NULL = not there */

#endif
