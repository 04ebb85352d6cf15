/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends what a job ships into HDFS. A client writes a file under a temporary name in cache/ and
 * then renames it. So many clients can work at the same time, and an incomplete file is never used.
 * The steps for each file:
 *
 *     pack (a directory, on another thread), put, make its directory, rename, look at the result
 *
 * All files are sent at the same time. yarn_join_wait() ends when the last step of each has ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/yarn/stage.h"
#include "cluster/yarn/yarn.h"
#include "loop/loop.h"
#include "storage/store.h"

enum { DRAW_MS = 100 };

/* ---- sending ---- */

/* Tell the host about the progress, at most every DRAW_MS. */
static void tell(struct yarn_staging *s, bool last)
{
    const struct cluster_host *h = s->y->host;
    struct cluster_sending x = { 0 };
    int64_t now = clock_mono_ms();
    if (!h->sending || (!last && now - s->drawn_ms < DRAW_MS))
        return;
    for (size_t i = 0; i < s->v.n && !last; i++) {
        x.sent += s->v.v[i].sent;
        x.total += s->v.v[i].total;
        x.n_files += !s->v.v[i].there;
    }
    h->sending(&x, h->arg);
    s->drawn_ms = now;
}

static void send_failed(struct yarn_step *t, const struct err *e)
{
    struct yarn_staged *x = &t->s->v.v[t->i];
    struct err err = *e;
    close_p(&x->fd);
    x->fd = -1;
    (void)err_wrap(&err, -err.num, "cannot upload '%s'", x->local);
    yarn_join_end(&t->s->join, &err);
    free(t);
}

static void final_stat(const struct files_result *r, const struct err *e, void *arg)
{
    struct yarn_step *t = arg;
    struct yarn_staged *x = &t->s->v.v[t->i];
    if (!r) {
        send_failed(t, e);
        return;
    }
    x->there = true;
    x->size = r->stats->length;
    x->mtime_ms = r->stats->mtime_ms;
    yarn_join_end(&t->s->join, NULL);
    free(t);
}

static void begin_stat(struct yarn_step *t)
{
    struct err e = { 0 };
    if (webhdfs_stat(t->s->y->fs, t->s->v.v[t->i].path, final_stat, t, NULL, &e) < 0)
        send_failed(t, &e);
}

static void temp_gone(const struct files_result *r, const struct err *e, void *arg)
{
    (void)r;
    (void)e; /* if this fails, the sweep by age removes it later */
    begin_stat(arg);
}

/* If another client has stored the same content first, use its file and remove ours. */
static void renamed(const struct files_result *r, const struct err *e, void *arg)
{
    struct yarn_step *t = arg;
    struct yarn_staged *x = &t->s->v.v[t->i];
    struct err err = *e;
    if (r)
        begin_stat(t);
    else if (e->num != EEXIST)
        send_failed(t, e);
    else if (webhdfs_delete(t->s->y->fs, x->temp, false, temp_gone, t, NULL, &err) < 0)
        send_failed(t, &err);
}

static void parent_made(const struct files_result *r, const struct err *e, void *arg)
{
    struct yarn_step *t = arg;
    struct yarn_staged *x = &t->s->v.v[t->i];
    struct err err = *e;
    if (!r || webhdfs_rename(t->s->y->fs, x->temp, x->path, renamed, t, NULL, &err) < 0)
        send_failed(t, &err);
}

static void sent(const struct files_result *r, const struct err *e, void *arg)
{
    struct yarn_step *t = arg;
    struct yarn_staged *x = &t->s->v.v[t->i];
    struct err err = *e;
    if (!r) {
        send_failed(t, e);
        return;
    }
    close_p(&x->fd);
    x->fd = -1;
    t->s->bytes_sent += x->total;
    t->s->files_sent++;
    AUTO(free_p) char *dir = str_printf("%s/cache/%s", t->s->y->dir, x->digest);
    if (!dir)
        (void)err_set(&err, ENOMEM, "no memory to stage the job");
    if (!dir || webhdfs_mkdirs(t->s->y->fs, dir, 0700, parent_made, t, NULL, &err) < 0)
        send_failed(t, &err);
}

static void progress(uint64_t n, uint64_t total, void *arg)
{
    struct yarn_step *t = arg;
    struct yarn_staged *x = &t->s->v.v[t->i];
    x->sent = n;
    x->total = total;
    tell(t->s, false);
}

static void begin_put(struct yarn_step *t)
{
    struct yarn_staged *x = &t->s->v.v[t->i];
    struct err e = { 0 };
    struct stat st;
    if (fstat(x->fd, &st) == -1) {
        (void)err_set(&e, errno, "%m");
        send_failed(t, &e);
        return;
    }
    x->total = (uint64_t)st.st_size;
    const struct webhdfs_put put = { .path = x->temp,
                                     .mode = 0600,
                                     .overwrite = true,
                                     .from_fd = true,
                                     .fd = x->fd,
                                     .n = st.st_size,
                                     .progress = progress };
    if (webhdfs_put(t->s->y->fs, &put, sent, t, NULL, &e) < 0)
        send_failed(t, &e);
}

