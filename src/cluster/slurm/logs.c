/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs. Those of a job that is over are files in TONY_HOME, and mostly those of a live job, too.
 * But the logs of a node that does not see TONY_HOME come there only when the job ends; until then
 * the master passes them on. It also passes on new text to a client that follows: so the client
 * notices when the job starts, and ends with the job, even if Slurm ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/local/local.h"
#include "cluster/remote.h"
#include "cluster/slurm/slurm_int.h"
#include "codec/json.h"

enum { PIECE = 64 << 10, TAIL_MAX = 4 << 20 };

/* Does a node of this live job not see TONY_HOME? The batch script makes these files. */
static bool has_away_nodes(const char *dir)
{
    AUTO(free_p) char *nodes = fs_join(dir, "nodes");
    return nodes && fs_any_named(nodes, "away-");
}

int slurm_logs(struct cluster *k, const char *id, const struct cluster_log_wish *w,
               cluster_log_fn *fn, void *arg, struct err *e)
{
    struct cluster_host *h = slurm_host(k);
    struct err unread = { 0 };
    bool live = false;
    int rc = host_look_paths(h, &unread);
    AUTO(free_p) char *dir = NULL;
    if (rc == 0)
        (void)paths_find_job(&h->paths, id, &dir, &live, &unread); /* local_logs() says why not */
    bool ask_master = dir && live && !w->over && !w->attempt && (w->follow || has_away_nodes(dir));
    rc = ask_master ? remote_logs(k, id, w, fn, arg, e) : local_logs(k, id, w, fn, arg, e);
    if (rc < 0 && !dir)
        slurm_explain_absence(id, e);
    return rc;
}

/* ---- of tasks that have ended ---- */

static int no_log(const struct cluster_kept_log *l, const char *dir, struct err *e)
{
    const char *node = json_str(l->task, "node", "");
    AUTO(free_p) char *away = str_printf("%s/nodes/away-%s", dir, node);
    if (away && *node && access(away, F_OK) == 0)
        return err_set(
            e, ENOENT,
            "node %s does not see TONY_HOME, so the log of %s is there when the job ends", node,
            json_str(l->task, "task", ""));
    return err_set(e, ENOENT, "task %s has left no log", json_str(l->task, "task", ""));
}

/* Pass the file on from the byte `at`, or its last lines. */
static int read_file(int fd, const struct cluster_kept_log *l, int (*fn)(struct span, void *),
                     void *arg, int64_t *out_size)
{
    struct stat st;
    if (fstat(fd, &st) == -1)
        return -errno;
    *out_size = st.st_size;
    off_t at = l->lines < 0 ? l->from : MAX(st.st_size - TAIL_MAX, (off_t)0);
    AUTO(buf_done) struct buf tail = { 0 };
    int rc = 0;
    while (rc == 0 && at < st.st_size) {
        char text[PIECE];
        ssize_t n = pread(fd, text, (size_t)MIN((off_t)sizeof text, st.st_size - at), at);
        if (n <= 0)
            return n < 0 ? -errno : 0;
        at += n;
        struct span part = span_mem(text, (size_t)n);
        rc = l->lines < 0 ? fn(part, arg) : buf_add(&tail, part.p, part.len);
    }
    return rc == 0 && tail.len ? fn(text_tail(buf_span(&tail), l->lines), arg) : rc;
}

int slurm_kept_log(struct cluster *k, const struct cluster_kept_log *l,
                   int (*fn)(struct span text, void *arg), void *arg, int64_t *out_size,
                   struct err *e)
{
    struct cluster_host *h = slurm_host(k);
    AUTO(free_p) char *dir = NULL;
    bool live;
    if (l->attempt < 1)
        return 0; /* the task never had a container */
    int rc = paths_find_job(&h->paths, l->id, &dir, &live, e);
    if (rc < 0)
        return rc;
    AUTO(free_p)
    char *path =
        str_printf("%s/logs/%s-%lld/%lld/%s", dir, json_str(l->task, "role", ""),
                   (long long)json_int(l->task, "index", 0), (long long)l->attempt, l->stream);
    AUTO(free_p) char *ranked = path && l->rank ? str_printf("%s.%u", path, l->rank) : NULL;
    if (!path || (l->rank && !ranked))
        return err_set(e, ENOMEM, "no memory to show the logs");
    AUTO(close_p) int fd = fs_open_file(AT_FDCWD, l->rank ? ranked : path, O_NOFOLLOW, e);
    if (fd == -ENOENT)
        return no_log(l, dir, e);
    if (fd < 0)
        return err_wrap(e, fd, "cannot show the log of task '%s'", json_str(l->task, "task", ""));
    rc = read_file(fd, l, fn, arg, out_size);
    return rc < 0 ? err_set(e, -rc, "cannot show the log of task '%s': %m",
                            json_str(l->task, "task", ""))
                  : 0;
}
