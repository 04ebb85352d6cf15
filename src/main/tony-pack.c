/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tony-pack unpack ARCHIVE DIR: unpack a zip or tar (also gz, bz2, xz, zst) into an existing, empty
 * directory. tony-pack pack DIR FILE: pack a directory tree as a tar.gz. Names are sorted, so the
 * same tree gives the same members.
 *
 * Both keep modes (0777), times, links and empty directories, but not owners. It is a separate
 * program, because loading libarchive and its libraries takes milliseconds. It prints one line of
 * JSON: {"bytes":N,"files":N} or {"errno":N,"message":"..","hint":".."}. Exit codes: 0, 1, or 2 for
 * misuse.
 *
 * The archive may come from anywhere. Refused are members that leave the directory by their name or
 * through a link, devices, and archives that grow enormously. What was unpacked before a refusal
 * stays: the caller removes it.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "storage/store.h"

enum {
    BLOCK = 256 * 1024,
    /* gzip can reach 1030; useful data above 1 GiB does not come near 200 */
    BOMB_RATIO = 200,
    BOMB_MIN = 1 << 30,
};

struct unpack {
    const char *name; /* of the archive, for errors */
    struct archive *in, *out;
    uint64_t bytes;
    uint32_t files;
    uint32_t members;
    struct err *e;
};

static void unpack_done(struct unpack *u)
{
    (void)archive_read_free(u->in);   /* the data was written and closed before */
    (void)archive_write_free(u->out); /* the data was written and closed before */
}

static int fail_in(struct unpack *u)
{
    int num = archive_errno(u->in) > 0 ? archive_errno(u->in) : EINVAL;
    const char *why = archive_error_string(u->in);
    (void)err_set(u->e, num, "cannot unpack '%s': %s", u->name, why ? why : "it is damaged");
    return err_hint(
        u->e, "a zip or tar (also gz, bz2, xz, zst) that other programs can unpack is needed");
}

static int fail_out(struct unpack *u, const char *member)
{
    int num = archive_errno(u->out) > 0 ? archive_errno(u->out) : EIO;
    const char *why = archive_error_string(u->out);
    return err_set(u->e, num, "cannot unpack '%s' of '%s': %s", member, u->name,
                   why ? why : "unknown reason");
}

static int refuse(struct unpack *u, const char *member, const char *why)
{
    enum { SHOWN = 120 }; /* bytes of a name in a message: an attacker chooses names */
    (void)err_set(u->e, EINVAL, "archive '%s' is refused: its member '%.*s%s' %s", u->name, SHOWN,
                  member, strlen(member) > SHOWN ? "..." : "", why);
    return err_hint(u->e, "nothing of it was used");
}

/* Does the path stay below the directory, judged by its text alone? */
static bool stays_inside(const char *path)
{
    struct span rest = span_of(path), part;
    if (path[0] == '/' || path[0] == '\0')
        return false;
    while (span_split(&rest, '/', &part)) {
        if (span_eqs(part, ".."))
            return false;
    }
    return true;
}

static unsigned depth_of(const char *path)
{
    unsigned n = 0;
    for (; *path; path++)
        n += *path == '/';
    return n;
}

static int check_member(struct unpack *u, struct archive_entry *x)
{
    const char *path = archive_entry_pathname(x);
    if (!path)
        return refuse(u, "?", "has a name that cannot be read");
    if (!stays_inside(path))
        return refuse(u, path, "leads out of the directory");
    if (depth_of(path) > STORE_MAX_DEPTH)
        return refuse(u, path, "lies too deep");
    const char *link = archive_entry_hardlink(x);
    if (link)
        return stays_inside(link) ? 0 : refuse(u, path, "is a link to outside of the directory");
    mode_t type = archive_entry_filetype(x);
    if (type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK)
        return refuse(u, path, "is neither a file, a directory nor a link");
    if (++u->members > STORE_MAX_FILES)
        return err_set(u->e, EFBIG, "archive '%s' has more than %u members", u->name,
                       STORE_MAX_FILES);
    return 0;
}

static int check_size(struct unpack *u, uint64_t bytes)
{
    if (bytes > STORE_MAX_BYTES)
        return err_set(u->e, EFBIG, "archive '%s' has more than %llu GB in it", u->name,
                       (unsigned long long)(STORE_MAX_BYTES >> 30));
    int64_t packed = archive_filter_bytes(u->in, -1);
    if (bytes > BOMB_MIN && packed >= 0 && bytes / BOMB_RATIO > (uint64_t)packed)
        return err_set(u->e, EFBIG, "archive '%s' unpacks to over %d times its size", u->name,
                       BOMB_RATIO);
    return 0;
}

static int copy_data(struct unpack *u, const char *path)
{
    uint64_t end = 0;
    for (;;) {
        const void *p;
        size_t len;
        int64_t at;
        int rc = archive_read_data_block(u->in, &p, &len, &at);
        if (rc == ARCHIVE_EOF)
            break;
        if (rc < ARCHIVE_WARN)
            return fail_in(u);
        end = (uint64_t)at + len;
        rc = check_size(u, u->bytes + end);
        if (rc < 0)
            return rc;
        if (archive_write_data_block(u->out, p, len, at) < ARCHIVE_WARN)
            return fail_out(u, path);
    }
    u->bytes += end;
    return 0;
}

