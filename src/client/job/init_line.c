/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Translates a line of torchrun, accelerate, deepspeed, horovodrun, mpiexec, mpirun or srun into a
 * job file.
 *
 * Each option that takes a value must be in a table below, even if job files have no counterpart:
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

/* `at` is the first character of a pipe, a redirection or a further command. Returns where the part
 * of the line begins that belongs to the shell: for "2>&1" at the digit. */
static const char *shell_part(const char *at, struct buf *word, bool *in_word)
{
    const char *digits = buf_cstr(word);
    if ((*at != '<' && *at != '>') || !word->len || digits[strspn(digits, "0123456789")])
        return at;
    *in_word = false;
    return at - word->len;
}

/* Split a line as a shell does, with quotes and backslashes, without expansions. *out_rest: the
 * pipe, the redirection or the further command behind the words; it belongs to the shell. "" =
 * there is none. */
static int split(const char *line, struct strv *out, const char **out_rest, struct err *e)
{
    AUTO(buf_done) struct buf word = { 0 };
    bool in_word = false;
    char quote = '\0';
    int rc = 0;
    *out_rest = "";
    for (const char *p = line;; p++) {
        bool of_shell = !quote && *p && strchr("|&;<>", *p);
        bool blank = of_shell || *p == ' ' || *p == '\t' || *p == '\n' || *p == '\0';
        if (of_shell)
            *out_rest = shell_part(p, &word, &in_word);
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
        if (*p == '\0' || of_shell)
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
    JOB_NAME,
    MEMORY_OF_NODE, /* the first that late_flags() handles */
    MEMORY_OF_CORE,
    MEMORY_OF_GPU,
    GPUS_OF_ALL, /* of all tasks together */
    GPUS_OF_NODE,
    RANKS_OF_ALL, /* processes of all tasks together */
    ENV,          /* NAME=VALUE; the first after those of late_flags() */
    ENV_TWO,      /* NAME VALUE */
    MODULE,       /* a switch: the program is a Python module */
    NO_PYTHON,    /* a switch: the program is not a Python script */
    SKIP,         /* one value, for which job files have no counterpart */
    SKIP_TWO,     /* the same with two values */
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
/* Options of the mpiexec of MPICH and of Open MPI. */
static const struct flag mpiexec_flags[] = {
    { "-n", INSTANCES },      { "-np", INSTANCES },  { "-c", INSTANCES },   { "--n", INSTANCES },
    { "--np", INSTANCES },    { "-x", ENV },         { "-hostfile", SKIP }, { "--hostfile", SKIP },
    { "-machinefile", SKIP }, { "-f", SKIP },        { "-host", SKIP },     { "-hosts", SKIP },
    { "--host", SKIP },       { "-H", SKIP },        { "-ppn", SKIP },      { "-npernode", SKIP },
    { "--map-by", SKIP },     { "-map-by", SKIP },   { "--bind-to", SKIP }, { "-bind-to", SKIP },
    { "--rank-by", SKIP },    { "-wdir", SKIP },     { "--wdir", SKIP },    { "-iface", SKIP },
    { "-launcher", SKIP },    { "--mca", SKIP_TWO }, { "-mca", SKIP_TWO },  { "-env", ENV_TWO },
    { "-genv", ENV_TWO },
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
    { "--mem", MEMORY_OF_NODE },
    { "--mem-per-cpu", MEMORY_OF_CORE },
    { "--mem-per-gpu", MEMORY_OF_GPU },
    { "--gpus", GPUS_OF_ALL },
    { "-G", GPUS_OF_ALL },
    { "--gpus-per-node", GPUS_OF_NODE },
    { "--gres", GPUS_OF_NODE },
    { "-p", SKIP },
    { "--partition", SKIP },
    { "-t", SKIP },
    { "--time", SKIP },
    { "-A", SKIP },
    { "--account", SKIP },
    { "-J", JOB_NAME },
    { "--job-name", JOB_NAME },
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
/* accelerate launch. The job file does not name accelerate's file of settings: the script itself
 * reads that file. */
static const struct flag accelerate_flags[] = {
    { "--num-processes", RANKS_OF_ALL },
    { "--num-machines", INSTANCES },
    { "--max-restarts", RESTARTS },
    { "-m", MODULE },
    { "--module", MODULE },
    { "--no-python", NO_PYTHON },
    { "--machine-rank", SKIP },
    { "--main-process-ip", SKIP },
    { "--main-process-port", SKIP },
    { "--rdzv-backend", SKIP },
    { "--rdzv-conf", SKIP },
    { "--role", SKIP },
    { "--log-dir", SKIP },
    { "--tee", SKIP },
    { "--monitor-interval", SKIP },
    { "--gpu-ids", SKIP },
    { "--mixed-precision", SKIP },
    { "--num-cpu-threads-per-process", SKIP },
    { "--dynamo-backend", SKIP },
    { "--dynamo-mode", SKIP },
    { "--gradient-accumulation-steps", SKIP },
    { "--gradient-clipping", SKIP },
    { "--zero-stage", SKIP },
    { "--config-file", SKIP },
    { "--deepspeed-config-file", SKIP },
};
static const struct flag deepspeed_flags[] = {
    { "--num-gpus", RANKS },
    { "--num-nodes", INSTANCES },
    { "-m", MODULE },
    { "--module", MODULE },
    { "--no-python", NO_PYTHON },
    { "-H", SKIP },
    { "--hostfile", SKIP },
    { "-i", SKIP },
    { "--include", SKIP },
    { "-e", SKIP },
    { "--exclude", SKIP },
    { "--master-addr", SKIP },
    { "--master-port", SKIP },
    { "--launcher", SKIP },
    { "--launcher-args", SKIP },
    { "--node-rank", SKIP },
    { "--autotuning", SKIP },
    { "--enable-each-rank-log", SKIP },
    { "--ssh-port", SKIP },
    { "--venv-script", SKIP },
    { "--bind-core-list", SKIP },
    { "--min-elastic-nodes", SKIP },
    { "--max-elastic-nodes", SKIP },
};
static const struct flag horovodrun_flags[] = {
    { "-np", INSTANCES },
    { "--num-proc", INSTANCES },
    { "-H", SKIP },
    { "--hosts", SKIP },
    { "-hostfile", SKIP },
    { "--hostfile", SKIP },
    { "-p", SKIP },
    { "--ssh-port", SKIP },
    { "-i", SKIP },
    { "--ssh-identity-file", SKIP },
    { "--network-interfaces", SKIP },
    { "--start-timeout", SKIP },
    { "--output-filename", SKIP },
    { "--config-file", SKIP },
    { "--fusion-threshold-mb", SKIP },
    { "--cycle-time-ms", SKIP },
    { "--cache-capacity", SKIP },
    { "--timeline-filename", SKIP },
    { "--mpi-args", SKIP },
    { "--log-level", SKIP },
    { "--min-np", SKIP },
    { "--min-num-proc", SKIP },
    { "--max-np", SKIP },
    { "--max-num-proc", SKIP },
    { "--slots", SKIP },
    { "--slots-per-host", SKIP },
    { "--reset-limit", SKIP },
    { "--elastic-timeout", SKIP },
    { "--host-discovery-script", SKIP },
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
    { "accelerate", "pytorch", accelerate_flags, ARRAY_LEN(accelerate_flags), true },
    { "deepspeed", "pytorch", deepspeed_flags, ARRAY_LEN(deepspeed_flags), true },
    { "horovodrun", "horovod", horovodrun_flags, ARRAY_LEN(horovodrun_flags), false },
};

/* The facts about a line that are not in the plan. */
struct line {
    const struct launcher *l;
    int64_t nodes, per_node;
    bool module, no_python;
    /* options whose meaning depends on other options; of each kind, the last one counts */
    struct late {
        char *value, *typed;
    } late[ENV];
};

static void line_done(struct line *x)
{
    for (size_t i = 0; i < ARRAY_LEN(x->late); i++) {
        free(x->late[i].value);
        free(x->late[i].typed);
    }
}

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

/* Set the member of the plan. -EINVAL: the value is not valid. */
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
    if (what == JOB_NAME) {
        free(p->name);
        p->name = str_dup(value);
        return p->name ? 0 : -ENOMEM;
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
    if (flag->sets == SKIP_TWO || flag->sets == ENV_TWO) {
        const char *second = *i + 1 < words->n ? words->v[++*i] : "";
        if (flag->sets == ENV_TWO)
            return strv_pushf(&p->env, "%s=%s", value, second);
        return strv_pushf(&p->left, "%s %s %s", typed, value, second);
    }
    if (flag->sets >= MEMORY_OF_NODE && flag->sets < ENV) {
        struct late *late = &x->late[flag->sets];
        free(late->value);
        free(late->typed);
        late->value = str_dup(value);
        late->typed = apart ? str_printf("%s %s", typed, value) : str_dup(typed);
        return late->value && late->typed ? 0 : -ENOMEM;
    }
    int rc = set_value(p, x, flag->sets, value);
    if (rc == 0 || rc == -ENOMEM)
        return rc;
    return apart ? strv_pushf(&p->left, "%s %s", typed, value) : strv_push(&p->left, typed);
}

/* ---- options whose meaning depends on others ---- */

/* The tasks on each node. 0: the line does not say it. */
static int64_t tasks_of_node(const struct init_plan *p, const struct line *x)
{
    if (x->per_node || p->instances == 1)
        return x->per_node ? x->per_node : 1;
    return x->nodes && p->instances % x->nodes == 0 ? p->instances / x->nodes : 0;
}

/* "16000", "32G": Slurm's sizes are in MB unless they have a unit. */
static int read_mib(const char *value, int64_t *out)
{
    static const char units[] = "KMGT";
    size_t n = strspn(value, "0123456789");
    const char *unit = value[n] ? strchr(units, value[n] & ~0x20) : units + 1;
    int64_t number = 0;
    int rc = str_i64(span_mem(value, n), 1, INT32_MAX, "size", &number, NULL);
    if (rc < 0 || !unit || (value[n] && value[n + 1]))
        return -EINVAL;
    *out = *unit == 'K'   ? number / 1024
           : *unit == 'M' ? number
           : *unit == 'G' ? number * 1024
                          : number * 1024 * 1024;
    return 0;
}

/* Set the memory of each task: times * value / tasks. For example, with `value` for each GPU, times
 * is the number of GPUs of a task, and tasks is 1. */
static int set_memory(struct init_plan *p, const char *value, int64_t times, int64_t tasks)
{
    int64_t mib = 0;
    if (times == 0 || tasks == 0 || read_mib(value, &mib) < 0 || (mib = mib * times / tasks) < 1)
        return -EINVAL;
    free(p->memory);
    p->memory = mib % 1024 ? str_printf("%lldm", (long long)mib)
                           : str_printf("%lldg", (long long)mib / 1024);
    return p->memory ? 0 : -ENOMEM;
}

/* "4", "a100:4", "gpu:4" or "gpu:a100:4", the GPUs that `tasks` tasks share in equal parts. */
static int set_gpus(struct init_plan *p, const char *value, int64_t tasks, bool gres)
{
    const char *colon = strrchr(value, ':'), *number = colon ? colon + 1 : value;
    int64_t n = 1;
    if (gres && !str_eq(value, "gpu") && !str_starts(value, "gpu:"))
        return -EINVAL;
    if (!str_eq(value, "gpu") && read_number(number, strlen(number), &n) < 0)
        return -EINVAL;
    if (tasks == 0 || n % tasks)
        return -EINVAL;
    p->gpus = n / tasks;
    return 0;
}

/* "8": processes that all tasks share in equal parts. */
static int set_ranks(struct init_plan *p, const char *value)
{
    int64_t n = 0;
    if (read_number(value, strlen(value), &n) < 0 || n % p->instances)
        return -EINVAL;
    p->ranks = n / p->instances;
    return 0;
}

/* The memory of a node, which `tasks` tasks share. If their number is unknown (0), each task gets
 * the memory of a whole node, which is certainly enough. */
static int set_memory_of_node(struct init_plan *p, const char *value, int64_t tasks)
{
    int64_t mib = 0;
    if (tasks)
        return set_memory(p, value, 1, tasks);
    if (read_mib(value, &mib) < 0)
        return -EINVAL;
    free(p->memory);
    p->memory = str_dup(value);
    p->memory_of_node = true;
    return p->memory ? 0 : -ENOMEM;
}

/* Put one late option into the plan. tasks: the tasks on each node; 0 = not known. */
static int set_late(struct init_plan *p, enum number what, const struct late *option, int64_t tasks)
{
    const char *value = option->value;
    switch ((int)what) {
    case RANKS_OF_ALL:
        return set_ranks(p, value);
    case GPUS_OF_NODE:
        return set_gpus(p, value, tasks, str_starts(option->typed, "--gres"));
    case GPUS_OF_ALL:
        return set_gpus(p, value, p->instances, false);
    case MEMORY_OF_GPU:
        return set_memory(p, value, p->gpus, 1);
    case MEMORY_OF_CORE:
        return set_memory(p, value, MAX(p->vcores, (int64_t)1), 1);
    default: /* MEMORY_OF_NODE */
        return set_memory_of_node(p, value, tasks);
    }
}

/* Memory and GPUs of each task from those of a node, a core or a GPU. */
static int late_flags(struct init_plan *p, struct line *x)
{
    int64_t tasks = tasks_of_node(p, x);
    int rc = 0;
    /* The last kind first: the memory of a GPU needs the number of GPUs. */
    for (size_t i = ENV; i-- > MEMORY_OF_NODE && rc != -ENOMEM;) {
        if (!x->late[i].value)
            continue;
        rc = set_late(p, (enum number)i, &x->late[i], tasks);
        if (rc == -EINVAL)
            rc = strv_push(&p->left, x->late[i].typed);
    }
    return rc;
}

/* ---- the line ---- */

/* The variables before the launcher: "OMP_NUM_THREADS=4 torchrun ...". Leave out those that give a
 * task its rank and address: tony sets them. *i becomes the index of the first word that is no
 * variable. */
static int take_env(struct init_plan *p, const struct strv *words, size_t *i)
{
    static const char *const ours[] = { "CUDA_VISIBLE_DEVICES=",
                                        "MASTER_ADDR=",
                                        "MASTER_PORT=",
                                        "NODE_RANK=",
                                        "RANK=",
                                        "WORLD_SIZE=" };
    int rc = 0;
    if (words->n && str_eq(words->v[0], "env"))
        ++*i;
    for (; rc == 0 && *i < words->n; ++*i) {
        const char *word = words->v[*i], *equals = strchr(word, '=');
        size_t n = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
        bool is_ours = false;
        if (!equals || n == 0 || word + n != equals)
            break;
        for (size_t k = 0; k < ARRAY_LEN(ours); k++)
            is_ours |= str_starts(word, ours[k]);
        rc = strv_push(is_ours ? &p->left : &p->env, word);
    }
    return rc;
}

/* Is this the path or the name of the launcher? "mpiexec.hydra" is an mpiexec. */
static bool is_program(const char *word, const char *program)
{
    const char *slash = strrchr(word, '/'), *base = slash ? slash + 1 : word;
    size_t n = strlen(program);
    return strncmp(base, program, n) == 0 && (base[n] == '\0' || base[n] == '.');
}

/* The launcher at words[*i]. *i: the index of the word behind it. */
static const struct launcher *find_launcher(const struct strv *words, size_t *i)
{
    const char *const *w = (const char *const *)words->v + *i;
    size_t n = words->n - *i;
    for (size_t k = 0; k < ARRAY_LEN(launchers) && n; k++)
        if (is_program(w[0], launchers[k].program)) {
            /* accelerate has other subcommands */
            bool launch = str_eq(launchers[k].program, "accelerate");
            if (launch && (n < 2 || !str_eq(w[1], "launch")))
                return NULL;
            *i += launch ? 2 : 1;
            return &launchers[k];
        }
    *i += 3; /* python -m torch.distributed.run, of which torchrun is the short form */
    const char *slash = n ? strrchr(w[0], '/') : NULL;
    return n > 2 && str_starts(slash ? slash + 1 : w[0], "python") && str_eq(w[1], "-m") &&
                   (str_eq(w[2], "torch.distributed.run") ||
                    str_eq(w[2], "torch.distributed.launch"))
               ? &launchers[0]
               : NULL;
}

/* "mpirun -n 2 ./a : -n 3 ./b" */
static int check_one_program(const struct line *x, const struct strv *words, size_t i,
                             struct err *e)
{
    for (; str_eq(x->l->framework, "mpi") && i < words->n; i++)
        if (str_eq(words->v[i], ":")) {
            (void)err_set(e, EINVAL, "the line starts several programs (':')");
            return err_hint(e, "translate one of them, and add a role with a command for each "
                               "other to the job file");
        }
    return 0;
}

static int translate(struct init_plan *p, struct line *x, const char *line, struct err *e)
{
    AUTO(strv_done) struct strv words = { 0 };
    const char *rest = "";
    size_t i = 0;
    int rc = split(line, &words, &rest, e);
    if (rc < 0)
        return rc;
    rc = take_env(p, &words, &i);
    x->l = rc == 0 ? find_launcher(&words, &i) : NULL;
    if (rc == 0 && !x->l) {
        (void)err_set(e, EINVAL,
                      "the line does not begin with torchrun, accelerate launch, deepspeed, "
                      "horovodrun, mpiexec, mpirun or srun");
        return err_hint(
            e, "as in: tony init --from-torchrun \"torchrun --nproc-per-node 4 train.py\"");
    }
    p->instances = 0;
    for (; rc == 0 && i < words.n && words.v[i][0] == '-'; i++)
        rc = take_flag(p, x, &words, &i);
    if (rc == 0 && i >= words.n)
        return err_set(e, EINVAL, "the line has no program after the options of %s", x->l->program);
    if (rc == 0 && check_one_program(x, &words, i, e) < 0)
        return -EINVAL;
    if (!p->instances) /* srun starts one task on each node unless it is told more */
        p->instances = MAX(x->nodes, (int64_t)1) * MAX(x->per_node, (int64_t)1);
    else if (rc == 0 && x->nodes)
        rc = strv_pushf(&p->left, "--nodes %lld", (long long)x->nodes);
    if (rc == 0)
        rc = late_flags(p, x);
    p->framework = x->l ? x->l->framework : NULL;
    p->why = "the line";
    if (rc == 0 && x->l->python && !x->no_python)
        rc = buf_addf(&p->command, "%s%s", init_python(p), x->module ? " -m" : "");
    for (; rc == 0 && i < words.n; i++)
        rc = client_quote(&p->command, words.v[i]);
    if (rc == 0 && *rest)
        rc = strv_push(&p->left, rest);
    return rc < 0 ? err_set(e, -rc, "cannot read the line: %m") : 0;
}

int init_translate(struct init_plan *p, const char *line, struct err *e)
{
    struct line x = { .l = NULL };
    int rc = translate(p, &x, line, e);
    line_done(&x);
    return rc;
}
