/* SPDX-License-Identifier: Apache-2.0 */
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
    SCRIPT_MAX = 1 << 20, /* bytes; a script that pip or conda writes has a few hundred */
    ENTRIES_MAX = 20000,  /* files in one bin/; conda's have some thousands */
};

/* pip writes this beginning if the interpreter's path is too long for a "#!" line or has a blank in
 * it. The path follows, then `"$0" "$@"`, and on the next line `' '''`. /bin/sh executes the
 * interpreter with the script; for Python these lines are a string that has no effect. */
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

/* Does the script use the environment's interpreter? command: the command of its "#!" line. If yes,
 * *out_name is the name of the interpreter, which is in the same directory (bin), and *out_args are
 * its arguments. */
static bool uses_interpreter_of(int bin, struct span command, struct span *out_name,
                                struct span *out_args)
{
    struct span word, dir, rest = command;
    if (rest.len && rest.p[0] == '"') { /* a path with a blank in it is quoted */
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
        return false; /* the script uses the machine's own interpreter */
    }
    AUTO(free_p) char *interpreter = is_python(name) ? span_dup(name) : NULL;
    struct stat st;
    if (!interpreter || fstatat(bin, interpreter, &st, AT_SYMLINK_NOFOLLOW) == -1)
        return false;
    *out_name = name;
    *out_args = span_trim(rest);
    return true;
}

/* Append the changed script to out. 1: changed; 0: the script needs no change; -errno. */
static int rewrite_script(int bin, struct span text, struct buf *out)
{
    struct span rest = text, line, command, name, args;
    bool long_form = span_starts(text, trampoline);
    (void)span_split(&rest, '\n', &line);
    if (long_form) {
        enum { EXEC_LEN = 9 }; /* the length of "'''exec' ", before the interpreter */
        struct span second = rest;
        (void)span_split(&second, '\n', &line);
        command = span_mem(line.p + EXEC_LEN, line.len - EXEC_LEN);
        const char *end = memmem(command.p, command.len, " \"$0\"", 5);
        if (!end)
            return 0;
        command.len = (size_t)(end - command.p);
        (void)span_split(&rest, '\n', &line); /* drop the line with exec */
        (void)span_split(&rest, '\n', &line); /* drop the line that ends the string */
    } else {
        command = span_trim(span_mem(line.p + 2, line.len - 2));
    }
    if (!uses_interpreter_of(bin, command, &name, &args))
        return 0;
    int rc = buf_addf(
        out, "%s\"$(dirname -- \"$(realpath -- \"$0\")\")/%.*s\"%s%.*s \"$0\" \"$@\"\n' '''\n",
        trampoline, (int)name.len, name.p, args.len ? " " : "", (int)args.len, args.p);
    if (rc == 0)
        rc = buf_add(out, rest.p, rest.len);
    return rc < 0 ? rc : 1;
}

/* Put a new file in the script's place. Writing into the old one would also change the files that
 * are hard links to it. */
static int replace_script(int bin, const char *name, mode_t mode, struct span text, struct err *e)
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
        rc = rewrite_script(bin, buf_span(&text), &out);
    if (rc <= 0)
        return rc;
    rc = replace_script(bin, name, st.st_mode, buf_span(&out), e);
    return rc < 0 ? rc : 1;
}

/* Change the scripts in the directory `path` below `top`. Returns their number, or -errno; 0 if the
 * directory cannot be opened. */
static int relocate_bin(int top, const char *path, struct err *e)
{
    AUTO(close_p) int bin = openat(top, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (bin == -1 || fstat(bin, &st) == -1)
        return 0;
    int dir_fd = dup(bin), n = 0, rc = 0;
    DIR *d = dir_fd == -1 ? NULL : fdopendir(dir_fd);
    if (!d) {
        close_p(&dir_fd);
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
        (void)fchmod(bin, st.st_mode & 07777); /* if this fails, still only the owner may write */
    return rc < 0 ? rc : n;
}

int python_relocate(int dirfd, const char *source, struct err *e)
{
    int n = relocate_bin(dirfd, "bin", e), rc = n;
    int dir_fd = n < 0 ? -1 : openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = dir_fd == -1 ? NULL : fdopendir(dir_fd);
    if (!d)
        close_p(&dir_fd);
    for (struct dirent *x; d && rc >= 0 && (x = readdir(d));) {
        if (x->d_name[0] == '.' || str_eq(x->d_name, "bin"))
            continue;
        AUTO(free_p) char *path = str_printf("%s/bin", x->d_name);
        rc = path ? relocate_bin(dirfd, path, e) : -ENOMEM;
        n += rc > 0 ? rc : 0;
    }
    if (d)
        closedir(d);
    return rc < 0 ? err_set(e, -rc, "cannot relocate the Python environment '%s': %m", source) : n;
}
