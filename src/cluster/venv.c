/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/venv.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/cluster.h"

enum { LINKS_MAX = 16, HEAD = 4096, CFG_MAX = 64 << 10 };

struct look {
    const struct cluster_host *h;
    const char *dir, *binary;
    bool elsewhere;
    struct err *e;
    char path[PATH_MAX]; /* of the interpreter, with all links resolved */
    bool copied; /* the interpreter is a file in the environment itself, not a link out of it */
};

static int remake(struct look *l, int rc)
{
    err_hint(l->e, "make the environment on a machine like this one, with a Python that is there "
                   "too; or ship one that has its own (conda-pack, pex)");
    return rc;
}

/* Report what is missing on this machine. If the job runs elsewhere, print only a note: the other
 * machine may have the missing part. */
static int fail_if_local(struct look *l)
{
    if (!l->elsewhere)
        return remake(l, -EINVAL);
    host_note(l->h, "%s", l->e->msg);
    err_clear(l->e);
    return 0;
}

/* ---- the file ---- */

/* Find the interpreter. Follows links one by one, so that an error can name a broken one. 1: there
 * is no interpreter. */
static int find_binary(struct look *l)
{
    struct stat st;
    char target[PATH_MAX];
    if (!str_copy(l->path, sizeof l->path, l->dir) ||
        strlen(l->dir) + strlen(l->binary) + 2 > PATH_MAX)
        return 1;
    (void)snprintf(l->path + strlen(l->path), sizeof l->path - strlen(l->path), "/%s", l->binary);
    for (int i = 0; i < LINKS_MAX; i++) {
        if (lstat(l->path, &st) == -1)
            return i == 0 ? 1 : -ENOENT;
        if (!S_ISLNK(st.st_mode))
            break;
        ssize_t n = readlink(l->path, target, sizeof target - 1);
        if (n < 0)
            return 1;
        target[n] = '\0';
        char *slash = strrchr(l->path, '/');
        size_t at = target[0] == '/' ? 0 : (size_t)(slash - l->path) + 1;
        if (at + (size_t)n >= sizeof l->path)
            return 1;
        (void)str_copy(l->path + at, sizeof l->path - at, target);
    }
    char *real = realpath(l->path, NULL), *top = realpath(l->dir, NULL);
    if (real)
        (void)str_copy(l->path, sizeof l->path, real);
    l->copied = real && top && str_starts(real, top) && real[strlen(top)] == '/';
    free(real);
    free(top);
    return 0;
}

static const char *machine_name(unsigned machine)
{
    switch (machine) {
    case EM_X86_64:
        return "x86_64";
    case EM_386:
        return "i386";
    case EM_AARCH64:
        return "aarch64";
    case EM_ARM:
        return "arm";
    case EM_PPC64:
        return "ppc64";
    case EM_S390:
        return "s390x";
    case EM_RISCV:
        return "riscv";
    default:
        return "another processor";
    }
}

static size_t read_head(const char *path, unsigned char head[HEAD])
{
    AUTO(close_p) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd == -1 ? -1 : pread(fd, head, HEAD, 0);
    return n < 0 ? 0 : (size_t)n;
}

/* The dynamic loader that the program names; it differs between kinds of systems. "" = none, or not
 * found. */
static void loader_of(const unsigned char *head, size_t n, char *out, size_t size)
{
    Elf64_Ehdr h;
    Elf64_Phdr p;
    out[0] = '\0';
    memcpy(&h, head, sizeof h);
    for (unsigned i = 0; i < h.e_phnum && h.e_ident[EI_CLASS] == ELFCLASS64; i++) {
        size_t at = (size_t)h.e_phoff + (size_t)i * sizeof p;
        if (h.e_phoff > n || at + sizeof p > n)
            return;
        memcpy(&p, head + at, sizeof p);
        if (p.p_type == PT_INTERP && p.p_filesz && p.p_offset < n && p.p_filesz <= n - p.p_offset &&
            p.p_filesz < size) {
            memcpy(out, head + p.p_offset, p.p_filesz);
            out[p.p_filesz - 1] = '\0';
            return;
        }
    }
}

static int check_program(struct look *l)
{
    static const unsigned char mac[][4] = { { 0xcf, 0xfa, 0xed, 0xfe },
                                            { 0xce, 0xfa, 0xed, 0xfe },
                                            { 0xca, 0xfe, 0xba, 0xbe } };
    unsigned char head[HEAD], own[HEAD];
    char loader[256];
    size_t n = read_head(l->path, head);
    for (size_t i = 0; i < ARRAY_LEN(mac); i++)
        if (n >= 4 && memcmp(head, mac[i], 4) == 0)
            return remake(
                l, err_set(l->e, EINVAL, "its interpreter '%s' is a program of macOS", l->binary));
    if (n < sizeof(Elf64_Ehdr) || memcmp(head, ELFMAG, SELFMAG) != 0)
        return 0; /* no ELF file: perhaps a script that starts the interpreter */
    Elf64_Ehdr its, ours;
    memcpy(&its, head, sizeof its);
    if (read_head("/proc/self/exe", own) < sizeof ours)
        return 0;
    memcpy(&ours, own, sizeof ours);
    if (its.e_machine != ours.e_machine)
        return remake(
            l, err_set(l->e, EINVAL, "its interpreter '%s' is for %s, and this machine is %s",
                       l->binary, machine_name(its.e_machine), machine_name(ours.e_machine)));
    loader_of(head, n, loader, sizeof loader);
    if (!loader[0] || access(loader, F_OK) == 0)
        return 0;
    (void)err_set(l->e, EINVAL,
                  "its interpreter '%s' is for another kind of Linux: there is no '%s' here",
                  l->binary, loader);
    return fail_if_local(l);
}

