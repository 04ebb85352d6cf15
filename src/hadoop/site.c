/* SPDX-License-Identifier: Apache-2.0 */
#include "hadoop/site_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "codec/xml.h"

static void prop_free(void *arg)
{
    struct site_prop *p = arg;
    free(p->value);
    free(p->expanded);
    free(p->origin);
    free(p);
}

void site_free(struct site *s)
{
    if (!s)
        return;
    map_done(&s->props, prop_free);
    map_done(&s->defaults, free);
    free(s);
}

void site_freep(struct site **s)
{
    site_free(*s);
    *s = NULL;
}

int site_set_default(struct site *s, const char *key, const char *value)
{
    char *copy = str_dup(value);
    void *old = NULL;
    if (!copy || map_set(&s->defaults, key, copy, &old) < 0) {
        free(copy);
        return -ENOMEM;
    }
    free(old);
    return 0;
}

struct site *site_new(struct err *e)
{
    /* properties of Java that a site file may use, as in ${user.name}; from our environment */
    static const char *const known[][2] = {
        { "user.name", "LOGNAME" },
        { "user.name", "USER" },
        { "user.home", "HOME" },
    };
    struct site *s = calloc(1, sizeof *s);
    int rc = s ? site_set_default(s, "java.io.tmpdir", "/tmp") : -ENOMEM;
    for (size_t i = 0; i < ARRAY_LEN(known) && rc == 0; i++) {
        const char *v = getenv(known[i][1]);
        if (v && *v)
            rc = site_set_default(s, known[i][0], v);
    }
    if (rc == 0)
        return s;
    site_free(s);
    (void)err_set(e, ENOMEM, "cannot read the site files: %m");
    return NULL;
}

/* ---- properties ---- */

static int no_memory(struct err *e)
{
    return err_set(e, ENOMEM, "cannot read the site files: %m");
}

static int set_prop(struct site *s, const char *path, const struct xml_prop *x, struct err *e)
{
    const struct site_prop *old = map_get(&s->props, x->name);
    if (old && old->final)
        return 0; /* Hadoop keeps the final value, too, and warns */
    struct site_prop *p = calloc(1, sizeof *p);
    void *before = NULL;
    if (!p)
        return no_memory(e);
    p->value = str_dup(x->value);
    p->origin = str_printf("%s:%u", path, x->line);
    p->final = x->final;
    if (!p->value || !p->origin || map_set(&s->props, x->name, p, &before) < 0) {
        prop_free(p);
        return no_memory(e);
    }
    if (before)
        prop_free(before);
    return 0;
}

/* ---- files ---- */

static int add_file(struct site *s, const char *path, struct err *e);

/* The path of the file that href names in the file `path`. The caller frees it; NULL: e has the
 * reason. */
static char *include_path(const char *path, const struct xml_prop *x, struct err *e)
{
    const char *href = x->value;
    if (str_starts(href, "file:")) {
        href += strlen("file:");
        while (href[0] == '/' && href[1] == '/') /* file:///a means the same as file:/a */
            href++;
    } else if (strstr(href, "://")) {
        (void)err_set(e, EINVAL, "%s:%u: cannot include '%s': only files are included here", path,
                      x->line, href);
        return NULL;
    }
    const char *slash = strrchr(path, '/');
    char *out = href[0] == '/' || !slash ? str_dup(href)
                                         : str_printf("%.*s/%s", (int)(slash - path), path, href);
    if (!out)
        (void)no_memory(e);
    return out;
}

static int add_entries(struct site *s, const char *path, const struct xml_prop *v, size_t n,
                       struct err *e);

/* Add the included file. If it does not exist, add the entries of its <fallback>. */
static int add_include(struct site *s, const char *path, const struct xml_prop *x, struct err *e)
{
    AUTO(free_p) char *other = include_path(path, x, e);
    if (!other)
        return -e->num;
    if (access(other, R_OK) == -1 && errno == ENOENT && x->has_fallback)
        return add_entries(s, path, x + 1, x->n_fallback, e);
    int rc = add_file(s, other, e);
    return rc < 0 ? err_wrap(e, rc, "%s:%u", path, x->line) : 0;
}

