/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the call of a request. A URL is called by curl, which knows certificates, proxies and every
 * version of HTTP; its options come from a file in memory, so that no other user sees the URL in a
 * list of processes. A command is run by sh.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "codec/json.h"
#include "storage/hook.h"

extern char **environ;

enum {
    PAUSE_MIN_MS = 1000, /* doubles with each failure */
    PAUSE_MAX_MS = 600 * 1000,
    URL_S = 30,        /* for one call of a URL */
    COMMAND_S = 600,   /* for one run of a command; then it is killed */
    STEP_MS = 20,      /* between two checks whether the process has ended */
    LOOK_MS = 1000,    /* between two checks whether the request still exists */
    OUTPUT_MAX = 4000, /* bytes of the output of a command that are kept for the log */
};

struct call {
    const char *dir, *log;
    const char *path; /* of the request */
    int fd;           /* the request, open and locked */
    json_t *request;
    unsigned attempt;
};

static volatile sig_atomic_t stop_asked; /* set by a signal handler */

static void on_stop(int signo)
{
    (void)signo;
    stop_asked = 1;
}

/* Was the request removed, perhaps together with TONY_HOME? */
static bool is_gone(const struct call *c)
{
    struct stat there, ours;
    return fstat(c->fd, &ours) == 0 &&
           (stat(c->path, &there) == -1 ? errno == ENOENT || errno == ENOTDIR
                                        : there.st_ino != ours.st_ino);
}

static const char *field(const struct call *c, const char *name)
{
    const char *s = json_string_value(json_object_get(c->request, name));
    return s ? s : "";
}

/* ---- the log ---- */

static void say(const struct call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(const struct call *c, const char *fmt, ...)
{
    AUTO(buf_done) struct buf line = { 0 };
    char when[32];
    time_t now = time(NULL);
    struct tm tm;
    va_list ap;
    if (!gmtime_r(&now, &tm) || strftime(when, sizeof when, "%FT%TZ", &tm) == 0)
        return;
    (void)buf_addf(&line, "%s on-end %s: ", when, field(c, "delivery"));
    va_start(ap, fmt);
    (void)buf_vaddf(&line, fmt, ap);
    va_end(ap);
    (void)buf_addc(&line, '\n');
    AUTO(close_p)
    int fd =
        c->log ? open(c->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    (void)fs_write_all(fd >= 0 ? fd : 2, line.p, line.len); /* there is nowhere to report it */
}

/* ---- processes ---- */

/* A file in memory with this text, to be read from its beginning. */
static int memory_file(const char *name, struct span text)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd >= 0 && (fs_write_all(fd, text.p, text.len) < 0 || lseek(fd, 0, SEEK_SET) == -1))
        close_p(&fd);
    return fd;
}

/* The directory in which the called program starts: the home directory of the user. The processes
 * of a pool have the directory "/", in which an ordinary user cannot write. On YARN, the
 * container's directory stays. NULL: the present directory. */
static const char *start_dir(void)
{
    char here[8]; /* longer names do not fit, and are not "/" */
    const char *home = getenv("HOME");
    if (!getcwd(here, sizeof here) || !str_eq(here, "/"))
        return NULL;
    return home && home[0] == '/' && access(home, X_OK) == 0 ? home : NULL;
}

static pid_t start(char *const *argv, char *const *envp, int in, int out)
{
    pid_t pid = -1;
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none, all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    if (posix_spawn_file_actions_init(&fa) != 0)
        return -1;
    if (posix_spawnattr_init(&attr) != 0) {
        (void)posix_spawn_file_actions_destroy(&fa);
        return -1;
    }
    const char *dir = start_dir();
    bool ok = (!dir || posix_spawn_file_actions_addchdir_np(&fa, dir) == 0) &&
              posix_spawn_file_actions_adddup2(&fa, in, 0) == 0 &&
              posix_spawn_file_actions_adddup2(&fa, out, 1) == 0 &&
              posix_spawn_file_actions_adddup2(&fa, out, 2) == 0 &&
              posix_spawnattr_setsigmask(&attr, &none) == 0 &&
              posix_spawnattr_setsigdefault(&attr, &all) == 0 &&
              posix_spawnattr_setpgroup(&attr, 0) == 0 &&
              posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                  POSIX_SPAWN_SETPGROUP) == 0;
    if (!ok || posix_spawnp(&pid, argv[0], &fa, &attr, argv, envp) != 0)
        pid = -1;
    (void)posix_spawn_file_actions_destroy(&fa);
    (void)posix_spawnattr_destroy(&attr);
    return pid;
}

static void pause_ms(int64_t ms)
{
    (void)poll(NULL, 0, (int)MIN(ms, (int64_t)INT32_MAX));
}

/* Wait for the process. Kill its process group after limit_s seconds, or when this process has to
 * end. Returns the wait status. */
static int await(pid_t pid, int limit_s)
{
    int64_t until = clock_mono_ms() + limit_s * (int64_t)1000;
    int status = 0;
    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid || (got == -1 && errno != EINTR))
            return got == pid ? status : 127 << 8;
        if (stop_asked || clock_mono_ms() >= until)
            (void)kill(-pid, SIGKILL);
        pause_ms(STEP_MS);
    }
}

