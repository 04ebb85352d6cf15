/* SPDX-License-Identifier: Apache-2.0 */
/* The program `tony`: a table of commands. Each command checks its arguments, asks the pool, a
 * master or the files of a job, and prints the result. */
#ifndef TONY_CLIENT_CLIENT_H
#define TONY_CLIENT_CLIENT_H

#include "base/exit.h"

/* Returns the exit code. version: of this build. */
int client_main(int argc, char **argv, const char *version);

#endif
