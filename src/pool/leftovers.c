/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/leftovers.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/proctree.h"
#include "base/str.h"
#include "base/util.h"

enum {
    PAUSE_MS = 5,
    /* An executor that loses its keeper kills its tasks and exits. Allow it this time. */
    EXECUTOR_MS = 1000,
};

static bool is_ours(int proc, const char *name, pid_t pid, const char *entry)
{
    struct stat st;
    return fstatat(proc, name, &st, 0) == 0 && st.st_uid == geteuid() &&
           proctree_has_variable(pid, entry);
}

/* Is the process an executor or a keeper? Both say so by the name of their thread. A program of the
 * user with such a name is killed later, together with them. */
static bool is_executor(int proc, const char *pid)
{
    char path[64], name[32];
    (void)snprintf(path, sizeof path, "%.20s/comm", pid);
    AUTO(close_p) int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, name, sizeof name - 1) : -1;
    if (n <= 0)
        return false;
    name[n] = '\0';
    return str_eq(name, "tony-executor\n") || str_eq(name, "tony-keeper\n");
}

static int kill_once(const char *entry, bool executors)
{
    DIR *d = opendir("/proc");
    if (!d)
        return -errno;
    int n = 0;
    for (struct dirent *x; (x = readdir(d));) {
        int64_t pid;
        if (!isdigit((unsigned char)x->d_name[0]) ||
            str_i64(span_of(x->d_name), 2, INT32_MAX, "pid", &pid, NULL) < 0 || pid == getpid() ||
            !is_ours(dirfd(d), x->d_name, (pid_t)pid, entry))
            continue;
        n++;
        /* At first leave executors alone: an executor knows all processes that its task started,
         * also those without the variable. */
        if (executors || !is_executor(dirfd(d), x->d_name))
            (void)kill((pid_t)pid, SIGKILL); /* fails if the process has just exited */
    }
    (void)closedir(d);
    return n;
}

int leftovers_kill(const char *application_id, int limit_ms)
{
    AUTO(free_p) char *entry = str_printf("TONY_APPLICATION_ID=%s", application_id);
    if (!entry)
        return -ENOMEM;
    int64_t begun_ms = clock_mono_ms(), deadline_ms = begun_ms + limit_ms;
    for (;;) {
        int n = kill_once(entry, clock_mono_ms() - begun_ms > EXECUTOR_MS);
        if (n <= 0 || clock_mono_ms() >= deadline_ms)
            return n;
        (void)poll(NULL, 0, PAUSE_MS); /* a killed process takes a moment to disappear */
    }
}
