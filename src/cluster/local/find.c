/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the jobs of this TONY_HOME by their number.
 */
#include <dirent.h>
#include <errno.h>

#include "base/base.h"
#include "cluster/local/local.h"

/* Find the newest job in a directory that has this number; 0 = any number. */
static int newest_in(const char *dir, uint32_t number, int64_t *best_start, uint32_t *best_number,
                     struct err *e)
{
    DIR *d = opendir(dir);
    if (!d)
        return errno == ENOENT ? 0 : err_set(e, errno, "cannot read directory '%s': %m", dir);
    for (struct dirent *de; (de = readdir(d));) {
        int64_t start;
        uint32_t n;
        if (de->d_name[0] == '.' || app_id_parse(de->d_name, &start, &n, NULL) < 0 ||
            (number && n != number))
            continue;
        if (start > *best_start || (start == *best_start && n > *best_number)) {
            *best_start = start;
            *best_number = n;
        }
    }
    (void)closedir(d);
    return 0;
}

int local_find_app(struct cluster_host *h, const char *word, char out[APP_ID_MAX], struct err *e)
{
    int rc = host_look_paths(h, e);
    if (rc < 0)
        return rc;

    int64_t start = -1, number = 0;
    uint32_t found = 0;
    if (!str_eq(word, "last") &&
        str_i64(span_of(word), 1, UINT32_MAX, "number", &number, NULL) < 0) {
        if (app_id_parse(word, &start, &found, e) < 0) {
            rc = err_set(e, EINVAL, "'%s' is not an application id", word);
            err_hint(e, "it looks like application_1700000000000_0001; its number alone and 'last' "
                        "are understood too");
            return rc;
        }
        if (!str_copy(out, APP_ID_MAX, word))
            return err_set(e, EINVAL, "'%s' is not an application id", word);
        AUTO(free_p) char *dir = NULL;
        bool live;
        return paths_find_job(&h->paths, out, &dir, &live, e);
    }

    rc = newest_in(h->paths.jobs, (uint32_t)number, &start, &found, e);
    if (rc == 0)
        rc = newest_in(h->paths.history, (uint32_t)number, &start, &found, e);
    if (rc < 0)
        return rc;
    if (start < 0) {
        rc = number ? err_set(e, ENOENT, "there is no job with number %lld in '%s'",
                              (long long)number, h->paths.home)
                    : err_set(e, ENOENT, "there is no job yet in '%s'", h->paths.home);
        err_hint(e, "tony list --all shows all jobs");
        return rc;
    }
    app_id_format(out, start, found);
    return 0;
}
