/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"

enum {
    /* Bytes of TONY_HOME. A path below it, such as jobs/<id>/containers/<id>/<the user's file>,
     * must fit into PATH_MAX (4096). */
    HOME_MAX = 2048,
    HASH_DIGITS = 12,
    /* Bytes of the longest name in the runtime directory, with its slash and the NUL:
     * "/4294967295.lock". Version 0.1.0 had locks there; sockets have shorter names. */
    SOCKET_NAME_MAX = 17,
    /* Bytes of the runtime directory, so that a socket's path fits into a socket address. */
    RUNTIME_MAX = sizeof(((struct sockaddr_un *)0)->sun_path) - SOCKET_NAME_MAX,
};

void paths_done(struct paths *p)
{
    free(p->home);
    free(p->pool);
    free(p->locks);
    free(p->jobs);
    free(p->store);
    free(p->history);
    free(p->runtime);
    *p = (struct paths){ 0 };
}

/* FNV-1a and a final mixing step. The hash only has to differ between the few homes of one user. */
static void home_hash(const char *home, char out[HASH_DIGITS + 1])
{
    uint64_t h = 0xcbf29ce484222325u;
    for (const char *s = home; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    (void)snprintf(out, HASH_DIGITS + 1, "%012" PRIx64, h >> 16);
}

/* ---- TONY_HOME ---- */

static int home_name(char **out, struct err *e)
{
    const char *set = getenv("TONY_HOME");
    const char *home = getenv("HOME");
    if (set && *set) {
        *out = str_dup(set);
    } else if (home && *home == '/') {
        *out = fs_join(home, ".tony");
    } else {
        (void)err_set(e, ENOENT,
                      "cannot choose a directory for tony's files: TONY_HOME is not set, and HOME "
                      "is not set to an absolute path");
        return err_hint(e, "set TONY_HOME to a directory of your own");
    }
    if (!*out)
        return err_set(e, ENOMEM, "cannot choose a directory for tony's files: %m");
    size_t len = strlen(*out);
    if (len <= HOME_MAX)
        return 0;
    free(TAKE(*out));
    (void)err_set(e, ENAMETOOLONG, "the path of TONY_HOME has %zu bytes; the limit is %d", len,
                  HOME_MAX);
    return err_hint(e, "set TONY_HOME to a shorter path");
}

/* Check that only this user can rename files in the home. tony takes away the group's write
 * permission, but leaves the permission to read: an existing directory may be the user's whole home
 * directory, and tony's subdirectories have mode 0700 anyway. */
static int home_check(const char *home, struct err *e)
{
    struct stat st;
    if (stat(home, &st) == -1)
        return err_set(e, errno, "cannot read the owner and mode of directory '%s': %m", home);
    if (st.st_uid != geteuid()) {
        (void)err_set(e, EPERM, "directory '%s' belongs to user %u, not to user %u", home,
                      (unsigned)st.st_uid, (unsigned)geteuid());
        return err_hint(e, "set TONY_HOME to a directory of your own");
    }
    if (st.st_mode & S_IWOTH) {
        (void)err_set(e, EPERM, "all users can write to directory '%s'", home);
        return err_hint(e, "set TONY_HOME to a directory of your own, for example below this one");
    }
    if ((st.st_mode & S_IWGRP) && chmod(home, st.st_mode & 07777 & ~(mode_t)S_IWGRP) == -1)
        return err_set(e, errno, "cannot remove the group's write permission on '%s': %m", home);
    return 0;
}

static int home_open(char **out, struct err *e)
{
    AUTO(free_p) char *name = NULL;
    int rc = home_name(&name, e);
    if (rc == 0)
        rc = fs_mkdirs(name, 0700, e);
    if (rc < 0 && name && !(e && e->hint[0]))
        return err_hint(e, "set TONY_HOME to a directory that you can write to");
    if (rc < 0)
        return rc;
    AUTO(free_p) char *real = realpath(name, NULL);
    if (!real)
        return err_set(e, errno, "cannot resolve directory '%s': %m", name);
    if (strlen(real) > HOME_MAX) {
        (void)err_set(e, ENAMETOOLONG, "the real path of TONY_HOME has %zu bytes; the limit is %d",
                      strlen(real), HOME_MAX);
        return err_hint(e, "set TONY_HOME to a shorter path");
    }
    rc = home_check(real, e);
    if (rc == 0)
        *out = TAKE(real);
    return rc;
}

static int home_subdir(const char *home, const char *name, char **out, struct err *e)
{
    *out = fs_join(home, name);
    if (!*out)
        return err_set(e, ENOMEM, "cannot make directory '%s': %m", name);
    int rc = fs_private_dir(*out, e);
    if (rc == -EPERM)
        return err_hint(e, "remove it or change its owner (chown), or set TONY_HOME to another "
                           "directory");
    if (rc == -EACCES || rc == -EROFS)
        return err_hint(e, "set TONY_HOME to a directory that you can write to");
    if (rc < 0)
        return rc;
    if (access(*out, W_OK) == -1) {
        (void)err_set(e, errno, "cannot write to directory '%s': %m", *out);
        return err_hint(e, "set TONY_HOME to a directory that you can write to");
    }
    return 0;
}

/* ---- the runtime directory ---- */

/* Does this process run on a node of Slurm? There the batch script sets TONY_RUNTIME_DIR. */
static bool is_node_of_cluster(void)
{
    const char *set = getenv("TONY_RUNTIME_DIR");
    return set && *set == '/';
}

/* Make parent and parent/hash, both with mode 0700 and owned by this user. *out is parent/hash. */
static int runtime_make(const char *parent, const char *hash, char **out, struct err *e)
{
    if (strlen(parent) + 1 + HASH_DIGITS > RUNTIME_MAX)
        return err_set(e, ENAMETOOLONG,
                       "cannot put sockets into '%s': its path has %zu bytes; the limit is %d",
                       parent, strlen(parent), (int)RUNTIME_MAX - 1 - HASH_DIGITS);
    AUTO(free_p) char *dir = fs_join(parent, hash);
    if (!dir)
        return err_set(e, ENOMEM, "cannot make directory '%s': %m", parent);
    int rc = fs_private_dir(parent, e);
    if (rc == 0)
        rc = fs_private_dir(dir, e);
    if (rc == 0)
        *out = TAKE(dir);
    return rc;
}

static int runtime_choose(const char *hash, char **out, struct err *e)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    struct stat st;
    if (xdg && *xdg == '/' && stat(xdg, &st) == 0 && st.st_uid == geteuid()) {
        AUTO(free_p) char *parent = fs_join(xdg, "tony");
        struct err unused;
        if (parent && runtime_make(parent, hash, out, &unused) == 0)
            return 0;
    }
    char parent[48];
    (void)snprintf(parent, sizeof parent, "/tmp/tony-%u", (unsigned)geteuid());
    int rc = runtime_make(parent, hash, out, e);
    if (rc != -EPERM && rc != -ENOTDIR)
        return rc;
    /* Another user has taken the name. Take a random one, which no other user can know before. */
    (void)snprintf(parent, sizeof parent, "/tmp/tony-%u-XXXXXX", (unsigned)geteuid());
    if (mkdtemp(parent))
        return runtime_make(parent, hash, out, e);
    return err_hint(e, "set XDG_RUNTIME_DIR to a directory of your own with a short path");
}

