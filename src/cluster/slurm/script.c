/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The batch script. `tony plan` shows it, and sbatch gets it on its standard input.
 *
 * It starts the keeper of each node by a step of its own, and the head keeper beside them. A keeper
 * that a signal has killed is restarted. The script ends when the head keeper does, with its exit
 * code.
 *
 * The script of a further allocation, which the master submits if this one has become too small,
 * starts only keepers. They get the address of the master from the file `address`.
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/slurm/slurm_int.h"
#include "conf/conf.h"

/* ---- the options of sbatch ---- */

/* The nodes of the first allocation. The master chooses those of further ones. */
static void add_nodes(const struct conf *c, const struct slurm_shape *shape, struct buf *out)
{
    (void)buf_addf(out, "#SBATCH --nodes=%u\n", shape->nodes);
    slurm_add_option(out, "--nodelist", conf_get(c, "tony.slurm.nodelist"));
    slurm_add_option(out, "--exclude", conf_get(c, "tony.slurm.exclude"));
}

static void add_size(const struct conf *c, const struct slurm_shape *shape, struct buf *out)
{
    (void)buf_addf(out,
                   "#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=%u\n"
                   "#SBATCH --mem=%lluM\n",
                   shape->vcores, (unsigned long long)(shape->memory_mib + shape->overhead_mib));
    const char *type = conf_get(c, "tony.slurm.gpu-type");
    bool typed = type && *type;
    AUTO(free_p)
    char *gres = str_printf("gpu:%s%s%u", typed ? type : "", typed ? ":" : "", shape->gpus);
    if (!gres)
        out->failed = true;
    else if (shape->gpus)
        slurm_add_option(out, "--gres", gres);
}

/* The file of what a script writes. Slurm replaces %j and the like in its name, and %% by %. But if
 * there is a backslash, Slurm replaces nothing, and removes it. */
static void add_output(const char *dir, const char *name, struct buf *out)
{
    AUTO(buf_done) struct buf path = { 0 };
    char doubled = strchr(dir, '\\') ? '\\' : '%';
    for (; *dir; dir++) {
        if (*dir == doubled)
            (void)buf_addc(&path, doubled);
        (void)buf_addc(&path, *dir);
    }
    (void)buf_addf(&path, "/%s", name);
    if (path.failed)
        out->failed = true;
    else
        slurm_add_option(out, "--output", buf_cstr(&path));
}

/* Letters, digits and a few others of the job's name. */
static void add_name(const char *name, struct buf *out)
{
    (void)buf_adds(out, "#SBATCH --job-name=tony-");
    for (size_t i = 0; name[i] && i < 60; i++) {
        bool plain = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
                     (name[i] >= '0' && name[i] <= '9') || strchr("._-", name[i]);
        (void)buf_addc(out, plain ? name[i] : '_');
    }
    (void)buf_addc(out, '\n');
}

/* ---- the rest of the script ---- */

/* A word for the shell. */
static void add_quoted(struct buf *out, const char *word)
{
    (void)buf_addc(out, '\'');
    for (; *word; word++) {
        if (*word == '\'')
            (void)buf_adds(out, "'\\''");
        else
            (void)buf_addc(out, *word);
    }
    (void)buf_addc(out, '\'');
}

static void add_variable(struct buf *out, const char *name, const char *value)
{
    if (!value)
        return;
    (void)buf_addf(out, "export %s=", name);
    add_quoted(out, value);
    (void)buf_addc(out, '\n');
}

/* The variables that tasks get on the pool, too. Slurm sets HOME, USER and SHELL. The last one is
 * for tests: scheduler/slurm/notice.c. */
