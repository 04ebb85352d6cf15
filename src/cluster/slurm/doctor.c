/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor on a machine that is a client of Slurm: its version and its partitions with their limits,
 * the commands that are missing, whether TONY_HOME is a directory that nodes share, and what the
 * settings of the site mean for a job that Slurm ends.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/base.h"
#include "base/fs.h"
#include "cluster/slurm/slurm_int.h"
#include "conf/conf.h"
#include "storage/paths.h"

enum { ASK_MS = 20000, PARTITIONS_MAX = 8, NODES_MAX = 16 };

static const char *const commands[] = { "sinfo", "sbatch", "squeue", "scancel", "scontrol" };

static bool in_path(const char *name)
{
    const char *path = getenv("PATH");
    struct span rest = span_of(path ? path : ""), dir;
    bool found = false;
    while (rest.len && !found && span_split(&rest, ':', &dir)) {
        AUTO(free_p) char *text = span_dup(dir);
        AUTO(free_p) char *file = text ? fs_join(text, name) : NULL;
        found = file && access(file, X_OK) == 0;
    }
    return found;
}

/* The output of a command, or NULL. why: the reason, in words; the caller frees both. */
static char *output_of(const char *const *argv, char **why)
{
    struct slurm_answer a;
    struct err e = { 0 };
    int rc = slurm_run(argv, NULL, ASK_MS, &a, &e);
    bool ok = rc == 0 && a.status == 0;
    char *text = ok ? span_dup(buf_span(&a.out)) : NULL;
    *why = ok ? NULL : rc < 0 ? str_dup(e.msg) : slurm_words(&a);
    slurm_answer_done(&a);
    return text;
}

static bool say_commands(cluster_finding_fn *add, void *arg)
{
    AUTO(buf_done) struct buf missing = { 0 };
    (void)buf_adds(&missing, "these commands are not in PATH: ");
    size_t none = missing.len;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (!in_path(commands[i]))
            (void)buf_addf(&missing, "%s%s", missing.len > none ? ", " : "", commands[i]);
    if (missing.len > none)
        add("slurm", CLUSTER_WRONG, "add the directory of Slurm's commands to PATH",
            buf_cstr(&missing), arg);
    return missing.len == none;
}

/* "all*|up|3|infinite|1-infinite": a partition and its limits. */
static void add_partition(struct span line, struct buf *out)
{
    struct span f[5] = { { 0 } };
    for (size_t i = 0; i < ARRAY_LEN(f) && line.len; i++)
        (void)span_split(&line, '|', &f[i]);
    if (!f[4].len)
        return;
    (void)buf_addf(out, "%s%.*s: %.*s nodes", out->len ? "; " : "", (int)f[0].len, f[0].p,
                   (int)f[2].len, f[2].p);
    if (!span_eqs(f[1], "up"))
        (void)buf_addf(out, ", %.*s", (int)f[1].len, f[1].p);
    if (!span_eqs(f[3], "infinite"))
        (void)buf_addf(out, ", time limit %.*s", (int)f[3].len, f[3].p);
    if (!span_eqs(f[4], "1-infinite"))
        (void)buf_addf(out, ", %.*s nodes for a job", (int)f[4].len, f[4].p);
}

static bool say_partitions(cluster_finding_fn *add, void *arg)
{
    const char *const version[] = { "sinfo", "--version", NULL };
    const char *const list[] = { "sinfo", "-h", "-o", "%P|%a|%D|%l|%s", NULL };
    AUTO(free_p) char *why_not = NULL;
    AUTO(free_p) char *why = NULL;
    AUTO(free_p) char *name = output_of(version, &why_not);
    AUTO(free_p) char *text = output_of(list, &why);
    AUTO(buf_done) struct buf out = { 0 };
    if (!text) {
        add("slurm", CLUSTER_WRONG, "look at slurmctld", why ? why : "sinfo does not answer", arg);
        return false;
    }
    struct span rest = span_of(text), line;
    unsigned n = 0;
    for (; rest.len && span_split(&rest, '\n', &line); n++)
        if (n < PARTITIONS_MAX)
            add_partition(line, &out);
    if (n > PARTITIONS_MAX)
        (void)buf_addf(&out, "; and %u more", n - PARTITIONS_MAX);
    struct span v = span_trim(span_of(name ? name : ""));
    AUTO(free_p)
    char *all = str_printf("%.*s, %s", (int)v.len, v.p, out.len ? buf_cstr(&out) : "no partition");
    add("slurm", n ? CLUSTER_FINE : CLUSTER_NOTE, n ? NULL : "jobs wait until there is a partition",
        all ? all : "", arg);
    return true;
}

/* ---- do the nodes see TONY_HOME? ---- */

/* The name of the type of the file system of this path. out_shared: nodes can share it. NULL: the
 * type is not in the table. Nodes may share it or not. */
