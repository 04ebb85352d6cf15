/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor: reports what this machine offers, what is wrong with it, and what each configuration key
 * does here.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/base.h"
#include "cgroup/place.h"
#include "cgroup/scope.h"
#include "client/client_int.h"
#include "client/pool/ask.h"
#include "client/show/doctor.h"
#include "client/show/machine.h"
#include "conf/conf.h"
#include "proto/tony.pb-c.h"
#include "storage/gpulock.h"

/* ---- the list of findings ---- */

void doctor_add(json_t *checks, const char *name, enum finding f, const char *hint, const char *fmt,
                ...)
{
    static const char *const words[] = { "", "ok", "note", "wrong" };
    AUTO(buf_done) struct buf value = { 0 };
    va_list ap;
    va_start(ap, fmt);
    (void)buf_vaddf(&value, fmt, ap);
    va_end(ap);
    (void)json_array_append_new(checks, json_pack("{s:s, s:s, s:s, s:s}", "name", name, "state",
                                                  words[f], "value", buf_cstr(&value), "hint",
                                                  f == FINE || !hint ? "" : hint));
}

/* ---- the machine ---- */

static void check_machine(json_t *checks)
{
    struct utsname un;
    if (uname(&un) == 0)
        doctor_add(checks, "system", FINE, NULL, "%s %s, %s", un.sysname, un.release, un.machine);
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                            : (int)sysconf(_SC_NPROCESSORS_ONLN);
    doctor_add(checks, "cores", FINE, NULL, "%d", cores);

    uint64_t total = 0, available = 0;
    char a[32], b[32];
    if (machine_memory(&total, &available) < 0)
        doctor_add(checks, "memory", WRONG, "mount /proc", "/proc/meminfo cannot be read");
    else
        doctor_add(checks, "memory", available < (UINT64_C(256) << 20) ? NOTE : FINE,
                   "little is free: tasks may be killed", "%s, %s available",
                   str_size(total, a, sizeof a), str_size(available, b, sizeof b));
}

static void check_gpus(json_t *checks, json_t **out_gpus)
{
    struct err e = { 0 };
    json_t *gpus = json_array();
    int rc = machine_gpus(gpus, &e);
    if (rc < 0)
        doctor_add(checks, "GPUs", NOTE, "they are found through NVIDIA's libnvidia-ml.so.1",
                   "none: %s", e.msg);
    else if (json_array_size(gpus) == 0)
        doctor_add(checks, "GPUs", FINE, NULL, "none");
    size_t i;
    json_t *gpu;
    json_array_foreach(gpus, i, gpu)
    {
        char memory[32];
        int64_t index = doc_int(gpu, "index", (int64_t)i);
        AUTO(buf_done) struct buf by = { 0 };
        bool claimed = gpulock_describe(gpulock_dir(), (uint32_t)index, &by);
        doctor_add(checks, "GPU", FINE, NULL, "%lld: %s, %s%s%s", (long long)index,
                   doc_str(gpu, "name"),
                   str_size((uint64_t)doc_int(gpu, "memory_mib", 0) << 20, memory, sizeof memory),
                   claimed ? "; claimed by " : "", claimed ? buf_cstr(&by) : "");
    }
    *out_gpus = gpus;
}

/* Does a pool run that found no place for control groups when it started? */
static bool pool_samples(struct client *c)
{
    const struct cluster_question q = { .what = TONY__CLIENT_ASK__WHAT__POOL_STATUS };
    json_t *doc = NULL;
    bool samples = pool_ask(c, &q, &doc, NULL, NULL) == 1 && str_eq(doc_str(doc, "cgroup"), "none");
    json_decref(doc);
    return samples;
}

