/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real master whose containers are real executors. Each executor is in the network namespace of a
 * "node", so that tests can cut the network between them:
 *
 *     nodes-master HOST PID[,PID]... KEY=VALUE...
 *
 * HOST: the address at which the nodes reach the master. PID: a process in the namespace of each
 * node. The job is in $TONY_HOME/jobs/application_1700000000000_0001. The programs that start and
 * stop containers on a node can be cut off, too: while the file $TONY_HOME/cut-N exists, nothing on
 * node N is started, stopped or reported. When $TONY_HOME/given-up-N appears, the containers of
 * node N are reported as lost, as a cluster does, whatever happened to them.
 *
 * bench/crowd also uses it, with NODES_TICK_MS in the environment: then the containers are looked at
 * less often, and the log has no debug lines. The file $TONY_HOME/client has the master's port and
 * the key of its clients.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "master/master.h"
#include "scheduler/scheduler.h"
#include "storage/jobfile.h"
#include "storage/jobkey.h"
#include "storage/paths.h"

enum { NODES_MAX = 8, BOXES_MAX = 1000, TICK_MS = 10, KILL_MARGIN_MS = 250 };

struct box {
    char id[64];
    uint32_t slot, node;
    pid_t pid; /* 0 = not started, or ended */
    bool granted, launch, ended, told, stop;
    int status;
    uint32_t grace_ms;
    int64_t kill_at_ms;
};

static struct sched {
    const struct sched_ops *ops;
    struct sched_config cfg;
    struct loop_timer *timer;
    const char *host, *home, *executor;
    pid_t node_pid[NODES_MAX];
    bool given_up[NODES_MAX], cut[NODES_MAX];
    uint32_t n_nodes, next_node;
    struct box boxes[BOXES_MAX];
    uint32_t n_boxes;
    bool registered;
    int tick_ms;
    void (*finish_done)(void *arg);
} the;

static bool there(const char *what, uint32_t node)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s-%u", the.home, what, node);
    return access(path, F_OK) == 0;
}

static void emit(enum sched_event_type type, struct sched_container *c, const char *text)
{
    struct sched_event ev = { .type = type, .containers = c, .n = c ? 1 : 0, .text = text };
    the.cfg.on_event(&ev, the.cfg.arg);
}

static struct sched_container of(const struct box *b, char node[16])
{
    (void)snprintf(node, 16, "n%u:1", b->node);
    return (struct sched_container){
        .id = b->id, .slot = b->slot, .gpus = "", .node = node, .launched = b->launch
    };
}

/* ---- a node ---- */

