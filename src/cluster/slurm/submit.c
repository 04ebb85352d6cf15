/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans, stages and submits a job.
 *
 * 1. stage: the size of the allocation is chosen from what sinfo says. The shipped content goes
 * into the store, and the programs of tony into programs/ of TONY_HOME.
 * 2. submit: the directory of the job is made in jobs/, then sbatch is run. If the client dies in
 *    between, the directory has no job number of Slurm: see adopt.c.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/slurm/slurm_int.h"
#include "conf/conf.h"
#include "storage/jobkey.h"
#include "storage/programs.h"
#include "storage/publish.h"
#include "storage/secrets.h"

enum {
    SINFO_MS = 20000,
    SBATCH_MS = 60000,
};

static int no_memory(struct err *e)
{
    (void)err_set(e, ENOMEM, "no memory to submit the job");
    return -EXIT_CLUSTER;
}

/* ---- the size ---- */

static int ask_nodes(const char *partition, struct slurm_answer *out, struct err *e)
{
    const char *argv[] = { "sinfo", "-h", "-N", "-o", SLURM_NODE_FIELDS, NULL, NULL, NULL };
    if (partition) {
        argv[5] = "-p";
        argv[6] = partition;
    }
    int rc = slurm_run(argv, NULL, SINFO_MS, out, e);
    return rc == 0 && out->status != 0 ? slurm_failed(out, "sinfo", e) : rc;
}

#define LOOK_AT_NODES "sinfo -N -o '%N %c %m %G %f %t' shows what each node has"

/* There are no nodes of this choice. */
static int no_nodes(const struct slurm_choice *which, const char *partition, struct err *e)
{
    if (which->exclude && *which->exclude) {
        (void)err_set(e, ERANGE, "tony.slurm.exclude leaves no node of %s%s%s",
                      partition ? "the partition '" : "the default partition",
                      partition ? partition : "", partition ? "'" : "");
        return err_hint(e, "sinfo shows the nodes of each partition");
    }
    (void)err_set(e, ERANGE, "%s%s%s",
                  partition ? "the partition '" : "the default partition of Slurm",
                  partition ? partition : "",
                  partition ? "' does not exist, or has no node" : " has no node");
    return err_hint(e, "sinfo lists the partitions; tony.slurm.partition chooses one");
}

/* The size of the job's request, by the nodes that may run jobs now. If these are too few, nodes
 * count that are down or drained: Slurm takes such a job, too, and starts it when they return.
 * nodes: those that may run jobs now. *out_note: what to tell the user; NULL = nothing. -ERANGE:
 * the nodes can never hold the job; -EINVAL: its keys contradict each other. */
static int choose_size(const struct cluster_job *j, slurm_nodes *nodes, struct slurm_size *out,
                       char **out_note, struct err *e)
{
    const char *partition = slurm_partition_of(j->conf);
    struct slurm_choice which = { .default_only = !partition,
                                  .exclude = conf_get(j->conf, "tony.slurm.exclude") };
    slurm_nodes all = { 0 };
    struct slurm_answer a;
    struct err unread = { 0 };
    uint32_t n = 0, n_all = 0;
    *out_note = NULL;
    int rc = ask_nodes(partition, &a, e);
    if (rc == 0 && slurm_parse_nodes(buf_span(&a.out), &which, nodes) < 0)
        rc = err_set(e, ENOMEM, "no memory for the nodes of the cluster");
    which.unusable = true;
    if (rc == 0 && slurm_parse_nodes(buf_span(&a.out), &which, &all) < 0)
        rc = err_set(e, ENOMEM, "no memory for the nodes of the cluster");
    slurm_answer_done(&a);
    if (rc == 0 && all.n == 0)
        rc = no_nodes(&which, partition, e);
    else if (rc == 0)
        rc = slurm_choose_size(j->conf, j->spec, nodes, out, e);
    for (size_t i = 0; i < nodes->n; i++)
        n += nodes->v[i].n;
    for (size_t i = 0; i < all.n; i++)
        n_all += all.v[i].n;
    if (rc == -ERANGE && n_all > n) {
        slurm_size_done(out);
        if (slurm_choose_size(j->conf, j->spec, &all, out, &unread) == 0) {
            rc = 0;
            err_clear(e);
            *out_note = str_printf("%u of the %u nodes of the partition are down, drained or "
                                   "booting, and the job needs some of them: Slurm starts it when "
                                   "they return (sinfo -R shows why they are away)",
                                   n_all - n, n_all);
        } else {
            slurm_size_done(out);
            *e = unread;
        }
    }
    vec_done(&all);
    if (rc == -ERANGE && !e->hint[0])
        err_hint(e, "%s", LOOK_AT_NODES);
    return rc;
}

