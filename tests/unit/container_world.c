/* SPDX-License-Identifier: Apache-2.0 */
#include "container_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "marked_processes.h"
#include "storage/jobkey.h"

struct world *w;

/* ---- the node ---- */

void write_bytes(const char *path, const void *p, size_t n, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(fs_write_all(fd, p, n), 0);
    close(fd);
}

const char *path_of(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", w->dir, name);
    return path;
}

char *text_of(const char *name)
{
    static struct buf text;
    buf_clear(&text);
    (void)fs_read(AT_FDCWD, path_of(name), &text, NULL);
    return text.p ? text.p : (char *)"";
}

void write_tokens(const char *alias, const char *secret)
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

int processes(bool kill_them)
{
    return marked_processes(w->mark, kill_them);
}

const char *container_secret(void)
{
    static char text[33];
    if (!text[0])
        (void)snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)getpid(),
                       (unsigned long long)clock_wall_ms());
    return text;
}

static int bound_socket(struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    socklen_t len = sizeof *at;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)at, sizeof *at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)at, &len), 0);
    return fd;
}

void make_listener(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons(w->port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    bool anew = w->port == 0;
    w->listen_fd = bound_socket(&at);
    assert_int_equal(listen(w->listen_fd, 16), 0);
    w->port = ntohs(at.sin_port);
    if (anew) {
        close_p(&w->held[1]);
        w->held[1] = w->held[0];
        w->held[0] = bound_socket(&at);
    }
}

int container_setup(void **state)
{
    (void)state;
    w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->link.fd = w->guest.fd = w->held[0] = w->held[1] = -1;
    w->key = SECRET;
    w->epoch = 1;
    w->grace_ms = 600000; /* tests that stop a task never wait for its TERM grace to end */
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

int container_teardown(void **state)
{
    (void)state;
    link_close(&w->link);
    link_close(&w->guest);
    close_p(&w->listen_fd);
    close_p(&w->held[0]);
    close_p(&w->held[1]);
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

void launch(const char *without, const char *const *more)
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

void send_start(uint32_t attempt)
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

/* Start an attempt as masters of this version do: Peers has all addresses, Start only the first. */
void send_peers_and_start(uint32_t attempt, const char *addresses, uint32_t n)
{
    Tony__SpecRole role = TONY__SPEC_ROLE__INIT, *roles[1] = { &role };
    role.name = (char *)"worker";
    role.addresses = (char *)(uintptr_t)addresses;
    role.n = n;
    role.kind = 1;
    Tony__ClusterSpec spec = TONY__CLUSTER_SPEC__INIT;
    spec.generation = 1;
    spec.roles = roles;
    spec.n_roles = 1;
    Tony__Peers p = TONY__PEERS__INIT;
    p.spec = &spec;
    SEND(peers, PEERS, &p);
    Tony__Start m = TONY__START__INIT;
    m.generation = 1;
    m.attempt = attempt;
    m.spec = &spec;
    m.spec_bytes = strlen("{\"worker\":[]}") + strlen(addresses);
    char first[64];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(addresses, ","), addresses);
    role.addresses = first;
    w->started = w->ended = false;
    SEND(start, START, &m);
}

void send_ack(uint32_t attempt, bool finish)
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
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", w->port);
    m.epoch = w->epoch;
    m.master_address = w->moved ? address : (char *)"";
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
        send_ack(m->attempt, !w->keep);
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
        no.message = (char *)"this container does not belong to the task any more";
        SEND(refused, REFUSED, &no);
        return;
    }
    tell_welcome();
    for (size_t i = 0; i < h->n_unacked; i++)
        on_ended(h->unacked[i]);
    if (!w->hold_start && !h->attempt)
        send_start(1);
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
        /* The first frame of a new connection: it replaces the old connection. */
        if (l == &w->guest) {
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

/* Run the client's side of the TLS handshake; false: the other side hung up. */
static bool shake(struct link *l)
{
    int64_t end = clock_mono_ms() + LONG_MS;
    while (clock_mono_ms() < end) {
        struct pollfd p = { .fd = l->fd, .events = POLLIN };
        if (l->connecting || link_unsent(l))
            p.events |= POLLOUT;
        (void)poll(&p, 1, 5);
        if (l->connecting && link_connected(l) < 0)
            return false;
        if (!l->connecting && (link_flush(l) < 0 || link_fill(l) < 0))
            return false;
        if (!l->connecting && tls_ready(l->tls))
            return true;
    }
    return false;
}

bool connect_as_new_master(const char *key)
{
    uint16_t ports[JOB_KEY_PORTS];
    struct tls_key own = { .len = strlen(SECRET) }, shown = { .len = strlen(key) };
    memcpy(own.bytes, SECRET, own.len);
    memcpy(shown.bytes, key, shown.len);
    job_key_ports(&own, w->ports, ports);
    for (size_t i = 0; i < JOB_KEY_PORTS; i++) {
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(ports[i]) };
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        struct tls *tls = tls_client_new("executor " CONTAINER, &shown, NULL);
        struct link l = { .fd = -1 };
        assert_non_null(tls);
        if (link_dial_tls(&l, (const struct sockaddr *)&at, sizeof at, tls) == 0 && shake(&l)) {
            link_close(&w->guest);
            w->guest = l;
            /* The executor's hello may have arrived with the last bytes of the handshake. */
            hear(&w->guest);
            return true;
        }
        link_close(&l);
    }
    return false;
}

bool until(bool (*done)(void), int ms)
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

void close_connections(void)
{
    link_close(&w->link);
    link_close(&w->guest);
}

bool is_gone(void)
{
    if (w->executor <= 0)
        return true;
    if (waitpid(w->executor, &w->status, WNOHANG) != w->executor)
        return false;
    w->executor = 0;
    return true;
}

static bool hung_up(void)
{
    return w->link.fd < 0;
}

int exit_status(void)
{
    assert_true(until(is_gone, LONG_MS));
    (void)until(hung_up, LONG_MS); /* read the frames that the executor sent before it exited */
    return WIFEXITED(w->status) ? WEXITSTATUS(w->status) : 1000 + WTERMSIG(w->status);
}

static const char *said; /* the text that has_said() looks for in log1/stdout */
static bool has_said(void)
{
    return strstr(text_of("log1/stdout"), said) != NULL;
}

void wait_said(const char *what)
{
    said = what;
    assert_true(until(has_said, LONG_MS));
}
