/* SPDX-License-Identifier: Apache-2.0 */
/* init: writes a commented job file, from what is in the directory, or from a line of another
 * launcher (init_line.c). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/job/init.h"

enum {
    SCRIPT_MAX = 256 << 10, /* bytes; a larger file was hardly written by a person */
    SCRIPTS_MAX = 200,      /* scripts of the directory that are read */
};

static void plan_done(struct init_plan *p)
{
    free(p->script);
    free(p->venv);
    free(p->name);
    free(p->memory);
    buf_done(&p->command);
    strv_done(&p->env);
    strv_done(&p->left);
}

/* ---- the directory ---- */

static const char *framework_of(struct span text, const char **out_why)
{
    static const struct {
        const char *import, *framework;
    } rows[] = {
        /* the first row that matches counts: programs for Horovod also import other frameworks */
        { "import horovod", "horovod" },
        { "from horovod", "horovod" },
        { "import torch", "pytorch" },
        { "from torch", "pytorch" },
        { "import lightning", "pytorch" },
        { "from lightning", "pytorch" },
        { "import pytorch_lightning", "pytorch" },
        { "from pytorch_lightning", "pytorch" },
        { "import deepspeed", "pytorch" },
        { "from accelerate", "pytorch" },
        { "import tensorflow", "tensorflow" },
        { "from tensorflow", "tensorflow" },
        { "import keras", "tensorflow" },
        { "import jax", "jax" },
        { "from jax", "jax" },
        { "import xgboost", "xgboost" },
        { "from xgboost", "xgboost" },
        { "import lightgbm", "lightgbm" },
        { "from lightgbm", "lightgbm" },
        { "import ray", "ray" },
        { "from ray", "ray" },
        { "import dask", "dask" },
        { "from dask", "dask" },
        { "import mxnet", "mxnet" },
        { "from mxnet", "mxnet" },
        /* last: transformers runs on several frameworks, mostly on torch */
        { "from transformers", "pytorch" },
        { "from mpi4py", "mpi" }
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (span_has(text, rows[i].import)) {
            *out_why = rows[i].import;
            return rows[i].framework;
        }
    return NULL;
}

/* A score for the script: the higher it is, the more the name and the content look like the program
 * to start. */
static int score(const char *name, struct span text)
{
    static const char *const names[] = { "train.py", "main.py", "run.py" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eq(name, names[i]))
            return 10 - (int)i;
    return (span_has(text, "__main__") ? 4 : 1) + (span_has(text, "import torch") ? 1 : 0);
}

static void look_at_script(struct init_plan *p, const char *name, int *best)
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

static int look_around(struct init_plan *p, struct err *e)
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

/* ---- the file ---- */

static void add_text(struct buf *out, const char *text)
{
    (void)buf_addc(out, '"'); /* the caller checks out->failed at the end */
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < ' ')
            (void)buf_addf(out, "\\x%02x", (unsigned char)*p);
        else
            (void)buf_addf(out, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
    (void)buf_addc(out, '"');
}

const char *init_python(const struct init_plan *p)
{
    return p->venv ? "venv/bin/python" : "python3";
}

/* Append a line with one number of the role, unless n is 0. */
static void add_number(struct buf *out, const char *name, int64_t n, const char *remark)
{
    if (n)
        (void)buf_addf(out, "    %s: %lld%s%s\n", name, (long long)n, remark ? "          # " : "",
                       remark ? remark : "");
}

static void write_env(const struct init_plan *p, struct buf *out)
{
    if (p->env.n)
        (void)buf_adds(out, "env:\n");
    for (size_t i = 0; i < p->env.n; i++) {
        const char *name = p->env.v[i], *equals = strchr(name, '=');
        (void)buf_addf(out, "  %.*s: ", (int)(equals - name), name);
        add_text(out, equals + 1);
        (void)buf_addc(out, '\n');
    }
}

static int write_plan(const struct init_plan *p, struct buf *out)
{
    (void)buf_addf(
        out,
        "# A job of tony: docs/job-files.md has all names. `tony plan` shows what it would do, "
        "`tony run job.yaml` runs it.\n");
    if (p->name) {
        (void)buf_adds(out, "name: ");
        add_text(out, p->name);
        (void)buf_addc(out, '\n');
    }
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
    (void)buf_adds(
        out, p->script || p->from_line ? "\n" : "   # no program was found here: write yours\n");
    write_env(p, out);
    (void)buf_adds(out, "roles:\n  worker:\n");
    (void)buf_addf(out, "    instances: %lld      # tasks\n", (long long)p->instances);
    add_number(out, "min-instances", p->min_instances, "tony resize changes their number");
    add_number(out, "max-instances", p->max_instances, NULL);
    add_number(out, "ranks", p->ranks, "processes in each task");
    if (p->ranks_of)
        (void)buf_addf(
            out,
            "    # --nproc-per-node %s: one process for each %s of a machine. Write their number "
            "here:\n    # ranks: 8\n",
            p->ranks_of,
            str_eq(p->ranks_of, "gpu")   ? "GPU"
            : str_eq(p->ranks_of, "cpu") ? "core"
                                         : "GPU (without GPUs: each core)");
    (void)buf_adds(out, "    memory: ");
    add_text(out, p->memory ? p->memory : "2g");
    (void)buf_addf(
        out, "       # of each task%s\n",
        p->memory_of_node ? "; the line has that of a node: divide it by the tasks of a node" : "");
    if (p->gpus)
        (void)buf_addf(out, "    gpus: %lld           # of each task\n", (long long)p->gpus);
    else
        (void)buf_addf(out, "    # gpus: %lld           # of each task\n",
                       p->ranks_of && !str_eq(p->ranks_of, "cpu") ? 8LL
                                                                  : MAX((long long)p->ranks, 1LL));
    add_number(out, "vcores", p->vcores, NULL);
    if (p->restarts)
        (void)buf_adds(out, "    restart: on-failure\n");
    add_number(out, "max-restarts", p->restarts, NULL);
    for (size_t i = 0; i < p->left.n; i++) {
        str_mask_controls(p->left.v[i]);
        (void)buf_addf(out, "# not translated: %s\n", p->left.v[i]);
    }
    return out->failed ? -ENOMEM : 0;
}

static int save(struct client *c, const char *path, const struct buf *text, struct err *e)
{
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (options_has(&c->o, OPT_FORCE) ? O_TRUNC : O_EXCL);
    AUTO(close_p) int fd = open(path, flags, 0666);
    if (fd == -1 && errno == EEXIST) {
        (void)err_set(e, EEXIST, "cannot write '%s': the file exists", path);
        return err_hint(e, "name another file, or replace it by --force");
    }
    if (fd == -1)
        return err_set(e, errno, "cannot write '%s': %m", path);
    int rc = fs_write_all(fd, text->p, text->len);
    return rc < 0 ? err_set(e, -rc, "cannot write '%s': %m", path) : 0;
}

static int write_command(struct init_plan *p)
{
    int rc = buf_adds(&p->command, init_python(p));
    return rc < 0 ? rc : client_quote(&p->command, p->script ? p->script : "train.py");
}

int cmd_init(struct client *c)
{
    struct err e = { 0 };
    AUTO(plan_done) struct init_plan p = { .instances = 1 };
    AUTO(buf_done) struct buf text = { 0 };
    const char *line = options_get(&c->o, OPT_FROM_LINE);
    const char *path = c->o.n_args ? c->o.args[0] : "job.yaml";
    p.from_line = line != NULL;
    int rc = look_around(&p, &e);
    if (rc == 0 && line)
        rc = init_translate(&p, line, &e);
    else if (rc == 0)
        rc = write_command(&p);
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
