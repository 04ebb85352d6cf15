/* The file of a Horovod driver of the user's own, and the plan in it. */
#ifndef TONY_EXECUTOR_DRIVER_H
#define TONY_EXECUTOR_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct rt_slot;

void driver_forget(const char *dir); /* what an attempt before has left there */
/* Is it there, whole? *out_plan is the caller's. */
bool driver_look(const char *dir, uint16_t *out_port, char **out_plan);
/* *out is the caller's. */
int driver_plan(const char *text, struct rt_slot **out, size_t *out_n, struct err *e);

#endif
