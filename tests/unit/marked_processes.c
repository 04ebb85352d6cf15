/* SPDX-License-Identifier: Apache-2.0 */
#include "marked_processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/util.h"

static bool has_text(long pid, const char *want)
{
    char path[64];
    AUTO(buf_done) struct buf text = { 0 };
    (void)snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    return fs_read(AT_FDCWD, path, &text, NULL) >= 0 && text.len > 0 &&
           memmem(text.p, text.len, want, strlen(want));
}

int marked_processes(const char *text, bool kill_them)
{
    int n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *x; d && (x = readdir(d));) {
        char *end;
        long pid = strtol(x->d_name, &end, 10);
        if (*end || pid <= 1 || pid == getpid() || !has_text(pid, text))
            continue;
        n++;
        if (kill_them)
            (void)kill((pid_t)pid, SIGKILL);
    }
    if (d)
        closedir(d);
    return n;
}
