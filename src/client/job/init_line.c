/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Translates a line of torchrun, mpiexec, mpirun or srun into a job file.
 *
 * An option with a value must stand in a table below, also if job files have nothing like it:
 * otherwise its value would be taken for the program.
 */
#include "client/job/init.h"

#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"

enum {
    WORDS_MAX = 512,
    NUMBER_MAX = 100000,
};

/* Split a line as a shell does, with quotes and backslashes, without expansions. */
static int split(const char *line, struct strv *out, struct err *e)
{
    AUTO(buf_done) struct buf word = { 0 };
    bool in_word = false;
    char quote = '\0';
    int rc = 0;
    for (const char *p = line;; p++) {
        bool blank = *p == ' ' || *p == '\t' || *p == '\n' || *p == '\0';
        if (quote && *p == '\0')
            return err_set(e, EINVAL,
                           "the line has an opening quotation mark without a closing one");
        if (!quote && blank) {
            if (in_word && rc == 0)
                rc = strv_push(out, buf_cstr(&word));
            in_word = false;
            buf_clear(&word);
        } else if (!quote && (*p == '\'' || *p == '"')) {
            quote = *p;
            in_word = true;
        } else if (quote && *p == quote) {
            quote = '\0';
        } else {
            if (*p == '\\' && quote != '\'' && p[1] && *++p == '\n')
                continue;
            in_word = true;
            rc = rc < 0 ? rc : buf_addc(&word, *p);
        }
        if (rc < 0 || out->n > WORDS_MAX)
            return err_set(e, rc < 0 ? -rc : E2BIG, "cannot read the line: %m");
        if (*p == '\0')
            return 0;
    }
}

/* ---- the options of the launchers ---- */

enum number {
    INSTANCES,
    RANKS,
    GPUS,
    VCORES,
    RESTARTS,
    NODES,    /* of srun */
    PER_NODE, /* tasks on each node */
    MEMORY,
    ENV,       /* NAME=VALUE */
    MODULE,    /* a switch: the program is a Python module */
    NO_PYTHON, /* a switch: the program is not a Python script */
    SKIP,      /* its value has no counterpart */
    SKIP_TWO,  /* two values */
};

struct flag {
    const char *name; /* '-' and '_' are equal */
    enum number sets;
};
static const struct flag torchrun_flags[] = {
    { "--nnodes", INSTANCES },
    { "--nproc-per-node", RANKS },
    { "--max-restarts", RESTARTS },
    { "-m", MODULE },
    { "--module", MODULE },
    { "--no-python", NO_PYTHON },
    { "--master-addr", SKIP },
    { "--master-port", SKIP },
    { "--node-rank", SKIP },
    { "--local-addr", SKIP },
    { "--rdzv-backend", SKIP },
    { "--rdzv-endpoint", SKIP },
    { "--rdzv-id", SKIP },
    { "--rdzv-conf", SKIP },
    { "--monitor-interval", SKIP },
    { "--start-method", SKIP },
    { "--role", SKIP },
    { "--log-dir", SKIP },
    { "--redirects", SKIP },
    { "-r", SKIP },
    { "--tee", SKIP },
    { "-t", SKIP },
    { "--local-ranks-filter", SKIP },
    { "--logs-specs", SKIP },
};
/* Of MPICH and Open MPI. */
static const struct flag mpiexec_flags[] = {
    { "-n", INSTANCES },      { "-np", INSTANCES },  { "-c", INSTANCES },   { "--n", INSTANCES },
    { "--np", INSTANCES },    { "-x", ENV },         { "-hostfile", SKIP }, { "--hostfile", SKIP },
    { "-machinefile", SKIP }, { "-f", SKIP },        { "-host", SKIP },     { "-hosts", SKIP },
    { "--host", SKIP },       { "-H", SKIP },        { "-ppn", SKIP },      { "-npernode", SKIP },
    { "--map-by", SKIP },     { "-map-by", SKIP },   { "--bind-to", SKIP }, { "-bind-to", SKIP },
    { "--rank-by", SKIP },    { "-wdir", SKIP },     { "--wdir", SKIP },    { "-iface", SKIP },
    { "-launcher", SKIP },    { "--mca", SKIP_TWO }, { "-mca", SKIP_TWO },  { "-env", SKIP_TWO },
    { "-genv", SKIP_TWO },
};
static const struct flag srun_flags[] = {
    { "-n", INSTANCES },
    { "--ntasks", INSTANCES },
    { "-N", NODES },
    { "--nodes", NODES },
    { "--ntasks-per-node", PER_NODE },
    { "--gpus-per-task", GPUS },
    { "-c", VCORES },
    { "--cpus-per-task", VCORES },
    { "--mem", MEMORY },
    { "--mem-per-cpu", SKIP },
    { "--mem-per-gpu", SKIP },
    { "--gpus", SKIP },
    { "-G", SKIP },
    { "--gpus-per-node", SKIP },
    { "--gres", SKIP },
    { "-p", SKIP },
    { "--partition", SKIP },
    { "-t", SKIP },
    { "--time", SKIP },
    { "-A", SKIP },
    { "--account", SKIP },
    { "-J", SKIP },
    { "--job-name", SKIP },
    { "-q", SKIP },
    { "--qos", SKIP },
    { "-C", SKIP },
    { "--constraint", SKIP },
    { "-w", SKIP },
    { "--nodelist", SKIP },
    { "-x", SKIP },
    { "--exclude", SKIP },
    { "-D", SKIP },
    { "--chdir", SKIP },
    { "-o", SKIP },
    { "--output", SKIP },
    { "-e", SKIP },
    { "--error", SKIP },
    { "-i", SKIP },
    { "--input", SKIP },
};
static const struct launcher {
    const char *program, *framework;
    const struct flag *flags;
    size_t n_flags;
    bool python; /* its first argument is a script for python3 */
} launchers[] = {
    { "torchrun", "pytorch", torchrun_flags, ARRAY_LEN(torchrun_flags), true },
    { "mpiexec", "mpi", mpiexec_flags, ARRAY_LEN(mpiexec_flags), false },
    { "mpirun", "mpi", mpiexec_flags, ARRAY_LEN(mpiexec_flags), false },
    { "srun", "generic", srun_flags, ARRAY_LEN(srun_flags), false },
};

