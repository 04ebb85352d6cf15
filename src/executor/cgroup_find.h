/*
 * Where the control group hierarchies are mounted and where in them we are; and removal by path.
 */
#ifndef TONY_EXECUTOR_CGROUP_FIND_H
#define TONY_EXECUTOR_CGROUP_FIND_H

#include <stdbool.h>

struct err;

/* The directory of our own group in the hierarchy of a v1 controller, or of v2 for "". Allocated;
 * NULL with e set: there is none. */
char *cgroup_find(const char *controller, struct err *e);
bool cgroup_machine_swaps(void);
/* SIGKILL to all in this one directory; how many there were. */
unsigned cgroup_dir_kill(const char *dir);

#endif
