/* SPDX-License-Identifier: Apache-2.0 */
/*
 * history_retain(): removes old jobs from history/.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "history/history.h"
#include "storage/paths.h"

static const char gone_prefix[] = ".gone-";

/* Did the job end more than age_ms ago? Its summary is the last file written to its directory, so
 * that file's time counts; if it is missing, the time of the directory counts. */
static bool is_old(int dirfd, const char *name, int64_t age_ms, int64_t now_ms)
{
    struct stat st;
    AUTO(free_p) char *summary = str_printf("%s/summary", name);
    if (!summary || (fstatat(dirfd, summary, &st, AT_SYMLINK_NOFOLLOW) == -1 &&
                     fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == -1))
        return false;
    return now_ms - ((int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000) > age_ms;
}

/* Remove the directory of a job. Rename it first, so that no command finds a half-removed job. If
 * name has gone_prefix, an earlier removal was interrupted after the rename: finish it. */
static int remove_job(int dirfd, const char *name, struct err *e)
{
    if (str_starts(name, gone_prefix))
        return fs_remove_tree(dirfd, name, e);
    AUTO(free_p) char *gone = str_printf("%s%s", gone_prefix, name);
    if (!gone)
        return err_set(e, ENOMEM, "cannot remove the history of '%s': %m", name);
    if (renameat(dirfd, name, dirfd, gone) == -1)
        return err_set(e, errno, "cannot remove the history of '%s': %m", name);
    return fs_remove_tree(dirfd, gone, e);
}

int history_retain(const char *history, int64_t age_ms, int64_t now_ms, struct err *e)
{
    DIR *d = opendir(history);
    int n = 0, rc = 0;
    if (!d)
        return err_set(e, errno, "cannot list '%s': %m", history);
    for (struct dirent *x; rc >= 0 && (x = readdir(d));) {
        int64_t start;
        uint32_t number;
        bool half = str_starts(x->d_name, gone_prefix);
        if (!half && (app_id_parse(x->d_name, &start, &number, NULL) < 0 ||
                      !is_old(dirfd(d), x->d_name, age_ms, now_ms)))
            continue;
        rc = remove_job(dirfd(d), x->d_name, e);
        n += rc >= 0;
    }
    closedir(d);
    return rc < 0 ? rc : n;
}