/* The path of TONY_HOME is in an option of sbatch. */
static int check_home(struct cluster_host *h, struct err *e)
{
    struct err unread = { 0 };
    if (host_look_paths(h, &unread) < 0) /* slurm_stage() says why */
        return 0;
    for (const char *p = h->paths.home; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127) {
            (void)err_set(e, EINVAL,
                          "the path of TONY_HOME contains a line break or another control "
                          "character, which sbatch cannot read in an option");
            return err_hint(e, "set TONY_HOME to another directory");
        }
    return 0;
}

/* Refuse container images, too: tony does not start them on Slurm. */
static int check_keys(struct cluster *k, const struct cluster_job *j, struct err *e)
{
    int rc = slurm_check_options(j->conf, j->spec, e);
    if (rc == 0)
        rc = check_home(slurm_host(k), e);
    if (rc == 0 &&
        conf_bool(j->conf, "tony.docker.enabled")) { /* tasks would run without the image */
        rc = err_set(e, EINVAL, "%s: container images are not supported on Slurm",
                     conf_origin(j->conf, "tony.docker.enabled"));
        err_hint(e, "leave tony.docker.enabled out, and call the site's container program in the "
                    "command");
    }
    return rc < 0 ? -EXIT_MISUSE : 0;
}

/* With such a limit each run of the job would end as soon as it has begun. */
static int check_limit(const struct cluster_job *j, struct err *e)
{
    int64_t limit_ms = slurm_limit_ms(j->conf);
    int64_t needed_ms = slurm_needs_ms(j->spec);
    if (limit_ms == 0 || limit_ms > needed_ms)
        return 0;
    (void)err_set(e, EINVAL,
                  "a time limit of %lld s leaves the job no time to run: its tasks would have to "
                  "save a checkpoint %lld s before the end",
                  (long long)limit_ms / 1000, (long long)needed_ms / 1000);
    err_hint(e, "give the job more time (tony.slurm.time-limit), or its tasks less for the "
                "checkpoint (tony.task.checkpoint-grace)");
    return -EXIT_MISUSE;
}

/* ---- plan ---- */

static json_t *capacity_json(const slurm_nodes *nodes)
{
    json_int_t n = 0, memory = 0, vcores = 0, gpus = 0;
    for (size_t i = 0; i < nodes->n; i++) {
        const struct slurm_node *k = &nodes->v[i];
        n += k->n;
        memory += (json_int_t)(k->n * k->memory_mib);
        vcores += (json_int_t)k->n * k->vcores;
        gpus += (json_int_t)k->n * k->gpus;
    }
    return json_pack("{s:I, s:I, s:I, s:I}", "memory_mib", memory, "gpus", gpus, "vcores", vcores,
                     "nodes", n);
}

/* An array of the components; an ordinary allocation has one. */
static json_t *components_json(const struct slurm_size *z)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < z->n; i++) {
        const struct slurm_shape *v = &z->v[i];
        (void)json_array_append_new(
            list, json_pack("{s:i, s:I, s:i, s:i}", "nodes", (int)v->nodes, "memory_mib",
                            (json_int_t)(v->memory_mib + v->overhead_mib), "vcores", (int)v->vcores,
                            "gpus", (int)v->gpus));
    }
    return list;
}

static int show_history(const struct conf *c, struct cluster_plan *out)
{
    const char *history = conf_get(c, "tony.history.location");
    if (!history || !*history || publish_place(history))
        return 0;
    return strv_pushf(&out->shown,
                      "# on Slurm tony.history.location must be an absolute path of this machine; "
                      "'%s' has no effect",
                      history);
}

