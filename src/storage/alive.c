/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/alive.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "storage/paths.h"

enum { HOST_MAX = 65, LINE_MAX_BYTES = 128, CMDLINE_MAX = 4096 + 256 };

/* ---- the text in a lock file: "<pid> <host>" ---- */

static void host_name(char out[HOST_MAX])
{
    if (gethostname(out, HOST_MAX) == -1)
        out[0] = '\0';
    out[HOST_MAX - 1] = '\0';
}

void alive_sign_lock(int lock_fd)
{
    char host[HOST_MAX], line[LINE_MAX_BYTES];
    host_name(host);
    int n = snprintf(line, sizeof line, "%ld %s\n", (long)getpid(), host);
    if (ftruncate(lock_fd, 0) == 0)
        (void)!pwrite(lock_fd, line, (size_t)n, 0);
}

/* Read the lock file. 0: it names no process. *host may be empty. */
static pid_t read_signature(const char *lock_path, char host[HOST_MAX])
{
    AUTO(buf_done) struct buf text = { .max = LINE_MAX_BYTES };
    host[0] = '\0';
    if (fs_read(AT_FDCWD, lock_path, &text, NULL) < 0)
        return 0;
    struct span rest = span_trim(buf_span(&text)), word;
    int64_t pid;
    if (!span_split(&rest, ' ', &word) || str_i64(word, 1, INT32_MAX, "pid", &pid, NULL) < 0)
        return 0;
    (void)snprintf(host, HOST_MAX, "%.*s", (int)rest.len, rest.p ? rest.p : "");
    return (pid_t)pid;
}

void alive_lock_holder(const char *lock_path, char *out, unsigned long size)
{
    char host[HOST_MAX];
    pid_t pid = read_signature(lock_path, host);
    if (!pid)
        (void)snprintf(out, size, "another process");
    else
        (void)snprintf(out, size, "process %ld%s%s", (long)pid, host[0] ? " of host " : "", host);
}

bool alive_is_elsewhere(const char *lock_path)
{
    char host[HOST_MAX], here[HOST_MAX];
    host_name(here);
    return read_signature(lock_path, host) && host[0] && !str_eq(host, here);
}

/* ---- processes ---- */

static ssize_t read_proc(pid_t pid, const char *file, char *out, size_t size)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, size - 1) : -1;
    if (fd >= 0)
        (void)close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n;
}

struct process {
    char text[512]; /* /proc/<pid>/stat */
    struct span name;
    pid_t session;
};

/* false: it has ended, or there is no /proc: then the text is empty. */
static bool read_process(pid_t pid, struct process *out)
{
    char state;
    int ppid, group, session;
    if (read_proc(pid, "stat", out->text, sizeof out->text) <= 0)
        return false;
    const char *open = strchr(out->text, '('), *close = strrchr(out->text, ')');
    if (!open || !close || sscanf(close + 1, " %c %d %d %d", &state, &ppid, &group, &session) != 4)
        return false;
    out->name = span_mem(open + 1, (size_t)(close - open - 1));
    out->session = session;
    return state != 'Z' && state != 'X';
}

bool alive_process(pid_t pid)
{
    struct process p;
    if (kill(pid, 0) == -1 && errno == ESRCH)
        return false;
    /* without /proc, a zombie counts as alive */
    return read_process(pid, &p) || !p.text[0];
}

/* Was it started by this user? The owner of /proc/<pid> is the effective user, and any user can run
 * a program with the set-user-id bit, such as su, under whatever name and command line. So all four
 * ids must be those of this user. */
static bool is_own(pid_t pid)
{
    char text[1024];
    unsigned real, effective, saved, fs;
    if (read_proc(pid, "status", text, sizeof text) <= 0)
        return false;
    const char *at = strstr(text, "\nUid:"); /* a newline in the process's name is escaped */
    return at && sscanf(at, " Uid: %u %u %u %u", &real, &effective, &saved, &fs) == 4 &&
           real == geteuid() && effective == real && saved == real && fs == real;
}

/* Is it a living process of this user with this name that leads its session? The keeper and the
 * pool are session leaders. An executor is a fork of its keeper, but leads none. */
static bool is_leader(pid_t pid, const char *name)
{
    char path[32];
    struct stat st;
    struct process p;
    (void)snprintf(path, sizeof path, "/proc/%ld", (long)pid);
    return stat(path, &st) == 0 && st.st_uid == geteuid() && read_process(pid, &p) &&
           p.session == pid && span_eqs(p.name, name) && is_own(pid);
}

/* Is it the keeper of this job? Its command line is "tony-keeper <id>", perhaps with a space and
 * more behind it. A keeper of an older version has the arguments <program> --keeper <id>. */
static bool is_keeper(pid_t pid, const char *application_id)
{
    char line[CMDLINE_MAX];
    if (!is_leader(pid, "tony-keeper"))
        return false;
    ssize_t n = read_proc(pid, "cmdline", line, sizeof line);
    struct span rest = span_of(line), name, id;
    if (span_split(&rest, ' ', &name) && span_eqs(name, "tony-keeper"))
        return span_split(&rest, ' ', &id) && span_eqs(id, application_id);
    const char *end = line + MAX(n, (ssize_t)0), *second = line + strlen(line) + 1;
    const char *third = second < end ? second + strlen(second) + 1 : end;
    return third < end && str_eq(second, "--keeper") && str_eq(third, application_id);
}

static pid_t find_keeper(const char *application_id)
{
    DIR *d = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *x; d && !found && (x = readdir(d));) {
        int64_t pid;
        if (isdigit((unsigned char)x->d_name[0]) &&
            str_i64(span_of(x->d_name), 2, INT32_MAX, "pid", &pid, NULL) == 0 &&
            is_keeper((pid_t)pid, application_id))
            found = (pid_t)pid;
    }
    if (d)
        (void)closedir(d);
    return found;
}

bool alive_keeper(const char *application_id)
{
    return find_keeper(application_id) > 0;
}

/* The pid may belong to another process by now. So open the process first, then look at it, and
 * send the signal to the opened process. */
static int open_process(pid_t pid)
{
    return pid > 0 ? pidfd_open(pid, 0) : -1;
}

bool alive_keeper_renew(const char *application_id)
{
    pid_t pid = find_keeper(application_id);
    AUTO(close_p) int fd = open_process(pid);
    return fd >= 0 && is_keeper(pid, application_id) && pidfd_send_signal(fd, SIGHUP, NULL, 0) == 0;
}

bool alive_pool_renew(const struct paths *p)
{
    char host[HOST_MAX];
    AUTO(free_p) char *lock = paths_pool_lock(p);
    pid_t pid = lock ? read_signature(lock, host) : 0;
    AUTO(close_p) int fd = open_process(pid);
    return fd >= 0 && is_leader(pid, "tony-pool") && pidfd_send_signal(fd, SIGHUP, NULL, 0) == 0;
}
