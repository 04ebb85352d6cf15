/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Empty working directories are not removed but moved to $TONY_HOME/pool/spare/<n>, for later
 * containers.
 *
 * For a short task, making and removing the directory is the largest cost of its container. ext4
 * without a journal makes it worse: for each new file it skips, one by one, the inodes that were
 * removed near it within the last minutes. After a few jobs of 1000 tasks, each log file took up to
 * ten times as long. Moving a directory takes 10 us and removes no inode.
 */
#ifndef TONY_EXECUTOR_SPARE_H
#define TONY_EXECUTOR_SPARE_H

enum { SPARE_MAX = 8192 };

/* Move a spare directory to path. n: number of the container. 0; -EEXIST: path exists; -ENOENT and
 * others: there is no spare one. */
int spare_take(const char *spare_dir, unsigned n, const char *path);
/* Move each empty directory in `containers`, an absolute path, to the spare directories.
 * Directories with another owner, mode or content stay. */
void spare_keep(const char *spare_dir, const char *containers);

#endif