static int show_doubt(struct cluster_host *h, struct cluster_plan *out)
{
    AUTO(free_p) char *doubt = slurm_home_doubt(h);
    return !doubt ? 0
                  : strv_pushf(&out->shown,
                               "# %s. If the first node of the job does not see it, the job fails "
                               "before a task starts. To prevent that, " SLURM_HOME_ADVICE ". "
                               "tony doctor --cluster slurm asks idle nodes whether they see it.",
                               doubt);
}

static int show_script(struct cluster *k, const struct cluster_job *j,
                       const struct slurm_size *size, const char *note, struct cluster_plan *out)
{
    struct cluster_host *h = slurm_host(k);
    AUTO(buf_done) struct buf text = { 0 };
    struct err unread = { 0 };
    const char *home = host_look_paths(h, &unread) == 0 ? h->paths.home : "$TONY_HOME";
    AUTO(free_p) char *programs = str_printf("%s/programs/VERSION", home);
    int rc = slurm_script(j->conf, j->spec, size, "APPLICATION_ID", home, programs, &text);
    bool further = slurm_may_have_further(j->conf, size);
    struct span rest = buf_span(&text), line;
    while (rc == 0 && rest.len && span_split(&rest, '\n', &line))
        rc = strv_take(&out->shown, span_dup(line));
    if (rc == 0)
        rc =
            strv_take(&out->shown,
                      str_dup(further ? "# If a node is lost and no spare node has room, or if the "
                                        "job grows, the master submits"
                                      : "# A lost node is replaced only by a spare node."));
    if (rc == 0 && further)
        rc = strv_take(&out->shown, str_dup("# further batch jobs with nodes of the same size "
                                            "(tony.slurm.further-allocations)."));
    if (rc == 0 && note)
        rc = strv_pushf(&out->shown, "# %s.", note);
    if (rc == 0)
        rc = show_history(j->conf, out);
    if (rc == 0)
        rc = show_doubt(h, out);
    if (rc == 0)
        out->more = json_pack("{s:s, s:{s:i, s:I, s:i, s:i, s:o}}", "script", buf_cstr(&text),
                              "slurm", "nodes", (int)slurm_size_nodes(size), "memory_mib",
                              (json_int_t)(size->v[0].memory_mib + size->v[0].overhead_mib),
                              "vcores", (int)size->v[0].vcores, "gpus", (int)size->v[0].gpus,
                              "components", components_json(size));
    return rc;
}

int slurm_plan(struct cluster *k, struct cluster_job *j, struct cluster_plan *out, struct err *e)
{
    slurm_nodes nodes = { 0 };
    struct slurm_size size = { 0 };
    AUTO(free_p) char *note = NULL;
    int rc = check_keys(k, j, &out->why);
    if (rc == 0)
        rc = check_limit(j, &out->why);
    out->refused = rc < 0;
    if (rc == 0) {
        rc = choose_size(j, &nodes, &size, &note, &out->why);
        out->refused = rc == -ERANGE || rc == -EINVAL;
        if (nodes.n)
            out->capacity = capacity_json(&nodes);
    }
    rc = rc == 0 ? show_script(k, j, &size, note, out) : 0;
    slurm_size_done(&size);
    vec_done(&nodes);
    return rc < 0 ? no_memory(e) : 0;
}

/* ---- stage ---- */

int slurm_stage(struct cluster *k, struct cluster_job *j, struct err *e)
{
    struct slurm_cluster *s = (struct slurm_cluster *)(void *)k;
    slurm_nodes nodes = { 0 };
    int rc = check_keys(k, j, e);
    if (rc == 0)
        rc = check_limit(j, e);
    if (rc < 0)
        return rc;
    free(TAKE(s->note));
    rc = choose_size(j, &nodes, &s->size, &s->note, e);
    vec_done(&nodes);
    if (rc < 0)
        return rc == -ERANGE || rc == -EINVAL ? -EXIT_MISUSE : -EXIT_CLUSTER;
    if (host_open_paths(slurm_host(k), e) < 0)
        return -EXIT_CLUSTER;
    slurm_adopt_all(slurm_host(k));
    rc = ship_put(slurm_host(k), j, e);
    if (rc == 0 && programs_put(&slurm_host(k)->paths, slurm_host(k)->version, &s->programs, e) < 0)
        rc = -EXIT_CLUSTER;
    return rc;
}

