/*
 * tony-pack unpack ARCHIVE DIR: unpack a zip or tar (also gz, bz2, xz, zst) into an existing, empty
 * directory.
 *
 * A program of its own because libarchive and what it needs cost milliseconds at each start. The
 * result is one line of JSON on stdout, {"bytes":N,"files":N} or
 * {"errno":N,"message":"..","hint":".."}; it ends with 0, 1 or, misused, 2. The archive may come
 * from anywhere: members that leave the directory by name or through a link, devices, and bombs are
 * refused. Modes (0777), times and links are kept, owners are not. What was unpacked before a
 * refusal stays, for the caller to remove.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "storage/store.h"

enum {
    BLOCK = 256 * 1024,
    /* gzip can reach 1030 and nothing honest above a GiB comes near 200 */
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
    (void)archive_read_free(u->in);   /* what matters was closed before */
    (void)archive_write_free(u->out); /* likewise */
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
    enum { SHOWN = 120 }; /* of a name that may be made to fill the sentence */
    (void)err_set(u->e, EINVAL, "archive '%s' is refused: its member '%.*s%s' %s", u->name, SHOWN,
                  member, strlen(member) > SHOWN ? "..." : "", why);
    return err_hint(u->e, "nothing of it was used");
}

/* Below the directory by its very spelling? */
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
    /* We have to be able to read it, and to write into directories. No set-id bits, no owners. */
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
    /* By name, as some of libarchive's filters would start programs. */
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
    /* Times and modes of directories are set here. */
    if (rc == 0 && archive_write_close(u->out) != ARCHIVE_OK)
        rc = fail_out(u, ".");
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

static int report(const struct unpack *u)
{
    if (!u->e->num) {
        printf("{\"bytes\":%llu,\"files\":%u}\n", (unsigned long long)u->bytes, u->files);
    } else {
        printf("{\"errno\":%d", u->e->num);
        print_text("message", u->e->msg);
        print_text("hint", u->e->hint);
        puts("}");
    }
    return fflush(stdout) == 0 && !u->e->num ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && str_eq(argv[1], "--version"))
        return puts("tony-pack " TONY_VERSION) < 0;
    if (argc == 2 && str_eq(argv[1], "--help"))
        return puts("tony-pack unpack ARCHIVE DIR\n\n"
                    "Unpacks a zip or tar (also gz, bz2, xz, zst) into an empty directory, for "
                    "tony.") < 0;
    if (argc != 4 || !str_eq(argv[1], "unpack")) {
        fputs("tony-pack: usage: tony-pack unpack ARCHIVE DIR\n", stderr);
        return 2;
    }
    /* The directory is swept when whoever asked is gone. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* cannot fail with this signal */
    (void)setlocale(LC_CTYPE, "C.UTF-8");   /* names in zips are converted; without it only ASCII */
    struct err e = { 0 };
    AUTO(unpack_done) struct unpack u = { .name = argv[2], .e = &e };
    (void)unpack(&u, argv[2], argv[3]); /* e says how it went */
    return report(&u);
}