static int unpack_member(struct unpack *u, struct archive_entry *x)
{
    int rc = check_member(u, x);
    if (rc < 0)
        return rc;
    const char *path = archive_entry_pathname(x);
    mode_t type = archive_entry_filetype(x);
    /* tony must be able to read all files, and to write into directories. No set-id bits, no
     * owners. */
    mode_t perm = archive_entry_perm(x) & 0777;
    archive_entry_set_perm(x, type == AE_IFDIR ? perm | 0700 : perm | 0400);
    if (archive_write_header(u->out, x) < ARCHIVE_WARN)
        return fail_out(u, path);
    rc = archive_entry_hardlink(x) || type != AE_IFREG ? 0 : copy_data(u, path);
    if (rc == 0 && archive_write_finish_entry(u->out) < ARCHIVE_WARN)
        rc = fail_out(u, path);
    u->files += type != AE_IFDIR;
    return rc;
}

static int open_both(struct unpack *u, const char *archive)
{
    u->in = archive_read_new();
    u->out = archive_write_disk_new();
    if (!u->in || !u->out)
        return err_set(u->e, ENOMEM, "cannot unpack '%s': %m", archive);
    /* Select the filters one by one: some others of libarchive start programs. */
    archive_read_support_filter_gzip(u->in);
    archive_read_support_filter_bzip2(u->in);
    archive_read_support_filter_xz(u->in);
    archive_read_support_filter_lzma(u->in);
    archive_read_support_filter_zstd(u->in);
    archive_read_support_format_tar(u->in);
    archive_read_support_format_zip(u->in);
    archive_write_disk_set_options(
        u->out, ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_SECURE_NODOTDOT |
                    ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS);
    return archive_read_open_filename(u->in, archive, BLOCK) == ARCHIVE_OK ? 0 : fail_in(u);
}

static int unpack(struct unpack *u, const char *archive, const char *dir)
{
    int rc = open_both(u, archive);
    if (rc == 0 && chdir(dir) == -1)
        return err_set(u->e, errno, "cannot unpack into '%s': %m", dir);
    while (rc == 0) {
        struct archive_entry *x;
        int got = archive_read_next_header(u->in, &x);
        if (got == ARCHIVE_EOF)
            break;
        rc = got < ARCHIVE_WARN ? fail_in(u) : unpack_member(u, x);
    }
    /* libarchive sets times and modes of directories only here. */
    if (rc == 0 && archive_write_close(u->out) != ARCHIVE_OK)
        rc = fail_out(u, ".");
    return rc;
}

/* ---- packing ---- */

struct pack {
    const char *root, *file; /* for errors */
    struct archive *out;
    uint64_t bytes;
    uint32_t files;
    struct err *e;
};

static int fail_pack(struct pack *p)
{
    int num = archive_errno(p->out) > 0 ? archive_errno(p->out) : EIO;
    const char *why = archive_error_string(p->out);
    return err_set(p->e, num, "cannot pack '%s' into '%s': %s", p->root, p->file,
                   why ? why : "unknown reason");
}

static int pack_data(struct pack *p, const char *path, const char *name, int64_t size)
{
    static char block[BLOCK];
    AUTO(close_p) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd == -1)
        return err_set(p->e, errno, "cannot read '%s' of '%s': %m", name, p->root);
    for (int64_t left = size; left > 0;) {
        ssize_t n = read(fd, block, (size_t)MIN((int64_t)sizeof block, left));
        if (n <= 0)
            return err_set(p->e, n ? errno : EBUSY, "cannot read '%s' of '%s': %s", name, p->root,
                           n ? strerror(errno) : "it became shorter");
        if (archive_write_data(p->out, block, (size_t)n) < 0)
            return fail_pack(p);
        left -= n;
        p->bytes += (uint64_t)n;
    }
    return 0;
}