/* The pool chooses its control group when it starts. Report which one it would choose now. */
static void check_cgroups(struct client *c, json_t *checks)
{
    struct place p;
    place_survey(&p);
    if (p.kind != PLACE_OFF && p.kind != PLACE_NONE && pool_samples(c)) {
        doctor_add(checks, "cgroups", NOTE,
                   "when no job runs: tony pool stop; the next command starts another pool",
                   "resident memory is sampled: the running pool was started without control "
                   "groups; another pool would have them");
        return;
    }
    switch (p.kind) {
    case PLACE_OFF:
        doctor_add(checks, "cgroups", NOTE, "unset TONY_CGROUPS to have memory limits enforced",
                   "switched off by TONY_CGROUPS=none: resident memory is sampled");
        break;
    case PLACE_NONE:
        doctor_add(checks, "cgroups", NOTE, p.remedy,
                   "resident memory is sampled, and a task may exceed its limit for a moment: %s",
                   p.why);
        break;
    case PLACE_V1:
    case PLACE_READY:
    case PLACE_MOVE:
        doctor_add(checks, "cgroups", FINE, NULL, "v%d at '%s', controllers: %s",
                   p.kind == PLACE_V1 ? 1 : 2, p.dir, p.controllers);
        break;
    case PLACE_SCOPE:
        doctor_add(checks, "cgroups", FINE, NULL,
                   "v2, in a scope that systemd's manager of %s gives",
                   p.system ? "the system" : "this user");
        break;
    }
}

/* Does the session manager kill what a session of this user leaves? A user who lingers is safe: the
 * pool is then below the user's manager, not in the session. */
static void check_logout(json_t *checks)
{
    enum { LIMIT_MS = 10000 };
    if (geteuid() == 0 || scope_user_lingers())
        return;
    AUTO(free_p) char *program = machine_which("loginctl");
    const char *const argv[] = { program, "show-session", "--property=KillUserProcesses", NULL };
    AUTO(buf_done) struct buf text = { .max = 4096 };
    int status = 0;
    if (!program || machine_run(argv, false, LIMIT_MS, &text, &status, NULL) < 0 ||
        !span_eqs(span_trim(buf_span(&text)), "KillUserProcesses=yes"))
        return;
    doctor_add(checks, "logout", NOTE,
               "loginctl enable-linger; if that is refused, root: loginctl enable-linger NAME; "
               "then tony pool stop",
               "your jobs end when you log out: KillUserProcesses=yes is set for the session "
               "manager");
}

static void check_limits(json_t *checks)
{
    struct rlimit r;
    enum { FILES_WANTED = 4096, PROCESSES_WANTED = 4096 };
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        if (r.rlim_max == RLIM_INFINITY)
            doctor_add(checks, "open files", FINE, NULL, "unlimited");
        else
            doctor_add(
                checks, "open files", r.rlim_max < FILES_WANTED ? WRONG : FINE,
                "raise it (ulimit -Hn, /etc/security/limits.conf): a job's master has one open for "
                "each of its tasks",
                "%llu", (unsigned long long)r.rlim_max);
    }
    if (getrlimit(RLIMIT_NPROC, &r) == 0 && geteuid() != 0 && r.rlim_max != RLIM_INFINITY)
        doctor_add(checks, "processes", r.rlim_max < PROCESSES_WANTED ? NOTE : FINE,
                   "large jobs may not fit (ulimit -Hu)", "%llu", (unsigned long long)r.rlim_max);
}

/* ---- programs ---- */

static void check_programs(json_t *checks)
{
    static const struct {
        const char *name;
        enum finding missing;
        const char *hint;
    } ours[] = {
        { "tony-pool", WRONG, "install it beside tony" },
        { "tony-master", WRONG, "install it beside tony" },
        { "tony-executor", WRONG, "install it beside tony" },
        { "tony-pack", NOTE, "without it archives cannot be shipped" },
        { "tony-exact", NOTE, "without it 'tony allocate --exact' fails" },
        { "tony-gpu", NOTE, "without it GPUs are not found" },
    };
    for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
        AUTO(free_p) char *path = paths_program(ours[i].name);
        if (path)
            doctor_add(checks, ours[i].name, FINE, NULL, "%s", path);
        else
            doctor_add(checks, ours[i].name, ours[i].missing, ours[i].hint,
                       "not found beside this program or on PATH");
    }
    static const char *const others[] = { "bash", "python3" };
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        AUTO(free_p) char *path = machine_which(others[i]);
        doctor_add(checks, others[i], path ? FINE : NOTE,
                   i == 0 ? "commands with shell syntax need it; /bin/sh is used instead"
                          : "jobs in Python need it",
                   "%s", path ? path : "not found on PATH");
    }
}

