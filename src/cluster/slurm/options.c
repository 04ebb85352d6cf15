/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of sbatch that the keys of a job become.
 *
 * sbatch reads a line of the script as words. Blanks separate them, '#' begins a comment, and
 * quotes protect both. A backslash protects the next character, but never a blank outside of
 * quotes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cluster/slurm/slurm_int.h"
#include "conf/conf.h"

enum { MINUTE_MS = 60000 };

static const char blanks[] = " \t";

/* ---- values ---- */

static const char *set_value(const struct conf *c, const char *key)
{
    const char *v = conf_get(c, key);
    return v && *v ? v : NULL;
}

static bool is_default(const struct conf *c, const char *key)
{
    const char *origin = conf_origin(c, key);
    return !origin || str_eq(origin, "default");
}

static bool has_controls(const char *text)
{
    for (; text && *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127)
            return true;
    return false;
}

/* A variable that users set for sbatch. */
static const char *variable_value(const char *variable)
{
    const char *v = getenv(variable);
    return v && *v && !has_controls(v) ? v : NULL;
}

const char *slurm_partition_of(const struct conf *c)
{
    const char *p = set_value(c, "tony.slurm.partition");
    if (!p && !is_default(c, "tony.yarn.queue"))
        p = set_value(c, "tony.yarn.queue");
    if (!p)
        p = variable_value("SBATCH_PARTITION");
    return p;
}

int64_t slurm_limit_ms(const struct conf *c)
{
    return (conf_int(c, "tony.slurm.time-limit") + MINUTE_MS - 1) / MINUTE_MS * MINUTE_MS;
}

/* ---- writing ---- */

static void add_word(struct buf *out, const char *word)
{
    bool plain = !strpbrk(word, " \t'\"\\#");
    (void)buf_adds(out, plain ? "" : "\"");
    for (; *word; word++) {
        if (*word == '"' || *word == '\\')
            (void)buf_addc(out, '\\');
        (void)buf_addc(out, *word);
    }
    (void)buf_adds(out, plain ? "" : "\"");
}

void slurm_add_option(struct buf *out, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    (void)buf_addf(out, "#SBATCH %s=", name);
    add_word(out, value);
    (void)buf_addc(out, '\n');
}

void slurm_add_keys(const struct conf *c, const char *constraint, struct buf *out)
{
    static const struct {
        const char *key, *option, *variable;
    } plain[] = {
        { "tony.slurm.account", "--account", "SBATCH_ACCOUNT" },
        { "tony.slurm.qos", "--qos", "SBATCH_QOS" },
        { "tony.slurm.reservation", "--reservation", "SBATCH_RESERVATION" },
        { "tony.slurm.licenses", "--licenses", NULL },
    };
    if (!constraint)
        constraint = set_value(c, "tony.slurm.constraint");
    if (!constraint)
        constraint = set_value(c, "tony.application.node-label");
    if (!constraint)
        constraint = variable_value("SBATCH_CONSTRAINT");
    slurm_add_option(out, "--partition", slurm_partition_of(c));
    slurm_add_option(out, "--constraint", constraint);
    for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
        const char *v = set_value(c, plain[i].key);
        if (!v && plain[i].variable)
            v = variable_value(plain[i].variable);
        slurm_add_option(out, plain[i].option, v);
    }
    int64_t limit_ms = slurm_limit_ms(c);
    if (limit_ms)
        (void)buf_addf(out, "#SBATCH --time=%lld\n", (long long)limit_ms / MINUTE_MS);
    int64_t nice = conf_int(c, "tony.slurm.nice"),
            priority = conf_int(c, "tony.application.priority");
    if (nice == 0 && priority < 0)
        nice = -priority;
    if (nice)
        (void)buf_addf(out, "#SBATCH --nice=%lld\n", (long long)nice);
}

/* ---- tony.slurm.extra-arguments ---- */

/* Do the quotes of the text come in pairs? If not, they stand for themselves: --comment=it's. */
static bool quotes_are_paired(const char *text)
{
    char open = '\0';
    for (; *text; text++) {
        if (*text == '\\' && text[1])
            text++;
        else if (open ? *text == open : *text == '"' || *text == '\'')
            open = open ? '\0' : *text;
    }
    return !open;
}

static int split_words(const char *text, struct strv *out)
{
    bool paired = quotes_are_paired(text);
    AUTO(buf_done) struct buf word = { 0 };
    char open = '\0';
    bool in_word = false;
    for (; *text || in_word; text++) {
        char c = *text;
        if (!c || (!open && strchr(blanks, c))) {
            if (in_word && (word.failed || strv_push(out, buf_cstr(&word)) < 0))
                return -ENOMEM;
            buf_clear(&word);
            in_word = false;
            if (!c)
                return 0;
            continue;
        }
        in_word = true;
        if (paired && c == '\\' && text[1])
            (void)buf_addc(&word, *++text);
        else if (paired && (open ? c == open : c == '"' || c == '\''))
            open = open ? '\0' : c;
        else
            (void)buf_addc(&word, c);
    }
    return 0;
}

/* The words of an item. "--comment=two words" without quotes is one option: sbatch would refuse the
 * second word. */