static void add_environment(struct buf *out)
{
    static const char *const names[] = {
        "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "TONY_TEST_PATIENCE_MS"
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        add_variable(out, names[i], getenv(names[i]));
}

/* The parts that do not depend on the job. The build makes them from the *.sh files beside this
 * one. */
static const char keepers_part[] =
#include "cluster/keepers.sh.inc"
    ;
static const char batch_part[] =
#include "cluster/batch.sh.inc"
    ;
static const char further_part[] =
#include "cluster/further.sh.inc"
    ;

/* What the keeper of a node may give to tasks, by the component of the node. */
static void add_shares(const struct slurm_size *z, struct buf *out)
{
    (void)buf_adds(out, "\nshares() {\n    case ${1:-0} in\n");
    for (uint32_t k = 0; k < z->n; k++)
        (void)buf_addf(out, "    %u) memory_mib=%llu vcores=%u gpus=%s ;;\n", k,
                       (unsigned long long)z->v[k].memory_mib, z->v[k].vcores,
                       z->v[k].gpus ? "${CUDA_VISIBLE_DEVICES:-}" : "");
    (void)buf_adds(out, "    esac\n}\n");
}

/* For the master: of each component the number of its nodes and its roles. The nodes of the first
 * component have the first numbers. */
static void add_components(const struct job_spec *s, const struct slurm_size *z, struct buf *out)
{
    (void)buf_adds(out, "export TONY_SLURM_COMPONENTS='");
    for (uint32_t k = 0; k < z->n; k++) {
        (void)buf_addf(out, "%s%u", k ? " " : "", z->v[k].nodes);
        for (size_t i = 0; i < s->n_roles; i++)
            if (z->of_role[i] == k)
                (void)buf_addf(out, ":%s", s->roles[i].name);
    }
    (void)buf_adds(out, "'\n");
}

/* The steps of all nodes of the batch job. */
static void add_steps(const struct slurm_size *z, struct buf *out)
{
    uint32_t first = 0;
    (void)buf_adds(out, "all_steps() {\n");
    if (z->n == 1)
        (void)buf_adds(out, "    steps 0 \"$SLURM_JOB_NODELIST\"\n");
    for (uint32_t k = 0; z->n > 1 && k < z->n; k++) {
        (void)buf_addf(out, "    steps %u \"$SLURM_JOB_NODELIST_HET_GROUP_%u\" %u\n", first, k, k);
        first += z->v[k].nodes;
    }
    (void)buf_adds(out, "}\n");
}

int64_t slurm_needs_ms(const struct job_spec *s)
{
    return slurm_limit_needs_ms(s->checkpoint_grace_ms, s->kill_grace_ms, s->requeue_at_limit);
}

/* Slurm's notice may come a minute early, and is passed on to the tasks when they need the time. */
static int64_t notice_s(const struct job_spec *s)
{
    enum { EARLY_S = 60, ASKING_S = 5 };
    return slurm_needs_ms(s) / 1000 + EARLY_S + ASKING_S;
}

/* Variables of both scripts. */
static void add_variables(const struct conf *c, const char *id, const char *home, const char *dir,
                          const char *programs, struct buf *out)
{
    const char *ports = conf_get(c, "tony.port-range");
    (void)buf_adds(out, "unset SLURM_EXPORT_ENV\n");
    add_variable(out, "TONY_HOME", home);
    add_environment(out);
    add_variable(out, "id", id);
    add_variable(out, "job", dir);
    add_variable(out, "programs", programs);
    add_variable(out, "port_range", ports && *ports ? ports : NULL);
    (void)buf_adds(out,
                   "if [ -n \"${TONY_LOCAL:-}\" ]; then # on a node that does not see TONY_HOME\n"
                   "    export TONY_SHARED_HOME=\"$TONY_HOME\" TONY_HOME=\"$TONY_LOCAL\"\n"
                   "    job=$TONY_HOME/jobs/$id programs=$TONY_HOME/programs/${programs##*/}\n"
                   "fi\n");
}

int slurm_script(const struct conf *c, const struct job_spec *s, const struct slurm_size *size,
                 const char *id, const char *home, const char *programs, struct buf *out)
{
    AUTO(free_p) char *dir = str_printf("%s/jobs/%s", home, id);
    if (!dir)
        return -ENOMEM;
    (void)buf_adds(out, "#!/bin/sh\n");
    for (uint32_t k = 0; k < size->n; k++) {
        (void)buf_adds(out, k ? "#SBATCH hetjob\n" : "");
        add_name(s->name ? s->name : "job", out);
        add_nodes(c, &size->v[k], out);
        add_size(c, &size->v[k], out);
        (void)buf_addf(out, "#SBATCH --no-kill\n#SBATCH --%s\n",
                       conf_bool(c, "tony.slurm.requeue") ? "requeue" : "no-requeue");
        if (k == 0) {
            (void)buf_addf(out,
                           "#SBATCH --signal=B:USR1@%lld\n#SBATCH --export=NIL\n"
                           "#SBATCH --chdir=/\n#SBATCH --open-mode=append\n",
                           (long long)notice_s(s));
            add_output(dir, "batch.log", out);
        }
        slurm_add_keys(c, size->constraint[k], out);
        slurm_add_extra(c, out);
    }
    add_variables(c, id, home, dir, programs, out);
    if (size->n > 1)
        add_components(s, size, out);
    (void)buf_adds(out, "run=${SLURM_RESTART_COUNT:-0} base=0 master=\n");
    add_shares(size, out);
    add_steps(size, out);
    (void)buf_adds(out, keepers_part);
    (void)buf_adds(out, batch_part);
    return out->failed ? -ENOMEM : 0;
}

bool slurm_may_have_further(const struct conf *c, const struct slurm_size *size)
{
    return size->n == 1 && conf_bool(c, "tony.slurm.further-allocations");
}

int slurm_further_script(const struct conf *c, const struct slurm_size *size, const char *id,
                         const char *home, const char *programs, struct buf *out)
{
    AUTO(free_p) char *dir = str_printf("%s/jobs/%s", home, id);
    if (!dir)
        return -ENOMEM;
    (void)buf_adds(out, "#!/bin/sh\n");
    add_size(c, &size->v[0], out);
    (void)buf_adds(out, "#SBATCH --no-kill\n#SBATCH --no-requeue\n#SBATCH --export=NIL\n"
                        "#SBATCH --chdir=/\n#SBATCH --open-mode=append\n");
    add_output(dir, "further.log", out);
    slurm_add_keys(c, size->constraint[0], out);
    slurm_add_extra(c, out);
    /* The master finds its further allocations by this name: no extra argument may change it. */
    (void)buf_addf(out, "#SBATCH --job-name=tony-further-%s\n", id);
    add_variables(c, id, home, dir, programs, out);
    (void)buf_adds(out, "base=$1 run=$2 master=$(cat \"$job/address\")\nshift 2\n");
    add_shares(size, out);
    (void)buf_adds(out, keepers_part);
    (void)buf_adds(out, further_part);
    return out->failed ? -ENOMEM : 0;
}
