/*
 * Working directories that came back empty are kept for the next containers instead of being
 * removed: $TONY_HOME/pool/spare/<n>.
 *
 * Making and removing a directory is the dearest part of a container that runs shortly. ext4
 * without a journal moreover passes over the inodes removed within the last minutes one by one
 * whenever it makes a new file near them: after a few jobs of 1000 tasks, each log file took up to
 * ten times as long. A directory that is moved, not removed, costs 10 us and leaves no such trace.
 */
#ifndef TONY_EXECUTOR_SPARE_H
#define TONY_EXECUTOR_SPARE_H

enum { SPARE_MAX = 1024 };

/* Move a spare directory to path, whose container number is n. 0, -EEXIST (path is there already),
 * or -ENOENT and others: make one. */
int spare_take(const char *spare_dir, unsigned n, const char *path);
/* Move every empty directory below `containers`, an absolute path, to the spare ones; what is not
 * empty or odd stays. */
void spare_keep(const char *spare_dir, const char *containers);

#endif