/* ---- the parts of the environment ---- */

static bool has_lib(const char *dir, const char *version)
{
    AUTO(free_p) char *path = str_printf("%s/lib/python%s", dir, version);
    return path && access(path, F_OK) == 0;
}

/* The Python version of the environment's modules, such as "3.11". "" = unknown, or there are
 * several. */
static void made_for(const char *dir, char *out, size_t size)
{
    AUTO(free_p) char *lib = str_printf("%s/lib", dir);
    DIR *d = lib ? opendir(lib) : NULL;
    unsigned n = 0;
    out[0] = '\0';
    for (struct dirent *x; d && (x = readdir(d));) {
        if (!str_starts(x->d_name, "python3.") ||
            strspn(x->d_name + 8, "0123456789") != strlen(x->d_name + 8))
            continue;
        n++;
        (void)str_copy(out, size, x->d_name + 6);
    }
    if (d)
        closedir(d);
    if (n != 1)
        out[0] = '\0';
}

/* The value of a `key = value` line of pyvenv.cfg; "" = the key is missing. */
static void cfg_value(const struct buf *text, const char *key, char *out, size_t size)
{
    struct span rest = buf_span(text), line, name;
    out[0] = '\0';
    while (span_split(&rest, '\n', &line)) {
        (void)span_split(&line, '=', &name);
        if (span_eqs(span_trim(name), key)) {
            AUTO(free_p) char *value = span_dup(span_trim(line));
            (void)str_copy(out, size, value ? value : "");
            return;
        }
    }
}

/* The version of the interpreter, such as "3.11": from its file name, else from pyvenv.cfg. */
static void version_of(const struct look *l, const struct buf *cfg, char *out, size_t size)
{
    const char *name = strrchr(l->path, '/');
    out[0] = '\0';
    if (name && str_starts(name + 1, "python3.") &&
        strspn(name + 9, "0123456789") == strlen(name + 9)) {
        (void)str_copy(out, size, name + 7);
        return;
    }
    char full[64];
    cfg_value(cfg, "version", full, sizeof full);
    if (!full[0])
        cfg_value(cfg, "version_info", full, sizeof full);
    char *dot = strchr(full, '.'), *second = dot ? strchr(dot + 1, '.') : NULL;
    if (second)
        *second = '\0';
    if (dot)
        (void)str_copy(out, size, full);
}

static int check_modules(struct look *l)
{
    AUTO(free_p) char *path = str_printf("%s/pyvenv.cfg", l->dir);
    AUTO(buf_done) struct buf cfg = { .max = CFG_MAX };
    char version[64], lib[64], home[PATH_MAX];
    if (!path || fs_read(AT_FDCWD, path, &cfg, NULL) < 0)
        return 0; /* not made by venv: it has its own modules and libraries */
    version_of(l, &cfg, version, sizeof version);
    made_for(l->dir, lib, sizeof lib);
    if (version[0] && lib[0] && !has_lib(l->dir, version))
        return remake(
            l, err_set(l->e, EINVAL,
                       "its modules are for Python %s, and its interpreter '%s' is Python %s", lib,
                       l->path, version));
    cfg_value(&cfg, "home", home, sizeof home);
    if (!home[0] || access(home, F_OK) == 0)
        return 0;
    (void)err_set(l->e, EINVAL, "the Python that it was made with, in '%s', is not on this machine",
                  home);
    return fail_if_local(l);
}

/* ---- the whole check ---- */

static int missing(struct look *l, const char *named)
{
    AUTO(free_p) char *windows = str_printf("%s/Scripts/python.exe", l->dir);
    if (windows && access(windows, F_OK) == 0)
        return remake(l, err_set(l->e, EINVAL, "it was made on Windows"));
    if (!named)
        return 0; /* The environment may have no Python, or have it in an unusual place. */
    (void)err_set(l->e, EINVAL, "it has no '%s'", named);
    return err_hint(l->e, "tony.application.python-binary-path is relative to the environment");
}

int venv_check(const struct cluster_host *h, const char *dir, const char *binary, bool elsewhere,
               struct err *e)
{
    static const char *const usual[] = { "bin/python3", "bin/python" };
    bool named = binary && *binary && *binary != '/';
    struct look l = { .h = h, .dir = dir, .elsewhere = elsewhere, .e = e };
    int rc = 1;
    for (size_t i = 0; i < (named ? 1 : ARRAY_LEN(usual)) && rc == 1; i++) {
        l.binary = named ? binary : usual[i];
        rc = find_binary(&l);
    }
    if (rc == 1)
        return missing(&l, named ? binary : NULL);
    if (rc == -ENOENT) {
        (void)err_set(e, EINVAL, "its interpreter '%s' leads to '%s', which is not on this machine",
                      l.binary, l.path);
        return fail_if_local(&l);
    }
    rc = check_program(&l);
    return rc == 0 ? check_modules(&l) : rc;
}

int venv_check_archive(const char *path, struct err *e)
{
    unsigned char head[HEAD];
    if (read_head(path, head) < 2 || memcmp(head, "#!", 2) != 0)
        return 0;
    (void)err_set(e, EINVAL, "'%s' is a program, not an environment", path);
    return err_hint(
        e, "a pex or shiv file runs as it is: put it into src or resources, and name it in "
           "the command");
}
