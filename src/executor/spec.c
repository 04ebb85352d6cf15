/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cluster spec: the addresses of all tasks. TONY_SPEC_FILE names a file that has them as JSON.
 *
 * On one machine the master keeps that file for all tasks of the job, and Start names it. On a
 * cluster each executor writes a file of its own from the last Peers. A master of an older version
 * sends all addresses with the Start itself; then the executor writes the file from those.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/crew.h"
#include "executor/executor_int.h"
#include "runtime/runtime.h"

static struct rt_role *roles_of(const Tony__ClusterSpec *spec, size_t *out_n)
{
    size_t n = spec ? spec->n_roles : 0;
    struct rt_role *roles = calloc(n + 1, sizeof *roles);
    for (size_t i = 0; roles && i < n; i++) {
        const Tony__SpecRole *r = spec->roles[i];
        roles[i] = (struct rt_role){ .name = r->name,
                                     .list = span_of(r->addresses),
                                     .n = r->n,
                                     .kind = r->kind,
                                     .ranks = r->ranks };
    }
    *out_n = n;
    return roles;
}

/* ---- the file ---- */

static char *container_spec_path(const struct executor *x)
{
    return str_printf("%s/.tony-spec.json", x->workdir);
}

/* A hash like FNV-1a, over words. It has to distinguish only the few specs of one job. */
static uint64_t text_hash(const char *p, size_t len)
{
    uint64_t h = 0xcbf29ce484222325u, word;
    for (; len >= sizeof word; p += sizeof word, len -= sizeof word) {
        memcpy(&word, p, sizeof word);
        h = (h ^ word) * 0x100000001b3u;
        h ^= h >> 29;
    }
    for (; len; p++, len--)
        h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    return h ^ h >> 32;
}

/* With a master of an older version on one machine: all tasks of a gang have the same spec, so the
 * first executor writes the file, named by its content, and the others find it. */
static char *shared_path(const struct executor *x, struct span json)
{
    return str_printf("%s/containers/.spec-%016llx.json", x->cfg->job_dir,
                      (unsigned long long)text_hash(json.p, json.len));
}

static int write_roles(struct executor *x, const struct rt_role *roles, size_t n, struct err *e)
{
    AUTO(buf_done) struct buf text = { 0 };
    if (runtime_spec_json(roles, n, NULL, NULL, &text) < 0)
        return err_set(e, ENOMEM, "cannot write the cluster spec: %m");
    AUTO(free_p)
    char *path = x->cfg->remote ? container_spec_path(x) : shared_path(x, buf_span(&text));
    struct stat st;
    if (!path)
        return err_set(e, ENOMEM, "cannot write the cluster spec: %m");
    bool there = !x->cfg->remote && stat(path, &st) == 0 && (size_t)st.st_size == text.len;
    int rc = there ? 0 : fs_write_atomic(AT_FDCWD, path, buf_span(&text), 0400, false, e);
    if (rc < 0)
        return rc;
    free(x->spec_path);
    x->spec_path = TAKE(path);
    return 0;
}

/* Replace the content of the file. Its path stays the same, because running tasks know it. */
static int rewrite(struct executor *x, const struct rt_role *roles, size_t n, struct err *e)
{
    AUTO(buf_done) struct buf text = { 0 }, old = { 0 };
    if (runtime_spec_json(roles, n, NULL, NULL, &text) < 0)
        return err_set(e, ENOMEM, "cannot write the cluster spec: %m");
    if (fs_read(AT_FDCWD, x->spec_path, &old, NULL) == 0 &&
        span_eq(buf_span(&old), buf_span(&text)))
        return 0; /* with an older master several tasks share it */
    return fs_write_atomic(AT_FDCWD, x->spec_path, buf_span(&text), 0400, false, e);
}

/* Readers find the old file or the new one, never a part. On a cluster a Start may follow that
 * relies on this file. */
void executor_peers(struct executor *x, const Tony__Peers *p)
{
    struct err e = { 0 };
    size_t n;
    AUTO(free_p) struct rt_role *roles = roles_of(p->spec, &n);
    int rc = roles ? 0 : err_set(&e, ENOMEM, "cannot write the cluster spec: %m");
    if (rc == 0 && x->cfg->remote && x->workdir)
        rc = write_roles(x, roles, n, &e);
    else if (rc == 0 && x->spec_path && attempt_alive(&x->a))
        rc = rewrite(x, roles, n, &e);
    x->spec_err = e;
    if (rc < 0)
        executor_warn(x, "task.peers", &e);
}