static _Noreturn void become(struct box *b, const char *dir)
{
    char ns[64], text[400], master[100], slot[16];
    struct tls_key key;
    struct err e = { 0 };
    (void)snprintf(ns, sizeof ns, "/proc/%d/ns/net", (int)the.node_pid[b->node]);
    int fd = open(ns, O_RDONLY | O_CLOEXEC), log = -1;
    if (fd == -1 || setns(fd, CLONE_NEWNET) == -1 || chdir(dir) == -1 || setsid() == -1)
        _exit(120);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    job_key_container(the.cfg.key, b->id, &key);
    struct buf tokens = { 0 };
    buf_add(&tokens, "HDTS\0\0\1", 7);
    buf_addc(&tokens, (char)strlen(CONTAINER_KEY_SECRET));
    buf_adds(&tokens, CONTAINER_KEY_SECRET);
    buf_addc(&tokens, (char)key.len);
    buf_add(&tokens, key.bytes, key.len);
    if (fs_write_atomic(AT_FDCWD, "container_tokens", buf_span(&tokens), 0600, false, &e) < 0)
        _exit(121);
    log = open("executor.log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (log == -1 || dup2(log, 1) == -1 || dup2(log, 2) == -1)
        _exit(122);
    (void)snprintf(master, sizeof master, "%s:%u", the.host, the.cfg.master_port);
    (void)snprintf(slot, sizeof slot, "%u", b->slot);
    (void)snprintf(text, sizeof text, "%s/container_tokens", dir);
    (void)setenv("CONTAINER_ID", b->id, 1);
    (void)setenv("TONY_MASTER_ADDRESS", master, 1);
    (void)setenv("TONY_SLOT", slot, 1);
    (void)setenv("HADOOP_TOKEN_FILE_LOCATION", text, 1);
    (void)setenv("LOG_DIRS", dir, 1);
    (void)setenv("PWD", dir, 1);
    (void)execl(the.executor, "tony-executor", "--container", (char *)NULL);
    _exit(123);
}

static void start(struct box *b)
{
    AUTO(free_p) char *dir = str_printf("%s/%s", the.home, b->id);
    (void)mkdir(dir, 0700);
    b->pid = fork();
    if (b->pid == 0)
        become(b, dir);
    if (b->pid == -1)
        abort();
}

static void stop_now(struct box *b, int64_t now)
{
    if (b->kill_at_ms == 0) {
        (void)kill(b->pid, SIGTERM);
        b->kill_at_ms = now + b->grace_ms + KILL_MARGIN_MS;
    } else if (now >= b->kill_at_ms) {
        (void)kill(-b->pid, SIGKILL);
        b->kill_at_ms = now + KILL_MARGIN_MS;
    }
}

static void tell_end(struct box *b, enum end_reason why)
{
    char node[16];
    struct sched_container c = of(b, node);
    b->told = true;
    c.completed = true;
    c.exit_code = WIFSIGNALED(b->status) ? 128 + WTERMSIG(b->status) : WEXITSTATUS(b->status);
    c.reason = why;
    if (why == END_NODE_LOST)
        c.exit_code = 0;
    emit(SE_COMPLETED, &c, NULL);
}

static void look_at_box(struct box *b, int64_t now)
{
    char node[16];
    if (b->pid > 0 && waitpid(b->pid, &b->status, WNOHANG) == b->pid) {
        b->pid = 0;
        b->ended = true;
    }
    if (the.given_up[b->node] && b->launch && !b->told) {
        tell_end(b, END_NODE_LOST);
        b->stop = true; /* stop it once the node can be reached again */
    }
    if (!b->granted) {
        struct sched_container c = of(b, node);
        b->granted = true;
        emit(SE_ALLOCATED, &c, NULL);
    }
    if (the.cut[b->node])
        return;
    if (b->launch && !b->pid && !b->ended && !b->stop)
        start(b);
    if (b->stop && b->pid > 0)
        stop_now(b, now);
    if (b->ended && !b->told)
        tell_end(b, b->stop ? END_KILLED_BY_MASTER : END_EXITED);
}

static void on_tick(void *arg)
{
    (void)arg;
    if (!the.registered) {
        the.registered = true;
        emit(SE_REGISTERED, NULL, the.host);
    }
    for (uint32_t n = 0; n < the.n_nodes; n++) {
        the.given_up[n] = there("given-up", n);
        the.cut[n] = there("cut", n);
    }
    for (uint32_t i = 0; i < the.n_boxes; i++)
        look_at_box(&the.boxes[i], clock_mono_ms());
    if (the.finish_done) {
        the.finish_done(the.cfg.arg);
        the.finish_done = NULL;
    }
    loop_timer_set(the.timer, clock_mono_ms() + the.tick_ms);
}

/* ---- calls of the master ---- */

/* For bench/follow.c: the port of the master, and the key of its clients. */
static int write_client(const struct sched_config *cfg, struct err *e)
{
    struct tls_key key;
    char hex[JOB_KEY_HEX];
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(free_p) char *path = fs_join(the.home, "client");
    job_key_client(cfg->key, &key);
    job_key_text(&key, hex);
    (void)buf_addf(&text, "%u %s", cfg->master_port, hex);
    return fs_write_atomic(AT_FDCWD, path, buf_span(&text), 0600, false, e);
}

static int nodes_open(const struct sched_config *cfg, struct sched **out, struct err *e)
{
    the.cfg = *cfg;
    int rc = write_client(cfg, e);
    if (rc < 0)
        return rc;
    the.timer = loop_timer_new(cfg->loop, on_tick, NULL);
    loop_timer_set(the.timer, clock_mono_ms());
    *out = &the;
    return 0;
}

/* A node that is neither cut off nor given up, if there is one. */
static uint32_t good_node(void)
{
    for (uint32_t i = 0; i < the.n_nodes; i++) {
        uint32_t n = the.next_node++ % the.n_nodes;
        if (!there("cut", n) && !there("given-up", n))
            return n;
    }
    return 0;
}

static int nodes_request(struct sched *s, const struct sched_ask *asks, size_t n, struct err *e)
{
    (void)s;
    (void)e;
    for (size_t i = 0; i < n; i++) {
        if (the.n_boxes == BOXES_MAX)
            abort();
        struct box *b = &the.boxes[the.n_boxes++];
        *b = (struct box){ .slot = asks[i].slot, .node = good_node() };
        (void)snprintf(b->id, sizeof b->id, "container_1700000000000_0001_01_%06u", the.n_boxes);
    }
    return 0;
}

static struct box *find(const char *id)
{
    for (uint32_t i = 0; i < the.n_boxes; i++)
        if (str_eq(the.boxes[i].id, id))
            return &the.boxes[i];
    abort();
}

static int nodes_release(struct sched *s, const char *const *ids, size_t n, struct err *e)
{
    (void)s;
    (void)e;
    for (size_t i = 0; i < n; i++)
        find(ids[i])->told = find(ids[i])->stop = true;
    return 0;
}

static int nodes_launch(struct sched *s, const struct sched_container *c, size_t n, struct err *e)
{
    (void)s;
    (void)e;
    for (size_t i = 0; i < n; i++)
        find(c[i].id)->launch = true;
    return 0;
}

static int nodes_stop(struct sched *s, const char *id, uint32_t grace_ms, struct err *e)
{
    (void)s;
    (void)e;
    find(id)->stop = true;
    find(id)->grace_ms = grace_ms;
    return 0;
}

static int nodes_finish(struct sched *s, const char *state, const char *diagnostics,
                        void (*done)(void *arg), struct err *e)
{
    (void)s;
    (void)e;
    printf("%s: %s\n", state, diagnostics);
    the.finish_done = done;
    return 0;
}

static void nodes_close(struct sched *s)
{
    (void)s;
    loop_timer_free(TAKE(the.timer));
}

static const struct sched_ops nodes_ops = { .name = "nodes",
                                            .open = nodes_open,
                                            .request = nodes_request,
                                            .release = nodes_release,
                                            .launch = nodes_launch,
                                            .stop = nodes_stop,
                                            .finish = nodes_finish,
                                            .close = nodes_close };

/* ---- the program ---- */

static _Noreturn void die(const char *what, const struct err *e)
{
    fprintf(stderr, "nodes-master: %s: %s\n", what, e->msg);
    exit(1);
}

static void write_job(const char *dir, char **conf)
{
    struct err e = { 0 };
    AUTO(conf_freep) struct conf *c = conf_new();
    for (; *conf; conf++) {
        char *eq = strchr(*conf, '=');
        if (!eq)
            die(*conf, &e);
        *eq = '\0';
        if (conf_set(c, CL_JOB, *conf, eq + 1, "test", false, &e) < 0)
            die(*conf, &e);
    }
    struct job_file f = { .conf = c,
                          .user = (char *)(uintptr_t) "tester",
                          .host = (char *)(uintptr_t) "here",
                          .cwd = (char *)(uintptr_t) "/",
                          .version = (char *)(uintptr_t) "1",
                          .wall_ms = clock_wall_ms() };
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(free_p) char *path = fs_join(dir, "job.conf");
    if (job_file_encode(&f, &text, &e) < 0 || fs_mkdirs(dir, 0700, &e) < 0 ||
        fs_write_atomic(AT_FDCWD, path, buf_span(&text), 0600, false, &e) < 0)
        die("job.conf", &e);
}

int main(int argc, char **argv)
{
    struct paths paths = { 0 };
    struct err e = { 0 };
    struct job_key key;
    struct master *m = NULL;
    char id[APP_ID_MAX];
    if (argc < 4 || !(the.executor = getenv("TONY_EXECUTOR")) || !(the.home = getenv("TONY_HOME")))
        return 2;
    the.host = argv[1];
    for (char *at = argv[2]; *at && the.n_nodes < NODES_MAX; at += strspn(at, ","))
        the.node_pid[the.n_nodes++] = (pid_t)strtol(at, &at, 10);
    const char *tick = getenv("NODES_TICK_MS");
    the.tick_ms = tick ? (int)strtol(tick, NULL, 10) : TICK_MS;
    log_setup(2, tick ? LOG_INFO : LOG_DEBUG, false);
    app_id_format(id, 1700000000000, 1);
    if (paths_open(&paths, &e) < 0 || job_key_new(&key, &e) < 0)
        die("cannot begin", &e);
    AUTO(free_p) char *dir = paths_job(&paths, id);
    write_job(dir, argv + 3);
    struct loop *loop = loop_new(&e);
    struct master_remote remote = { .key = &key,
                                    .container_id = "container_1700000000000_0001_01_000000" };
    struct master_config cfg = { .loop = loop,
                                 .paths = &paths,
                                 .application_id = id,
                                 .epoch = 1,
                                 .sched = &nodes_ops,
                                 .remote = &remote };
    if (!loop || master_open(&cfg, &m, &e) < 0)
        die("cannot open the master", &e);
    (void)loop_run(loop);
    int code = (int)master_exit_code(m);
    master_close(m);
    loop_free(loop);
    paths_done(&paths);
    return code; /* executors that are still running die with this process */
}
