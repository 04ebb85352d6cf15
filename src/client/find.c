/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "cluster/yarn/cmd.h"

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

int find_app(struct client *c, const char *word, char out[APP_ID_MAX], struct err *e)
{
    int rc = client_look_paths(c, e);
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
        return paths_find_job(&c->paths, out, &dir, &live, e);
    }

    rc = newest_in(c->paths.jobs, (uint32_t)number, &start, &found, e);
    if (rc == 0)
        rc = newest_in(c->paths.history, (uint32_t)number, &start, &found, e);
    if (rc < 0)
        return rc;
    if (start < 0) {
        rc = number ? err_set(e, ENOENT, "there is no job with number %lld in '%s'",
                              (long long)number, c->paths.home)
                    : err_set(e, ENOENT, "there is no job yet in '%s'", c->paths.home);
        err_hint(e, "tony list --all shows all jobs");
        return rc;
    }
    app_id_format(out, start, found);
    return 0;
}

bool find_on_yarn(struct client *c, const char *word)
{
    if (options_has(&c->o, OPT_CLUSTER))
        return yarn_wanted(c);
    char id[APP_ID_MAX];
    struct err e = { 0 };
    return find_app(c, word, id, &e) < 0 && e.num == ENOENT && yarn_wanted(c);
}

int find_exit_code(const struct err *e)
{
    return e->num == ENOENT || e->num == EINVAL ? EXIT_MISUSE : EXIT_CLUSTER;
}