/* ---- packing, on another thread ---- */

struct packing {
    struct yarn_step *t;
    const char *dir;
    int fd;
    struct err e;
};

static int pack_work(void *arg)
{
    struct packing *p = arg;
    return store_pack(p->dir, p->fd, &p->e);
}

static void packed(void *arg, int rc)
{
    AUTO(free_p) struct packing *p = arg;
    if (rc < 0)
        send_failed(p->t, &p->e);
    else
        begin_put(p->t);
}

/* Create an unnamed file in this directory, which has room for it. */
static int temp_file(const char *dir)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    AUTO(free_p) char *name = str_printf("%s/.tmp-pack-XXXXXX", dir);
    fd = name ? mkostemp(name, O_CLOEXEC) : -1;
    if (fd >= 0)
        (void)unlink(name); /* if this fails, the sweep of temporary files removes it */
    return fd;
}

static void begin_pack(struct yarn_step *t)
{
    struct yarn_staged *x = &t->s->v.v[t->i];
    struct packing *p = malloc(sizeof *p);
    struct err e = { 0 };
    x->fd = temp_file(t->s->y->host->paths.store);
    if (p && x->fd >= 0) {
        *p = (struct packing){ .t = t, .dir = x->local, .fd = x->fd };
        if (loop_work(t->s->y->loop, pack_work, packed, p) == 0)
            return;
    }
    (void)err_set(&e, errno ? errno : ENOMEM, "no temporary file in '%s': %m",
                  t->s->y->host->paths.store);
    free(p);
    send_failed(t, &e);
}

static void begin_send(struct yarn_staging *s, size_t i)
{
    struct yarn_staged *x = &s->v.v[i];
    struct yarn_step *t = yarn_step_new(s, i);
    struct err e = { 0 };
    x->temp = str_printf("%s/cache/" YARN_HALF_PREFIX "%s-%d-%llx", s->y->dir, x->digest,
                         (int)getpid(), (unsigned long long)clock_mono_us());
    if (!t || !x->temp) {
        free(t);
        yarn_stage_no_memory(s);
        return;
    }
    s->join.n++;
    if (x->archive) {
        begin_pack(t);
        return;
    }
    x->fd = open(x->local, O_RDONLY | O_CLOEXEC);
    if (x->fd == -1) {
        (void)err_set(&e, errno, "%m");
        send_failed(t, &e);
    } else {
        begin_put(t);
    }
}

/* ---- directories ---- */

static void dir_made(const struct files_result *r, const struct err *e, void *arg)
{
    struct yarn_staging *s = arg;
    (void)r;
    yarn_join_end(&s->join, e);
}

/* Create them one by one: a NameNode gives the parents that it creates the mode of the last
 * directory. */
static int make_dirs(struct yarn_staging *s, struct err *e)
{
    AUTO(free_p) char *cache = str_printf("%s/cache", s->y->dir);
    const struct {
        const char *path;
        mode_t mode;
    } dirs[] = { { s->y->home, 0755 }, { s->y->dir, 0700 }, { cache, 0700 } };
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        s->join.n++;
        if (!dirs[i].path ||
            webhdfs_mkdirs(s->y->fs, dirs[i].path, dirs[i].mode, dir_made, s, NULL, e) < 0) {
            s->join.n--;
            return -EXIT_CLUSTER;
        }
        yarn_join_wait(&s->join);
        if (s->join.e.num) {
            *e = s->join.e;
            if (e->num == EACCES && !e->hint[0])
                err_hint(e,
                         "jobs are staged in the home directory '%s' in HDFS: it must "
                         "exist and belong to '%s'",
                         s->y->home, s->y->user);
            return -EXIT_CLUSTER;
        }
    }
    s->cache_there = true;
    return 0;
}

int yarn_stage_send(struct yarn_staging *s, struct err *e)
{
    int rc = s->cache_there ? 0 : make_dirs(s, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < s->v.n; i++)
        if (s->v.v[i].digest && !s->v.v[i].there)
            begin_send(s, i);
    tell(s, false);
    yarn_join_wait(&s->join);
    tell(s, true);
    if (s->join.e.num) {
        *e = s->join.e;
        return -EXIT_CLUSTER;
    }
    if (s->files_sent && s->y->host->verbose) {
        char a[32], b[32];
        host_note(s->y->host, "uploaded %u files, %s; %u were there already, %s", s->files_sent,
                  str_size(s->bytes_sent, a, sizeof a), s->files_there,
                  str_size(s->bytes_there, b, sizeof b));
    }
    return 0;
}
