/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories that are ready for later containers, in $TONY_HOME/pool/spare/.
 *
 *   <n>         an empty working directory that another container has left behind
 *   logs/<n>/1  the log directory of a task with two empty files, stdout and stderr
 *
 * For a short task, making and removing its directories is the largest cost of its container. ext4
 * without a journal makes it worse: for each new file it skips, one by one, the inodes that were
 * removed near it within the last minutes. After a few jobs of 1000 tasks, each log file took up to
 * ten times as long. Moving a directory takes 10 to 20 us and removes no inode.
 *
 * So empty working directories are not removed but moved here. Log directories stay in the history.
 * So when a job is over and in the history, its keeper makes new ones for the next job, which then
 * starts its tasks without waiting for that.
 *
 * n: the number of the container that may take the directory, modulo SPARE_MAX.
 */
#ifndef TONY_EXECUTOR_SPARE_H
#define TONY_EXECUTOR_SPARE_H

enum { SPARE_MAX = 8192 };

/* Move a spare directory to path. container_id: of the container that wants it. 0; -EEXIST: path
 * exists; -ENOENT and others: there is no spare one. */
int spare_take(const char *spare_dir, const char *container_id, const char *path);
/* Move each empty directory in `containers`, an absolute path, to the spare directories.
 * Directories with another owner, mode or content stay. */
void spare_keep(const char *spare_dir, const char *containers);

/* As spare_take(), for the log directory of a task. Its keeper may have died while it made the
 * directory: what is in it may be missing. */
int spare_take_logs(const char *spare_dir, const char *container_id, const char *path);
/* Make the spare log directories for the containers 1 to n that are missing. room: a path where no
 * directory exists. They are made there, and then moved: room is in another region of the disk than
 * the files that were removed last (fs_spread_below()). If the keeper dies meanwhile, room stays. */
void spare_make_logs(const char *spare_dir, const char *room, unsigned n);

#endif
