/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tony pool enable`: the systemd unit that starts the pool of a user after a boot. tony writes the
 * file of the unit, and a symbolic link that enables it. `systemctl enable` would do the same, but
 * needs a running manager. The unit only starts the pool. The pool then moves into a scope of its
 * own (cgroup/place.h), so stopping the unit stops no job.
 *
 * A user's manager ends at the last logout unless the user lingers, and kills all that runs below
 * it. So without lingering the unit starts nothing. Then the first command after a boot starts the
 * pool in its login session, and processes of a session survive the logout.
 */
#include "client/pool/pool_unit.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/base.h"
#include "cgroup/scope.h"
#include "client/client_int.h"

#define UNIT "tony-pool.service"

struct unit {
    char *file, *wants_dir, *link;
};

static void unit_done(struct unit *u)
{
    free(u->file);
    free(u->wants_dir);
    free(u->link);
}

static int unit_paths(struct unit *u, struct err *e)
{
    bool root = geteuid() == 0;
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    AUTO(free_p)
    char *dir = root                         ? str_dup("/etc/systemd/system")
                : config && config[0] == '/' ? fs_join(config, "systemd/user")
                : home && home[0] == '/'     ? fs_join(home, ".config/systemd/user")
                                             : NULL;
    if (!dir)
        return err_set(e, ENOENT, "cannot find the directory of your units: HOME is not set");
    u->file = fs_join(dir, UNIT);
    u->wants_dir = fs_join(dir, root ? "multi-user.target.wants" : "default.target.wants");
    u->link = u->wants_dir ? fs_join(u->wants_dir, UNIT) : NULL;
    return u->file && u->link ? 0 : err_set(e, ENOMEM, "cannot make a unit: %m");
}

/* Add a quoted word. systemd replaces %x and, in a command, $x. */
static void add_word(struct buf *b, const char *prefix, const char *value, bool in_command)
{
    (void)buf_addf(b, "\"%s", prefix);
    for (const char *s = value; *s; s++) {
        if (*s == '"' || *s == '\\')
            (void)buf_addc(b, '\\');
        if (*s == '%' || (*s == '$' && in_command))
            (void)buf_addc(b, *s);
        (void)buf_addc(b, *s);
    }
    (void)buf_addc(b, '"');
}

static int unit_text(const struct client *c, struct buf *out, struct err *e)
{
    static const char *const kept[] = { "TONY_CONF_DIR", "PATH", "LANG" };
    AUTO(free_p) char *program = paths_program("tony-pool");
    if (!program)
        return err_set(e, ENOENT, "cannot find the program 'tony-pool' beside this one or on PATH");
    (void)buf_adds(out,
                   "[Unit]\nDescription=tony: the pool, and the jobs that ran when the machine "
                   "stopped\n");
    if (geteuid() != 0)
        (void)buf_adds(out, "ConditionPathExists=/var/lib/systemd/linger/%u\n");
    (void)buf_adds(out, "\n[Service]\nType=forking\nKillMode=process\nDelegate=yes\nEnvironment=");
    add_word(out, "TONY_HOME=", c->host.paths.home, false);
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        const char *value = getenv(kept[i]);
        if (!value || strchr(value, '\n'))
            continue;
        AUTO(free_p) char *prefix = str_printf("%s=", kept[i]);
        (void)buf_adds(out, "\nEnvironment=");
        add_word(out, prefix ? prefix : "", value, false);
    }
    (void)buf_adds(out, "\nExecStart=");
    add_word(out, "", program, true);
    (void)buf_addf(out, "\n\n[Install]\nWantedBy=%s\n",
                   geteuid() == 0 ? "multi-user.target" : "default.target");
    return out->failed ? err_set(e, ENOMEM, "cannot make a unit: %m") : 0;
}

static int enable_unit(const struct client *c, const struct unit *u, struct err *e)
{
    AUTO(buf_done) struct buf text = { 0 };
    int rc = unit_text(c, &text, e);
    if (rc == 0)
        rc = fs_mkdirs(u->wants_dir, 0755, e);
    if (rc == 0)
        rc = fs_write_atomic(AT_FDCWD, u->file, buf_span(&text), 0644, true, e);
    if (rc == 0 && symlink("../" UNIT, u->link) == -1 && errno != EEXIST)
        rc = err_set(e, errno, "cannot make the link '%s': %m", u->link);
    return rc;
}

static int disable_unit(const struct unit *u, struct err *e)
{
    const char *const paths[] = { u->link, u->file };
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        if (unlink(paths[i]) == -1 && errno != ENOENT)
            return err_set(e, errno, "cannot remove '%s': %m", paths[i]);
    return 0;
}

/* The file says that jobs continue after a boot even if they do not ask for it (pool/boot.c). */
static int mark_enabled(const struct client *c, bool enable, struct err *e)
{
    AUTO(free_p) char *path = fs_join(c->host.paths.pool, "enabled");
    if (!path)
        return err_set(e, ENOMEM, "cannot enable the pool: %m");
    if (enable)
        return fs_write_atomic(AT_FDCWD, path, span_of(""), 0600, true, e);
    return unlink(path) == 0 || errno == ENOENT ? 0
                                                : err_set(e, errno, "cannot remove '%s': %m", path);
}

int pool_unit_for_job(struct client *c, struct err *e)
{
    AUTO(unit_done) struct unit u = { 0 };
    int rc = host_open_paths(&c->host, e);
    if (rc == 0)
        rc = unit_paths(&u, e);
    if (rc < 0 || access(u.link, F_OK) == 0)
        return rc;
    rc = enable_unit(c, &u, e);
    if (rc == 0)
        client_note("the pool starts %s from now on ('%s'; tony pool disable ends that)",
                    geteuid() == 0 || scope_user_lingers()
                        ? "with the machine"
                        : "with your first tony command after a boot, or with the machine after "
                          "`loginctl enable-linger`,",
                    u.file);
    return rc;
}

int pool_unit(struct client *c, bool enable)
{
    struct err e = { 0 };
    AUTO(unit_done) struct unit u = { 0 };
    int rc = host_open_paths(&c->host, &e);
    if (rc == 0)
        rc = unit_paths(&u, &e);
    if (rc == 0)
        rc = enable ? enable_unit(c, &u, &e) : disable_unit(&u, &e);
    if (rc == 0)
        rc = mark_enabled(c, enable, &e);
    if (rc < 0)
        return client_fail(EXIT_CLUSTER, &e);
    bool boots = enable && (geteuid() == 0 || scope_user_lingers());
    if (options_has(&c->o, OPT_JSON))
        return client_print_json(json_pack("{s:b, s:s, s:b}", "enabled", enable, "unit", u.file,
                                           "starts_at_boot", boots));
    if (!enable)
        client_note("the pool does not start with the machine");
    else if (boots)
        client_note("the pool starts with the machine, and continues the jobs that ran ('%s')",
                    u.file);
    else
        client_note(
            "the pool starts with your first tony command after a boot, and continues the "
            "jobs that ran. To start it with the machine ('%s'): loginctl enable-linger (if "
            "that is refused, root: loginctl enable-linger NAME)",
            u.file);
    return EXIT_DONE;
}
