/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tony completion`: the completion scripts of shells, and the words that they offer.
 *
 * The scripts are small. For each word they call `tony completion words -- WORD...` with all words
 * that were typed after `tony`; the last one is the word to complete, and may be empty. This prints
 * one possible word a line. The line ":files" means that file names are possible, too.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "client/client_int.h"
#include "conf/conf.h"
#include "storage/jobfile.h"

enum {
    JOBS_MAX = 100,   /* the newest jobs are offered */
    TASKS_MAX = 1000, /* tasks of each role */
};

/* The words before the word to complete, without options and their values. */
struct typed {
    const struct command *cmd; /* NULL: the command itself is completed */
    const char *app;           /* the first argument; NULL: none yet */
    size_t n_args;
    bool after_option; /* the word is the value of an option */
};

static void offer(struct buf *out, const char *word, const char *prefix)
{
    if (str_starts(word, prefix))
        (void)buf_addf(out, "%s\n", word);
}

static int newest_first(const void *a, const void *b)
{
    int64_t start[2];
    uint32_t number[2];
    const char *const *ids[2] = { a, b };
    for (int i = 0; i < 2; i++)
        (void)app_id_parse(*ids[i], &start[i], &number[i], NULL); /* only ids are in the list */
    if (start[0] != start[1])
        return start[0] > start[1] ? -1 : 1;
    return number[0] == number[1] ? 0 : number[0] > number[1] ? -1 : 1;
}

static void add_ids(const char *dir, struct strv *ids)
{
    DIR *d = opendir(dir);
    int64_t start;
    uint32_t number;
    for (struct dirent *de; d && (de = readdir(d));)
        if (app_id_parse(de->d_name, &start, &number, NULL) == 0)
            (void)strv_push(ids, de->d_name); /* without memory, fewer are offered */
    if (d)
        (void)closedir(d);
}

static void offer_jobs(struct client *c, const char *prefix, struct buf *out)
{
    offer(out, "last", prefix);
    struct err e;
    if (host_look_paths(&c->host, &e) < 0)
        return;
    AUTO(strv_done) struct strv ids = { 0 };
    add_ids(c->host.paths.jobs, &ids);
    add_ids(c->host.paths.history, &ids);
    if (ids.n > 1)
        qsort(ids.v, ids.n, sizeof *ids.v, newest_first);
    for (size_t i = 0; i < ids.n && i < JOBS_MAX; i++)
        offer(out, ids.v[i], prefix);
}

/* The spec of a job of this machine, as it was submitted. NULL: there is none. */
static struct job_spec *spec_of(struct client *c, const char *app)
{
    struct err e;
    char id[APP_ID_MAX];
    AUTO(free_p) char *dir = NULL;
    bool live;
    struct cluster *here = NULL;
    if (client_open(c, cluster_at(0), NULL, &here, &e) < 0 ||
        cluster_ops_of(here)->find(here, app, id, &e) < 0 ||
        paths_find_job(&c->host.paths, id, &dir, &live, &e) < 0)
        return NULL;
    AUTO(free_p) char *path = fs_join(dir, "job.conf");
    AUTO(buf_done) struct buf text = { .max = JOB_FILE_MAX };
    struct job_file *file = NULL;
    struct job_spec *spec = NULL;
    if (path && fs_read(AT_FDCWD, path, &text, &e) == 0 &&
        job_file_decode(buf_span(&text), &file, &e) == 0)
        (void)job_spec_build(file->conf, &spec, &e); /* on failure nothing is offered */
    job_file_free(file);
    return spec;
}

static void offer_roles(struct client *c, const char *app, const char *prefix, bool tasks,
                        struct buf *out)
{
    AUTO(job_spec_freep) struct job_spec *spec = spec_of(c, app);
    for (size_t i = 0; spec && i < spec->n_roles; i++) {
        const struct role_spec *role = &spec->roles[i];
        uint32_t n = tasks ? MIN(role->instances, (uint32_t)TASKS_MAX) : 1;
        for (uint32_t k = 0; k < n; k++) {
            AUTO(free_p)
            char *word = tasks ? str_printf("%s:%u", role->name, k) : str_printf("%s=", role->name);
            if (word)
                offer(out, word, prefix);
        }
    }
}

static void offer_list(const char *words, const char *prefix, struct buf *out)
{
    struct span rest = span_of(words ? words : ""), word;
    while (span_split(&rest, ' ', &word)) {
        AUTO(free_p) char *text = span_dup(word);
        if (text && *text)
            offer(out, text, prefix);
    }
}

bool usage_argument(const char *usage, size_t n, struct span *out)
{
    struct span rest = span_of(usage), word;
    bool found = false;
    size_t i = 0;
    (void)span_split(&rest, ' ', &word); /* the command */
    while (span_split(&rest, ' ', &word)) {
        bool more = span_has(word, "...");
        while (word.len > 0 && strchr("].,", word.p[word.len - 1]))
            word.len--;
        while (word.len > 0 && word.p[0] == '[' && !memchr(word.p, ']', word.len))
            word = span_mem(word.p + 1, word.len - 1); /* but not "[LOCAL:]PORT" */
        if (more && word.len == 0)
            return found; /* "...": the argument before it again */
        if (word.len == 0 || word.p[0] == '-' || span_eqs(word, "options"))
            continue;
        *out = word;
        found = true;
        if (i == n || more)
            return true;
        i++;
    }
    return false;
}

static void offer_argument(struct client *c, const struct typed *t, const char *prefix,
                           struct buf *out)
{
    struct span word;
    if (t->n_args == 0)
        offer_list(t->cmd->words, prefix, out);
    if (!usage_argument(t->cmd->usage, t->n_args, &word))
        return;
    if (span_eqs(word, "APP"))
        offer_jobs(c, prefix, out);
    else if (t->app && span_starts(word, "TASK"))
        offer_roles(c, t->app, prefix, true, out);
    else if (t->app && span_starts(word, "ROLE="))
        offer_roles(c, t->app, prefix, false, out);
    else if (!t->cmd->words)
        (void)buf_adds(out, ":files\n");
}

/* Read the words before the one to complete, which is the last. */
static struct typed read_words(const char *const *words, size_t n)
{
    struct typed t = { 0 };
    for (size_t i = 0; i + 1 < n; i++) {
        if (t.after_option) {
            t.after_option = false;
        } else if (words[i][0] == '-') {
            t.after_option = options_takes_value(words[i]);
        } else if (!t.cmd) {
            t.cmd = command_find(words[i]);
            if (!t.cmd)
                break;
        } else {
            t.app = t.app ? t.app : words[i];
            t.n_args++;
        }
    }
    return t;
}

static void print_words(struct client *c, const char *const *words, size_t n, struct buf *out)
{
    const char *prefix = n ? words[n - 1] : "";
    struct typed t = read_words(words, n);
    if (t.after_option) {
        (void)buf_adds(out, ":files\n");
    } else if (!t.cmd && n <= 1) {
        size_t n_commands;
        const struct command *table = command_table(&n_commands);
        for (size_t i = 0; i < n_commands; i++)
            offer(out, table[i].name, prefix);
    } else if (t.cmd && prefix[0] == '-') {
        AUTO(buf_done) struct buf options = { 0 };
        options_words(t.cmd->options | OPT_BIT(OPT_HELP), &options);
        offer_list(buf_cstr(&options), prefix, out);
    } else if (t.cmd) {
        offer_argument(c, &t, prefix, out);
    }
}

static const struct {
    const char *shell, *script;
} scripts[] = {
    { "bash",
      "# completion of `tony` for bash: source <(tony completion bash)\n"
      "_tony() {\n"
      "    local cur=${COMP_WORDS[COMP_CWORD]} line first files=\n"
      "    # bash splits worker:0 and role=2 at ':' and '='; the completed word is put together "
      "again\n"
      "    local -a words=()\n"
      "    local i joined=\n"
      "    for ((i = 1; i <= COMP_CWORD; i++)); do\n"
      "        if [[ ${COMP_WORDS[i]} == [:=]* || $joined ]] && ((${#words[@]})); then\n"
      "            words[-1]+=${COMP_WORDS[i]}\n"
      "        else\n"
      "            words+=(\"${COMP_WORDS[i]}\")\n"
      "        fi\n"
      "        [[ ${COMP_WORDS[i]} == [:=] ]] && joined=1 || joined=\n"
      "    done\n"
      "    first=${words[-1]%\"$cur\"}\n"
      "    [[ $cur == [:=] ]] && first=${words[-1]} && cur=\n"
      "    COMPREPLY=()\n"
      "    while IFS= read -r line; do\n"
      "        if [[ $line == :files ]]; then files=1; else COMPREPLY+=(\"${line#\"$first\"}\"); "
      "fi\n"
      "    done < <(\"${COMP_WORDS[0]}\" completion words -- \"${words[@]}\" 2>/dev/null)\n"
      "    if [[ $files ]]; then compopt -o filenames; COMPREPLY+=($(compgen -f -- \"$cur\")); fi\n"
      "    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
      "}\n"
      "complete -F _tony tony\n" },
    { "zsh",
      "#compdef tony\n"
      "# completion of `tony` for zsh: source <(tony completion zsh)\n"
      "_tony() {\n"
      "    local -a found\n"
      "    # quoted: the word to complete may be empty\n"
      "    found=(${(f)\"$(${words[1]} completion words -- \"${(@)words[2,$CURRENT]}\" "
      "2>/dev/null)\"})\n"
      "    if (( ${found[(Ie):files]} )); then\n"
      "        found=(${found:#:files})\n"
      "        _files\n"
      "    fi\n"
      "    compadd -- ${found:#*=}\n"
      "    compadd -S '' -- ${(M)found:#*=}\n"
      "}\n"
      "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _tony \"$@\"; else compdef _tony tony; "
      "fi\n" },
    { "fish", "# completion of `tony` for fish: tony completion fish | source\n"
              "function __tony_words\n"
              "    set -l found (tony completion words -- (commandline -opc)[2..-1] (commandline "
              "-ct) 2>/dev/null)\n"
              "    for word in $found\n"
              "        if test $word = :files\n"
              "            __fish_complete_path (commandline -ct)\n"
              "        else\n"
              "            echo $word\n"
              "        end\n"
              "    end\n"
              "end\n"
              "complete -c tony -f -a '(__tony_words)'\n" },
};

int cmd_completion(struct client *c)
{
    const char *what = c->o.args[0];
    if (str_eq(what, "words")) {
        AUTO(buf_done) struct buf out = { 0 };
        print_words(c, c->o.args + 1, c->o.n_args - 1, &out);
        (void)fputs(buf_cstr(&out), stdout);
        return client_flush_stdout();
    }
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        if (str_eq(what, scripts[i].shell)) {
            (void)fputs(scripts[i].script, stdout);
            return client_flush_stdout();
        }
    }
    struct err e;
    (void)err_set(&e, EINVAL, "there is no completion for '%s'", what);
    err_hint(&e, "usage: tony completion bash|zsh|fish");
    return client_fail(EXIT_MISUSE, &e);
}
