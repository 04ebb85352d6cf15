/* The real program in a container of a cluster, with this test as node manager and as master. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "codec/tls.h"
#include "executor/link.h"
#include "proto/tony.pb-c.h"

enum { LONG_MS = 20000, LOG_MAX = 1 << 20 };

#define CONTAINER "container_e17_1700000000000_0007_01_000003"
#define SECRET "0123456789abcdef0123456789abcdef"

static struct world {
    char dir[64], work[80], logs[2][80], program[160], mark[100];
    int listen_fd;
    uint16_t port;
    pid_t executor; /* and its process group; 0 = not running */
    int status;
    struct link link;  /* the greeted one */
    struct link guest; /* one that has not said hello yet */
    const char *key;
    /* what it is told */
    const char *command;
    uint32_t epoch, away_ms, grace_ms;
    bool src, hold_start, hold_ack, keep, refuse;
    /* what it said */
    int n_dials, n_hellos, n_ended, n_logs;
    char host[80], container[80], identity[TLS_IDENTITY_MAX];
    uint32_t slot, port_told, epoch_seen, hello_attempt;
    bool running, started, ended, unacked;
    pid_t task;
    int exit_code, signal;
    uint32_t attempt;
    Tony__Reason reason;
    char detail[256], tail[5000];
    /* of the last LogData */
    uint32_t log_number, log_num;
    int64_t log_offset, log_size;
    size_t log_len;
    char log_text[LOG_MAX + 1], log_message[256];
} * w;

/* ---- the node ---- */

static void write_bytes(const char *path, const void *p, size_t n, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(fs_write_all(fd, p, n), 0);
    close(fd);
}

static const char *path_of(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", w->dir, name);
    return path;
}

static char *text_of(const char *name)
{
    static struct buf text;
    buf_clear(&text);
    (void)fs_read(AT_FDCWD, path_of(name), &text, NULL);
    return text.p ? text.p : (char *)"";
}

static void write_tokens(const char *alias, const char *secret)
{
    struct buf b = { 0 };
    buf_add(&b, "HDTS\0\0\1", 7);
    buf_addc(&b, (char)strlen(alias));
    buf_adds(&b, alias);
    buf_addc(&b, (char)strlen(secret));
    buf_adds(&b, secret);
    assert_false(b.failed);
    write_bytes(path_of("work/container_tokens"), b.p, b.len, 0600);
    buf_done(&b);
}

static int processes(bool kill_them)
{
    int n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *x; d && (x = readdir(d));) {
        char path[300];
        char *end;
        long pid = strtol(x->d_name, &end, 10);
        if (*end || pid <= 1 || pid == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/%ld/environ", pid);
        AUTO(buf_done) struct buf text = { 0 };
        if (fs_read(AT_FDCWD, path, &text, NULL) < 0 || text.len == 0 ||
            !memmem(text.p, text.len, w->mark, strlen(w->mark)))
            continue;
        n++;
        if (kill_them)
            kill((pid_t)pid, SIGKILL);
    }
    if (d)
        closedir(d);
    return n;
}