static const char *file_system(const char *path, bool *out_shared)
{
    static const struct {
        unsigned long magic;
        const char *name;
        bool shared;
    } types[] = {
        { 0x6969, "NFS", true },        { 0x0bd00bd0, "Lustre", true },
        { 0x47504653, "GPFS", true },   { 0x19830326, "BeeGFS", true },
        { 0x00c36400, "Ceph", true },   { 0x5346414f, "AFS", true },
        { 0xff534d42, "CIFS", true },   { 0xfe534d42, "SMB", true },
        { 0xef53, "ext4", false },      { 0x58465342, "XFS", false },
        { 0x9123683e, "btrfs", false }, { 0x2fc12fc1, "ZFS", false },
        { 0x01021994, "tmpfs", false }, { 0x794c7630, "overlay", false },
    };
    struct statfs s;
    if (statfs(path, &s) == -1)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (types[i].magic == (unsigned long)s.f_type) {
            *out_shared = types[i].shared;
            return types[i].name;
        }
    return NULL;
}

/* Is a job in this directory whose batch script has written slurm_id there, from the first node? */
static bool has_run(const char *jobs)
{
    DIR *d = opendir(jobs);
    bool found = false;
    for (struct dirent *x; d && !found && (x = readdir(d));) {
        AUTO(free_p) char *path = str_printf("%s/%s/slurm_id", jobs, x->d_name);
        found = x->d_name[0] != '.' && path && access(path, F_OK) == 0;
    }
    if (d)
        (void)closedir(d);
    return found;
}

char *slurm_home_doubt(struct cluster_host *h)
{
    bool shared = true;
    struct err unread = { 0 };
    const char *name =
        host_look_paths(h, &unread) == 0 ? file_system(h->paths.home, &shared) : NULL;
    if (!name || shared || has_run(h->paths.jobs) || has_run(h->paths.history))
        return NULL;
    return str_printf("TONY_HOME '%s' is on %s, a file system of this machine", h->paths.home,
                      name);
}

static void say_home(struct cluster_host *h, cluster_finding_fn *add, void *arg)
{
    struct err e = { 0 };
    bool shared;
    const char *name = host_look_paths(h, &e) == 0 ? file_system(h->paths.home, &shared) : NULL;
    if (!name)
        return; /* if there is no TONY_HOME, the finding about it says why */
    AUTO(free_p)
    char *text = str_printf("TONY_HOME '%s' is on %s%s", h->paths.home, name,
                            shared ? "" : ", a file system of this machine");
    add("slurm home", shared ? CLUSTER_FINE : CLUSTER_NOTE,
        shared ? NULL : "the first node of a job must see it: " SLURM_HOME_ADVICE, text ? text : "",
        arg);
}

/* How many nodes of the partition are idle? NULL: of the default one. */
static int64_t count_idle(const char *partition)
{
    const char *const argv[] = { "sinfo", "-h", "-t", "idle", "-o", "%P|%D", NULL };
    AUTO(free_p) char *why = NULL;
    AUTO(free_p) char *text = output_of(argv, &why);
    struct span rest = span_of(text ? text : ""), line, name;
    int64_t n = 0;
    while (rest.len && span_split(&rest, '\n', &line)) {
        if (!line.len || !span_split(&line, '|', &name))
            continue;
        bool is_default = name.len && name.p[name.len - 1] == '*';
        name.len -= is_default;
        if (partition ? span_eqs(name, partition) : is_default)
            return str_i64(span_trim(line), 0, INT32_MAX, "nodes", &n, NULL) == 0 ? n : 0;
    }
    return 0;
}

/* Run a command on idle nodes, which tells of each whether it can write to TONY_HOME. The caller
 * frees the lines, "y NODE" or "n NODE". NULL: other jobs have taken the nodes meanwhile, or the
 * site does not let users run srun here. */
static char *ask_nodes(const char *home, const struct conf *conf, int64_t n)
{
    const char *partition = conf ? slurm_partition_of(conf) : NULL;
    const char *account = conf ? conf_get(conf, "tony.slurm.account") : NULL;
    const char *qos = conf ? conf_get(conf, "tony.slurm.qos") : NULL;
    struct strv argv = { 0 };
    AUTO(free_p) char *why = NULL;
    static const char *const fixed[] = {
        "srun",     "--quiet",   "--immediate=10", "--ntasks-per-node=1", "--mem=1",
        "--time=1", "--chdir=/", "--input=none",   "--mpi=none"
    };
    static const char *const command[] = {
        "sh", "-c", "[ -w \"$0\" ] && echo \"y $SLURMD_NODENAME\" || echo \"n $SLURMD_NODENAME\""
    };
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(fixed) && rc == 0; i++)
        rc = strv_push(&argv, fixed[i]);
    if (rc == 0)
        rc = strv_pushf(&argv, "--nodes=%d", (int)n);
    if (rc == 0 && partition)
        rc = strv_pushf(&argv, "--partition=%s", partition);
    if (rc == 0 && account && *account)
        rc = strv_pushf(&argv, "--account=%s", account);
    if (rc == 0 && qos && *qos)
        rc = strv_pushf(&argv, "--qos=%s", qos);
    for (size_t i = 0; i < ARRAY_LEN(command) && rc == 0; i++)
        rc = strv_push(&argv, command[i]);
    if (rc == 0)
        rc = strv_push(&argv, home);
    AUTO(free_p) const char **all = rc == 0 ? calloc(argv.n + 1, sizeof *all) : NULL;
    for (size_t i = 0; all && i < argv.n; i++)
        all[i] = argv.v[i];
    char *text = all ? output_of(all, &why) : NULL;
    strv_done(&argv);
    return text;
}

