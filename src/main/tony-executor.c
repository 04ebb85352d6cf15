/* SPDX-License-Identifier: Apache-2.0 */
/* tony-executor: runs tasks in a container, or keeps a whole job. */
#include "executor/executor.h"

int main(int argc, char **argv)
{
    return executor_program(argc, argv);
}
