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
#include "storage/publish.h"
#include "storage/secrets.h"
#include "storage/tree.h"

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

const char *slurm_partition_of(const struct conf *c)
{
    const char *p = conf_get(c, "tony.slurm.partition"), *queue = conf_get(c, "tony.yarn.queue");
    const char *origin = conf_origin(c, "tony.yarn.queue");
    if (p && *p)
        return p;
    return queue && *queue && origin && !str_eq(origin, "default") ? queue : NULL;
}

static int read_nodes(const struct conf *c, slurm_nodes *out, struct err *e)
{
    const char *partition = slurm_partition_of(c);
    const char *argv[] = { "sinfo", "-h", "-N", "-o", SLURM_NODE_FIELDS, NULL, NULL, NULL };
    struct slurm_answer a;
    if (partition) {
        argv[5] = "-p";
        argv[6] = partition;
    }
    int rc = slurm_run(argv, NULL, SINFO_MS, &a, e);
    if (rc == 0 && a.status != 0)
        rc = slurm_failed(&a, "sinfo", e);
    if (rc == 0 && slurm_parse_nodes(buf_span(&a.out), !partition, out) < 0)
        rc = err_set(e, ENOMEM, "no memory for the nodes of the cluster");
    if (rc == 0 && out->n == 0 && partition)
        rc = err_set(e, ERANGE, "the partition '%s' does not exist, or has no node that runs jobs",
                     partition);
    slurm_answer_done(&a);
    return rc;
}

/* Refuse options of sbatch with which the job would run several times or not at all, and container
 * images, which tony does not start on Slurm. */
static int check_extra(const struct cluster_job *j, struct err *e)
{
    static const char *const refused[] = { "--array",    "-a",           "--requeue",
                                           "--wrap",     "-W",           "--kill-on-invalid-dep",
                                           "--no-kill",  "--no-requeue", "--wait",
                                           "--test-only" };
    struct strv list = { 0 };
    const char *text = conf_get(j->conf, "tony.slurm.extra-arguments");
    int rc = text && *text ? conf_list_parse(span_of(text), &list) : 0;
    for (size_t i = 0; rc >= 0 && i < list.n; i++)
        for (size_t k = 0; k < ARRAY_LEN(refused); k++) {
            size_t n = strlen(refused[k]);
            if (strncmp(list.v[i], refused[k], n) == 0 && strchr("= ", list.v[i][n])) {
                rc = err_set(e, EINVAL,
                             "tony.slurm.extra-arguments has '%s', an option that tony sets "
                             "itself: a job has one allocation, and tony.slurm.requeue says "
                             "whether Slurm may run it again",
                             list.v[i]);
                break;
            }
        }
    strv_done(&list);
    if (rc >= 0 &&
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
                       const struct slurm_size *size, struct cluster_plan *out)
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
    int rc = check_extra(j, &out->why);
    if (rc == 0)
        rc = check_limit(j, &out->why);
    out->refused = rc < 0;
    if (rc == 0)
        rc = read_nodes(j->conf, &nodes, &out->why);
    if (rc == 0) {
        out->capacity = capacity_json(&nodes);
        rc = slurm_choose_size(j->conf, j->spec, &nodes, &size, &out->why);
    }
    out->refused = out->refused || rc == -ERANGE || rc == -EINVAL;
    rc = rc == 0 ? show_script(k, j, &size, out) : 0;
    slurm_size_done(&size);
    vec_done(&nodes);
    return rc < 0 ? no_memory(e) : 0;
}

/* ---- the programs ---- */

static int copy_program(const char *from, const char *dir, const char *name, struct err *e)
{
    static const struct tree_copy_opts opts = { .read_only = true };
    AUTO(close_p) int fd = open(from, O_RDONLY | O_CLOEXEC);
    AUTO(close_p) int to = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (fd == -1 || to == -1 || fstat(fd, &st) == -1)
        return err_set(e, errno, "cannot copy '%s' to '%s': %m", from, dir);
    return tree_copy_file(fd, &st, from, to, name, &opts, e);
}

/* Copy the two programs to programs/<version>-<size>-<time>/ of TONY_HOME, unless they are there.
 */
