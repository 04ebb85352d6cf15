#include "storage/relocate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"

enum {
    SCRIPT_MAX = 1 << 20, /* what pip and conda write has a few hundred bytes */
    ENTRIES_MAX = 20000,
};

/* What such a script begins with when its path was too long for a first line; the rest is the
 * interpreter. To Python these two lines are a string that nobody reads. */
static const char trampoline[] = "#!/bin/sh\n'''exec' ";

static bool is_python(struct span name)
{
    if (!span_starts(name, "python"))
        return false;
    for (size_t i = 6; i < name.len; i++)
        if ((name.p[i] < '0' || name.p[i] > '9') && name.p[i] != '.')
            return false;
    return true;
}

static struct span base_name(struct span path, struct span *out_dir)
{
    const char *slash = path.len ? memrchr(path.p, '/', path.len) : NULL;
    size_t at = slash ? (size_t)(slash - path.p) : 0;
    *out_dir = span_mem(path.p, at);
    return slash ? span_mem(path.p + at + 1, path.len - at - 1) : path;
}

/* The name of the interpreter that the script wants, of those beside it; and its arguments. */
static bool own_interpreter(int bin, struct span how, struct span *out_name, struct span *out_args)
{
    struct span word, dir, rest = how;
    if (rest.len && rest.p[0] == '"') { /* quoted where it has a blank in it */
        const char *end = memchr(rest.p + 1, '"', rest.len - 1);
        if (!end)
            return false;
        word = span_mem(rest.p + 1, (size_t)(end - rest.p) - 1);
        rest = span_mem(end + 1, rest.len - (size_t)(end + 1 - rest.p));
    } else {
        (void)span_split(&rest, ' ', &word);
    }
    struct span name = base_name(word, &dir);
    if (span_eqs(word, "/usr/bin/env")) {
        rest = span_trim(rest);
        (void)span_split(&rest, ' ', &name);
    } else if (span_eqs(dir, "/usr/bin") || span_eqs(dir, "/bin") ||
               span_eqs(dir, "/usr/local/bin")) {
        return false; /* the machine's own, on purpose */
    }
    AUTO(free_p) char *beside = is_python(name) ? span_dup(name) : NULL;
    struct stat st;
    if (!beside || fstatat(bin, beside, &st, AT_SYMLINK_NOFOLLOW) == -1)
        return false;
    *out_name = name;
    *out_args = span_trim(rest);
    return true;
}

static int rewritten(int bin, struct span text, struct buf *out)
{
    struct span rest = text, line, how, name, args;
    bool long_form = span_starts(text, trampoline);
    (void)span_split(&rest, '\n', &line);
    if (long_form) {
        enum { EXEC_LEN = 9 }; /* of the second line up to the interpreter */
        struct span second = rest;
        (void)span_split(&second, '\n', &line);
        how = span_mem(line.p + EXEC_LEN, line.len - EXEC_LEN);
        const char *end = memmem(how.p, how.len, " \"$0\"", 5);
        if (!end)
            return 0;
        how.len = (size_t)(end - how.p);
        (void)span_split(&rest, '\n', &line); /* that line, and the one that ends the string */
        (void)span_split(&rest, '\n', &line);
    } else {
        how = span_trim(span_mem(line.p + 2, line.len - 2));
    }
    if (!own_interpreter(bin, how, &name, &args))
        return 0;
    int rc = buf_addf(
        out, "%s\"$(dirname -- \"$(realpath -- \"$0\")\")/%.*s\"%s%.*s \"$0\" \"$@\"\n' '''\n",
        trampoline, (int)name.len, name.p, args.len ? " " : "", (int)args.len, args.p);
    if (rc == 0)
        rc = buf_add(out, rest.p, rest.len);
    return rc < 0 ? rc : 1;
}

/* By another file in its place: what it was linked to stays as it is. */
static int replace(int bin, const char *name, mode_t mode, struct span text, struct err *e)
{
    int rc = fs_write_atomic(bin, name, text, mode & 0777, false, e);
    return rc < 0 ? rc : fchmodat(bin, name, mode & 0777, 0) == -1 ? -errno : 0;
}

static int relocate_script(int bin, const char *name, struct err *e)
{
    AUTO(close_p) int fd = openat(bin, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    char first[2];
    if (fd == -1 || fstat(fd, &st) == -1 || !S_ISREG(st.st_mode) || st.st_size > SCRIPT_MAX ||
        pread(fd, first, 2, 0) != 2 || memcmp(first, "#!", 2) != 0)
        return 0;
    AUTO(buf_done) struct buf text = { .max = SCRIPT_MAX + 1 }, out = { 0 };
    int rc = buf_fill_fd(&text, fd, e);
    if (rc == 0)
        rc = rewritten(bin, buf_span(&text), &out);
    if (rc <= 0)
        return rc;
    rc = replace(bin, name, st.st_mode, buf_span(&out), e);
    return rc < 0 ? rc : 1;
}

static int relocate_bin(int top, const char *path, struct err *e)
{
    AUTO(close_p) int bin = openat(top, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (bin == -1 || fstat(bin, &st) == -1)
        return 0;
    int again = dup(bin), n = 0, rc = 0;
    DIR *d = again == -1 ? NULL : fdopendir(again);
    if (!d) {
        close_p(&again);
        return 0;
    }
    bool writable = st.st_mode & S_IWUSR;
    if (!writable && fchmod(bin, (st.st_mode & 07777) | S_IWUSR) == -1)
        rc = -errno;
    AUTO(strv_done) struct strv names = { 0 };
    for (struct dirent *x; rc == 0 && names.n < ENTRIES_MAX && (x = readdir(d));)
        if (x->d_type == DT_REG || x->d_type == DT_UNKNOWN)
            rc = strv_push(&names, x->d_name);
    closedir(d);
    for (size_t i = 0; rc >= 0 && i < names.n; i++) {
        rc = relocate_script(bin, names.v[i], e);
        n += rc > 0;
    }
    if (!writable)
        (void)fchmod(bin, st.st_mode & 07777); /* as it was; who may write it is us alone */
    return rc < 0 ? rc : n;
}

int python_relocate(int dirfd, const char *source, struct err *e)
{
    int n = relocate_bin(dirfd, "bin", e), rc = n;
    int again = n < 0 ? -1 : openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again == -1 ? NULL : fdopendir(again);
    if (!d)
        close_p(&again);
    for (struct dirent *x; d && rc >= 0 && (x = readdir(d));) {
        if (x->d_name[0] == '.' || str_eq(x->d_name, "bin"))
            continue;
        AUTO(free_p) char *path = str_printf("%s/bin", x->d_name);
        rc = path ? relocate_bin(dirfd, path, e) : -ENOMEM;
        n += rc > 0 ? rc : 0;
    }
    if (d)
        closedir(d);
    return rc < 0 ? err_set(e, -rc, "cannot set up the environment '%s': %m", source) : n;
}