/* Run a program. Returns its wait status, and the end of its output; -1: it was not started. */
static int run(char *const *argv, char *const *envp, int in, int limit_s, struct buf *output)
{
    AUTO(close_p) int out = memory_file("output", (struct span){ 0 });
    if (in < 0 || out < 0)
        return -1;
    pid_t pid = start(argv, envp, in, out);
    if (pid < 0)
        return -1;
    int status = await(pid, limit_s);
    struct stat st;
    off_t from = fstat(out, &st) == 0 && st.st_size > OUTPUT_MAX ? st.st_size - OUTPUT_MAX : 0;
    char *to = buf_reserve(output, OUTPUT_MAX);
    ssize_t n = to ? pread(out, to, OUTPUT_MAX, from) : 0;
    buf_commit(output, n > 0 ? (size_t)n : 0);
    return status;
}

/* ---- a URL ---- */

/* A line of curl's options. */
static void add_option(struct buf *out, const char *name, const char *value)
{
    (void)buf_addf(out, "%s = \"", name);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            (void)buf_addc(out, '\\');
        if (*value == '\n' || *value == '\r')
            continue;
        (void)buf_addc(out, *value);
    }
    (void)buf_adds(out, "\"\n");
}

static int add_header(struct buf *out, const char *name, const char *value)
{
    AUTO(free_p) char *text = str_printf("%s: %s", name, value);
    if (!text)
        return -ENOMEM;
    if (*value)
        add_option(out, "header", text);
    return 0;
}

static int curl_options(const struct call *c, struct buf *out)
{
    AUTO(free_p) char *body = str_printf("@%s/body", c->dir);
    char attempt[16];
    (void)snprintf(attempt, sizeof attempt, "%u", c->attempt);
    if (!body)
        return -ENOMEM;
    (void)buf_addf(out,
                   "silent\nshow-error\nmax-time = %d\nrequest = POST\nproto = \"=http,https\"\n"
                   "output = /dev/null\nwrite-out = \"%%{http_code}\"\n",
                   URL_S);
    add_option(out, "url", field(c, "target"));
    add_option(out, "data-binary", body);
    int rc = add_header(out, "Content-Type", "application/json");
    if (rc == 0)
        rc = add_header(out, "X-Tony-Delivery", field(c, "delivery"));
    if (rc == 0)
        rc = add_header(out, "X-Tony-Attempt", attempt);
    if (rc == 0)
        rc = add_header(out, "X-Tony-Signature", field(c, "signature"));
    return rc == 0 && !out->failed ? 0 : -ENOMEM;
}

static bool call_url(const struct call *c, struct buf *why)
{
    static char curl[] = "curl", disable[] = "-q", config[] = "--config", dash[] = "-";
    char *const argv[] = { curl, disable, config, dash, NULL };
    AUTO(buf_done) struct buf options = { 0 }, output = { 0 };
    AUTO(close_p) int in = -1;
    if (curl_options(c, &options) == 0)
        in = memory_file("options", buf_span(&options));
    int status = run(argv, environ, in, URL_S + 10, &output);
    struct span said = span_trim(buf_span(&output));
    if (status == -1) {
        (void)buf_adds(why, "cannot start curl; is it installed?");
        return false;
    }
    /* curl writes the code behind its error, if it has one: the code is the last three bytes */
    const char *code = said.len >= 3 ? said.p + said.len - 3 : "000";
    if (status == 0 && code[0] == '2')
        return true;
    if (status == 0)
        (void)buf_addf(why, "the answer was %.3s", code);
    else {
        said.len = MAX(said.len, (size_t)3) - 3;
        said = span_trim(said);
        (void)buf_addf(why, "%.*s", (int)said.len, said.p ? said.p : "");
    }
    return false;
}

/* ---- a command ---- */

static int command_env(const struct call *c, struct strv *env)
{
    char code[16];
    int rc = 0;
    for (char **v = environ; *v && rc == 0; v++)
        rc = strv_push(env, *v);
    (void)snprintf(code, sizeof code, "%d",
                   (int)json_integer_value(json_object_get(c->request, "exit_code")));
    if (rc == 0)
        rc = strv_env_set(env, "TONY_DELIVERY", field(c, "delivery"));
    if (rc == 0)
        rc = strv_env_set(env, "TONY_APPLICATION_ID", field(c, "application_id"));
    if (rc == 0)
        rc = strv_env_set(env, "TONY_STATE", field(c, "state"));
    return rc == 0 ? strv_env_set(env, "TONY_EXIT_CODE", code) : rc;
}