/* The path recorded in pool/runtime; the caller frees it. NULL: no path is recorded, or it has the
 * hash of another home, since TONY_HOME was moved or copied. */
static char *runtime_read(const char *record, const char *hash)
{
    AUTO(buf_done) struct buf text = { .max = PATH_MAX };
    struct err unused;
    if (fs_read_file(AT_FDCWD, record, &text, &unused) < 0)
        return NULL;
    AUTO(free_p) char *dir = span_dup(span_trim(buf_span(&text)));
    const char *slash = dir ? strrchr(dir, '/') : NULL;
    return slash && slash > dir && strcmp(slash + 1, hash) == 0 ? TAKE(dir) : NULL;
}

/* Use the recorded directory: make it again if it is missing. false: there is none, or it is not
 * private to this user. */
static bool runtime_open_recorded(const char *record, const char *hash, char **out)
{
    AUTO(free_p) char *dir = runtime_read(record, hash);
    struct err unused;
    if (!dir)
        return false;
    *strrchr(dir, '/') = '\0';
    return runtime_make(dir, hash, out, &unused) == 0;
}

/*
 * A client in a login session has XDG_RUNTIME_DIR, a client started by cron lacks it, and both must
 * use the same sockets. So the first program chooses the runtime directory and records its path in
 * the home. A later program chooses again only if it cannot use the recorded directory.
 */
static int runtime_open(const char *home, const char *pool, char **out, struct err *e)
{
    char hash[HASH_DIGITS + 1];
    home_hash(home, hash);
    if (is_node_of_cluster()) /* the recorded directory is another machine's */
        return runtime_make(getenv("TONY_RUNTIME_DIR"), hash, out, e);
    AUTO(free_p) char *record = fs_join(pool, "runtime");
    if (!record)
        return err_set(e, ENOMEM, "cannot choose a directory for sockets: %m");
    if (runtime_open_recorded(record, hash, out))
        return 0;
    AUTO(close_p) int fd = open(pool, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1 || (flock(fd, LOCK_EX) == -1 && errno != ENOLCK && errno != EOPNOTSUPP))
        return err_set(e, errno, "cannot lock directory '%s': %m", pool);
    if (runtime_open_recorded(record, hash, out))
        return 0;
    int rc = runtime_choose(hash, out, e);
    if (rc < 0)
        return rc;
    AUTO(buf_done) struct buf line = { 0 };
    if (buf_addf(&line, "%s\n", *out) < 0)
        return err_set(e, ENOMEM, "cannot choose a directory for sockets: %m");
    rc = fs_write_atomic(AT_FDCWD, record, buf_span(&line), 0600, false, e);
    return fs_hint_room(rc, e);
}

