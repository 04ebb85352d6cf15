/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/util.h"

#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define BLANKS " \t"

bool command_needs_shell(const char *text)
{
    if (strpbrk(text, "|&;<>()$`\\\"'*?[]{}#~!\n\r"))
        return true;
    const char *word = text + strspn(text, BLANKS);
    size_t len = strcspn(word, BLANKS);
    return len == 0 || memchr(word, '=', len);
}

/* Split a command that needs no shell into its words. */
static int command_split(const char *text, struct strv *out)
{
    for (const char *p = text + strspn(text, BLANKS); *p;) {
        size_t len = strcspn(p, BLANKS);
        int rc = strv_take(out, strndup(p, len));
        if (rc < 0)
            return rc;
        p += len;
        p += strspn(p, BLANKS);
    }
    return 0;
}

static bool is_file(const char *path, bool executable)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (!executable || access(path, X_OK) == 0);
}

char *command_on_path(const char *word, const char *path)
{
    struct span rest = span_of(path ? path : PATH_DEFAULT), dir;
    while (span_split(&rest, ':', &dir)) {
        if (dir.len == 0 || dir.p[0] != '/')
            /* Skip relative entries: the current directory of the task differs from that of the
             * executor. */
            continue;
        char *full = str_printf("%.*s/%s", (int)dir.len, dir.p, word);
        if (full && is_file(full, true))
            return full;
        free(full);
    }
    return NULL;
}

/* Find a file in the working directory. If the file is not executable, make it executable, as the
 * original TonY does. */
static char *find_in_workdir(const char *word, const char *workdir)
{
    char *full = str_printf("%s/%s", workdir, word);
    struct stat st;
    if (!full || lstat(full, &st) == -1 || (S_ISLNK(st.st_mode) && !is_file(full, true)) ||
        (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))) {
        free(full);
        return NULL;
    }
    if (S_ISREG(st.st_mode) && !(st.st_mode & S_IXUSR))
        (void)chmod(full,
                    (st.st_mode | S_IXUSR | S_IXGRP) & 07777); /* if it fails, execve() does */
    return full;
}

static char *resolve(const char *word, const char *workdir, const struct strv *env)
{
    if (word[0] == '/')
        return is_file(word, true) ? str_dup(word) : NULL;
    char *found = strchr(word, '/') ? NULL : command_on_path(word, strv_env_get(env, "PATH"));
    return found ? found : find_in_workdir(word, workdir);
}

static char *shell(void)
{
    return str_dup(access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh");
}

/* Does the task need Hadoop's class path? Yes if Hadoop is installed. The original TonY sets it for
 * every command. */
static bool wants_hadoop(const struct strv *env)
{
    const char *home = strv_env_get(env, "HADOOP_HDFS_HOME");
    if (!home || !home[0] || strv_env_get(env, "SKIP_HADOOP_PATH"))
        return false;
    AUTO(free_p) char *program = str_printf("%s/bin/hadoop", home);
    return program && is_file(program, true);
}

static int wrap_hadoop(struct command *c)
{
    struct strv argv = { 0 };
    char *sh = shell();
    int rc = sh ? strv_push(&argv, sh) : -ENOMEM;
    if (rc == 0)
        rc = strv_push(&argv, "-c");
    if (rc == 0)
        rc = strv_push(&argv, "CLASSPATH=$(\"$HADOOP_HDFS_HOME/bin/hadoop\" classpath --glob); "
                              "export CLASSPATH; exec \"$@\"");
    if (rc == 0)
        rc = strv_push(&argv, "tony");
    if (rc == 0)
        rc = strv_push(&argv, c->path);
    for (size_t i = 1; rc == 0 && i < c->argv.n; i++)
        rc = strv_push(&argv, c->argv.v[i]);
    strv_done(&c->argv);
    free(c->path);
    c->argv = argv;
    c->path = sh;
    return rc;
}

/* A shell does not search the current directory. If the first word is a file there, put "./" in
 * front, so that "run.sh 'a b'" finds the same file as "run.sh a". */
static char *for_shell(const char *text, const char *word, const char *path, const char *workdir)
{
    AUTO(free_p) char *here = str_printf("%s/%s", workdir, word);
    bool found_here = here && path && !strchr(word, '/') && str_eq(path, here);
    return str_printf("%s%s", found_here ? "./" : "", text + strspn(text, BLANKS));
}

int command_prepare(const char *text, const char *workdir, const struct strv *env,
                    struct command *out, struct err *e)
{
    struct command c = { 0 };
    int rc = 0;
    bool by_shell = command_needs_shell(text);
    AUTO(free_p)
    char *word = strndup(text + strspn(text, BLANKS), strcspn(text + strspn(text, BLANKS), BLANKS));
    if (!word)
        return err_set(e, ENOMEM, "cannot prepare the command: %m");
    if (!word[0])
        return err_set(e, EINVAL, "the command is empty");
    c.path = strpbrk(word, "'\"$`\\=(){}") ? NULL : resolve(word, workdir, env);
    c.shell = shell();
    if (!by_shell && c.path) {
        rc = command_split(text, &c.argv);
    } else {
        AUTO(free_p) char *line = for_shell(text, word, c.path, workdir);
        free(c.path);
        c.path = shell();
        rc = c.path && line ? strv_push(&c.argv, c.path) : -ENOMEM;
        if (rc == 0)
            rc = strv_push(&c.argv, "-c");
        if (rc == 0)
            rc = strv_push(&c.argv, line);
    }
    if (rc == 0 && wants_hadoop(env))
        rc = wrap_hadoop(&c);
    if (rc < 0 || !c.path || !c.shell) {
        command_done(&c);
        return err_set(e, ENOMEM, "cannot prepare the command: %m");
    }
    *out = c;
    return 0;
}

void command_done(struct command *c)
{
    free(c->path);
    free(c->shell);
    strv_done(&c->argv);
    *c = (struct command){ 0 };
}