static void make_listener(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons(w->port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof at;
    int on = 1;
    w->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(setsockopt(w->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(w->listen_fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(w->listen_fd, 16), 0);
    assert_int_equal(getsockname(w->listen_fd, (struct sockaddr *)&at, &len), 0);
    w->port = ntohs(at.sin_port);
}

static int setup(void **state)
{
    (void)state;
    w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->link.fd = w->guest.fd = -1;
    w->key = SECRET;
    w->epoch = 1;
    w->grace_ms = 2000;
    char dir[] = "/tmp/tony-cont-XXXXXX";
    assert_non_null(mkdtemp(dir));
    snprintf(w->dir, sizeof w->dir, "%s", dir);
    snprintf(w->mark, sizeof w->mark, "TEST_MARK=%s", dir);
    snprintf(w->work, sizeof w->work, "%s/work", dir);
    assert_int_equal(mkdir(w->work, 0700), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(w->logs[i], sizeof w->logs[i], "%s/log%d", dir, i);
        assert_int_equal(mkdir(w->logs[i], 0700), 0);
    }
    snprintf(w->program, sizeof w->program, "%s/bin/tony-executor", getenv("TONY_BUILD"));
    write_tokens("tony.container.key", SECRET);
    make_listener();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    link_close(&w->link);
    link_close(&w->guest);
    close_p(&w->listen_fd);
    if (w->executor > 0) {
        kill(w->executor, SIGKILL);
        waitpid(w->executor, NULL, 0);
    }
    for (int i = 0; i < 500 && processes(true) > 0; i++)
        usleep(2000);
    if (getenv("TONY_TEST_SHOW"))
        print_message("# executor.log:\n%s\n", text_of("log1/executor.log"));
    struct err e = { 0 };
    (void)fs_remove_tree(AT_FDCWD, w->dir, &e);
    free(w);
    w = NULL;
    return 0;
}

/* As a node manager does: a session, a directory, an environment of its own. Our own log lies on
 * the second disk. without: a variable that is left out; more: others, "A=1", NULL at the end. */
static void launch(const char *without, const char *const *more)
{
    struct strv env = { 0 };
    strv_push(&env, "PATH=/usr/bin:/bin");
    strv_push(&env, "CONTAINER_ID=" CONTAINER);
    strv_pushf(&env, "TONY_MASTER_ADDRESS=127.0.0.1:%u", w->port);
    strv_push(&env, "TONY_SLOT=3");
    strv_pushf(&env, "HADOOP_TOKEN_FILE_LOCATION=%s/container_tokens", w->work);
    strv_pushf(&env, "LOG_DIRS=%s,%s", w->logs[0], w->logs[1]);
    strv_pushf(&env, "PWD=%s", w->work);
    strv_push(&env, "HOME=/home/");
    strv_push(&env, "JAVA_HOME=/opt/java");
    strv_push(&env, "HADOOP_HDFS_HOME=/opt/no/hadoop");
    strv_push(&env, "LOCAL_DIRS=/a,/b");
    strv_push(&env, "MALLOC_ARENA_MAX=4");
    strv_push(&env, w->mark);
    for (size_t i = 0; more && more[i]; i++) {
        AUTO(free_p) char *key = strndup(more[i], strcspn(more[i], "="));
        strv_env_set(&env, key, strchr(more[i], '=') + 1);
    }
    for (size_t i = 0; without && i < env.n; i++)
        if (str_starts(env.v[i], without)) {
            free(env.v[i]);
            env.v[i] = env.v[--env.n];
            env.v[env.n] = NULL;
        }
    w->executor = fork();
    if (w->executor == 0) {
        setsid();
        int log = open(path_of("log1/executor.log"), O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (chdir(w->work) == -1 || dup2(log, 2) == -1)
            _exit(126);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execve(w->program, (char *const[]){ (char *)"tony-executor", (char *)"--container", NULL },
               env.v);
        _exit(126);
    }
    strv_done(&env);
}

/* ---- the master ---- */

#define SEND(which, case_, msg)                                                                    \
    do {                                                                                           \
        Tony__Frame f_ = TONY__FRAME__INIT;                                                        \
        f_.body_case = TONY__FRAME__BODY_##case_;                                                  \
        f_.which = (msg);                                                                          \
        (void)link_send(&w->link, &f_);                                                            \
    } while (0)

static void tell_start(uint32_t attempt)
{
    char address[100];
    snprintf(address, sizeof address, "\"%s:%u\"", w->host, w->port_told);
    Tony__SpecRole role = TONY__SPEC_ROLE__INIT, *roles[1] = { &role };
    role.name = (char *)"worker";
    role.addresses = address;
    role.n = 1;
    role.kind = 1;
    Tony__ClusterSpec spec = TONY__CLUSTER_SPEC__INIT;
    spec.generation = 1;
    spec.roles = roles;
    spec.n_roles = 1;
    Tony__Start m = TONY__START__INIT;
    m.generation = 1;
    m.attempt = attempt;
    m.spec = &spec;
    w->started = w->ended = false;
    SEND(start, START, &m);
}

static void tell_ack(uint32_t attempt, bool finish)
{
    Tony__AckEnded m = TONY__ACK_ENDED__INIT;
    m.generation = 1;
    m.attempt = attempt;
    m.finish = finish;
    SEND(ack_ended, ACK_ENDED, &m);
}

static void tell_welcome(void)
{
    Tony__Welcome m = TONY__WELCOME__INIT;
    Tony__Mount src = TONY__MOUNT__INIT, *mounts[1] = { &src };
    Tony__KeyValue kv = TONY__KEY_VALUE__INIT, *kvs[1] = { &kv };
    src.kind = TONY__MOUNT__KIND__SRC_COPY;
    src.path = (char *)".tony-src";
    kv.key = (char *)"SKIP_HADOOP_PATH";
    kv.value = (char *)"true";
    m.epoch = w->epoch;
    m.application_id = (char *)"application_1700000000000_0007";
    m.role = (char *)"worker";
    m.heartbeat_ms = 50;
    m.framework = (char *)"generic";
    m.distributed_mode = (char *)"GANG";
    m.command = (char *)(uintptr_t)w->command;
    m.mounts = w->src ? mounts : NULL;
    m.n_mounts = w->src;
    m.container_env = kvs;
    m.n_container_env = 1;
    m.kill_grace_ms = w->grace_ms;
    m.master_away_ms = w->away_ms;
    m.n_tracked = 1;
    m.chief = true;
    m.job_name = (char *)"test";
    SEND(welcome, WELCOME, &m);
}

static void on_ended(const Tony__AttemptEnded *m)
{
    w->ended = true;
    w->n_ended++;
    w->attempt = m->attempt;
    w->exit_code = m->exit_code;
    w->signal = m->signal;
    w->reason = m->reason;
    snprintf(w->detail, sizeof w->detail, "%s", m->detail);
    snprintf(w->tail, sizeof w->tail, "%s", m->stderr_tail);
    if (!w->hold_ack)
        tell_ack(m->attempt, !w->keep);
}

static void on_hello(const Tony__ExecutorHello *h)
{
    w->n_hellos++;
    w->running = h->running;
    w->slot = h->slot;
    w->epoch_seen = h->epoch_seen;
    w->hello_attempt = h->attempt;
    w->port_told = h->ports[0];
    w->unacked = h->n_unacked > 0;
    snprintf(w->host, sizeof w->host, "%s", h->host);
    snprintf(w->container, sizeof w->container, "%s", h->container_id);
    snprintf(w->identity, sizeof w->identity, "%s", tls_identity(w->link.tls));
    if (w->refuse) {
        Tony__Refused no = TONY__REFUSED__INIT;
        no.num = ESTALE;
        no.message = (char *)"this container is no longer the task's";
        SEND(refused, REFUSED, &no);
        return;
    }
    tell_welcome();
    for (size_t i = 0; i < h->n_unacked; i++)
        on_ended(h->unacked[i]);
    if (!w->hold_start && !h->attempt)
        tell_start(1);
}

static void on_log(const Tony__LogData *m)
{
    w->n_logs++;
    w->log_number = m->number;
    w->log_num = m->num;
    w->log_offset = m->offset;
    w->log_size = m->size;
    w->log_len = m->data.len;
    assert_true(m->data.len <= LOG_MAX);
    if (m->data.len)
        memcpy(w->log_text, m->data.data, m->data.len);
    w->log_text[m->data.len] = '\0';
    snprintf(w->log_message, sizeof w->log_message, "%s", m->message);
}

static void on_frame(const Tony__Frame *f)
{
    switch ((int)f->body_case) {
    case TONY__FRAME__BODY_EXECUTOR_HELLO:
        on_hello(f->executor_hello);
        break;
    case TONY__FRAME__BODY_ATTEMPT_STARTED:
        w->started = true;
        w->task = f->attempt_started->pid;
        break;
    case TONY__FRAME__BODY_ATTEMPT_ENDED:
        on_ended(f->attempt_ended);
        break;
    case TONY__FRAME__BODY_LOG_DATA:
        on_log(f->log_data);
        break;
    default:
        break;
    }
}

static bool key_of(const char *identity, struct tls_key *out, void *arg)
{
    (void)arg;
    if (!str_eq(identity, "executor " CONTAINER))
        return false;
    out->len = strlen(w->key);
    memcpy(out->bytes, w->key, out->len);
    return true;
}

static void hear(struct link *l)
{
    const Tony__Frame *f;
    struct err e = { 0 };
    int gone = link_fill(l);
    while (l->fd >= 0 && link_next(l, &f, &e) == 1) {
        if (l == &w->guest) { /* it has spoken: it is the one now */
            link_close(&w->link);
            w->link = *l;
            *l = (struct link){ .fd = -1 };
            l = &w->link;
        }
        on_frame(f);
    }
    if (gone < 0)
        link_close(l);
}

static bool until(bool (*done)(void), int ms)
{
    int64_t end = clock_mono_ms() + ms;
    while (!done()) {
        int64_t left = end - clock_mono_ms();
        if (left <= 0)
            return false;
        struct pollfd p[3] = { { .fd = w->listen_fd, .events = POLLIN },
                               { .fd = w->link.fd, .events = POLLIN },
                               { .fd = w->guest.fd, .events = POLLIN } };
        if (link_unsent(&w->link))
            p[1].events |= POLLOUT;
        if (poll(p, 3, (int)MIN(left, (int64_t)5)) <= 0)
            continue;
        if (p[1].revents & POLLOUT)
            (void)link_flush(&w->link);
        if (p[1].revents & ~POLLOUT)
            hear(&w->link);
        if (p[2].revents)
            hear(&w->guest);
        if (p[0].revents) {
            int fd = accept4(w->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            assert_true(fd >= 0);
            link_close(&w->guest);
            link_of_tls(&w->guest, fd, tls_server_new(key_of, NULL, NULL));
            w->n_dials++;
        }
    }
    return true;
}

static void cut(void)
{
    link_close(&w->link);
    link_close(&w->guest);
}

static bool is_started(void)
{
    return w->started;
}

static bool is_ended(void)
{
    return w->ended;
}

static bool never(void)
{
    return false;
}

static bool is_gone(void)
{
    if (w->executor <= 0)
        return true;
    if (waitpid(w->executor, &w->status, WNOHANG) != w->executor)
        return false;
    w->executor = 0;
    return true;
}

static int exit_status(void)
{
    assert_true(until(is_gone, LONG_MS));
    return WIFEXITED(w->status) ? WEXITSTATUS(w->status) : 1000 + WTERMSIG(w->status);
}

static const char *said; /* what has_said waits for in log1/stdout */
static bool has_said(void)
{
    return strstr(text_of("log1/stdout"), said) != NULL;
}

static void wait_said(const char *what)
{
    said = what;
    assert_true(until(has_said, LONG_MS));
}

/* ---- tests ---- */

static void what_is_missing(void **state)
{
    (void)state;
    static const struct {
        const char *without, *with, *says;
    } rows[] = {
        { "CONTAINER_ID=", NULL, "no CONTAINER_ID" },
        { "TONY_MASTER_ADDRESS=", NULL, "no TONY_MASTER_ADDRESS" },
        { "TONY_SLOT=", NULL, "no TONY_SLOT" },
        { "HADOOP_TOKEN_FILE_LOCATION=", NULL, "no HADOOP_TOKEN_FILE_LOCATION" },
        { "LOG_DIRS=", NULL, "no LOG_DIRS" },
        { NULL, "TONY_MASTER_ADDRESS=node7:4242", "'node7:4242'" },
        { NULL, "TONY_MASTER_ADDRESS=127.0.0.1", "'127.0.0.1'" },
        { NULL, "TONY_MASTER_ADDRESS=127.0.0.1:0", "'127.0.0.1:0'" },
        { NULL, "TONY_MASTER_ADDRESS=[::1:5", "'[::1:5'" },
        { NULL, "TONY_SLOT=-1", "TONY_SLOT" },
        { NULL, "TONY_SLOT=x", "TONY_SLOT" },
        { NULL, "HADOOP_TOKEN_FILE_LOCATION=/no/such/file", "'/no/such/file'" },
        { NULL, "HADOOP_TOKEN_FILE_LOCATION=/dev/null", "'/dev/null'" },
        { NULL, "LOG_DIRS=/no/such,/no/either", "'/no/such,/no/either'" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *more[] = { rows[i].with, NULL };
        (void)unlink(path_of("log1/executor.log"));
        launch(rows[i].without, more);
        if (exit_status() != 2 || !strstr(text_of("log1/executor.log"), rows[i].says))
            fail_msg("row %zu: %d, %s", i, w->status, text_of("log1/executor.log"));
    }
    static const char *const tokens[][2] = { { "another", SECRET }, { "tony.container.key", "s" } };
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        write_tokens(tokens[i][0], tokens[i][1]);
        launch(NULL, NULL);
        assert_int_equal(exit_status(), 2);
        assert_non_null(strstr(text_of("log1/executor.log"), "tony.container.key"));
    }
    assert_int_equal(w->n_dials, 0);
}

static void a_task(void **state)
{
    (void)state;
    char line[200];
    w->command =
        "env; echo group=$(ps -o pgid= -p $$ | tr -d ' ') cwd=$(pwd); echo bad >&2; exit 7";
    launch(NULL, (const char *const[]){ "LD_LIBRARY_PATH=/x", "KEYSTORE_FILE_LOCATION=/k", NULL });
    pid_t group = w->executor;
    assert_int_equal(exit_status(), 7);
    assert_int_equal(w->slot, 3);
    assert_string_equal(w->container, CONTAINER);
    assert_string_equal(w->identity, "executor " CONTAINER);
    assert_string_equal(w->host, "127.0.0.1");
    assert_true(w->port_told > 0);
    assert_int_equal(w->exit_code, 7);
    assert_int_equal(w->reason, TONY__REASON__EXITED);
    assert_string_equal(w->tail, "bad\n");
    assert_int_equal(w->n_ended, 1);
    /* our stderr lies on the second disk: so do the task's files */
    assert_int_equal(access(path_of("log0/stdout"), F_OK), -1);
    assert_string_equal(text_of("log1/stderr"), "bad\n");
    char *text = text_of("log1/stdout");
    snprintf(line, sizeof line, "group=%d cwd=%s\n", group, w->work);
    assert_non_null(strstr(text, line));
    static const char *const there[] = {
        "JAVA_HOME=/opt/java\n",
        "HADOOP_HDFS_HOME=/opt/no/hadoop\n",
        "LOCAL_DIRS=/a,/b\n",
        "CONTAINER_ID=" CONTAINER "\n",
        "TONY_CONTAINER_ID=" CONTAINER "\n",
        "HOME=/home/\n",
        "LD_LIBRARY_PATH=/x\n",
        "PATH=/usr/bin:/bin\n",
        "JOB_NAME=worker\n",
        "AM_HOST=127.0.0.1\n",
        "AM_PORT=",
        "LOG_DIRS=",
        "SKIP_HADOOP_PATH=true\n",
        "CLUSTER_SPEC={\"worker\":[\"127.0.0.1:",
    };
    for (size_t i = 0; i < ARRAY_LEN(there); i++)
        if (!strstr(text, there[i]))
            fail_msg("no %s in\n%s", there[i], text);
    static const char *const not_there[] = { "HADOOP_TOKEN_FILE_LOCATION", "TONY_MASTER_ADDRESS",
                                             "TONY_SLOT", "MALLOC_ARENA_MAX", "KEYSTORE" };
    for (size_t i = 0; i < ARRAY_LEN(not_there); i++)
        if (strstr(text, not_there[i]))
            fail_msg("%s in\n%s", not_there[i], text);
    snprintf(line, sizeof line, "TONY_LOG_DIR=%s\n", w->logs[1]);
    assert_non_null(strstr(text, line));
    snprintf(line, sizeof line, "TONY_SPEC_FILE=%s/.tony-spec.json\n", w->work);
    assert_non_null(strstr(text, line));
    assert_non_null(strstr(text_of("work/.tony-spec.json"), "{\"worker\":[\"127.0.0.1:"));
}

static void no_path_from_the_node(void **state)
{
    (void)state;
    w->command = "env";
    launch("PATH=", NULL);
    assert_int_equal(exit_status(), 0);
    assert_non_null(strstr(text_of("log1/stdout"), "PATH=/usr/local/sbin:/usr/local/bin:"));
}

static void logs_on_the_first_disk_that_takes_them(void **state)
{
    (void)state;
    char dirs[300];
    snprintf(dirs, sizeof dirs, "LOG_DIRS=/no/such, %s", w->logs[0]);
    w->command = "echo here";
    launch(NULL, (const char *const[]){ dirs, NULL });
    assert_int_equal(exit_status(), 0);
    assert_string_equal(text_of("log0/stdout"), "here\n");
}

/* A node unpacks archives read-only, and what it unpacked serves many containers. */
static void source(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(mkdir(path_of("cache"), 0700), 0);
    assert_int_equal(mkdir(path_of("cache/sub"), 0700), 0);
    assert_int_equal(mkdir(path_of("work/tmp"), 0700), 0); /* the node's own */
    assert_int_equal(mkdir(path_of("cache/tmp"), 0700), 0);
    write_bytes(path_of("cache/tmp/f"), "tmp\n", 4, 0500);
    write_bytes(path_of("cache/sub/data"), "old\n", 4, 0500);
    write_bytes(path_of("cache/run.sh"), "cat tmp/f; echo new > sub/data; cat sub/data\n", 46,
                0500);
    AUTO(free_p) char *cache = str_dup(path_of("cache"));
    assert_int_equal(symlink(cache, path_of("work/.tony-src")), 0);
    w->src = true;
    w->command = "run.sh";
    launch(NULL, NULL);
    assert_int_equal(exit_status(), 0);
    assert_string_equal(text_of("log1/stdout"), "tmp\nnew\n");
    assert_string_equal(text_of("cache/sub/data"), "old\n");
    assert_int_equal(stat(path_of("work/sub/data"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void no_source(void **state)
{
    (void)state;
    w->src = true;
    w->command = "true";
    launch(NULL, NULL);
    assert_int_equal(exit_status(), 127);
    assert_int_equal(w->reason, TONY__REASON__LAUNCH_FAILED);
    assert_non_null(strstr(w->detail, "'.tony-src'"));
}

static bool again(void)
{
    return w->n_hellos == 2;
}

static void a_cut_connection(void **state)
{
    (void)state;
    w->command = "echo begun; while [ ! -e go ]; do sleep 0.01; done; exit 3";
    launch(NULL, NULL);
    assert_true(until(is_started, LONG_MS));
    wait_said("begun");
    cut();
    assert_true(until(again, LONG_MS));
    assert_true(w->running);
    assert_int_equal(w->hello_attempt, 1);
    assert_int_equal(w->epoch_seen, 1);
    write_bytes(path_of("work/go"), "", 0, 0600);
    assert_int_equal(exit_status(), 3);
    assert_int_equal(w->n_ended, 1);
    assert_string_equal(text_of("log1/stdout"), "begun\n"); /* once */
}

/* What ended without a master is told to the next one; an older one is not obeyed. */
static void masters(void **state)
{
    (void)state;
    w->epoch = 2;
    w->command = "echo begun; while [ ! -e go ]; do sleep 0.01; done; echo over; exit 3";
    launch(NULL, NULL);
    assert_true(until(is_started, LONG_MS));
    wait_said("begun");
    close_p(&w->listen_fd);
    cut();
    write_bytes(path_of("work/go"), "", 0, 0600);
    wait_said("over");
    make_listener(); /* at the same address */
    w->epoch = 1;
    assert_true(until(again, LONG_MS));
    assert_int_equal(w->epoch_seen, 2);
    assert_false(until(is_gone, 100)); /* although it was told to finish */
    w->epoch = 3;
    cut();
    w->n_ended = 0;
    w->ended = false;
    assert_int_equal(exit_status(), 3);
    assert_int_equal(w->n_ended, 1);
    assert_true(w->unacked || w->ended);
    assert_int_equal(w->exit_code, 3);
}

static void wrong_key(void **state)
{
    (void)state;
    w->key = "fedcba9876543210fedcba9876543210";
    launch(NULL, NULL);
    assert_int_equal(exit_status(), 1);
    assert_int_equal(w->n_hellos, 0);
    assert_int_equal(w->n_dials, 3);
    char *log = text_of("log1/executor.log");
    assert_non_null(strstr(log, "another key for 'executor " CONTAINER "'"));
    assert_non_null(strstr(log, "127.0.0.1:"));
    assert_null(strstr(log, "0123456789abcdef"));
}

static bool dialled_often(void)
{
    return w->n_dials >= 6;
}

/* Whoever sits at the address of a master that is gone does not end a task that runs. */
static void a_stranger_at_the_address(void **state)
{
    (void)state;
    w->command = "echo begun; while [ ! -e go ]; do sleep 0.01; done";
    launch(NULL, NULL);
    wait_said("begun");
    w->key = "fedcba9876543210fedcba9876543210";
    cut();
    assert_true(until(dialled_often, LONG_MS));
    w->key = SECRET;
    assert_true(until(again, LONG_MS));
    assert_true(w->running);
    write_bytes(path_of("work/go"), "", 0, 0600);
    assert_int_equal(exit_status(), 0);
}

static void nobody_there_for_long(void **state)
{
    (void)state;
    w->away_ms = 300;
    w->command = "echo begun; sleep 100";
    launch(NULL, NULL);
    wait_said("begun");
    close_p(&w->listen_fd);
    cut();
    assert_int_equal(exit_status(), 128 + SIGTERM);
    assert_non_null(strstr(text_of("log1/executor.log"), "there was no master"));
    assert_int_equal(processes(false), 0);
}

static void not_wanted(void **state)
{
    (void)state;
    w->refuse = true;
    launch(NULL, NULL);
    assert_int_equal(exit_status(), 0);
    assert_int_equal(w->n_hellos, 1);
    assert_non_null(strstr(text_of("log1/executor.log"), "no longer the task's"));
}

/* TERM to the group. The task dies of it; its daemon, in a session of its own, does not. The node
 * says why it did that, so we do not. */
static void the_node_stops_it(void **state)
{
    (void)state;
    w->command =
        "setsid sh -c 'trap \"\" TERM; echo daemon; while :; do sleep 0.01; done' & sleep 100";
    launch(NULL, NULL);
    wait_said("daemon");
    int64_t at = clock_mono_ms();
    kill(-w->executor, SIGTERM);
    assert_int_equal(exit_status(), 128 + SIGTERM);
    assert_true(clock_mono_ms() - at < 2000);
    assert_int_equal(w->n_ended, 0);
    assert_int_equal(processes(false), 0);
}

/* The same with a task that does not want to: KILL to the group ends it and us, and what left the
 * group is gone before that. */
static bool daemon_is_gone(void)
{
    return processes(false) == 3; /* we, the shell, its sleep */
}

static void the_node_kills_it(void **state)
{
    (void)state;
    w->grace_ms = 60000;
    w->command = "trap '' TERM; setsid sh -c 'echo daemon; exec sleep 99' & "
                 "while :; do sleep 100; done";
    launch(NULL, NULL);
    pid_t group = w->executor;
    wait_said("daemon");
    kill(-group, SIGTERM);
    assert_true(until(daemon_is_gone, LONG_MS));
    assert_false(until(is_gone, 100));
    kill(-group, SIGKILL);
    assert_int_equal(exit_status(), 1000 + SIGKILL);
    for (int i = 0; i < 1000 && processes(false) > 0; i++)
        usleep(1000);
    assert_int_equal(processes(false), 0);
    assert_int_equal(w->n_ended, 0);
}

/* What the master itself had stopped is told, whatever the node does then. */
static void the_master_stops_it(void **state)
{
    (void)state;
    w->command = "trap 'exit 5' TERM; echo begun; while :; do sleep 0.01; done";
    launch(NULL, NULL);
    wait_said("begun");
    Tony__FinishExecutor m = TONY__FINISH_EXECUTOR__INIT;
    m.grace_ms = 10000;
    SEND(finish_executor, FINISH_EXECUTOR, &m);
    assert_int_equal(exit_status(), 5);
    assert_int_equal(w->n_ended, 1);
    assert_int_equal(w->reason, TONY__REASON__KILLED_BY_MASTER);
}

static void a_daemon_is_left(void **state)
{
    (void)state;
    w->command = "(setsid setsid sleep 100 &); (setsid sh -c 'echo daemon; exec sleep 100' &); "
                 "while ! grep -q daemon $TONY_LOG_DIR/stdout; do sleep 0.01; done; exit 4";
    launch(NULL, NULL);
    assert_int_equal(exit_status(), 4);
    assert_int_equal(processes(false), 0);
    assert_int_equal(w->exit_code, 4);
    assert_int_equal(w->reason, TONY__REASON__EXITED);
}

static bool has_log(void)
{
    return w->n_logs > 0;
}

static void ask(uint32_t attempt, const char *stream, int64_t offset, uint32_t max)
{
    static uint32_t number;
    Tony__ReadLog m = TONY__READ_LOG__INIT;
    m.number = ++number;
    m.slot = 3;
    m.attempt = attempt;
    m.stream = (char *)(uintptr_t)stream;
    m.offset = offset;
    m.max = max;
    w->n_logs = 0;
    SEND(read_log, READ_LOG, &m);
    assert_true(until(has_log, LONG_MS));
    assert_int_equal(w->log_number, number);
}

static void ask_for(uint32_t attempt, const char *stream, int64_t offset, uint32_t max,
                    const char *text, int64_t at, int64_t size)
{
    ask(attempt, stream, offset, max);
    assert_int_equal(w->log_num, 0);
    assert_string_equal(w->log_text, text);
    assert_int_equal(w->log_offset, at);
    assert_int_equal(w->log_size, size);
}

static void attempts_and_logs(void **state)
{
    (void)state;
    w->hold_start = w->keep = true;
    w->command = "echo attempt-$TONY_ATTEMPT; echo e$TONY_ATTEMPT >&2; exit $TONY_ATTEMPT";
    launch(NULL, NULL);
    w->n_hellos = 0;
    bool (*hello)(void) = again;
    w->n_hellos = 1; /* the first hello is the second */
    assert_true(until(hello, LONG_MS));
    ask(0, "stdout", 0, 100);
    assert_int_equal(w->log_num, ENOENT);
    tell_start(5); /* earlier ones ran elsewhere */
    assert_true(until(is_ended, LONG_MS));
    assert_int_equal(w->exit_code, 5);
    tell_start(6);
    assert_true(until(is_ended, LONG_MS));
    assert_int_equal(w->exit_code, 6);
    assert_string_equal(text_of("log1/stdout"), "attempt-5\n");
    assert_string_equal(text_of("log1/stdout.2"), "attempt-6\n");
    assert_string_equal(text_of("log1/stderr"), "e5\n");
    assert_string_equal(text_of("log1/stderr.2"), "e6\n");

    ask_for(5, "stdout", 0, 100, "attempt-5\n", 0, 10);
    ask_for(6, "stdout", 0, 100, "attempt-6\n", 0, 10);
    ask_for(0, "stdout", 0, 100, "attempt-6\n", 0, 10);
    ask_for(0, "stderr", 0, 100, "e6\n", 0, 3);
    ask_for(5, "stdout", -3, 100, "-5\n", 7, 10);
    ask_for(5, "stdout", -300, 4, "atte", 0, 10);
    ask_for(5, "stdout", INT64_MIN, 4, "atte", 0, 10);
    ask_for(5, "stdout", 8, 100, "5\n", 8, 10);
    ask_for(5, "stdout", 800, 100, "", 10, 10);
    ask_for(5, "stdout", 0, 0, "", 0, 10);
    ask(4, "stdout", 0, 100);
    assert_int_equal(w->log_num, ENOENT);
    assert_non_null(strstr(w->log_message, "attempt 4"));
    ask(5, "../stdout", 0, 100);
    assert_int_equal(w->log_num, EINVAL);
    ask(0, "executor.log", 0, 1 << 20);
    assert_int_equal(w->log_num, 0);
    assert_non_null(strstr(w->log_text, "task.started"));
    assert_int_equal(unlink(path_of("log1/stdout")), 0);
    ask(5, "stdout", 0, 100);
    assert_int_equal(w->log_num, ENOENT);
    assert_non_null(strstr(w->log_message, "'stdout'"));

    AUTO(free_p) char *big = malloc(3 << 20);
    memset(big, 'x', 3 << 20);
    write_bytes(path_of("log1/stdout"), big, 3 << 20, 0600);
    ask(5, "stdout", 1, UINT32_MAX);
    assert_int_equal(w->log_num, 0);
    assert_int_equal(w->log_len, 1 << 20);
    assert_int_equal(w->log_size, 3 << 20);
    tell_ack(6, true);
    assert_int_equal(exit_status(), 6);
    assert_int_equal(w->n_hellos, 2);
}

/* A node that has nothing but a kernel. */
static void an_empty_root(void **state)
{
    (void)state;
    char root[100], path[300];
    snprintf(root, sizeof root, "%s/root", w->dir);
    static const char *const dirs[] = { "", "/proc", "/dev", "/w", "/l" };
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        snprintf(path, sizeof path, "%s%s", root, dirs[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    AUTO(buf_done) struct buf program = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, w->program, &program, NULL), 0);
    write_bytes(path_of("root/w/tony-executor"), program.p, program.len, 0700);
    program.len = 0;
    assert_int_equal(fs_read(AT_FDCWD, path_of("work/container_tokens"), &program, NULL), 0);
    write_bytes(path_of("root/w/container_tokens"), program.p, program.len, 0600);
    w->command = "tony-executor --version";
    w->executor = fork();
    if (w->executor == 0) {
        char address[60];
        snprintf(address, sizeof address, "TONY_MASTER_ADDRESS=127.0.0.1:%u", w->port);
        const char *env[] = { "CONTAINER_ID=" CONTAINER,
                              address,
                              "TONY_SLOT=0",
                              "LOG_DIRS=/l",
                              "HADOOP_TOKEN_FILE_LOCATION=/w/container_tokens",
                              w->mark,
                              NULL };
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        snprintf(path, sizeof path, "%s/proc", root);
        if (unshare(CLONE_NEWNS) == -1 ||
            mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == -1 ||
            mount("/proc", path, NULL, MS_BIND | MS_REC, NULL) == -1)
            _exit(77);
        snprintf(path, sizeof path, "%s/dev/null", root);
        if (mknod(path, S_IFCHR | 0666, makedev(1, 3)) == -1 || chroot(root) == -1 ||
            chdir("/w") == -1)
            _exit(77);
        int log = open("/l/executor.log", O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(log, 2);
        execle("/w/tony-executor", "tony-executor", "--container", (char *)NULL,
               (char *const *)(uintptr_t)env);
        _exit(126);
    }
    int status = exit_status();
    if (status == 77 || status == 126) /* not root; or not a static program */
        skip();
    assert_int_equal(status, 0);
    assert_non_null(strstr(text_of("root/l/stdout"), "tony-executor "));
}

/* ---- the master on IPv6 ---- */

static void ipv6(void **state)
{
    (void)state;
    char master[60];
    struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    socklen_t len = sizeof at;
    close_p(&w->listen_fd);
    w->listen_fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (w->listen_fd == -1 || bind(w->listen_fd, (struct sockaddr *)&at, sizeof at) == -1)
        skip();
    assert_int_equal(listen(w->listen_fd, 5), 0);
    assert_int_equal(getsockname(w->listen_fd, (struct sockaddr *)&at, &len), 0);
    snprintf(master, sizeof master, "TONY_MASTER_ADDRESS=[::1]:%u", ntohs(at.sin6_port));
    w->command = "true";
    launch(NULL, (const char *const[]){ master, NULL });
    assert_int_equal(exit_status(), 0);
    assert_string_equal(w->host, "[::1]");
}

static void few_pages(void **state)
{
    (void)state;
    w->command = "echo begun; sleep 100";
    launch(NULL, NULL);
    wait_said("begun");
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", w->executor);
    (void)until(never, 200); /* some beats */
    AUTO(buf_done) struct buf text = { 0 };
    assert_int_equal(fs_read(AT_FDCWD, path, &text, NULL), 0);
    const char *rss = strstr(buf_cstr(&text), "VmRSS:");
    assert_non_null(rss);
    long kib = strtol(rss + 6, NULL, 10);
    if (getenv("TONY_TEST_SHOW"))
        print_message("# %s\n", buf_cstr(&text));
#ifndef TONY_SANITIZED
    assert_true(kib <= 1536);
#else
    (void)kib;
#endif
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_missing),
        TEST(a_task),
        TEST(no_path_from_the_node),
        TEST(logs_on_the_first_disk_that_takes_them),
        TEST(source),
        TEST(no_source),
        TEST(a_cut_connection),
        TEST(masters),
        TEST(wrong_key),
        TEST(a_stranger_at_the_address),
        TEST(nobody_there_for_long),
        TEST(not_wanted),
        TEST(the_node_stops_it),
        TEST(the_node_kills_it),
        TEST(the_master_stops_it),
        TEST(a_daemon_is_left),
        TEST(attempts_and_logs),
        TEST(an_empty_root),
        TEST(ipv6),
        TEST(few_pages),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