int paths_open(struct paths *out, struct err *e)
{
    AUTO(paths_done) struct paths p = { 0 };
    int rc = home_open(&p.home, e);
    if (rc == 0)
        rc = home_subdir(p.home, "pool", &p.pool, e);
    if (rc == 0)
        rc = home_subdir(p.home, "jobs", &p.jobs, e);
    if (rc == 0)
        rc = home_subdir(p.home, "store", &p.store, e);
    if (rc == 0)
        rc = home_subdir(p.home, "history", &p.history, e);
    if (rc == 0)
        rc = runtime_open(p.home, p.pool, &p.runtime, e);
    if (rc == 0)
        rc = home_subdir(is_node_of_cluster() ? p.runtime : p.pool, "locks", &p.locks, e);
    if (rc < 0)
        return rc;
    *out = p;
    p = (struct paths){ 0 };
    return 0;
}

/* The recorded runtime directory, if it belongs to this user and is closed to others; else NULL. In
 * any other directory, another user could have made the sockets. */
static char *runtime_find(const char *home, const char *pool)
{
    char hash[HASH_DIGITS + 1];
    home_hash(home, hash);
    AUTO(free_p) char *record = fs_join(pool, "runtime");
    AUTO(free_p) char *dir = record ? runtime_read(record, hash) : NULL;
    struct stat st;
    bool ours = dir && *dir == '/' && lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) &&
                st.st_uid == geteuid() && (st.st_mode & 0077) == 0;
    return ours ? TAKE(dir) : NULL;
}

int paths_renew_runtime(struct paths *p, struct err *e)
{
    char *dir = NULL;
    int rc = runtime_open(p->home, p->pool, &dir, e);
    if (rc < 0)
        return rc;
    bool changed = !p->runtime || strcmp(p->runtime, dir) != 0;
    free(p->runtime);
    p->runtime = dir;
    return changed;
}

char *paths_find_socket(const char *home, const char *app_id, const char *suffix)
{
    struct paths p = { 0 };
    AUTO(free_p) char *pool = fs_join(home, "pool");
    AUTO(free_p) char *runtime = pool ? runtime_find(home, pool) : NULL;
    p.runtime = runtime;
    return paths_socket(&p, app_id, suffix);
}

int paths_open_read_only(struct paths *out, struct err *e)
{
    AUTO(paths_done) struct paths p = { 0 };
    AUTO(free_p) char *name = NULL;
    int rc = home_name(&name, e);
    if (rc < 0)
        return rc;
    p.home = realpath(name, NULL);
    if (!p.home)
        return err_set(e, errno, "cannot resolve directory '%s': %m", name);
    p.pool = fs_join(p.home, "pool");
    p.locks = fs_join(p.home, "pool/locks");
    p.jobs = fs_join(p.home, "jobs");
    p.store = fs_join(p.home, "store");
    p.history = fs_join(p.home, "history");
    if (!p.pool || !p.locks || !p.jobs || !p.store || !p.history)
        return err_set(e, ENOMEM, "cannot read directory '%s': %m", name);
    p.runtime = runtime_find(p.home, p.pool);
    *out = p;
    p = (struct paths){ 0 };
    return 0;
}

/* ---- application ids, and the paths of jobs ---- */

void app_id_format(char out[APP_ID_MAX], int64_t start_ms, uint32_t number)
{
    (void)snprintf(out, APP_ID_MAX, "application_%" PRId64 "_%04" PRIu32, start_ms, number);
}

int app_id_parse(const char *id, int64_t *out_start_ms, uint32_t *out_number, struct err *e)
{
    struct span rest = span_of(id);
    int64_t start = 0, number = 0;
    bool ok = span_starts(rest, "application_");
    if (ok) {
        rest.p += strlen("application_");
        rest.len -= strlen("application_");
        const char *bar = memchr(rest.p, '_', rest.len);
        ok = bar &&
             str_i64(span_mem(rest.p, (size_t)(bar - rest.p)), 0, INT64_MAX, "id", &start, NULL) ==
                 0 &&
             str_i64(span_of(bar + 1), 0, UINT32_MAX, "id", &number, NULL) == 0;
    }
    /* Accept only the spelling that app_id_format() writes. The id becomes a part of paths, so no
     * other text may pass. */
    char formatted[APP_ID_MAX];
    if (ok) {
        app_id_format(formatted, start, (uint32_t)number);
        ok = strcmp(formatted, id) == 0;
    }
    if (!ok) {
        (void)err_set(e, EINVAL, "'%s' is not an application id", id);
        return err_hint(e, "an id looks like application_1767225600000_0001; `tony list` shows "
                           "the ids of your jobs");
    }
    *out_start_ms = start;
    *out_number = (uint32_t)number;
    return 0;
}

