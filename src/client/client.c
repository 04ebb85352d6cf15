/* SPDX-License-Identifier: Apache-2.0 */
#include "client/client.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "loop/loop.h"

int client_open_paths(struct client *c, struct err *e)
{
    if (c->have_paths && !c->looks_only)
        return 0;
    struct paths p;
    int rc = paths_open(&p, e);
    if (rc < 0)
        return rc;
    if (c->have_paths)
        paths_done(&c->paths);
    c->paths = p;
    c->have_paths = true;
    c->looks_only = false;
    /* The client may start the pool, which runs in another directory: it needs an absolute path. */
    return setenv("TONY_HOME", c->paths.home, 1) == 0
               ? 0
               : err_set(e, ENOMEM, "cannot set TONY_HOME: %m");
}

static bool can_be_looked_at(int num)
{
    return num == EROFS || num == EACCES || num == EPERM || fs_no_room(num);
}

int client_look_paths(struct client *c, struct err *e)
{
    if (c->have_paths || client_open_paths(c, e) == 0)
        return 0;
    if (!can_be_looked_at(e->num) || paths_open_read_only(&c->paths, NULL) < 0)
        return -e->num;
    c->have_paths = c->looks_only = true;
    c->not_opened = *e;
    err_clear(e);
    return 0;
}

struct loop *client_loop(struct client *c, struct err *e)
{
    if (!c->loop)
        c->loop = loop_new(e);
    return c->loop;
}

static int unknown_command(const char *name)
{
    enum { COMMANDS_MAX = 64 };
    const char *names[COMMANDS_MAX];
    size_t n;
    const struct command *table = command_table(&n);
    n = MIN(n, (size_t)COMMANDS_MAX);
    for (size_t i = 0; i < n; i++)
        names[i] = table[i].name;

    struct err e;
    (void)err_set(
        &e, EINVAL,
        name[0] == '-' ? "unknown option '%s' before the command" : "unknown command '%s'", name);
    const char *near = str_nearest(name, names, n);
    if (near)
        err_hint(&e, "did you mean 'tony %s'?", near);
    else
        err_hint(&e, "tony help lists the commands");
    return client_fail(EXIT_MISUSE, &e);
}

/* Check the number of arguments, and whether the first one is a subcommand of this command. */
static int check_args(const struct client *c, struct err *e)
{
    const struct command *cmd = c->cmd;
    if (c->o.n_args < cmd->min_args)
        err_set(e, EINVAL, "tony %s needs %s", cmd->name,
                cmd->words ? "a subcommand" : "an argument");
    else if (c->o.n_args > cmd->max_args)
        err_set(e, EINVAL, "tony %s does not understand '%s'", cmd->name, c->o.args[cmd->max_args]);
    else
        return 0;
    return err_hint(e, "usage: tony %s", cmd->usage);
}

static int run_command(struct client *c, int argc, char **argv)
{
    struct err e = { 0 };
    if (options_parse(argc, argv, c->cmd->options | OPT_BIT(OPT_HELP), &c->o, &e) < 0) {
        if (!e.hint[0])
            err_hint(&e, "usage: tony %s", c->cmd->usage);
        return client_fail(EXIT_MISUSE, &e);
    }
    if (options_has(&c->o, OPT_HELP)) {
        c->o.n_args = 0;
        return cmd_help(c);
    }
    if (check_args(c, &e) < 0)
        return client_fail(EXIT_MISUSE, &e);
    return c->cmd->fn(c);
}

int client_main(int argc, char **argv, const char *version)
{
    bool color = !getenv("NO_COLOR") && !str_eq(getenv("TERM"), "dumb");
    struct client c = {
        .version = version,
        .tty = isatty(STDERR_FILENO) && !str_eq(getenv("TERM"), "dumb"),
        .color = color && isatty(STDERR_FILENO),
        .out_color = color && isatty(STDOUT_FILENO),
    };

    /* Drop mask bits for the owner: tony must be able to use its own files. */
    (void)umask(umask(077) & 077);
    const char *site = getenv("TONY_CONF_DIR");
    AUTO(free_p) char *site_dir = site && *site && *site != '/' ? realpath(site, NULL) : NULL;
    if (site_dir) /* absolute: the pool inherits it and runs in another directory */
        /* This fails only without memory, which a later step reports. */
        (void)setenv("TONY_CONF_DIR", site_dir, 1);

    const char *word = argc > 1 ? argv[1] : "";
    if (str_eq(word, "--help") || str_eq(word, "-h") || str_eq(word, "-help"))
        word = "help";
    else if (str_eq(word, "--version") || str_eq(word, "-version"))
        word = "version";

    int code;
    if (!word[0]) {
        struct err e;
        (void)err_set(&e, EINVAL, "no command given");
        err_hint(&e, "tony run JOBFILE runs a job; tony help lists the commands");
        code = client_fail(EXIT_MISUSE, &e);
    } else if (!(c.cmd = command_find(word))) {
        code = unknown_command(word);
    } else {
        code = run_command(&c, argc - 2, argv + 2);
    }

    options_done(&c.o);
    if (c.have_paths)
        paths_done(&c.paths);
    loop_free(c.loop);
    return code;
}