/* ---- the job's directory ---- */

/* The directory of a job that is being submitted; mkdtemp() completes the name. Several machines,
 * whose clients may have the same pid, may use one TONY_HOME. */
#define HALF ".slurm-"
enum { HALF_AGE_S = 24 * 3600 }; /* of one whose client has died */

static void remove_old_halves(const char *jobs)
{
    DIR *d = opendir(jobs);
    struct stat st;
    for (struct dirent *x; d && (x = readdir(d));)
        if (str_starts(x->d_name, HALF) && fstatat(dirfd(d), x->d_name, &st, 0) == 0 &&
            clock_wall_ms() / 1000 - st.st_mtime > HALF_AGE_S)
            (void)fs_remove_tree(dirfd(d), x->d_name, NULL); /* else the next client tries it */
    if (d)
        (void)closedir(d);
}

static void highest_number(const char *dir, uint32_t *highest)
{
    DIR *d = opendir(dir);
    for (struct dirent *x; d && (x = readdir(d));) {
        int64_t start;
        uint32_t n;
        if (app_id_parse(x->d_name, &start, &n, NULL) == 0)
            *highest = MAX(*highest, n);
    }
    if (d)
        (void)closedir(d);
}

static int write_file(const char *dir, const char *name, const void *bytes, size_t n, struct err *e)
{
    AUTO(free_p) char *path = fs_join(dir, name);
    if (!path)
        return err_set(e, ENOMEM, "no memory to submit the job");
    AUTO(close_p) int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int rc = fd == -1 ? -errno : fs_write_all(fd, bytes, n);
    if (rc == 0 && fsync(fd) == -1)
        rc = -errno;
    return rc < 0 ? err_set(e, -rc, "cannot write '%s': %m", path) : 0;
}

/* slurm.json: for an arbiter, the share of a node. slurm_record_number() adds the number of the
 * job. */
static void describe(const struct slurm_size *z, char out[static 200])
{
    const struct slurm_shape *s = &z->v[0];
    char shape[120] = "";
    if (z->n == 1)
        (void)snprintf(shape, sizeof shape,
                       "\"shape\":{\"nodes\":%u,\"memory_mib\":%llu,\"vcores\":%u,\"gpus\":%u}",
                       s->nodes, (unsigned long long)(s->memory_mib + s->overhead_mib), s->vcores,
                       s->gpus);
    (void)snprintf(out, 200, "{%s}\n", shape);
}

static int fill(struct slurm_cluster *s, struct cluster_job *j, const char *id, const char *dir,
                bool owned, struct err *e)
{
    struct cluster_host *h = s->head.cfg.host;
    AUTO(buf_done) struct buf conf = { 0 }, script = { 0 }, further = { 0 };
    AUTO(free_p) char *nodes = fs_join(dir, "nodes");
    struct job_key key;
    char about[200];
    describe(&s->size, about);
    int rc = nodes ? fs_mkdirs(nodes, 0700, e) : err_set(e, ENOMEM, "no memory to submit the job");
    if (rc == 0)
        rc = job_conf_text(h, j, &conf, e);
    if (rc == 0)
        rc = job_key_new(&key, e);
    if (rc == 0 &&
        slurm_script(j->conf, j->spec, &s->size, id, h->paths.home, s->programs, &script) < 0)
        rc = err_set(e, ENOMEM, "no memory to submit the job");
    bool may_grow = slurm_may_have_further(j->conf, &s->size);
    if (rc == 0 && may_grow &&
        slurm_further_script(j->conf, &s->size, id, h->paths.home, s->programs, &further) < 0)
        rc = err_set(e, ENOMEM, "no memory to submit the job");
    if (rc == 0 && may_grow)
        rc = write_file(dir, "script.further", further.p, further.len, e);
    if (rc == 0)
        rc = write_file(dir, "job.conf", conf.p, conf.len, e);
    if (rc == 0)
        rc = write_file(dir, "key", key.bytes, sizeof key.bytes, e);
    if (rc == 0 && j->secrets.len)
        rc = write_file(dir, SECRETS_FILE, j->secrets.p, j->secrets.len, e);
    if (rc == 0)
        rc = write_file(dir, "script", script.p, script.len, e);
    if (rc == 0)
        rc = write_file(dir, "slurm.json", about, strlen(about), e);
    if (rc == 0 && owned)
        rc = write_file(dir, "owned", "", 0, e);
    const char *place = publish_place(conf_get(j->conf, "tony.history.location"));
    if (rc == 0 && place)
        rc = write_file(dir, PUBLISH_FILE, place, strlen(place), e);
    job_key_wipe(&key, sizeof key);
    return rc;
}

