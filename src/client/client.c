/* SPDX-License-Identifier: Apache-2.0 */
#include "client/client.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/show/names.h"
#include "conf/conf.h"

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

/* Did the user type a program without the "--" before it, as torchrun and srun accept it? Then the
 * first word is the program, and not a job file. If so, set the hint of e. */
static bool lacks_dashes(const struct client *c, int argc, char *const *argv, struct err *e)
{
    static const char *const files[] = { ".yaml", ".yml", ".xml", ".json" };
    const char *word = c->o.n_args ? c->o.args[0] : NULL;
    bool is_job = !c->cmd->takes_command || !word || access(word, F_OK) == 0;
    for (size_t i = 0; i < ARRAY_LEN(files) && !is_job; i++)
        is_job = str_ends(word, files[i]);
    for (int i = 0; i < argc && !is_job; i++)
        is_job = str_eq(argv[i], "--");
    if (!is_job)
        err_hint(e, "to run a program, write it after '--': tony %s -n 2 -- %s ...", c->cmd->name,
                 word);
    return !is_job;
}

/* A long usage has a newline and blanks for the help; a hint is one line. A very long one would
 * fill the screen. */
static int usage_hint(struct err *e, const struct command *cmd)
{
    enum { SHORT = 200 };
    AUTO(buf_done) struct buf text = { 0 };
    for (const char *p = cmd->usage; *p; p++)
        if (*p > ' ' || (p > cmd->usage && p[-1] > ' '))
            (void)buf_addc(&text, *p > ' ' ? *p : ' ');
    if (text.len > SHORT)
        return err_hint(e, "tony %s --help shows the usage", cmd->name);
    return err_hint(e, "usage: tony %s", buf_cstr(&text));
}

/* The words of the usage for the arguments from number n on: "TASK:PATH LOCAL" of cp. */
static void missing_arguments(const struct command *cmd, size_t n, struct buf *out)
{
    struct span word;
    for (; n < cmd->min_args && usage_argument(cmd->usage, n, &word); n++)
        (void)buf_addf(out, "%s%.*s", out->len ? " " : "", (int)word.len, word.p);
}

/* Check the number of arguments, and whether the first one is a subcommand of this command. */
static int check_args(const struct client *c, struct err *e)
{
    const struct command *cmd = c->cmd;
    AUTO(buf_done) struct buf missing = { 0 };
    size_t n_args = cmd->takes_command ? c->o.n_before : c->o.n_args;
    if (n_args < cmd->min_args && !cmd->words)
        missing_arguments(cmd, n_args, &missing);
    if (missing.len)
        err_set(e, EINVAL, "tony %s needs %s", cmd->name, buf_cstr(&missing));
    else if (n_args < cmd->min_args)
        err_set(e, EINVAL, "tony %s needs a subcommand", cmd->name);
    else if (n_args > cmd->max_args)
        err_set(e, EINVAL, "argument '%s' is one too many for tony %s", c->o.args[cmd->max_args],
                cmd->name);
    else
        return 0;
    return usage_hint(e, cmd);
}

static void note(const char *text, void *arg)
{
    (void)arg;
    client_note("%s", text);
}

/* Draw a bar with the progress of an upload, in place. */
static void draw_sending(const struct cluster_sending *s, void *arg)
{
    enum { WIDTH = 24 };
    struct client *c = arg;
    char bar[WIDTH + 1], a[32], b[32];
    AUTO(buf_done) struct buf out = { 0 };
    size_t full = s->total ? (size_t)(s->sent * WIDTH / s->total) : 0;
    if (!s->n_files) {
        if (c->drawn)
            (void)fs_write_all(STDERR_FILENO, "\r\033[K", 4);
        c->drawn = false;
        return;
    }
    memset(bar, ' ', WIDTH);
    memset(bar, '#', MIN(full, (size_t)WIDTH));
    bar[WIDTH] = 0;
    (void)buf_addf(&out, "\ruploading %u file%s [%s] %s of %s\033[K", s->n_files,
                   s->n_files == 1 ? "" : "s", bar, str_size(s->sent, a, sizeof a),
                   str_size(s->total, b, sizeof b));
    /* An error is ignored: this only shows progress. */
    (void)fs_write_all(STDERR_FILENO, out.p, out.len);
    c->drawn = true;
}

static int run_command(struct client *c, int argc, char **argv)
{
    struct err e = { 0 };
    if (options_parse(argc, argv, c->cmd->options | OPT_BIT(OPT_HELP), &c->o, &e) < 0) {
        if (!lacks_dashes(c, argc, argv, &e) && !e.hint[0])
            usage_hint(&e, c->cmd);
        return client_fail(EXIT_MISUSE, &e);
    }
    if (options_has(&c->o, OPT_HELP)) {
        c->o.n_args = 0;
        return cmd_help(c);
    }
    if (check_args(c, &e) < 0) {
        (void)lacks_dashes(c, argc, argv, &e);
        return client_fail(EXIT_MISUSE, &e);
    }
    (void)snprintf(c->program, sizeof c->program, "tony %s", c->cmd->name);
    c->host.program = c->program;
    c->host.sending = c->tty ? draw_sending : NULL;
    c->host.arg = c;
    c->host.verbose = options_has(&c->o, OPT_VERBOSE);
    c->host.no_checks = options_has(&c->o, OPT_NO_CHECKS);
    return c->cmd->fn(c);
}

int client_main(int argc, char **argv, const char *version)
{
    bool color = !getenv("NO_COLOR") && !str_eq(getenv("TERM"), "dumb");
    struct client c = {
        .host = { .version = version, .note = note },
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
    cluster_ops_close(c.cluster);
    conf_free(c.site);
    names_free(c.names);
    host_done(&c.host);
    return code;
}