/* Say of up to NODES_MAX idle nodes whether they can use TONY_HOME. If none is idle, say nothing.
 */
static void say_nodes(struct cluster_host *h, const struct conf *conf, cluster_finding_fn *add,
                      void *arg)
{
    struct err unread = { 0 };
    if (host_look_paths(h, &unread) < 0 || access(h->paths.home, W_OK) == -1)
        return; /* the finding about TONY_HOME says why */
    int64_t idle = MIN(count_idle(conf ? slurm_partition_of(conf) : NULL), (int64_t)NODES_MAX);
    AUTO(free_p) char *text = idle > 0 ? ask_nodes(h->paths.home, conf, idle) : NULL;
    AUTO(buf_done) struct buf blind = { 0 };
    struct span rest = span_of(text ? text : ""), line, word;
    unsigned n_seeing = 0, n_blind = 0;
    while (rest.len && span_split(&rest, '\n', &line)) {
        if (!line.len || !memchr(line.p, ' ', line.len) || !span_split(&line, ' ', &word))
            continue;
        if (span_eqs(word, "y")) {
            n_seeing++;
        } else if (span_eqs(word, "n")) {
            n_blind++;
            (void)buf_addf(&blind, "%s%.*s", blind.len ? ", " : "", (int)line.len, line.p);
        }
    }
    AUTO(free_p)
    char *said = n_blind ? str_printf("these nodes cannot use TONY_HOME, so a job fails if its "
                                      "first node is one of them: %s",
                                      buf_cstr(&blind))
                         : str_printf("%u idle node%s can use TONY_HOME", n_seeing,
                                      n_seeing == 1 ? "" : "s");
    if (n_seeing + n_blind > 0 && said)
        add("slurm nodes",
            n_blind == 0   ? CLUSTER_FINE
            : n_seeing > 0 ? CLUSTER_NOTE
                           : CLUSTER_WRONG,
            n_blind == 0   ? NULL
            : n_seeing > 0 ? "mount the directory there, or keep such nodes out of your jobs by "
                             "tony.slurm.constraint or tony.slurm.exclude"
                           : SLURM_HOME_ADVICE,
            said, arg);
}

/* ---- settings of the site ---- */

static bool setting(struct span text, const char *name, struct span *out)
{
    struct span line, key;
    while (text.len && span_split(&text, '\n', &line)) {
        if (!line.len || !memchr(line.p, '=', line.len) || !span_split(&line, '=', &key))
            continue;
        *out = span_trim(line);
        if (span_eqs(span_trim(key), name))
            return true;
    }
    return false;
}

static bool has(struct span value, const char *word)
{
    AUTO(free_p) char *text = span_dup(value);
    return text && strstr(text, word);
}

static void say_settings(cluster_finding_fn *add, void *arg)
{
    const char *const argv[] = { "scontrol", "show", "config", NULL };
    AUTO(free_p) char *why = NULL;
    AUTO(free_p) char *text = output_of(argv, &why);
    AUTO(buf_done) struct buf out = { 0 };
    struct span value;
    if (!text)
        return; /* some sites do not let users read it */
    struct span all = span_of(text);
    const char *then = "";
    if (setting(all, "KillWait", &value)) {
        (void)buf_addf(&out, "KILL follows TERM after %.*s", (int)value.len, value.p);
        then = "; ";
    }
    if (setting(all, "SlurmdTimeout", &value)) {
        (void)buf_addf(&out, "%sa silent node is lost after %.*s", then, (int)value.len, value.p);
        then = "; ";
    }
    if (setting(all, "PreemptMode", &value) && !span_eqs(value, "OFF")) {
        bool told =
            setting(all, "SlurmctldParameters", &value) && has(value, "preempt_send_user_signal");
        (void)buf_addf(&out, "%sjobs may be preempted, %s", then,
                       told ? "with a notice" : "without a notice");
    }
    if (out.len)
        add("slurm limits", CLUSTER_FINE, NULL, buf_cstr(&out), arg);
}

void slurm_doctor(struct cluster_host *h, const struct conf *conf, cluster_finding_fn *add,
                  void *arg)
{
    if (!say_commands(add, arg) || !say_partitions(add, arg))
        return;
    say_home(h, add, arg);
    say_nodes(h, conf, add, arg);
    say_settings(add, arg);
}