/* Only jobs with images need podman or docker, so no finding of this function is WRONG. */
static void check_engine(json_t *checks)
{
    struct engine_found f;
    engine_look(&f);
    if (f.kind == ENGINE_READY)
        doctor_add(checks, "images", FINE, NULL, "run by %s", f.path);
    else if (f.kind == ENGINE_MISSING)
        doctor_add(checks, "images", NOTE, "jobs whose tasks run in images need podman",
                   "neither podman nor docker is on PATH");
    else
        doctor_add(checks, "images", NOTE, f.hint, "%s", f.why);
    engine_found_done(&f);
}

/* ---- files ---- */

/* Report a directory of tony's that belongs to another user. */
static void check_owner(json_t *checks, const char *dir)
{
    DIR *d = opendir(dir);
    struct stat st;
    for (struct dirent *de; d && (de = readdir(d));) {
        if (str_eq(de->d_name, "..") ||
            fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) == -1 || st.st_uid == geteuid())
            continue;
        bool self = str_eq(de->d_name, ".");
        doctor_add(checks, "owner", WRONG, "remove it, or give it to yourself with chown -R",
                   "'%s%s%s' belongs to user %u", dir, self ? "" : "/", self ? "" : de->d_name,
                   (unsigned)st.st_uid);
    }
    if (d)
        (void)closedir(d);
}

static void check_home(struct client *c, json_t *checks)
{
    struct err e = { 0 };
    if (host_open_paths(&c->host, &e) < 0) {
        doctor_add(checks, "TONY_HOME", WRONG,
                   e.hint[0] ? e.hint : "set TONY_HOME to a directory of your own", "%s", e.msg);
        return;
    }
    const struct paths *p = &c->host.paths;
    struct statvfs vfs;
    char avail[32] = "?";
    bool full = false;
    if (statvfs(p->home, &vfs) == 0) {
        uint64_t bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
        (void)str_size(bytes, avail, sizeof avail);
        full = bytes < (UINT64_C(64) << 20);
    }
    AUTO(free_p) char *probe = fs_join(p->home, ".doctor");
    int rc = probe ? fs_write_atomic(AT_FDCWD, probe, SPAN("x"), 0600, true, &e) : -ENOMEM;
    if (probe)
        (void)unlink(probe);
    if (rc < 0)
        doctor_add(checks, "TONY_HOME", WRONG, "jobs cannot be accepted there",
                   "'%s' cannot be written: %s", p->home, e.msg);
    else
        doctor_add(checks, "TONY_HOME", full ? WRONG : FINE,
                   "make room: jobs are refused on a full disk", "%s, %s free", p->home, avail);
    doctor_add(checks, "sockets", FINE, NULL, "%s", p->runtime);
    const char *const dirs[] = { p->home, p->pool, p->jobs, p->store, p->history, p->runtime };
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        check_owner(checks, dirs[i]);
}

static void check_site(json_t *checks)
{
    struct err e = { 0 };
    struct conf *conf = conf_new();
    const char *dir = getenv("TONY_CONF_DIR");
    if (conf && conf_load_site(conf, &e) < 0)
        doctor_add(checks, "site settings", WRONG,
                   e.hint[0] ? e.hint : "every job is refused until it is corrected", "%s", e.msg);
    else
        doctor_add(checks, "site settings", FINE, NULL, "%s",
                   dir ? dir : "none (TONY_CONF_DIR is not set)");
    conf_free(conf);
}

/* ---- --keys ---- */

/* The word for the effect. If the key acts only on one cluster, it is the name of the cluster. */
static const char *effect_word(enum conf_effect f)
{
    static const char *const words[CE_COUNT] = {
        [CE_ACTS] = "acts",
        [CE_LATER] = "later",
        [CE_JVM] = "ignored",
        [CE_REFUSED] = "refused",
    };
    for (size_t i = 0; cluster_at(i); i++)
        if (f != CE_NONE && cluster_at(i)->keys_effect == (int)f)
            return cluster_at(i)->name;
    return f > CE_NONE && f < CE_COUNT && words[f] ? words[f] : "?";
}

static const char *type_word(enum conf_type t)
{
    static const char *const words[CT_COUNT] = {
        [CT_STR] = "text",   [CT_INT] = "integer",   [CT_BOOL] = "boolean", [CT_LIST] = "list",
        [CT_MEM] = "memory", [CT_ENVS] = "K=V list", [CT_ENUM] = "choice",  [CT_REAL] = "number",
    };
    return t > CT_NONE && t < CT_COUNT ? words[t] : "?";
}

