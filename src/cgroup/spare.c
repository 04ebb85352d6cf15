/* SPDX-License-Identifier: Apache-2.0 */
#include "cgroup/spare.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/util.h"
#include "cgroup/file.h"
#include "cgroup/find.h"
#include "cgroup/tree.h"

#define SPARE "spare-"
#define GONE "gone-" /* spare groups that are being removed */

/* A group with more memory than this is not used again. The kernel still counts some memory after a
 * small task: its own objects, and up to 256 KiB on each core that it has reserved for the group.
 */
enum { USED_MAX = 1 << 20 };

/* The path of spare groups in this directory. The caller frees it; NULL = there are none. */
static char *find(const char *user, struct spare_groups *out)
{
    DIR *d = opendir(user);
    char *path = NULL;
    for (struct dirent *x; d && !path && (x = readdir(d));) {
        unsigned n;
        unsigned long long limit;
        if (x->d_type != DT_DIR || sscanf(x->d_name, SPARE "%u-%llu", &n, &limit) != 2)
            continue;
        *out = (struct spare_groups){ n, limit };
        path = str_printf("%s/%s", user, x->d_name);
    }
    if (d)
        closedir(d);
    return path;
}

bool spare_groups_take(const char *user, const char *dir, struct spare_groups *out)
{
    AUTO(free_p) char *spare = find(user, out);
    if (spare && rename(spare, dir) == 0)
        return true;
    *out = (struct spare_groups){ 0 };
    return false;
}

/* The number of the container whose group has this name, if its keeper was the first of the job;
 * else 0. */
static uint32_t number_of(const char *name)
{
    int64_t n;
    return str_starts(name, "01_") &&
                   str_i64(span_of(name + 3), 1, UINT32_MAX, "group", &n, NULL) == 0
               ? (uint32_t)n
               : 0;
}

static bool was_untouched(const char *dir, uint64_t limit)
{
    char text[128];
    struct stat st;
    if (stat(dir, &st) == -1 || st.st_nlink != 2 || /* two names: it has no group below it */
        group_get(dir, "cgroup.procs", text, sizeof text) != 0)
        return false;
    if (group_get(dir, "memory.oom_control", text, sizeof text) <= 0 ||
        group_find_key(text, "oom_kill_disable") != 0 || group_find_key(text, "oom_kill") != 0)
        return false;
    if (limit && group_get_u64(dir, "memory.limit_in_bytes") != limit)
        return false;
    ssize_t len = group_get(dir, "memory.usage_in_bytes", text, sizeof text);
    return len > 0 && strtoull(text, NULL, 10) <= USED_MAX &&
           group_put(dir, "memory.max_usage_in_bytes", "0") == 0;
}

static bool is_empty(const char *dir)
{
    char text[16];
    return group_get(dir, "cgroup.procs", text, sizeof text) == 0;
}

static bool can_stay(const char *dir, uint32_t number, struct spare_groups used,
                     struct spare_groups ready)
{
    if (number == 0 || number > SPARE_GROUPS_MAX)
        return false;
    if (number <= used.n)
        return was_untouched(dir, used.limit);
    bool many = number > SPARE_GROUPS_FEW && number > (uint64_t)SPARE_GROUPS_TIMES * used.n;
    return number <= ready.n && !many && is_empty(dir);
}

/* Remove the groups that cannot be kept. Returns how many of the first ones are there and have the
 * same limit. */
static uint32_t sort_out(const char *dir, DIR *d, struct spare_groups used,
                         struct spare_groups ready)
{
    char child[CGROUP_PATH_MAX + 64];
    bool there[SPARE_GROUPS_MAX + 2] = { false };
    uint32_t n = 0, most = used.limit == ready.limit ? SPARE_GROUPS_MAX : used.n;
    for (struct dirent *x; (x = readdir(d));) {
        if (x->d_type != DT_DIR || x->d_name[0] == '.')
            continue;
        int len = snprintf(child, sizeof child, "%s/%s", dir, x->d_name);
        uint32_t number = number_of(x->d_name);
        if (len <= 0 || (size_t)len >= sizeof child)
            continue;
        if (can_stay(child, number, used, ready))
            there[number] = true;
        else
            cgroup_tree_remove(child);
    }
    while (n < most && there[n + 1])
        n++;
    return n;
}

bool spare_groups_keep(const char *dir, struct spare_groups used, struct spare_groups ready)
{
    struct spare_groups other;
    AUTO(free_p) char *user = str_dup(dir);
    char *last = user ? strrchr(user, '/') : NULL;
    if (!last || last == user || used.n == 0)
        return false;
    *last = '\0';
    AUTO(free_p) char *there = find(user, &other);
    DIR *d = there ? NULL : opendir(dir);
    if (!d)
        return false;
    uint32_t n = sort_out(dir, d, used, ready);
    closedir(d);
    AUTO(free_p)
    char *to =
        str_printf("%s/" SPARE "%u-%llu", user, used.limit ? n : 0, (unsigned long long)used.limit);
    return to && rename(dir, to) == 0;
}

/* Remove the directories whose names begin with GONE, also those that a killed process has left. */
static void remove_gone(const char *user)
{
    DIR *d = opendir(user);
    for (struct dirent *x; d && (x = readdir(d));) {
        AUTO(free_p)
        char *path = str_starts(x->d_name, GONE) ? str_printf("%s/%s", user, x->d_name) : NULL;
        if (path)
            cgroup_tree_remove(path);
    }
    if (d)
        closedir(d);
}

/* Rename the groups before they are removed. So a job that looks for spare groups at the same time
 * takes all of them or none. */
void spare_groups_remove(const char *base)
{
    struct spare_groups unused;
    unsigned n = 0;
    bool moved = true;
    AUTO(free_p) char *user = str_printf("%s/tony-%u", base, (unsigned)geteuid());
    for (char *spare; user && moved && (spare = find(user, &unused)); free(spare)) {
        AUTO(free_p)
        char *gone = str_printf("%s/" GONE "%ld-%lld-%u", user, (long)getpid(),
                                (long long)clock_mono_us(), n++);
        moved = gone && (rename(spare, gone) == 0 || errno == ENOENT); /* a job has taken it */
    }
    if (user)
        remove_gone(user);
}