static int add_entries(struct site *s, const char *path, const struct xml_prop *v, size_t n,
                       struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i += 1 + (v[i].include ? v[i].n_fallback : 0))
        rc = v[i].include ? add_include(s, path, &v[i], e) : set_prop(s, path, &v[i], e);
    return rc;
}

/* Add the file to the list of files that are being read. Refuse it if it is in the list already, or
 * if there are too many files. */
static int enter(struct site *s, const char *path, int fd, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) == -1)
        return err_set(e, errno, "cannot read '%s': %m", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, EINVAL, "cannot read '%s': it is not a regular file", path);
    for (unsigned i = 0; i < s->n_open; i++)
        if (s->open[i].dev == st.st_dev && s->open[i].ino == st.st_ino)
            return err_set(e, ELOOP, "'%s' includes itself", path);
    if (s->n_open == ARRAY_LEN(s->open))
        return err_set(e, EFBIG, "cannot include '%s': more than %d files in each other", path,
                       SITE_INCLUDE_DEPTH_MAX);
    if (s->n_files == SITE_FILES_MAX)
        return err_set(e, EFBIG, "cannot read '%s': more than %d files", path, SITE_FILES_MAX);
    s->n_files++;
    s->open[s->n_open++] = (struct site_open){ st.st_dev, st.st_ino };
    return 0;
}

static int add_file(struct site *s, const char *path, struct err *e)
{
    AUTO(close_p) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd == -1)
        return err_set(e, errno, "cannot read '%s': %m", path);
    int rc = enter(s, path, fd, e);
    if (rc < 0)
        return rc;
    AUTO(buf_done) struct buf text = { .max = SITE_FILE_MAX };
    AUTO(xml_conf_freep) struct xml_conf *x = NULL;
    rc = buf_fill_fd(&text, fd, e);
    if (rc < 0)
        rc = err_wrap(e, rc, "'%s'", path);
    else
        rc = xml_site_parse(path, buf_span(&text), &x, e);
    if (rc == 0)
        rc = add_entries(s, path, x->v, x->n, e);
    s->n_open--;
    return rc;
}

int site_add_file(struct site *s, const char *path, struct err *e)
{
    struct err local = { 0 };
    return add_file(s, path, e ? e : &local);
}

int site_add_dir(struct site *s, const char *dir, struct err *e)
{
    static const char *const names[] = { "core-site.xml", "hdfs-site.xml", "yarn-site.xml" };
    unsigned found = 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTO(free_p) char *path = fs_join(dir, names[i]);
        if (!path)
            return no_memory(e);
        if (access(path, F_OK) == -1 && (errno == ENOENT || errno == ENOTDIR))
            continue;
        int rc = site_add_file(s, path, e);
        if (rc < 0)
            return rc;
        found++;
    }
    if (found > 0)
        return 0;
    int rc = err_set(e, ENOENT,
                     "directory '%s' has no core-site.xml, hdfs-site.xml or yarn-site.xml", dir);
    (void)err_hint(e, "HADOOP_CONF_DIR (or tony.application.yarn-conf-path) must name the "
                      "directory with the cluster's site files");
    return rc;
}

const char *site_origin(const struct site *s, const char *key)
{
    const struct site_prop *p = map_get(&s->props, key);
    return p ? p->origin : NULL;
}

int site_bad(const struct site *s, const char *key, struct err *e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)err_vset(e, EINVAL, fmt, ap);
    va_end(ap);
    const char *origin = site_origin(s, key);
    return origin ? err_wrap(e, -EINVAL, "%s: %s", origin, key) : err_wrap(e, -EINVAL, "%s", key);
}
