/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command that bench/yarn runs in containers. It writes when it was started, waits until the
 * gate opens, and writes when it ends.
 *
 *     yarn-stamp DIRECTORY
 *
 * DIRECTORY has a named pipe `gate`, which the measuring program holds open for writing. The gate
 * opens when that program closes it. Times are CLOCK_REALTIME in ms, in DIRECTORY/<pid>. That file
 * appears only after this program has opened the pipe, so the gate cannot open too early.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void stamp(int fd)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    dprintf(fd, "%lld.%06ld\n", (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000,
            t.tv_nsec % 1000000);
}

int main(int argc, char **argv)
{
    char name[32], byte;
    if (argc != 2 || chdir(argv[1]) == -1)
        return 2;
    snprintf(name, sizeof name, "%ld", (long)getpid());
    int gate = open("gate", O_RDONLY | O_CLOEXEC);
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (gate == -1 || fd == -1)
        return 3;
    stamp(fd);
    while (read(gate, &byte, 1) > 0)
        ;
    stamp(fd);
    return 0;
}
