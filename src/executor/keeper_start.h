/*
 * How a keeper comes to life: arguments, lock, GPUs, what earlier keepers left, the socket.
 */
#ifndef TONY_EXECUTOR_KEEPER_START_H
#define TONY_EXECUTOR_KEEPER_START_H

struct err;
struct keeper;

/* 0, or the exit code (enum keeper_exit) with e set. */
int keeper_start(struct keeper *k, int argc, char **argv, struct err *e);
void keeper_start_done(struct keeper *k); /* frees memory */
int keeper_cleanup(const char *application_id, struct err *e);
/* Of the control groups that dir_of_list/cgroups names, and that file. */
void keeper_remove_cgroups(const char *dir_of_list);

#endif
