/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/container.h"

#include <arpa/inet.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/proctree.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/hdts.h"
#include "executor/executor.h"
#include "executor/executor_int.h"
#include "executor/ports.h"
#include "storage/jobkey.h"
#include "storage/tree.h"

extern char **environ;

enum {
    SLOT_MAX = 1 << 20,
    REFUSED_MAX = 3, /* while a master is being replaced, the key may be unknown for a moment */
    PAUSE_FIRST_MS = 20,
    PAUSE_MAX_MS = 2000,
};

/* ---- the environment that the node manager has set ---- */

static int env_of(const char *name, const char *what, const char **out, struct err *e)
{
    const char *v = getenv(name);
    if (!v || !v[0]) {
        (void)err_set(e, EINVAL, "the environment has no %s, %s", name, what);
        return err_hint(e, "this mode is for containers that a tony-master has started");
    }
    *out = v;
    return 0;
}

/* Host names are not accepted: a static program cannot look them up. */
int remote_parse_master(const char *text, struct remote *out, struct err *e)
{
    const char *colon = strrchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : 0;
    bool v6 = len > 2 && text[0] == '[' && text[len - 1] == ']';
    int64_t port;
    struct sockaddr_in *in = (struct sockaddr_in *)&out->master;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&out->master;
    if (len == 0 || len >= sizeof out->master_host ||
        str_i64(span_of(colon + 1), 1, 65535, "port", &port, NULL) < 0)
        goto bad;
    snprintf(out->master_host, sizeof out->master_host, "%.*s", (int)(v6 ? len - 2 : len),
             v6 ? text + 1 : text);
    out->master_port = (uint16_t)port;
    if (v6 && inet_pton(AF_INET6, out->master_host, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((uint16_t)port);
        out->master_len = sizeof *in6;
        return 0;
    }
    if (!v6 && inet_pton(AF_INET, out->master_host, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons((uint16_t)port);
        out->master_len = sizeof *in;
        return 0;
    }
bad:
    return err_set(e, EINVAL, "TONY_MASTER_ADDRESS is '%s', not a numeric address and a port",
                   text);
}

static int read_key(const char *path, struct tls_key *out, struct err *e)
{
    struct buf text = { .max = HDTS_MAX };
    struct span secret;
    int rc = fs_read(AT_FDCWD, path, &text, e);
    if (rc == 0 && (rc = hdts_secret(buf_span(&text), CONTAINER_KEY_SECRET, &secret, e)) < 0)
        rc = err_wrap(e, rc, "cannot use token file '%s'", path);
    if (rc == 0 && (secret.len < TLS_KEY_MIN || secret.len > TLS_KEY_MAX))
        rc = err_set(e, EINVAL, "the secret '%s' in token file '%s' has %zu bytes, not %d to %d",
                     CONTAINER_KEY_SECRET, path, secret.len, TLS_KEY_MIN, TLS_KEY_MAX);
    if (rc == 0) {
        memcpy(out->bytes, secret.p, secret.len);
        out->len = secret.len;
    }
    if (text.p)
        explicit_bzero(text.p, text.cap);
    buf_done(&text);
    return rc;
}

/* $PWD, if that is the current directory; otherwise the path from getcwd(). */
static char *working_dir(void)
{
    const char *pwd = getenv("PWD");
    struct stat a, b;
    if (pwd && pwd[0] == '/' && stat(pwd, &a) == 0 && stat(".", &b) == 0 && a.st_dev == b.st_dev &&
        a.st_ino == b.st_ino)
        return str_dup(pwd);
    return getcwd(NULL, 0);
}

/* With several disks there are several log directories. The node manager shows and collects all of
 * them, but searches for the reason of a failure only in the directory with the container's stderr.
 * So put that one first. */
static int find_log_dirs(struct remote *r, struct err *e)
{
    const char *list = "";
    char stderr_dir[4096];
    int rc = env_of("LOG_DIRS", "where the logs of this container belong", &list, e);
    if (rc < 0)
        return rc;
    ssize_t n = readlink("/proc/self/fd/2", stderr_dir, sizeof stderr_dir - 1);
    stderr_dir[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(stderr_dir, '/');
    if (slash)
        *slash = '\0';
    for (int pass = 0; pass < 2; pass++) {
        struct span rest = span_of(list), one;
        while (span_split(&rest, ',', &one)) {
            one = span_trim(one);
            if (one.len == 0 || span_eqs(one, stderr_dir) != (pass == 0))
                continue;
            if (strv_take(&r->log_dirs, span_dup(one)) < 0)
                return err_set(e, ENOMEM, "cannot read LOG_DIRS: %m");
        }
    }
    for (size_t i = 0; i < r->log_dirs.n; i++)
        if (access(r->log_dirs.v[i], W_OK | X_OK) == 0)
            return 0;
    return err_set(e, EACCES, "none of the log directories '%s' can be written to", list);
}

static void remote_done(struct remote *r)
{
    remote_listen_done(r);
    explicit_bzero(&r->key, sizeof r->key);
    free(TAKE(r->workdir));
    strv_done(&r->log_dirs);
    vec_done(&r->attempts);
}

/* The range of tony.port-range, which the master has checked: for this executor and its task. */
static int read_ports(struct job_ports *out, struct err *e)
{
    const char *v = getenv(JOB_KEY_PORTS_ENV);
    int64_t first = 0, last = 0;
    int rc =
        v && *v ? str_range(span_of(v), 1, UINT16_MAX, JOB_KEY_PORTS_ENV, &first, &last, e) : 0;
    *out = (struct job_ports){ (uint16_t)first, (uint16_t)last };
    ports_allow(out->first, out->last);
    return rc;
}

/* Read the environment. Pointers in *out are valid as long as the environment. */
static int remote_open(struct remote *out, struct err *e)
{
    const char *master = "", *slot = "", *tokens = "";
    int64_t number = 0;
    *out = (struct remote){ .listen_fd = -1 };
    for (size_t i = 0; i < CALLERS_MAX; i++)
        out->callers[i].link.fd = -1;
    int rc = env_of("CONTAINER_ID", "the id of this container", &out->container_id, e);
    if (rc == 0 && !job_key_identity(out->container_id, out->identity))
        rc = err_set(e, EINVAL, "CONTAINER_ID '%s' cannot be a container's id", out->container_id);
    if (rc == 0)
        rc = env_of("TONY_MASTER_ADDRESS", "the address of the master", &master, e);
    if (rc == 0)
        rc = remote_parse_master(master, out, e);
    if (rc == 0)
        rc = env_of("TONY_SLOT", "the slot of the task in the job", &slot, e);
    if (rc == 0)
        rc = str_i64(span_of(slot), 0, SLOT_MAX, "TONY_SLOT", &number, e);
    if (rc == 0)
        rc = read_ports(&out->ports, e);
    if (rc == 0)
        rc =
            env_of("HADOOP_TOKEN_FILE_LOCATION", "the file with the key to the master", &tokens, e);
    if (rc == 0)
        rc = read_key(tokens, &out->key, e);
    if (rc == 0)
        rc = find_log_dirs(out, e);
    if (rc == 0 && !(out->workdir = working_dir()))
        rc = err_set(e, errno, "cannot find the working directory: %m");
    if (rc < 0) {
        remote_done(out);
        return rc;
    }
    out->slot = (uint32_t)number;
    return 0;
}

/* ---- the connection to the master ---- */

int remote_dial(struct remote *r, struct link *l)
{
    r->why = (struct err){ 0 };
    if (r->address_file && remote_read_port(r) < 0)
        return -r->why.num;
    struct tls *tls = tls_client_new(r->identity, &r->key, &r->why);
    if (!tls)
        return -r->why.num;
    int rc = link_dial_tls(l, (const struct sockaddr *)&r->master, r->master_len, tls);
    l->why = &r->why;
    return rc;
}

bool remote_lost(struct remote *r, int rc, bool greeted)
{
    struct err reason = r->why;
    if (reason.num)
        (void)err_set(&r->why, reason.num, "cannot talk to the master at %s:%u: %s", r->master_host,
                      r->master_port, reason.msg);
    else if (rc == -EPIPE)
        (void)err_set(&r->why, EPIPE, "the master at %s:%u closed the connection", r->master_host,
                      r->master_port);
    else
        (void)err_set(&r->why, -rc, "cannot reach the master at %s:%u: %m", r->master_host,
                      r->master_port);
    if (greeted)
        r->refused = 0;
    return !greeted && rc == -EACCES && ++r->refused >= REFUSED_MAX;
}

/* The pause doubles and is random, because all executors lose their master at the same moment. */
int remote_pause_ms(const struct remote *r, unsigned n)
{
    unsigned most = MIN((unsigned)PAUSE_FIRST_MS << MIN(n, 10U), (unsigned)PAUSE_MAX_MS);
    unsigned random = r->slot;
    (void)!getrandom(&random, sizeof random, GRND_NONBLOCK); /* if it fails, the slot is used */
    return (int)(most / 2 + random % (most / 2 + 1));
}

/* ---- the working directory ---- */

/* The node manager has made the links. The source is copied, because tasks may write to it. The
 * node manager makes unpacked files read-only, so the copy is made writable. */
int remote_prepare(const struct remote *r, Tony__Mount *const *mounts, size_t n, struct err *e)
{
    static const struct tree_copy_opts opts = { .writable = true };
    AUTO(close_p) int to = open(r->workdir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (to == -1)
        return err_set(e, errno, "cannot open working directory '%s': %m", r->workdir);
    for (size_t i = 0; i < n; i++) {
        const Tony__Mount *m = mounts[i];
        if (m->kind != TONY__MOUNT__KIND__SRC_COPY)
            continue;
        AUTO(close_p) int from = openat(to, m->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (from == -1)
            return err_set(e, errno, "cannot open the source '%s' in the working directory: %m",
                           m->path);
        int rc = tree_copy_fd(from, m->path, to, &opts, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- the task's environment ---- */

/* Does the task get this variable? It gets all that the node manager has set, as with the original
 * TonY, except those that concern only node manager, master and executor. */
static bool passes(const char *variable)
{
    static const char *const ours[] = {
        "HADOOP_TOKEN_FILE_LOCATION=",
        "TONY_MASTER_ADDRESS=",
        "TONY_SLOT=",
        JOB_KEY_PORTS_ENV "=",
        "MALLOC_ARENA_MAX=", /* for JVMs of the node manager; the original TonY removes it, too */
        "LOCALIZATION_COUNTERS=",
        "JVM_PID=",
        "KEYSTORE_",
        "TRUSTSTORE_",
        "SHLVL=",
        "OLDPWD=",
        "_=",
    };
    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        if (str_starts(variable, ours[i]))
            return false;
    return strchr(variable, '=') != NULL;
}

int remote_environment(const struct remote *r, struct strv *out)
{
    char port[8];
    int rc = 0;
    for (char **v = environ; *v && rc == 0; v++)
        if (passes(*v))
            rc = strv_push(out, *v);
    snprintf(port, sizeof port, "%u", r->master_port);
    if (rc == 0)
        rc = strv_env_set(out, "AM_HOST", r->master_host);
    if (rc == 0)
        rc = strv_env_set(out, "AM_PORT", port);
    return rc;
}

/* ---- processes ---- */

unsigned remote_kill_strays(void)
{
    struct pids list = { 0 };
    pid_t own = getpgrp();
    unsigned n = 0;
    proctree_below(getpid(), &list);
    for (size_t i = 0; i < list.n; i++) {
        pid_t group = getpgid(list.v[i]);
        if (group == -1 || group == own)
            continue;
        (void)kill(list.v[i], SIGKILL);
        n++;
    }
    vec_done(&list);
    return n;
}

/* ---- memory ---- */

/* Drop also the pages of the program: the kernel reads them from the file when they are used. */
void remote_trim(void)
{
    const uintptr_t mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    const Elf64_Phdr *p = (const Elf64_Phdr *)getauxval(AT_PHDR);
    size_t n = getauxval(AT_PHNUM);
    uintptr_t base = 0;
    (void)malloc_trim(0);
    for (size_t i = 0; p && i < n; i++) {
        if (p[i].p_type == PT_PHDR) /* a static program has none: its base is 0 */
            base = (uintptr_t)p - p[i].p_vaddr;
        if (p[i].p_type != PT_LOAD || p[i].p_flags & PF_W)
            continue;
        uintptr_t from = (base + p[i].p_vaddr) & mask;
        uintptr_t to = (base + p[i].p_vaddr + p[i].p_memsz) & mask;
        if (to > from)
            (void)madvise((void *)from, to - from, MADV_DONTNEED);
    }
}

/* ---- the program ---- */

int container_main(void)
{
    static struct remote r;
    static struct exit_record record;
    static struct executor_config cfg;
    struct err e = { 0 };
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null != -1)
        (void)dup2(null, 0); /* if it fails, tasks get the stdin of the executor */
    close_range(3, ~0U, 0);
    if (remote_open(&r, &e) < 0) {
        fprintf(stderr, "tony-executor: %s%s%s\n", e.msg, e.hint[0] ? "; " : "", e.hint);
        return KEEPER_MISUSE;
    }
    cfg = (struct executor_config){ .container_id = r.container_id,
                                    .job_dir = r.workdir,
                                    .gpus = "",
                                    .slot = r.slot,
                                    .cgroup = { .kind = CGROUP_NONE },
                                    .record = &record,
                                    .remote = &r };
    (void)getrlimit(RLIMIT_NOFILE, &cfg.nofile);
    executors_run(&cfg, 1);
}
