/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the working directory and the log files of a container on one machine. */
#ifndef TONY_EXECUTOR_WORKDIR_H
#define TONY_EXECUTOR_WORKDIR_H

#include <stddef.h>
#include <stdint.h>

#include "proto/tony.pb-c.h"

struct err;

/* Make jobs/<id>/containers/<container> with the mounts in it. The caller frees *out, its path. If
 * the directory exists, this fails, so that no files of an earlier container are mixed in.
 * spare_dir: an empty directory may be taken from there (spare.h); NULL = make a new one. */
int workdir_make(const char *job_dir, const char *container_id, const char *spare_dir,
                 Tony__Mount *const *mounts, size_t n, char **out, struct err *e);

struct logs {
    char *dir; /* <log_dir>/<role>-<index>/<attempt> */
    char *err_path;
    int out_fd, err_fd; /* appending, close-on-exec */
};
/* Where the logs of a task belong. */
struct log_place {
    const char *log_dir, *role;
    uint32_t index;
    const char *spare_dir, *container_id; /* as in workdir_make() */
};
int logs_open(const struct log_place *at, uint32_t attempt, struct logs *out, struct err *e);
void logs_close(struct logs *l);

#endif
