/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all clusters do with a new job: its files go into the store of TONY_HOME, and job.conf is
 * written for its master.
 */
#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/venv.h"
#include "conf/conf.h"
#include "storage/jobfile.h"
#include "storage/plan.h"
#include "storage/store.h"

/* ---- the lines of the job file, for errors ---- */

const char *job_origin(const struct cluster_job *j, const char *key)
{
    const char *origin = conf_origin(j->conf, key);
    return origin ? origin : key;
}

const char *ship_origin_of(const struct cluster_job *j, const char *name, const char *role)
{
    if (j->spec->venv && !role[0] && str_eq(name, "venv"))
        return job_origin(j, "tony.application.python-venv");
    AUTO(free_p)
    char *key = str_printf("tony.%s.resources", !role[0]               ? "containers"
                                                : j->spec->single_node ? "am"
                                                                       : role);
    const char *origin = key ? conf_origin(j->conf, key) : NULL;
    return origin ? origin : "job";
}

/* The line of the job file, or the option, that names this item. */
const char *ship_origin(const struct cluster_job *j, const struct ship_item *it)
{
    return it->kind == SHIP_SRC ? job_origin(j, "tony.application.src-dir")
                                : ship_origin_of(j, it->name, it->role);
}

/* ---- into the store ---- */

static int check_python(const struct cluster_host *h, const struct cluster_job *j,
                        const struct ship_item *it, struct err *e)
{
    int rc =
        it->python ? venv_check(h, it->path, j->spec->python_binary, j->cluster->remote, e) : 0;
    return rc < 0 ? err_wrap(e, rc, "virtual environment '%s'", it->source) : 0;
}

/* Tell the user about a copy that takes long. */
static void on_copy(const char *source, uint64_t bytes, void *arg)
{
    enum { LONG_MIB = 128 };
    char size[32];
    if (bytes >> 20 >= LONG_MIB)
        host_note(arg, "storing '%s', %s", source, str_size(bytes, size, sizeof size));
}

int ship_put(struct cluster_host *h, struct cluster_job *j, struct err *e)
{
    if (j->n_items == 0)
        return 0;
    struct store *store = NULL;
    if (store_open(h->paths.store, &store, e) < 0)
        return -EXIT_CLUSTER;
    store_on_copy(store, on_copy, h);
    int code = EXIT_DONE;
    for (size_t i = 0; code == EXIT_DONE && i < j->n_items; i++) {
        if (store_put(store, &j->items[i], e) == 0 && check_python(h, j, &j->items[i], e) == 0)
            continue;
        code = ship_exit_code(e);
        if (code == EXIT_MISUSE && !e->hint[0])
            err_hint(
                e, "everything that is shipped must exist, be readable, and not change meanwhile");
        if (code == EXIT_MISUSE)
            (void)err_wrap(e, -e->num, "%s", ship_origin(j, &j->items[i]));
    }
    store_free(store);
    return -code;
}

int ship_exit_code(const struct err *e)
{
    switch (e->num) {
    case ENOSPC:
    case EDQUOT:
    case EROFS:
    case EIO:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EPERM: /* a directory in $TONY_HOME belongs to another user */
        return EXIT_CLUSTER;
    default:
        return EXIT_MISUSE;
    }
}

/* ---- job.conf ---- */

int job_conf_text(struct cluster_host *h, const struct cluster_job *j, struct buf *out,
                  struct err *e)
{
    struct passwd *pw = getpwuid(getuid());
    char host[65] = "";
    /* On failure the text lacks the host name: it only informs people. */
    (void)gethostname(host, sizeof host - 1);
    char nothing[] = "";
    AUTO(free_p) char *cwd = getcwd(NULL, 0);
    struct job_file f = {
        .conf = j->conf,
        .ship = j->items,
        .n_ship = j->n_items,
        .user = pw ? pw->pw_name : nothing,
        .host = host,
        .cwd = cwd ? cwd : nothing,
        .version = (char *)h->version,
        .wall_ms = clock_wall_ms(),
        .pid = getpid(),
    };
    int rc = plan_of_job(j->spec, j->items, j->n_items, f.plan);
    return rc < 0 ? err_set(e, -rc, "cannot make the digest of the plan: %m")
                  : job_file_encode(&f, out, e);
}

/* ---- signals ---- */

void signals_hold(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}