/* Make jobs/<id>. Its number is the next one of this home. */
static int make_dir(struct slurm_cluster *s, struct cluster_job *j, bool owned, char id[APP_ID_MAX],
                    char **out, struct err *e)
{
    struct cluster_host *h = s->head.cfg.host;
    uint32_t number = 0;
    highest_number(h->paths.jobs, &number);
    highest_number(h->paths.history, &number);
    remove_old_halves(h->paths.jobs);
    for (int64_t now = clock_wall_ms();; now++) { /* another client may take the same id */
        app_id_format(id, now, number + 1);
        AUTO(free_p) char *dir = paths_job(&h->paths, id);
        AUTO(free_p) char *half = fs_join(h->paths.jobs, HALF "XXXXXX");
        if (!dir || !half)
            return err_set(e, ENOMEM, "no memory to submit the job");
        if (!mkdtemp(half))
            return err_set(e, errno, "cannot make a directory in '%s': %m", h->paths.jobs);
        int rc = fill(s, j, id, half, owned, e);
        if (rc == 0 && rename(half, dir) == 0) {
            *out = TAKE(dir);
            return 0;
        }
        int num = errno;
        (void)fs_remove_tree(AT_FDCWD, half, NULL);
        if (rc < 0 || (num != EEXIST && num != ENOTEMPTY))
            return rc < 0 ? rc : err_set(e, num, "cannot make directory '%s': %m", dir);
    }
}

/* ---- sbatch ---- */

/* "3 nodes with 212 MiB, 1 cores and gpu:h100:2 each; 1 nodes with ..." */
static void describe_request(const struct conf *c, const struct slurm_size *z, struct buf *out)
{
    const char *type = conf_get(c, "tony.slurm.gpu-type");
    for (uint32_t i = 0; i < z->n; i++) {
        const struct slurm_shape *v = &z->v[i];
        (void)buf_addf(out, "%s%u node%s with %llu MiB, %u core%s", i ? "; " : "", v->nodes,
                       v->nodes == 1 ? "" : "s",
                       (unsigned long long)(v->memory_mib + v->overhead_mib), v->vcores,
                       v->vcores == 1 ? "" : "s");
        if (v->gpus)
            (void)buf_addf(out, " and gpu:%s%s%u", type && *type ? type : "",
                           type && *type ? ":" : "", v->gpus);
        (void)buf_adds(out, v->nodes == 1 ? "" : " each");
    }
}

static int run_sbatch(const struct slurm_cluster *s, const struct conf *c, const char *dir,
                      char number[static 32], struct err *e)
{
    AUTO(free_p) char *script = fs_join(dir, "script");
    if (!script)
        return no_memory(e);
    const char *argv[] = { "sbatch", "--parsable", script, NULL };
    struct slurm_answer a;
    if (slurm_run(argv, NULL, SBATCH_MS, &a, e) < 0) {
        slurm_answer_done(&a);
        return -EXIT_CLUSTER;
    }
    AUTO(free_p) char *words = slurm_words(&a);
    int rc = 0;
    if (a.status != 0 && slurm_is_trouble(words ? words : "")) {
        (void)slurm_failed(&a, "sbatch", e);
        rc = -EXIT_CLUSTER;
    } else if (a.status != 0 || slurm_parse_number(buf_span(&a.out), number) < 0) {
        AUTO(buf_done) struct buf asked = { 0 };
        describe_request(c, &s->size, &asked);
        (void)err_set(e, EINVAL, "Slurm refuses the job: %s; the job asks for %s",
                      words && *words ? words : "sbatch gives no reason", buf_cstr(&asked));
        err_hint(e, "%s", "tony plan shows the script that sbatch gets; " LOOK_AT_NODES);
        rc = -EXIT_MISUSE;
    }
    slurm_answer_done(&a);
    return rc;
}

