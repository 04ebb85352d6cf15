/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that several parsers use. Each parser reads the output of one command of Slurm. */
#ifndef TONY_SLURM_PARSE_INT_H
#define TONY_SLURM_PARSE_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { SLURM_COUNT_MAX = 1 << 20 }; /* of cores or GPUs of a node */

uint32_t slurm_count_gpus(struct span gres);              /* "gpu:a100:4(S:0-1),gpu:2" -> 6 */
bool slurm_read_number(struct span text, int64_t *out);   /* "64+": at least 64 */
bool slurm_node_is_usable(struct span state);             /* may it run jobs, now or later? */
void slurm_copy(struct span from, char *to, size_t size); /* cut, without control characters */

#endif