int spec_file_ready(struct executor *x, const Tony__Start *s, const struct spec *spec,
                    struct err *e)
{
    if (!s->spec_bytes)
        return write_roles(x, spec->roles, spec->n_roles, e);
    char *path = s->spec_file[0] ? str_dup(s->spec_file) : container_spec_path(x);
    free(x->spec_path);
    x->spec_path = path;
    if (!path)
        return err_set(e, ENOMEM, "cannot build the environment: %m");
    if (!s->spec_file[0] && x->spec_err.num) {
        *e = x->spec_err;
        return -e->num;
    }
    return 0;
}

/* ---- the addresses of a Start ---- */

/*
 * The file that this process has read last. The executors of a crew start their tasks at about the
 * same time: with 1000 tasks, reading and parsing the same text for each took a tenth of the CPU
 * time of a launch. The descriptor stays open, so no other file can get the number of its inode;
 * and the file never changes, because the master replaces it as a whole.
 */
static struct {
    int fd; /* -1 = none */
    struct stat st;
    struct buf text;
    struct span *lists; /* of each role, in the order of the Start */
    size_t n_roles;
} last = { .fd = -1 };

static void last_done(void)
{
    close_p(&last.fd);
    buf_done(&last.text);
    free(TAKE(last.lists));
}

static bool is_last(const char *path)
{
    struct stat st;
    return last.fd >= 0 && stat(path, &st) == 0 && st.st_dev == last.st.st_dev &&
           st.st_ino == last.st.st_ino;
}

static int last_read(const char *path, struct err *e)
{
    last_done();
    last.fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (last.fd == -1 || fstat(last.fd, &last.st) == -1)
        return err_set(e, errno, "cannot open '%s': %m", path);
    int rc = buf_fill_fd(&last.text, last.fd, e);
    return rc < 0 ? err_wrap(e, rc, "file '%s'", path) : 0;
}

/* Let the roles of the Start point to their addresses in the text. */
static int last_lists(const char *path, struct spec *spec, struct err *e)
{
    if (last.lists && last.n_roles == spec->n_roles) {
        for (size_t i = 0; i < spec->n_roles; i++)
            spec->roles[i].list = last.lists[i];
        return 0;
    }
    if (runtime_spec_lists(buf_span(&last.text), spec->roles, spec->n_roles) < 0)
        return err_set(e, EBADMSG, "the file '%s' is not the cluster spec of this job", path);
    free(last.lists);
    last.n_roles = spec->n_roles;
    last.lists = calloc(spec->n_roles + 1, sizeof *last.lists); /* NULL: the next one parses again */
    for (size_t i = 0; last.lists && i < spec->n_roles; i++)
        last.lists[i] = spec->roles[i].list;
    return 0;
}

/* The master replaces the file when addresses change, so it may be newer than the Start. */
static int read_all(struct executor *x, const Tony__Start *s, struct spec *spec, struct err *e)
{
    int rc = spec_file_ready(x, s, spec, e);
    if (rc == 0 && !is_last(x->spec_path))
        rc = last_read(x->spec_path, e);
    if (rc == 0)
        rc = last_lists(x->spec_path, spec, e);
    if (rc < 0)
        last_done();
    else
        spec->text = buf_span(&last.text);
    return rc;
}

void spec_forget(const struct crew *c)
{
    for (size_t i = 0; last.fd >= 0 && i < c->n; i++)
        if (!c->v[i].over && c->v[i].a.state == ATTEMPT_NONE)
            return; /* it will probably read the same file */
    last_done();
}

int spec_open(struct executor *x, const Tony__Start *s, bool all, struct spec *out, struct err *e)
{
    struct spec spec = { .roles = roles_of(s->spec, &spec.n_roles) };
    int rc = spec.roles ? 0 : err_set(e, ENOMEM, "cannot build the environment: %m");
    spec.firsts = s->spec_bytes && !all;
    if (rc == 0 && s->spec_bytes && all)
        rc = read_all(x, s, &spec, e);
    if (rc < 0)
        spec_done(&spec);
    else
        *out = spec;
    return rc;
}

void spec_done(struct spec *s)
{
    free(s->roles);
    *s = (struct spec){ 0 };
}