/* Has somebody stopped the job meanwhile? Its batch script would find no directory. number: "" =
 * Slurm has not got the job. */
static int check_there(struct slurm_cluster *s, const char *id, const char *dir, const char *number,
                       struct err *e)
{
    AUTO(free_p) char *past = paths_history(&s->head.cfg.host->paths, id);
    AUTO(free_p) char *ran = past ? fs_join(past, "slurm_id") : NULL; /* a quick job is over */
    const char *const argv[] = { "scancel", number, NULL };
    struct slurm_answer a;
    struct err unread = { 0 };
    if (access(dir, F_OK) == 0 || !ran || access(ran, F_OK) == 0)
        return 0;
    if (number[0]) {
        (void)slurm_run(argv, NULL, SBATCH_MS, &a, &unread);
        slurm_answer_done(&a);
    }
    err_clear(e);
    (void)err_set(e, ECANCELED, "job %s was stopped while it was submitted", id);
    return -EXIT_STOPPED;
}

/* Warn the user of `tony run` or `tony submit` about the job that was just submitted. */
static void warn(const struct slurm_cluster *s)
{
    struct cluster_host *h = s->head.cfg.host;
    AUTO(free_p) char *doubt = slurm_home_doubt(h);
    if (doubt)
        host_note(h,
                  "%s; if the first node of the job does not see it, the job fails: "
                  "" SLURM_HOME_ADVICE,
                  doubt);
    if (s->note)
        host_note(h, "%s", s->note);
    for (uint32_t i = 0; s->size.n > 1 && i < s->size.n; i++)
        if (s->size.v[i].nodes == 1) {
            host_note(h, "one of the components has a single node: Slurm ends the job if any of "
                         "its nodes fails; with tony.slurm.spare-nodes: 1 it runs on");
            break;
        }
}

int slurm_submit(struct cluster *k, struct cluster_job *j, bool owned,
                 struct cluster_submitted *out, struct err *e)
{
    struct slurm_cluster *s = (struct slurm_cluster *)(void *)k;
    AUTO(free_p) char *dir = NULL;
    char number[32] = "";
    int rc = make_dir(s, j, owned, out->id, &dir, e);
    if (rc < 0)
        return rc == -EILSEQ ? -EXIT_MISUSE : -EXIT_CLUSTER;
    if (owned)
        signals_hold();
    rc = run_sbatch(s, j->conf, dir, number, e);
    if (rc < 0 && check_there(s, out->id, dir, "", e) < 0)
        return -EXIT_STOPPED;
    if (rc < 0) {
        (void)fs_remove_tree(AT_FDCWD, dir,
                             NULL); /* a script that was accepted ends at once then */
        return rc;
    }
    struct err unread = { 0 };
    if (slurm_record_number(dir, number, &unread) < 0 && /* the script writes the number, too */
        (rc = check_there(s, out->id, dir, number, e)) < 0)
        return rc;
    uint32_t nodes = slurm_size_nodes(&s->size);
    (void)strv_pushf(&out->said,
                     "submitted %s as %s, job %s of Slurm on %u node%s; logs in %s/logs",
                     j->spec->name, out->id, number, nodes, nodes == 1 ? "" : "s", dir);
    if (s->size.n > 1)
        (void)strv_pushf(&out->said,
                         "it has %u components, which Slurm starts together in a backfill cycle",
                         s->size.n);
    warn(s);
    host_tidy(s->head.cfg.host);
    return 0;
}