static int put_programs(struct slurm_cluster *s, struct err *e)
{
    static const char *const names[] = { "tony-master", "tony-executor" };
    struct cluster_host *h = s->head.cfg.host;
    AUTO(free_p) char *master = paths_program(names[0]), *executor = paths_program(names[1]);
    const char *const from[] = { master, executor };
    struct stat st[2];
    if (!master || !executor || stat(master, &st[0]) == -1 || stat(executor, &st[1]) == -1) {
        (void)err_set(e, ENOENT, "cannot find the programs 'tony-master' and 'tony-executor'");
        return err_hint(e, "install tony again; tony doctor shows which programs are missing");
    }
    char name[120];
    (void)snprintf(name, sizeof name, "%s-%llx-%llx-%llx-%llx", h->version,
                   (unsigned long long)st[0].st_size, (unsigned long long)st[0].st_mtime,
                   (unsigned long long)st[1].st_size, (unsigned long long)st[1].st_mtime);
    AUTO(free_p) char *all = fs_join(h->paths.home, "programs");
    s->programs = all ? fs_join(all, name) : NULL;
    AUTO(free_p) char *half = all ? str_printf("%s/.new-%d", all, (int)getpid()) : NULL;
    int rc = s->programs && half ? fs_mkdirs(all, 0700, e)
                                 : err_set(e, ENOMEM, "no memory to copy tony's programs");
    if (rc == 0 && access(s->programs, X_OK) == -1) {
        rc = fs_mkdirs(half, 0700, e);
        for (size_t i = 0; rc == 0 && i < ARRAY_LEN(names); i++)
            rc = copy_program(from[i], half, names[i], e);
        if (rc == 0 && rename(half, s->programs) == -1 && access(s->programs, X_OK) == -1)
            rc = err_set(e, errno, "cannot make directory '%s': %m", s->programs);
        (void)fs_remove_tree(AT_FDCWD, half, NULL); /* it is there if another client was faster */
    }
    return rc;
}

int slurm_stage(struct cluster *k, struct cluster_job *j, struct err *e)
{
    struct slurm_cluster *s = (struct slurm_cluster *)(void *)k;
    slurm_nodes nodes = { 0 };
    int rc = check_extra(j, e);
    if (rc == 0)
        rc = check_limit(j, e);
    if (rc < 0)
        return rc;
    rc = read_nodes(j->conf, &nodes, e);
    if (rc == 0)
        rc = slurm_choose_size(j->conf, j->spec, &nodes, &s->size, e);
    vec_done(&nodes);
    if (rc < 0)
        return rc == -ERANGE || rc == -EINVAL ? -EXIT_MISUSE : -EXIT_CLUSTER;
    if (host_open_paths(slurm_host(k), e) < 0)
        return -EXIT_CLUSTER;
    slurm_adopt_all(slurm_host(k));
    rc = ship_put(slurm_host(k), j, e);
    if (rc == 0 && put_programs(s, e) < 0)
        rc = -EXIT_CLUSTER;
    return rc;
}

/* ---- the job's directory ---- */

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
    AUTO(free_p) char *half = str_printf("%s/.slurm-%d", h->paths.jobs, (int)getpid());
    if (!half)
        return err_set(e, ENOMEM, "no memory to submit the job");
    (void)fs_remove_tree(AT_FDCWD, half, NULL);   /* of a dead client with the same pid */
    for (int64_t now = clock_wall_ms();; now++) { /* another client may take the same id */
        app_id_format(id, now, number + 1);
        AUTO(free_p) char *dir = paths_job(&h->paths, id);
        int rc = dir ? fill(s, j, id, half, owned, e)
                     : err_set(e, ENOMEM, "no memory to submit the job");
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

static int run_sbatch(const char *dir, char number[static 32], struct err *e)
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
    if (a.status != 0 || slurm_parse_number(buf_span(&a.out), number) < 0) {
        (void)err_set(e, EINVAL, "Slurm refuses the job: %s",
                      words && *words ? words : "sbatch gives no reason");
        err_hint(e, "tony plan shows the script that sbatch gets");
        rc = slurm_is_trouble(words ? words : "") ? -EXIT_CLUSTER : -EXIT_MISUSE;
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
    rc = run_sbatch(dir, number, e);
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
    AUTO(free_p) char *doubt = slurm_home_doubt(slurm_host(k));
    if (doubt)
        (void)strv_pushf(
            &out->said,
            "%s; if the first node of the job does not see it, the job fails: " SLURM_HOME_ADVICE,
            doubt);
    if (s->size.n > 1)
        (void)strv_pushf(&out->said,
                         "it has %u components, which Slurm starts together in a backfill cycle",
                         s->size.n);
    for (uint32_t i = 0; s->size.n > 1 && i < s->size.n; i++)
        if (s->size.v[i].nodes == 1) {
            (void)strv_pushf(
                &out->said, "one of them has a single node: Slurm ends the job if any of its nodes "
                            "fails; with tony.slurm.spare-nodes: 1 it runs on");
            break;
        }
    return 0;
}