/* Facts of a line for which the plan has no member. */
struct line {
    const struct launcher *l;
    int64_t nodes, per_node;
    bool module, no_python;
};

static int read_number(const char *text, size_t len, int64_t *out)
{
    return str_i64(span_mem(text, len), 1, NUMBER_MAX, "number", out, NULL);
}

/* "4", or "2:8" of a torchrun whose size may change. */
static int set_nodes(struct init_plan *p, const char *value)
{
    const char *colon = strchr(value, ':');
    int64_t least = 0, most = 0;
    int rc = read_number(value, colon ? (size_t)(colon - value) : strlen(value), &least);
    if (rc == 0 && colon)
        rc = read_number(colon + 1, strlen(colon + 1), &most);
    if (rc < 0 || (colon && most < least))
        return -EINVAL;
    p->instances = least;
    p->min_instances = most > least ? least : 0;
    p->max_instances = most > least ? most : 0;
    return 0;
}

/* NAME=VALUE. A name alone would take the value of this shell into the file: it may be a secret. */
static int set_env(struct init_plan *p, const char *value)
{
    const char *equals = strchr(value, '=');
    return equals && equals > value ? strv_push(&p->env, value) : -EINVAL;
}

/* torchrun counts the GPUs or the cores of the machine where a task runs. This machine may be
 * another one, so only the user can write the number. */
static bool is_count_word(struct init_plan *p, const char *value)
{
    static const char *const words[] = { "gpu", "cpu", "auto" };
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_eq(value, words[i]))
            p->ranks_of = words[i];
    return p->ranks_of != NULL;
}

/* 0: the plan has it now; -EINVAL: it has not. */
static int set_value(struct init_plan *p, struct line *x, enum number what, const char *value)
{
    int64_t *const to[] = {
        [RANKS] = &p->ranks,       [GPUS] = &p->gpus,   [VCORES] = &p->vcores,
        [RESTARTS] = &p->restarts, [NODES] = &x->nodes, [PER_NODE] = &x->per_node
    };
    if (what == INSTANCES)
        return set_nodes(p, value);
    if (what == ENV)
        return set_env(p, value);
    if (what == RANKS && is_count_word(p, value))
        return 0;
    if (what == MEMORY) {
        free(p->memory);
        p->memory = str_dup(value);
        return p->memory ? 0 : -ENOMEM;
    }
    return what == SKIP ? -EINVAL : read_number(value, strlen(value), to[what]);
}

static bool same_name(const char *typed, size_t len, const char *name)
{
    if (strlen(name) != len)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((typed[i] == '_' ? '-' : typed[i]) != name[i])
            return false;
    return true;
}

