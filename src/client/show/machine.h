/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts about this machine for `tony doctor`.
 */
#ifndef TONY_CLIENT_SHOW_MACHINE_H
#define TONY_CLIENT_SHOW_MACHINE_H

#include <jansson.h>
#include <stdint.h>

struct err;

int machine_memory(uint64_t *out_total, uint64_t *out_available); /* bytes; -errno */
int machine_gpus(json_t *gpus, struct err *e); /* appends what tony-gpu prints; within 10 s */
char *machine_which(const char *program);      /* on PATH; NULL = not there */

#endif
