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

#include "base/str.h"
#include "base/util.h"
#include "cgroup/file.h"
#include "cgroup/find.h"
#include "cgroup/tree.h"

#define SPARE "spare"

/* What the kernel itself still counts after a small task: its own objects, and pages that it has
 * reserved for the group on some core. */
enum { USED_MAX = 512 << 10 };

bool spare_groups_take(const char *user, const char *dir)
{
    AUTO(free_p) char *spare = str_printf("%s/" SPARE, user);
    return spare && rename(spare, dir) == 0;
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

static bool was_untouched(const char *dir)
{
    char text[128];
    struct stat st;
    if (stat(dir, &st) == -1 || st.st_nlink != 2 || /* two names: it has no group below it */
        group_get(dir, "cgroup.procs", text, sizeof text) != 0)
        return false;
    if (group_get(dir, "memory.oom_control", text, sizeof text) <= 0 ||
        group_find_key(text, "oom_kill_disable") != 0 || group_find_key(text, "oom_kill") != 0)
        return false;
    ssize_t len = group_get(dir, "memory.usage_in_bytes", text, sizeof text);
    return len > 0 && strtoull(text, NULL, 10) <= USED_MAX &&
           group_put(dir, "memory.max_usage_in_bytes", "0") == 0;
}

bool spare_groups_keep(const char *dir, uint32_t n)
{
    AUTO(free_p) char *spare = str_dup(dir);
    char *last = spare ? strrchr(spare, '/') : NULL, child[CGROUP_PATH_MAX + 64];
    if (!last || last == spare)
        return false;
    *last = '\0';
    char *to = str_printf("%s/" SPARE, spare);
    free(spare);
    spare = to;
    DIR *d = spare && n > 0 && access(spare, F_OK) == -1 ? opendir(dir) : NULL;
    if (!d)
        return false;
    for (struct dirent *x; (x = readdir(d));) {
        if (x->d_type != DT_DIR || x->d_name[0] == '.')
            continue;
        int len = snprintf(child, sizeof child, "%s/%s", dir, x->d_name);
        uint32_t number = number_of(x->d_name);
        bool fits = len > 0 && (size_t)len < sizeof child;
        if (fits && !(number && number <= n && was_untouched(child)))
            cgroup_tree_remove(child);
    }
    closedir(d);
    return rename(dir, spare) == 0;
}

void spare_groups_remove(const char *base)
{
    AUTO(free_p) char *spare = str_printf("%s/tony-%u/" SPARE, base, (unsigned)geteuid());
    if (spare && access(spare, F_OK) == 0)
        cgroup_tree_remove(spare);
}