char *paths_job(const struct paths *p, const char *app_id)
{
    return fs_join(p->jobs, app_id);
}

char *paths_history(const struct paths *p, const char *app_id)
{
    return fs_join(p->history, app_id);
}

char *paths_socket(const struct paths *p, const char *app_id, const char *suffix)
{
    int64_t start = 0;
    uint32_t number = 0;
    bool ok = app_id_parse(app_id, &start, &number, NULL) == 0;
    if (!ok || !p->runtime) {
        errno = ok ? ENOENT : EINVAL;
        return NULL;
    }
    return str_printf("%s/%" PRIu32 ".%s", p->runtime, number, suffix);
}

char *paths_pool_socket(const struct paths *p)
{
    return fs_join(p->runtime, "pool.sock");
}

char *paths_pool_lock(const struct paths *p)
{
    return fs_join(p->locks, "pool");
}

char *paths_job_lock(const struct paths *p, const char *app_id)
{
    int64_t start = 0;
    uint32_t number = 0;
    if (app_id_parse(app_id, &start, &number, NULL) < 0) {
        errno = EINVAL;
        return NULL;
    }
    return str_printf("%s/%" PRIu32, p->locks, number);
}

int paths_find_job(const struct paths *p, const char *app_id, char **out_dir, _Bool *out_live,
                   struct err *e)
{
    int64_t start;
    uint32_t number;
    int rc = app_id_parse(app_id, &start, &number, e);
    if (rc < 0)
        return rc;
    /* First jobs/, then history/: one rename moves a job from jobs/ to history/, and never back. In
     * the other order, a job that is moved between the two look-ups would be missed. */
    for (int live = 1; live >= 0; live--) {
        AUTO(free_p) char *dir = live ? paths_job(p, app_id) : paths_history(p, app_id);
        if (!dir)
            return err_set(e, ENOMEM, "cannot find job '%s': %m", app_id);
        struct stat st;
        bool exists = stat(dir, &st) == 0;
        if (exists && S_ISDIR(st.st_mode)) {
            *out_dir = TAKE(dir);
            *out_live = live;
            return 0;
        }
        if (!exists && errno != ENOENT && errno != ENOTDIR)
            return err_set(e, errno, "cannot read directory '%s': %m", dir);
    }
    (void)err_set(e, ENOENT, "there is no job '%s' in '%s'", app_id, p->home);
    return err_hint(e, "tony list shows the jobs");
}

/* ---- programs ---- */

/* dir/sub/name if that is an executable file; else NULL. The result has no "/../". */
static char *program_in(const char *dir, size_t dir_len, const char *sub, const char *name)
{
    char *path = str_printf("%.*s/%s%s", (int)dir_len, dir, sub, name);
    struct stat st;
    if (path && stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0) {
        char *real = *sub ? realpath(path, NULL) : NULL;
        if (!real)
            return path;
        free(path);
        return real;
    }
    free(path);
    return NULL;
}

char *paths_program(const char *name)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n > 0) {
        /* If an upgrade replaced the running program, the kernel adds " (deleted)" to its name. The
         * directory is still right. */
        self[n] = '\0';
        char *slash = strrchr(self, '/');
        size_t len = slash ? (size_t)(slash - self) : 0;
        char *found = slash ? program_in(self, len, "", name) : NULL;
        /* tony is installed in PREFIX/bin, its other programs in PREFIX/libexec/tony. */
        if (slash && !found)
            found = program_in(self, len, "../libexec/tony/", name);
        if (found)
            return found;
    }
    const char *path = getenv("PATH");
    struct span rest = span_of(path ? path : "/usr/local/bin:/usr/bin:/bin"), dir;
    while (span_split(&rest, ':', &dir)) {
        char *found = dir.len > 0 && dir.p[0] == '/' ? program_in(dir.p, dir.len, "", name) : NULL;
        /* a program that uses libtony: take the other programs of the tony in PATH */
        if (!found && dir.len > 0 && dir.p[0] == '/')
            found = program_in(dir.p, dir.len, "../libexec/tony/", name);
        if (found)
            return found;
    }
    errno = ENOENT;
    return NULL;
}