static int pack_member(struct pack *p, const FTSENT *f, const char *name)
{
    struct archive_entry *x = archive_entry_new();
    if (!x)
        return err_set(p->e, ENOMEM, "cannot pack '%s': %m", p->root);
    const struct stat *st = f->fts_statp;
    mode_t perm = st->st_mode & 0777;
    archive_entry_set_pathname(x, name);
    archive_entry_set_filetype(x, st->st_mode & S_IFMT);
    /* The user who unpacks it must be able to fill and remove the directories. */
    archive_entry_set_perm(x, S_ISDIR(st->st_mode) ? perm | 0700 : perm | 0400);
    archive_entry_set_mtime(x, st->st_mtim.tv_sec, 0);
    archive_entry_set_size(x, S_ISREG(st->st_mode) ? st->st_size : 0);
    char target[PATH_MAX];
    ssize_t n = S_ISLNK(st->st_mode) ? readlink(f->fts_accpath, target, sizeof target - 1) : 0;
    int rc = n < 0 ? err_set(p->e, errno, "cannot read link '%s' of '%s': %m", name, p->root) : 0;
    if (n > 0) {
        target[n] = 0;
        archive_entry_set_symlink(x, target);
    }
    if (rc == 0 && archive_write_header(p->out, x) < ARCHIVE_WARN)
        rc = fail_pack(p);
    archive_entry_free(x);
    if (rc == 0 && S_ISREG(st->st_mode))
        rc = pack_data(p, f->fts_accpath, name, st->st_size);
    p->files += !S_ISDIR(st->st_mode);
    return rc;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int pack_tree(struct pack *p)
{
    char *const roots[] = { (char *)(uintptr_t)p->root, NULL };
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    if (!fts)
        return err_set(p->e, errno, "cannot read '%s': %m", p->root);
    int rc = 0;
    size_t skip = strlen(p->root);
    for (const FTSENT *f; rc == 0 && (f = fts_read(fts));) {
        const char *name = f->fts_path + skip;
        while (*name == '/')
            name++;
        switch (f->fts_info) {
        case FTS_DP:
            break;
        case FTS_DNR:
        case FTS_ERR:
        case FTS_NS:
            rc = err_set(p->e, f->fts_errno, "cannot read '%s': %s", f->fts_path,
                         strerror(f->fts_errno));
            break;
        case FTS_D:
            if (!*name)
                break; /* the root itself */
            __attribute__((fallthrough));
        case FTS_F:
        case FTS_SL:
        case FTS_SLNONE:
            rc = pack_member(p, f, name);
            break;
        default:
            rc = err_set(p->e, EINVAL, "'%s' is neither a file, a directory nor a link",
                         f->fts_path);
        }
    }
    (void)fts_close(fts); /* the tree was only read */
    return rc;
}

static int pack(struct pack *p)
{
    AUTO(close_p) int fd = open(p->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd == -1)
        return err_set(p->e, errno, "cannot write '%s': %m", p->file);
    p->out = archive_write_new();
    if (!p->out)
        return err_set(p->e, ENOMEM, "cannot pack '%s': %m", p->root);
    int rc = 0;
    /* The fastest level: large files of a job (wheels, models) hardly become smaller. No time in
     * the header: the same tree gives the same archive. */
    if (archive_write_add_filter_gzip(p->out) != ARCHIVE_OK ||
        archive_write_set_options(p->out, "gzip:compression-level=1,gzip:!timestamp") <
            ARCHIVE_WARN ||
        archive_write_set_format_pax_restricted(p->out) != ARCHIVE_OK ||
        archive_write_open_fd(p->out, fd) != ARCHIVE_OK)
        rc = fail_pack(p);
    if (rc == 0)
        rc = pack_tree(p);
    if (rc == 0 && archive_write_close(p->out) != ARCHIVE_OK)
        rc = fail_pack(p);
    (void)archive_write_free(p->out); /* the data was written and closed before */
    return rc;
}

static void print_text(const char *key, const char *text)
{
    printf(",\"%s\":\"", key);
    bool utf8 = span_utf8(span_of(text), NULL);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else
            putchar(c < 0x20 || (c >= 0x80 && !utf8) ? '?' : c);
    }
    putchar('"');
}

static int report(uint64_t bytes, uint32_t files, const struct err *e)
{
    if (!e->num) {
        printf("{\"bytes\":%llu,\"files\":%u}\n", (unsigned long long)bytes, files);
    } else {
        printf("{\"errno\":%d", e->num);
        print_text("message", e->msg);
        print_text("hint", e->hint);
        puts("}");
    }
    return fflush(stdout) == 0 && !e->num ? 0 : 1;
}

int main(int argc, char **argv)
{
    fs_ignore_sigxfsz();
    if (argc == 2 && str_eq(argv[1], "--version"))
        return puts("tony-pack " TONY_VERSION) < 0;
    if (argc == 2 && str_eq(argv[1], "--help"))
        return puts(
                   "tony-pack unpack ARCHIVE DIR\n"
                   "tony-pack pack DIR FILE\n\n"
                   "Unpacks a zip or tar (also gz, bz2, xz, zst) into an empty directory, or packs "
                   "a directory as a tar.gz, for tony.") < 0;
    bool packs = argc == 4 && str_eq(argv[1], "pack");
    if (argc != 4 || !(packs || str_eq(argv[1], "unpack"))) {
        fputs("tony-pack: usage: tony-pack unpack ARCHIVE DIR, or tony-pack pack DIR FILE\n",
              stderr);
        return 2;
    }
    /* If the caller is killed, end at once: the caller's successor removes incomplete files. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* cannot fail with this signal */
    /* Libarchive converts names; if this fails, only ASCII names work. */
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    struct err e = { 0 };
    if (packs) {
        struct pack p = { .root = argv[2], .file = argv[3], .e = &e };
        (void)pack(&p); /* e has the result */
        return report(p.bytes, p.files, &e);
    }
    AUTO(unpack_done) struct unpack u = { .name = argv[2], .e = &e };
    (void)unpack(&u, argv[2], argv[3]); /* e has the result */
    return report(u.bytes, u.files, &e);
}