static bool call_command(const struct call *c, struct buf *why)
{
    static char sh[] = "/bin/sh", option[] = "-c";
    AUTO(free_p) char *command = str_dup(field(c, "target"));
    AUTO(free_p) char *body = fs_join(c->dir, "body");
    AUTO(buf_done) struct buf output = { 0 };
    AUTO(strv_done) struct strv env = { 0 };
    if (!command || !body || command_env(c, &env) < 0) {
        (void)buf_adds(why, "no memory to make the call");
        return false;
    }
    char *const argv[] = { sh, option, command, NULL };
    AUTO(close_p) int in = open(body, O_RDONLY | O_CLOEXEC);
    int status = run(argv, env.v, in, COMMAND_S, &output);
    struct span said = span_trim(buf_span(&output));
    if (status == -1)
        (void)buf_adds(why, "cannot start /bin/sh");
    else if (WIFSIGNALED(status))
        (void)buf_addf(why, "it was ended by signal %d", WTERMSIG(status));
    else if (status != 0)
        (void)buf_addf(why, "it ended with exit code %d", WEXITSTATUS(status));
    if (said.len && status == 0)
        say(c, "the command said: %.*s", (int)said.len, said.p);
    else if (said.len)
        (void)buf_addf(why, ": %.*s", (int)said.len, said.p);
    return status == 0;
}

/* ---- until it succeeds ---- */

static bool call_once(const struct call *c, struct buf *why)
{
    const char *target = field(c, "target");
    bool url = str_starts(target, "http://") || str_starts(target, "https://");
    return url ? call_url(c, why) : call_command(c, why);
}

/* The age of the request. */
static int64_t age_ms(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == -1)
        return 0;
    return MAX(clock_wall_ms() - (int64_t)st.st_mtime * 1000, (int64_t)0);
}

/* Wait before the next attempt. false: this process has to end, or the request was removed. */
static bool wait_for_next(const struct call *c, int64_t ms)
{
    int64_t until = clock_mono_ms() + ms;
    for (;;) {
        int64_t left = until - clock_mono_ms();
        if (stop_asked || is_gone(c))
            return false;
        if (left <= 0)
            return true;
        pause_ms(MIN(left, (int64_t)LOOK_MS));
    }
}

static int repeat(struct call *c, int64_t limit_ms)
{
    int64_t until = clock_mono_ms() + limit_ms, wait_ms = PAUSE_MIN_MS;
    for (;; wait_ms = MIN(2 * wait_ms, (int64_t)PAUSE_MAX_MS)) {
        AUTO(buf_done) struct buf why = { 0 };
        c->attempt++;
        if (call_once(c, &why)) {
            say(c, "done, attempt %u", c->attempt);
            return 0;
        }
        if (stop_asked) {
            say(c, "attempt %u was stopped by a signal; the next pool goes on", c->attempt);
            return 1;
        }
        if (age_ms(c->fd) > HOOK_LIMIT_MS) {
            say(c, "attempt %u failed: %s; given up", c->attempt, buf_cstr(&why));
            return 0; /* remove the request */
        }
        bool last = clock_mono_ms() + wait_ms >= until;
        if (last)
            say(c, "attempt %u failed: %s; the next pool goes on", c->attempt, buf_cstr(&why));
        else
            say(c, "attempt %u failed: %s; again in %lld s", c->attempt, buf_cstr(&why),
                (long long)(wait_ms / 1000));
        if (last || !wait_for_next(c, wait_ms))
            return 1;
    }
}

int hook_run(const char *dir, const char *log, int64_t limit_ms, struct err *e)
{
    AUTO(free_p) char *path = fs_join(dir, "request");
    AUTO(buf_done) struct buf text = { .max = HOOK_BODY_MAX };
    AUTO(close_p) int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    AUTO(json_freep) json_t *request = NULL;
    if (fd == -1 && errno == ENOENT)
        return 0; /* it was delivered */
    if (fd == -1)
        return err_set(e, errno, "cannot open '%s': %m", path ? path : dir);
    if (flock(fd, LOCK_EX | LOCK_NB) == -1)
        return 0; /* another process delivers it */
    int rc = buf_fill_fd(&text, fd, e);
    if (rc == 0)
        rc = json_parse(path, buf_span(&text), &request, e);
    if (rc < 0)
        return rc;
    struct call c = { .dir = dir, .log = log, .path = path, .fd = fd, .request = request };
    rc = repeat(&c, limit_ms);
    return rc == 0 ? fs_remove_tree(AT_FDCWD, dir, e) : rc;
}

/* A signal ends the call, too: its process is in a group of its own. */
static void handle_signals(void)
{
    static const int signos[] = { SIGTERM, SIGINT, SIGHUP };
    struct sigaction sa = { .sa_handler = on_stop };
    sigset_t set;
    (void)sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(signos); i++) {
        (void)sigaction(signos[i], &sa, NULL);
        (void)sigaddset(&set, signos[i]);
    }
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int hook_main(int argc, char **argv)
{
    int64_t limit_ms = 0;
    struct err e = { 0 };
    if (argc < 4 || argc > 5 ||
        str_i64(span_of(argv[3]), 1, HOOK_LIMIT_MS, "LIMIT_MS", &limit_ms, &e) < 0)
        return 2;
    handle_signals();
    int rc = hook_run(argv[2], argc == 5 ? argv[4] : NULL, limit_ms, &e);
    if (rc < 0)
        (void)fprintf(stderr, "%s: %s\n", argv[0], e.msg);
    return rc == 0 ? 0 : 1;
}
