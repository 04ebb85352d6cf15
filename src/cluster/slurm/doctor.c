/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor on a machine that is a client of Slurm: its version and its partitions with their limits,
 * the commands that are missing, whether TONY_HOME can be a directory that nodes share, and what
 * the settings of the site mean for a job that Slurm ends.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/base.h"
#include "base/fs.h"
#include "cluster/slurm/slurm_int.h"
#include "storage/paths.h"

enum { ASK_MS = 20000, PARTITIONS_MAX = 8 };

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

/* Say on which file system TONY_HOME is, and whether nodes can share it. About a type that is not
 * in the table nothing is said: it may be shared or not. */
static void say_home(struct cluster_host *h, cluster_finding_fn *add, void *arg)
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
    struct err e = { 0 };
    if (host_look_paths(h, &e) < 0 || statfs(h->paths.home, &s) == -1)
        return; /* the finding about TONY_HOME says why */
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (types[i].magic != (unsigned long)s.f_type)
            continue;
        AUTO(free_p)
        char *text = str_printf("TONY_HOME '%s' is on %s%s", h->paths.home, types[i].name,
                                types[i].shared ? "" : ", a file system of this machine");
        add("slurm home", types[i].shared ? CLUSTER_FINE : CLUSTER_NOTE,
            types[i].shared
                ? NULL
                : "the first node of a job must see it: export it, or set TONY_HOME to a "
                  "directory that the nodes share (docs/slurm.md)",
            text ? text : "", arg);
        return;
    }
}

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
    (void)conf;
    if (!say_commands(add, arg) || !say_partitions(add, arg))
        return;
    say_home(h, add, arg);
    say_settings(add, arg);
}
