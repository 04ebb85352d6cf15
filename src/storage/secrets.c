/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"

static int too_large(struct err *e)
{
    return err_set(e, E2BIG, "the secrets of the job have more than %d bytes together",
                   SECRETS_TEXT_MAX);
}

static int add(struct buf *out, struct span name, struct span value, struct err *e)
{
    if (value.len >= SECRETS_TEXT_MAX || out->len + name.len + value.len + 2 > SECRETS_TEXT_MAX)
        return too_large(e);
    (void)buf_add(out, name.p, name.len);
    (void)buf_addc(out, '=');
    (void)buf_add(out, value.p, value.len);
    return buf_addc(out, '\0') == 0 ? 0
                                    : err_set(e, ENOMEM, "no memory for the secrets of the job");
}

/* ---- the client: reading the values ---- */

static int add_variable(struct span name, const char *variable, struct buf *out, struct err *e)
{
    const char *value = getenv(variable);
    if (!value || !*value)
        return err_set(e, EINVAL, "secret '%.*s': the environment variable '%s' is %s",
                       (int)name.len, name.p, variable, value ? "empty" : "not set");
    return add(out, name, span_of(value), e);
}

static int warn_readable(const char *path, struct strv *warnings)
{
    struct stat st;
    if (stat(path, &st) == -1 || !S_ISREG(st.st_mode) || !(st.st_mode & (S_IRGRP | S_IROTH)))
        return 0;
    return strv_pushf(warnings,
                      "other users can read '%s', which has a secret; chmod 600 forbids it", path);
}

static int add_file(struct span name, const char *path, struct buf *out, struct strv *warnings,
                    struct err *e)
{
    struct buf text = { .max = SECRETS_TEXT_MAX };
    const char *home = str_starts(path, "~/") ? getenv("HOME") : NULL;
    AUTO(free_p) char *full = home ? fs_join(home, path + 2) : str_dup(path);
    if (!full)
        return err_set(e, ENOMEM, "no memory to read the secrets of the job");
    path = full;
    int rc = fs_read(AT_FDCWD, path, &text, e);
    struct span value = buf_span(&text);
    if (rc == -EFBIG)
        rc = too_large(e);
    if (rc == 0 && value.len && value.p[value.len - 1] == '\n')
        value.len--;
    if (rc == 0 && value.len == 0)
        rc = err_set(e, EINVAL, "file '%s' is empty", path);
    if (rc == 0 && memchr(value.p, '\0', value.len))
        rc = err_set(e, EINVAL, "file '%s' has a NUL byte, which no variable can have", path);
    if (rc == 0)
        rc = add(out, name, value, e);
    else
        (void)err_wrap(e, rc, "secret '%.*s'", (int)name.len, name.p);
    secrets_wipe(&text);
    if (rc == 0 && warn_readable(path, warnings) < 0)
        rc = err_set(e, ENOMEM, "no memory to read the secrets of the job");
    return rc;
}

/* Split "NAME=env:SOURCE" or "NAME=file:SOURCE". Returns the source. */
static const char *split(const char *ref, struct span *out_name, bool *out_file)
{
    struct span from = span_of(ref);
    (void)span_split(&from, '=', out_name);
    *out_file = span_starts(from, "file:");
    return strchr(ref + out_name->len, ':') + 1; /* build_secrets() has checked it */
}

int secrets_gather(const struct strv *refs, struct buf *out, struct strv *warnings, struct err *e)
{
    int rc = 0;
    out->max = SECRETS_TEXT_MAX;
    for (size_t i = 0; rc == 0 && i < refs->n; i++) {
        struct span name;
        bool file;
        const char *source = split(refs->v[i], &name, &file);
        rc = file ? add_file(name, source, out, warnings, e) : add_variable(name, source, out, e);
    }
    return rc;
}

void secrets_hide_sources(const struct strv *refs)
{
    static const char *const needed[] = { "PATH",    "HOME",           "USER",
                                          "LOGNAME", "SHELL",          "LANG",
                                          "TZ",      "TMPDIR",         "LD_LIBRARY_PATH",
                                          "TERM",    "XDG_RUNTIME_DIR" };
    for (size_t i = 0; i < refs->n; i++) {
        struct span name;
        bool file, keep = false;
        const char *source = split(refs->v[i], &name, &file);
        for (size_t k = 0; k < ARRAY_LEN(needed); k++)
            keep = keep || str_eq(source, needed[k]);
        if (!file && !keep && !str_starts(source, "TONY_"))
            (void)unsetenv(source); /* it fails only for names that cannot be set */
    }
}

/* ---- the job's directory ---- */

int secrets_load(const char *job_dir, struct buf *out, struct err *e)
{
    AUTO(free_p) char *path = fs_join(job_dir, SECRETS_FILE);
    out->max = SECRETS_TEXT_MAX;
    return path ? fs_read(AT_FDCWD, path, out, e)
                : err_set(e, ENOMEM, "no memory to read the secrets of the job");
}

void secrets_remove(const char *job_dir)
{
    AUTO(free_p) char *path = fs_join(job_dir, SECRETS_FILE);
    if (path)
        (void)unlink(path); /* most jobs have none */
}

/* ---- the environment ---- */

int secrets_add_to(struct span text, struct strv *env)
{
    int rc = 0;
    while (rc == 0 && text.len) {
        const char *end = memchr(text.p, '\0', text.len);
        const char *eq = end ? memchr(text.p, '=', (size_t)(end - text.p)) : NULL;
        if (!eq || eq == text.p)
            return -EBADMSG;
        AUTO(free_p) char *name = span_dup(span_mem(text.p, (size_t)(eq - text.p)));
        rc = name ? strv_env_set(env, name, eq + 1) : -ENOMEM;
        size_t n = (size_t)(end - text.p) + 1;
        text = span_mem(text.p + n, text.len - n);
    }
    return rc;
}

void secrets_wipe(struct buf *text)
{
    if (text->p)
        explicit_bzero(text->p, text->cap);
    buf_done(text);
}
