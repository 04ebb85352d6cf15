/* SPDX-License-Identifier: Apache-2.0 */
/* Selects the mode of the program: keeper, executor or clean-up. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/title.h"
#include "executor/container.h"
#include "executor/executor.h"
#include "executor/keeper_int.h"
#include "executor/keeper_start.h"
#include "storage/hook.h"

static const char usage[] =
    "usage: tony-executor --keeper APPLICATION_ID [--memory-mib N] [--vcores N] [--gpus 0,2]\n"
    "                     [--gpu-locks DIR] [--ready-fd N]\n"
    "       tony-executor --standby APPLICATION_ID --master-pid=PID\n"
    "       tony-executor --cleanup APPLICATION_ID\n"
    "       tony-executor --container\n"
    "       tony-executor --on-end DIR LIMIT_MS [LOG]\n"
    "       tony-executor --version\n"
    "\n"
    "Runs the tasks of one job on this machine, or one task in a container of a cluster.\n"
    "Started by tony-pool or tony-master, not by people.\n";

int executor_program(int argc, char **argv)
{
    title_init(argc, argv);
    const char *mode = argc > 1 ? argv[1] : "";
    struct err e = { 0 };
    if (str_eq(mode, "--keeper") || str_starts(mode, "--keeper=") || str_eq(mode, "--standby"))
        return keeper_main(argc, argv);
    if (str_eq(mode, "--container") && argc == 2)
        return container_main();
    if (str_eq(mode, "--on-end"))
        return hook_main(argc, argv);
    if (str_eq(mode, "--cleanup") && argc == 3) {
        int rc = keeper_cleanup(argv[2], &e);
        if (rc != KEEPER_OK)
            fprintf(stderr, "tony-executor: %s\n", e.msg);
        return rc;
    }
    if (str_eq(mode, "--version")) {
        puts("tony-executor " TONY_VERSION);
        return 0;
    }
    bool help = str_eq(mode, "--help");
    fputs(usage, help ? stdout : stderr);
    return help ? 0 : KEEPER_MISUSE;
}
