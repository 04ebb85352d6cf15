/* SPDX-License-Identifier: Apache-2.0 */
/* Typed jobs for tests. */
#ifndef TONY_TESTS_CONF_SPEC_WORLD_H
#define TONY_TESTS_CONF_SPEC_WORLD_H

#include "conf/conf.h"

#define CMD "tony.containers.command=x\n"
#define ROLE(name, n) "tony." name ".instances=" #n "\n"

/* Set the keys of lines "key=value"; each gets the origin "j:<line>". */
int set_lines(struct conf *c, const char *lines, struct err *e);
/* A job of such lines. */
int build(const char *lines, struct job_spec **out, struct err *e);
struct job_spec *built(const char *lines); /* fails the test if the job is refused */

#endif
