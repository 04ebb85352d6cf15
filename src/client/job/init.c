/* SPDX-License-Identifier: Apache-2.0 */
/* init: writes a commented job file, from what is in the directory, or from a line of torchrun,
 * mpiexec or srun. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"

enum {
    SCRIPT_MAX = 256 << 10,
    SCRIPTS_MAX = 200,
    WORDS_MAX = 512,
};

struct plan {
    const char *framework; /* borrowed */
    const char *why;       /* where the framework comes from; borrowed */
    char *script;          /* NULL = none was found */
    char *venv;            /* NULL = none */
    bool requirements;
    int64_t instances, ranks, gpus;
    char *memory;
    struct buf command;
    struct strv left; /* options of the line that job files do not have */
};

static void plan_done(struct plan *p)
{
    free(p->script);
    free(p->venv);
    free(p->memory);
    buf_done(&p->command);
    strv_done(&p->left);
}

/* ---- the directory ---- */

static const char *framework_of(struct span text, const char **out_why)
{
    static const struct {
        const char *import, *framework;
    } rows[] = { /* the first that matches counts: Horovod programs import others, too */
                 { "import horovod", "horovod" },
                 { "from horovod", "horovod" },
                 { "import torch", "pytorch" },
                 { "from torch", "pytorch" },
                 { "import lightning", "pytorch" },
                 { "import tensorflow", "tensorflow" },
                 { "from tensorflow", "tensorflow" },
                 { "import keras", "tensorflow" },
                 { "import jax", "jax" },
                 { "from jax", "jax" },
                 { "import xgboost", "xgboost" },
                 { "import lightgbm", "lightgbm" },
                 { "import ray", "ray" },
                 { "import dask", "dask" },
                 { "import mxnet", "mxnet" },
                 { "from mpi4py", "mpi" }
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (span_has(text, rows[i].import)) {
            *out_why = rows[i].import;
            return rows[i].framework;
        }
    return NULL;
}

/* The better the name or the content tells that this is the program to start. */
static int score(const char *name, struct span text)
{
    static const char *const names[] = { "train.py", "main.py", "run.py" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eq(name, names[i]))
            return 10 - (int)i;
    return (span_has(text, "__main__") ? 4 : 1) + (span_has(text, "import torch") ? 1 : 0);
}

static void look_at_script(struct plan *p, const char *name, int *best)
{
    struct err unread = { 0 };
    const char *why = NULL;
    AUTO(buf_done) struct buf text = { .max = SCRIPT_MAX };
    if (fs_read(AT_FDCWD, name, &text, &unread) < 0)
        return; /* too large for a program, or not readable */
    int n = score(name, buf_span(&text));
    const char *framework = framework_of(buf_span(&text), &why);
    if (framework && (!p->framework || n > *best)) {
        p->framework = framework;
        p->why = why;
    }
    if (n > *best) {
        *best = n;
        free(p->script);
        p->script = str_dup(name);
    }
}

static int look_around(struct plan *p, struct err *e)
{
    static const char *const venvs[] = { "venv", ".venv", "env" };
    int best = 0;
    unsigned n = 0;
    DIR *d = opendir(".");
    if (!d)
        return err_set(e, errno, "cannot read this directory: %m");
    for (struct dirent *x; n < SCRIPTS_MAX && (x = readdir(d));)
        if (str_ends(x->d_name, ".py") && x->d_name[0] != '.' && ++n)
            look_at_script(p, x->d_name, &best);
    (void)closedir(d);
    p->requirements = access("requirements.txt", F_OK) == 0;
    for (size_t i = 0; i < ARRAY_LEN(venvs) && !p->venv; i++) {
        AUTO(free_p) char *mark = str_printf("%s/pyvenv.cfg", venvs[i]);
        if (mark && access(mark, F_OK) == 0)
            p->venv = str_dup(venvs[i]);
    }
    return 0;
}

/* ---- a line of another launcher ---- */

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
            return err_set(e, EINVAL, "the line ends inside of a quotation");
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

enum number { INSTANCES, RANKS, GPUS, MEMORY, SKIP };

struct flag {
    const char *name;
    enum number sets;
};
static const struct flag torchrun_flags[] = {
    { "--nnodes", INSTANCES },   { "--nproc-per-node", RANKS }, { "--nproc_per_node", RANKS },
    { "--master-addr", SKIP },   { "--master_addr", SKIP },     { "--master-port", SKIP },
    { "--master_port", SKIP },   { "--node-rank", SKIP },       { "--node_rank", SKIP },
    { "--rdzv-backend", SKIP },  { "--rdzv_backend", SKIP },    { "--rdzv-endpoint", SKIP },
    { "--rdzv_endpoint", SKIP }, { "--rdzv-id", SKIP },         { "--rdzv_id", SKIP },
};
static const struct flag mpiexec_flags[] = {
    { "-n", INSTANCES },    { "-np", INSTANCES }, { "-hostfile", SKIP },
    { "--hostfile", SKIP }, { "-host", SKIP },    { "-ppn", SKIP },
};
static const struct flag srun_flags[] = {
    { "-n", INSTANCES },         { "--ntasks", INSTANCES },
    { "--gpus-per-task", GPUS }, { "--mem", MEMORY },
    { "--mem-per-cpu", SKIP },   { "-N", SKIP },
    { "--nodes", SKIP },         { "-p", SKIP },
    { "--partition", SKIP },     { "-t", SKIP },
    { "--time", SKIP },          { "-A", SKIP },
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

static int set_number(struct plan *p, enum number what, const char *value)
{
    int64_t *const to[] = { [INSTANCES] = &p->instances, [RANKS] = &p->ranks, [GPUS] = &p->gpus };
    /* "1:4" of an elastic torchrun: the larger number */
    const char *colon = strrchr(value, ':');
    if (what == SKIP)
        return 0;
    if (what == MEMORY) {
        free(p->memory);
        p->memory = str_dup(value);
        return 0;
    }
    return str_i64(span_of(colon && what == INSTANCES ? colon + 1 : value), 1, 100000, "number",
                   to[what], NULL);
}

/* One option of the launcher, at words[*i]. */
static int take_flag(struct plan *p, const struct launcher *l, const struct strv *words, size_t *i)
{
    const char *typed = words->v[*i], *equals = strchr(typed, '=');
    size_t len = equals ? (size_t)(equals - typed) : strlen(typed);
    for (size_t k = 0; k < l->n_flags; k++) {
        if (strlen(l->flags[k].name) != len || memcmp(l->flags[k].name, typed, len) != 0)
            continue;
        const char *value = equals ? equals + 1 : *i + 1 < words->n ? words->v[++*i] : "";
        if (set_number(p, l->flags[k].sets, value) == 0 && l->flags[k].sets != SKIP)
            return 0;
        return strv_pushf(&p->left, "%.*s %s", (int)len, typed, value);
    }
    return strv_push(&p->left, typed); /* a switch, such as --standalone */
}

static int translate(struct plan *p, const char *line, struct err *e)
{
    AUTO(strv_done) struct strv words = { 0 };
    const struct launcher *l = NULL;
    int rc = split(line, &words, e);
    if (rc < 0)
        return rc;
    for (size_t k = 0; k < ARRAY_LEN(launchers) && words.n; k++)
        if (str_eq(words.v[0], launchers[k].program))
            l = &launchers[k];
    if (!l) {
        (void)err_set(e, EINVAL, "the line does not begin with torchrun, mpiexec, mpirun or srun");
        return err_hint(
            e, "as in: tony init --from-torchrun \"torchrun --nproc-per-node 4 train.py\"");
    }
    size_t i = 1;
    for (; rc == 0 && i < words.n && words.v[i][0] == '-'; i++)
        rc = take_flag(p, l, &words, &i);
    if (rc == 0 && i == words.n)
        return err_set(e, EINVAL, "the line has no program behind the options of %s", l->program);
    p->framework = l->framework;
    p->why = "the line";
    if (rc == 0 && l->python && str_ends(words.v[i], ".py"))
        rc = buf_adds(&p->command, "python3");
    for (; rc == 0 && i < words.n; i++)
        rc = client_quote(&p->command, words.v[i]);
    return rc < 0 ? err_set(e, -rc, "cannot read the line: %m") : 0;
}

/* ---- the file ---- */

static void add_text(struct buf *out, const char *text)
{
    (void)buf_addc(out, '"'); /* a failure is seen at the end */
    for (const char *p = text; *p; p++)
        (void)buf_addf(out, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
    (void)buf_addc(out, '"');
}

static int write_plan(const struct plan *p, struct buf *out)
{
    (void)buf_addf(
        out,
        "# A job of tony: docs/job-files.md has all names. `tony plan` shows what it would do, "
        "`tony run job.yaml` runs it.\n");
    (void)buf_addf(out, "framework: %s%s%s\n", p->framework ? p->framework : "generic",
                   p->why ? "   # from: "
                          : "   # pytorch, tensorflow, ...: decides which variables the tasks get",
                   p->why ? p->why : "");
    (void)buf_adds(out, "src: .                # copied into the working directory of each task\n");
    if (p->venv)
        (void)buf_addf(out, "venv: %s           # the Python environment of the tasks\n", p->venv);
    else
        (void)buf_addf(out, "# venv: venv          # a Python environment for the tasks%s\n",
                       p->requirements
                           ? ": python3 -m venv venv && venv/bin/pip install -r requirements.txt"
                           : "");
    (void)buf_adds(out, "command: ");
    add_text(out, buf_cstr(&p->command));
    (void)buf_adds(out, "\nroles:\n  worker:\n");
    (void)buf_addf(out, "    instances: %lld      # tasks\n", (long long)p->instances);
    if (p->ranks)
        (void)buf_addf(out, "    ranks: %lld          # processes in each task\n",
                       (long long)p->ranks);
    (void)buf_adds(out, "    memory: ");
    add_text(out, p->memory ? p->memory : "2g");
    (void)buf_adds(out, "       # of each task\n");
    if (p->gpus)
        (void)buf_addf(out, "    gpus: %lld           # of each task\n", (long long)p->gpus);
    else
        (void)buf_adds(out, "    # gpus: 1           # of each task\n");
    for (size_t i = 0; i < p->left.n; i++)
        (void)buf_addf(out, "# not translated: %s\n", p->left.v[i]);
    return out->failed ? -ENOMEM : 0;
}

static int save(struct client *c, const char *path, const struct buf *text, struct err *e)
{
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (options_has(&c->o, OPT_FORCE) ? O_TRUNC : O_EXCL);
    AUTO(close_p) int fd = open(path, flags, 0666);
    if (fd == -1 && errno == EEXIST) {
        (void)err_set(e, EEXIST, "'%s' is there already", path);
        return err_hint(e, "name another file, or replace it by --force");
    }
    if (fd == -1)
        return err_set(e, errno, "cannot write '%s': %m", path);
    int rc = fs_write_all(fd, text->p, text->len);
    return rc < 0 ? err_set(e, -rc, "cannot write '%s': %m", path) : 0;
}

int cmd_init(struct client *c)
{
    struct err e = { 0 };
    AUTO(plan_done) struct plan p = { .instances = 1 };
    AUTO(buf_done) struct buf text = { 0 };
    const char *line = options_get(&c->o, OPT_FROM_LINE);
    const char *path = c->o.n_args ? c->o.args[0] : "job.yaml";
    int rc = look_around(&p, &e);
    if (rc == 0 && line)
        rc = translate(&p, line, &e);
    else if (rc == 0)
        rc = buf_addf(&p.command, "python3 %s", p.script ? p.script : "train.py");
    if (rc == 0)
        rc = write_plan(&p, &text);
    if (rc == 0)
        rc = save(c, path, &text, &e);
    if (rc < 0)
        return client_fail(EXIT_MISUSE,
                           e.num ? &e : (err_set(&e, -rc, "cannot write the job file: %m"), &e));
    (void)printf("%s", buf_cstr(&text));
    client_note("wrote %s", path);
    return client_flush_stdout();
}