static int print_keys(struct client *c)
{
    size_t n;
    const struct conf_key *keys = conf_keys(&n);
    if (options_has(&c->o, OPT_JSON)) {
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++) {
            const struct conf_key *k = &keys[i];
            (void)json_array_append_new(
                list, json_pack("{s:s, s:s, s:s?, s:s, s:s?, s:s, s:s, s:b, s:s}", "key", k->name,
                                "type", type_word(k->type), "default", k->dflt, "unit",
                                k->unit ? k->unit : "", "choices", k->choices, "effect",
                                effect_word(k->effect), "since", k->since ? k->since : "", "secret",
                                k->secret, "help", k->help ? k->help : ""));
        }
        return client_print_json(json_pack("{s:o}", "keys", list));
    }
    struct table t = { .n_cols = 5 };
    table_add(&t, "KEY", "TYPE", "DEFAULT", "EFFECT", "MEANING", NULL);
    for (size_t i = 0; i < n; i++)
        table_add(&t, keys[i].name, type_word(keys[i].type), keys[i].dflt,
                  effect_word(keys[i].effect), keys[i].help, NULL);
    table_print(&t);
    (void)printf("\nEFFECT is acts: honoured on every cluster. A cluster: only there. "
                 "later: checked, without effect in\n"
                 "this release. ignored: about the Java original, without meaning here. refused: "
                 "setting it is an error.\n");
    return client_flush_stdout();
}

/* ---- the command ---- */

static bool print_checks(struct client *c, const json_t *checks, bool print)
{
    bool wrong = false;
    size_t i;
    json_t *k;
    json_array_foreach(checks, i, k)
    {
        const char *state = doc_str(k, "state"), *hint = doc_str(k, "hint");
        bool bad = str_eq(state, "wrong");
        wrong = wrong || bad;
        if (!print)
            continue;
        const char *color = !c->out_color || str_eq(state, "ok") ? ""
                            : bad                                ? "\033[31m"
                                                                 : "\033[33m";
        (void)printf("%s%-5s%s  %-13s  %s\n", color, state, color[0] ? "\033[0m" : "",
                     doc_str(k, "name"), doc_str(k, "value"));
        if (hint[0])
            (void)printf("%23s%s\n", "", hint);
    }
    return wrong;
}

static void add_finding(const char *name, enum cluster_finding f, const char *hint,
                        const char *text, void *arg)
{
    static const enum finding findings[] = {
        [CLUSTER_FINE] = FINE, [CLUSTER_NOTE] = NOTE, [CLUSTER_WRONG] = WRONG
    };
    doctor_add(arg, name, findings[f], hint, "%s", text);
}

int cmd_doctor(struct client *c)
{
    if (options_has(&c->o, OPT_KEYS))
        return print_keys(c);
    struct err e = { 0 };
    const struct cluster_ops *ops = client_wanted(c);
    if (!ops && options_has(&c->o, OPT_CLUSTER)) {
        int rc = client_no_cluster(options_get(&c->o, OPT_CLUSTER), &e);
        return client_fail(-rc, &e);
    }
    json_t *checks = json_array(), *gpus = NULL;
    doctor_add(checks, "version", FINE, NULL, "%s", c->host.version);
    check_machine(checks);
    check_gpus(checks, &gpus);
    check_cgroups(c, checks);
    check_logout(checks);
    check_limits(checks);
    check_programs(checks);
    check_engine(checks);
    check_home(c, checks);
    check_site(checks);
    struct err unread = { 0 };
    const struct conf *site = client_site(c, &unread);
    if (ops && ops->doctor && site)
        ops->doctor(&c->host, site, add_finding, checks);

    bool json = options_has(&c->o, OPT_JSON);
    bool wrong = print_checks(c, checks, !json);
    int code;
    if (json) {
        code = client_print_json(
            json_pack("{s:b, s:o, s:o}", "ok", !wrong, "checks", checks, "gpus", gpus));
    } else {
        json_decref(checks);
        json_decref(gpus);
        code = client_flush_stdout();
    }
    return code ? code : wrong ? EXIT_JOB_FAILED : EXIT_DONE;
}