/* The row of an option. *out_value: its value, if it stands in the same word ("--nodes=2", "-N2").
 */
static const struct flag *find_flag(const struct launcher *l, const char *typed,
                                    const char **out_value)
{
    const char *equals = strchr(typed, '=');
    size_t len = equals ? (size_t)(equals - typed) : strlen(typed);
    *out_value = equals ? equals + 1 : NULL;
    for (size_t k = 0; k < l->n_flags; k++)
        if (same_name(typed, len, l->flags[k].name))
            return &l->flags[k];
    for (size_t k = 0; k < l->n_flags && typed[1] != '-' && typed[1]; k++)
        if (str_eq(l->program, "srun") && strlen(l->flags[k].name) == 2 &&
            l->flags[k].name[1] == typed[1]) {
            *out_value = typed + 2;
            return &l->flags[k];
        }
    return NULL;
}

/* Put the launcher's option at words[*i] into the plan, with its value, which may be the next word.
 */
static int take_flag(struct init_plan *p, struct line *x, const struct strv *words, size_t *i)
{
    const char *typed = words->v[*i], *value = NULL;
    const struct flag *flag = find_flag(x->l, typed, &value);
    if (!flag)
        return strv_push(&p->left, typed); /* a switch, such as --standalone */
    x->module |= flag->sets == MODULE;
    x->no_python |= flag->sets == NO_PYTHON;
    if (flag->sets == MODULE || flag->sets == NO_PYTHON)
        return 0;
    bool apart = !value;
    if (apart)
        value = *i + 1 < words->n ? words->v[++*i] : "";
    if (flag->sets == SKIP_TWO) {
        const char *second = *i + 1 < words->n ? words->v[++*i] : "";
        return strv_pushf(&p->left, "%s %s %s", typed, value, second);
    }
    int rc = set_value(p, x, flag->sets, value);
    if (rc == 0 || rc == -ENOMEM)
        return rc;
    return apart ? strv_pushf(&p->left, "%s %s", typed, value) : strv_push(&p->left, typed);
}

/* The launcher of a line. *out_at: the index of the word behind it. */
static const struct launcher *find_launcher(const struct strv *words, size_t *out_at)
{
    for (size_t k = 0; k < ARRAY_LEN(launchers) && words->n; k++)
        if (str_eq(words->v[0], launchers[k].program)) {
            *out_at = 1;
            return &launchers[k];
        }
    *out_at = 3; /* python -m torch.distributed.run, of which torchrun is the short form */
    return words->n > 2 && str_starts(words->v[0], "python") && str_eq(words->v[1], "-m") &&
                   (str_eq(words->v[2], "torch.distributed.run") ||
                    str_eq(words->v[2], "torch.distributed.launch"))
               ? &launchers[0]
               : NULL;
}

int init_translate(struct init_plan *p, const char *line, struct err *e)
{
    AUTO(strv_done) struct strv words = { 0 };
    struct line x = { .l = NULL };
    size_t i = 0;
    int rc = split(line, &words, e);
    if (rc < 0)
        return rc;
    x.l = find_launcher(&words, &i);
    if (!x.l) {
        (void)err_set(e, EINVAL, "the line does not begin with torchrun, mpiexec, mpirun or srun");
        return err_hint(
            e, "as in: tony init --from-torchrun \"torchrun --nproc-per-node 4 train.py\"");
    }
    p->instances = 0;
    for (; rc == 0 && i < words.n && words.v[i][0] == '-'; i++)
        rc = take_flag(p, &x, &words, &i);
    if (rc == 0 && i >= words.n)
        return err_set(e, EINVAL, "the line has no program after the options of %s", x.l->program);
    if (!p->instances) /* srun starts one task on each node unless it is told more */
        p->instances = MAX(x.nodes, (int64_t)1) * MAX(x.per_node, (int64_t)1);
    else if (rc == 0 && x.nodes)
        rc = strv_pushf(&p->left, "--nodes %lld", (long long)x.nodes);
    p->framework = x.l->framework;
    p->why = "the line";
    if (rc == 0 && x.l->python && !x.no_python)
        rc = buf_adds(&p->command, x.module ? "python3 -m" : "python3");
    for (; rc == 0 && i < words.n; i++)
        rc = client_quote(&p->command, words.v[i]);
    return rc < 0 ? err_set(e, -rc, "cannot read the line: %m") : 0;
}
