/*
 * What lies in a container's working directory and where its logs go.
 */
#ifndef TONY_EXECUTOR_WORKDIR_H
#define TONY_EXECUTOR_WORKDIR_H

#include <stddef.h>
#include <stdint.h>

#include "proto/tony.pb-c.h"

struct err;

/* Make jobs/<id>/containers/<container> with the mounts in it; *out is its path, allocated. An
 * existing one is refused: it is ours alone, and what an earlier life left there is not to be mixed
 * with. spare_dir: where an empty one may be taken from (spare.h); NULL = always a new one. */
int workdir_make(const char *job_dir, const char *container_id, const char *spare_dir,
                 Tony__Mount *const *mounts, size_t n, char **out, struct err *e);

struct logs {
    char *dir; /* <log_dir>/<role>-<index>/<attempt> */
    char *err_path;
    int out_fd, err_fd; /* appending, close-on-exec */
};
int logs_open(const char *log_dir, const char *role, uint32_t index, uint32_t attempt,
              struct logs *out, struct err *e);
void logs_close(struct logs *l);

#endif
