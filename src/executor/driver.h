/* SPDX-License-Identifier: Apache-2.0 */
/* The plan file of a Horovod driver, which is a program of the user: see driver.c. */
#ifndef TONY_EXECUTOR_DRIVER_H
#define TONY_EXECUTOR_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct rt_slot;

void driver_forget(const char *dir); /* remove plan files of earlier attempts */
/* Has the driver written a complete plan file? The caller frees *out_plan. */
bool driver_read_plan(const char *dir, uint16_t *out_port, char **out_plan);
/* Parse a plan. The caller frees *out. */
int driver_plan(const char *text, struct rt_slot **out, size_t *out_n, struct err *e);

#endif
