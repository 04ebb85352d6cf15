/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing and unpacking archives, by the program tony-pack. It is a separate program because
 * loading libarchive and its dependencies costs some milliseconds at every start of a program.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/json.h"
#include "storage/paths.h"
#include "storage/store.h"
#include "storage/store_int.h"

extern char **environ;

enum {
    ANSWER_MAX = 64 * 1024, /* bytes that tony-pack may write to its standard output */
    PACK_FD = 3,            /* descriptor in tony-pack to which it writes a new archive */
};

static int make_entry_read_only(int dirfd, const char *name, const struct stat *st,
                                const char *root, struct err *e)
{
    mode_t mode = st->st_mode & 0777 & ~(mode_t)0222;
    if (S_ISDIR(st->st_mode))
        mode |= 0500;
    if (fchmodat(dirfd, name, mode, 0) == -1)
        return err_set(e, errno, "cannot make '%s' of '%s' read-only: %m", name, root);
    return 0;
}

int tree_read_only(int fd, const char *name, struct err *e)
{
    int dir_fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* closedir() closes it */
    DIR *dir = dir_fd == -1 ? NULL : fdopendir(dir_fd);
    if (!dir) {
        int num = errno;
        close_p(&dir_fd);
        return err_set(e, num, "cannot read '%s': %m", name);
    }
    int rc = 0;
    const struct dirent *d;
    while (rc == 0 && (d = readdir(dir))) {
        struct stat st;
        if (str_eq(d->d_name, ".") || str_eq(d->d_name, "..") || d->d_type == DT_LNK)
            continue;
        if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == -1)
            rc = err_set(e, errno, "cannot read the attributes of '%s': %m", d->d_name);
        else if (S_ISLNK(st.st_mode))
            continue;
        if (rc == 0 && S_ISDIR(st.st_mode)) {
            AUTO(close_p)
            int sub = openat(fd, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            rc = sub == -1 ? err_set(e, errno, "cannot read '%s': %m", d->d_name)
                           : tree_read_only(sub, d->d_name, e);
        } else if (rc == 0) {
            rc = make_entry_read_only(fd, d->d_name, &st, name, e);
        }
    }
    (void)closedir(dir); /* the directory was only read, so no failure can lose data */
    struct stat st;
    if (rc == 0 && (fstat(fd, &st) == -1 || fchmod(fd, (st.st_mode & 0555) | 0500) == -1))
        rc = err_set(e, errno, "cannot make '%s' read-only: %m", name);
    return rc;
}

/* Read the answer of tony-pack: {"bytes":1,"files":1} or {"errno":1,"message":"..","hint":".."}.
 * what and archive: as in run_tony_pack(). */
static int read_answer(struct span text, const char *what, const char *archive, uint64_t *out_bytes,
                       uint32_t *out_files, struct err *e)
{
    AUTO(json_freep) json_t *root = NULL;
    (void)json_parse("tony-pack", text, &root, NULL); /* on failure root is NULL; reported below */
    const char *message = json_string_value(json_object_get(root, "message"));
    const char *hint = json_string_value(json_object_get(root, "hint"));
    if (message) {
        int64_t num = json_integer_value(json_object_get(root, "errno"));
        (void)err_set(e, num > 0 && num < 4096 ? (int)num : EIO, "%s", message);
        return err_hint(e, "%s", hint ? hint : "");
    }
    json_t *bytes = json_object_get(root, "bytes"), *files = json_object_get(root, "files");
    if (!json_is_integer(bytes) || !json_is_integer(files))
        return err_set(e, EIO, "cannot %s '%s': tony-pack exited without an answer", what, archive);
    *out_bytes = (uint64_t)json_integer_value(bytes);
    *out_files = (uint32_t)json_integer_value(files);
    return 0;
}

/* Start the program with standard output out_fd and an empty standard input. archive_fd becomes its
 * descriptor PACK_FD; -1 = none. 0 or -errno. */
static int spawn(const char *program, char *const argv[], int out_fd, int archive_fd,
                 pid_t *out_pid)
{
    posix_spawn_file_actions_t acts;
    int num = posix_spawn_file_actions_init(&acts);
    if (num != 0)
        return -num;
    num = posix_spawn_file_actions_adddup2(&acts, out_fd, STDOUT_FILENO);
    if (num == 0)
        num = posix_spawn_file_actions_addopen(&acts, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (num == 0 && archive_fd >= 0)
        num = posix_spawn_file_actions_adddup2(&acts, archive_fd, PACK_FD);
    if (num == 0)
        num = posix_spawn(out_pid, program, &acts, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&acts); /* fails only if acts was not initialized */
    return -num;
}

/* Run `tony-pack WHAT FROM TO` and wait for it. what: "pack" or "unpack"; name: the directory or
 * archive in error sentences; archive_fd: as in spawn(). */
static int run_tony_pack(const char *what, const char *name, const char *from, const char *to,
                         int archive_fd, uint64_t *out_bytes, uint32_t *out_files, struct err *e)
{
    AUTO(free_p) char *program = paths_program("tony-pack");
    if (!program) {
        (void)err_set(e, ENOENT, "cannot %s '%s': the program tony-pack is missing", what, name);
        return err_hint(e, "tony-pack is built if libarchive-dev is installed%s",
                        archive_fd >= 0 ? "" : "; without it, ship a directory");
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == -1)
        return err_set(e, errno, "cannot %s '%s': %m", what, name);
    AUTO(close_p) int in = ends[0];
    AUTO(close_p) int out = ends[1];
    char *const argv[] = { (char *)"tony-pack", (char *)(uintptr_t)what, (char *)(uintptr_t)from,
                           (char *)(uintptr_t)to, NULL };
    pid_t pid = -1;
    int rc = spawn(program, argv, out, archive_fd, &pid);
    if (rc < 0)
        return err_set(e, -rc, "cannot start '%s': %m", program);
    close_p(&out);
    AUTO(buf_done) struct buf text = { .max = ANSWER_MAX };
    struct err read_err = { 0 };
    int read_rc = buf_fill_fd(&text, in, &read_err);
    close_p(&in);
    int status;
    while (waitpid(pid, &status, 0) == -1 && errno == EINTR)
        ;
    if (read_rc < 0)
        return err_set(e, read_err.num, "cannot %s '%s': cannot read the answer of tony-pack: %s",
                       what, name, read_err.msg);
    return read_answer(buf_span(&text), what, name, out_bytes, out_files, e);
}

int pack_unpack(const char *archive, const char *dir, uint64_t *out_bytes, uint32_t *out_files,
                struct err *e)
{
    return run_tony_pack("unpack", archive, archive, dir, -1, out_bytes, out_files, e);
}

int store_pack(const char *dir, int fd, struct err *e)
{
    uint64_t bytes;
    uint32_t files;
    char to[24];
    (void)snprintf(to, sizeof to, "/dev/fd/%d", PACK_FD);
    /* Use a duplicate above PACK_FD. If fd itself were PACK_FD, dup2() onto itself would do
     * nothing, and close-on-exec would close the descriptor in tony-pack. */
    AUTO(close_p) int archive_fd = fcntl(fd, F_DUPFD_CLOEXEC, PACK_FD + 1);
    if (archive_fd == -1)
        return err_set(e, errno, "cannot pack '%s': %m", dir);
    return run_tony_pack("pack", dir, dir, to, archive_fd, &bytes, &files, e);
}