static int read_item(const char *item, struct strv *out)
{
    struct strv words = { 0 };
    bool plain = !strpbrk(item, "'\"\\") || !quotes_are_paired(item);
    int rc = split_words(item, &words);
    for (size_t i = 0; rc == 0 && i < words.n; i++) {
        const char *last = out->n ? out->v[out->n - 1] : "";
        if (!plain || words.v[i][0] == '-' || !str_starts(last, "--") || !strchr(last, '=')) {
            rc = strv_push(out, words.v[i]);
            continue;
        }
        char *joined = str_printf("%s %s", last, words.v[i]);
        if (!joined) {
            rc = -ENOMEM;
            continue;
        }
        free(out->v[out->n - 1]);
        out->v[out->n - 1] = joined;
    }
    strv_done(&words);
    return rc;
}

/* Call the function with the words of each item, until it returns an error. */
static int read_extra(const struct conf *c, int (*fn)(const struct strv *words, void *arg),
                      void *arg)
{
    struct strv list = { 0 };
    const char *text = set_value(c, "tony.slurm.extra-arguments");
    int rc = text ? conf_list_parse(span_of(text), &list) : 0;
    for (size_t i = 0; rc >= 0 && i < list.n; i++) {
        struct strv words = { 0 };
        rc = read_item(list.v[i], &words);
        if (rc == 0 && words.n)
            rc = fn(&words, arg);
        strv_done(&words);
    }
    strv_done(&list);
    return MIN(rc, 0);
}

static int add_item(const struct strv *words, void *arg)
{
    struct buf *out = arg;
    (void)buf_adds(out, "#SBATCH");
    for (size_t i = 0; i < words->n; i++) {
        (void)buf_addc(out, ' ');
        add_word(out, words->v[i]);
    }
    (void)buf_addc(out, '\n');
    return 0;
}

void slurm_add_extra(const struct conf *c, struct buf *out)
{
    if (read_extra(c, add_item, out) < 0)
        out->failed = true;
}

/* ---- checks ---- */

/* Is this word the option, or an abbreviation of it? sbatch takes "--arr=0-2", too. */
static bool is_option(const char *word, const char *option)
{
    enum { SHORTEST = 4 }; /* "--ar" */
    size_t n = strcspn(word, "=");
    if (option[1] != '-')
        return strncmp(word, option, 2) == 0;
    return n >= SHORTEST && n <= strlen(option) && strncmp(word, option, n) == 0;
}

static int refuse_option(const char *word, struct err *e)
{
    return err_set(e, EINVAL,
                   "tony.slurm.extra-arguments has '%s', an option that tony sets itself or cannot "
                   "use: a job has one allocation in this cluster, and tony.slurm.requeue says "
                   "whether Slurm may run it again",
                   word);
}

/* Refuse options of sbatch with which the job would run several times, elsewhere or not at all. */
static int check_item(const struct strv *words, void *arg)
{
    static const char *const refused[] = {
        "--array", "-a",        "--requeue", "--no-requeue", "--no-kill", "-k",
        "--wrap",  "--wait",    "-W",        "--test-only",  "--help",    "-h",
        "--usage", "--version", "-V",        "--clusters",   "-M",        "--kill-on-invalid-dep",
    };
    struct err *e = arg;
    for (size_t i = 0; i < words->n; i++)
        for (size_t k = 0; k < ARRAY_LEN(refused); k++)
            if (is_option(words->v[i], refused[k]))
                return refuse_option(words->v[i], e);
    if (words->v[0][0] != '-') {
        (void)err_set(e, EINVAL,
                      "tony.slurm.extra-arguments has '%s', which is no option of sbatch: its "
                      "options begin with '-'",
                      words->v[0]);
        return err_hint(e, "write one option in each item: --mail-type=END");
    }
    return 0;
}

/* A line break would end the line of the script. */
static int check_line(const struct conf *c, const char *key, struct err *e)
{
    if (!has_controls(conf_get(c, key)))
        return 0;
    (void)err_set(e, EINVAL,
                  "%s: the value of %s contains a line break or another control character, which "
                  "sbatch cannot read in an option",
                  conf_origin(c, key), key);
    return err_hint(e, "write the value in one line");
}

int slurm_check_options(const struct conf *c, const struct job_spec *s, struct err *e)
{
    static const char *const keys[] = {
        "tony.slurm.partition",  "tony.slurm.account",         "tony.slurm.qos",
        "tony.slurm.constraint", "tony.slurm.nodelist",        "tony.slurm.exclude",
        "tony.slurm.licenses",   "tony.slurm.gpu-type",        "tony.slurm.reservation",
        "tony.yarn.queue",       "tony.slurm.extra-arguments", "tony.application.node-label",
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(keys); i++)
        rc = check_line(c, keys[i], e);
    for (size_t i = 0; rc == 0 && i < s->n_roles; i++) {
        AUTO(free_p) char *key = str_printf("tony.%s.node-label", s->roles[i].name);
        rc = key ? check_line(c, key, e) : err_set(e, ENOMEM, "no memory to check the job");
    }
    if (rc == 0)
        rc = read_extra(c, check_item, e);
    if (rc == -ENOMEM)
        return err_set(e, ENOMEM, "no memory to check the job");
    return rc;
}
