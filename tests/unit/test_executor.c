/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the executor: command lines, ports, process trees, control groups, working directories,
 * links. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/proctree.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "cgroup/find.h"
#include "codec/frame.h"
#include "executor/cgroup.h"
#include "executor/command.h"
#include "executor/link.h"
#include "executor/ports.h"
#include "executor/spare.h"
#include "executor/usage.h"
#include "executor/workdir.h"
#include "torture.h"

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/tony-exec-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    struct err e = { 0 };
    return fs_remove_tree(AT_FDCWD, dir, &e);
}

static void put(const char *name, const char *text, mode_t mode)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(fs_write_all(fd, text, strlen(text)), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* ---- command lines ---- */

static void which_commands_need_a_shell(void **state)
{
    static const struct {
        const char *text;
        bool shell;
    } rows[] = {
        { "python train.py --epochs 3", false },
        { "  python\ttrain.py ", false },
        { "python train.py --lr=0.1", false },
        { "a,b +x -y @z %d ^k :", false },
        { "X=1 python train.py", true },
        { "echo $HOME", true },
        { "a && b", true },
        { "a; b", true },
        { "a | b", true },
        { "a > out", true },
        { "a < in", true },
        { "a &", true },
        { "echo 'x y'", true },
        { "echo \"x\"", true },
        { "echo a\\ b", true },
        { "ls *.py", true },
        { "ls ?.py", true },
        { "ls [ab]", true },
        { "echo {a,b}", true },
        { "(a)", true },
        { "echo `date`", true },
        { "cd ~/x", true },
        { "a # comment", true },
        { "! a", true },
        { "a\nb", true },
        { "", true },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (command_needs_shell(rows[i].text) != rows[i].shell)
            fail_msg("'%s'", rows[i].text);
}

static void how_commands_are_run(void **state)
{
    char own[200];
    snprintf(own, sizeof own, "%s/run.sh", dir);
    char dotted[200];
    snprintf(dotted, sizeof dotted, "%s/./run.sh", dir);
    const struct {
        const char *text, *path, *argv[5];
    } rows[] = {
        { "env -i a", "/usr/bin/env", { "env", "-i", "a" } },
        { "/usr/bin/env  x", "/usr/bin/env", { "/usr/bin/env", "x" } },
        { "exit 3",
          "/bin/bash",
          { "/bin/bash", "-c", "exit 3" } }, /* no such file: the shell handles it */
        { "echo a; echo b", "/bin/bash", { "/bin/bash", "-c", "echo a; echo b" } },
        { "./run.sh 1", dotted, { "./run.sh", "1" } }, /* the file was not executable */
        { "run.sh 1", own, { "run.sh", "1" } },
        { " run.sh 'a b'", "/bin/bash", { "/bin/bash", "-c", "./run.sh 'a b'" } },
        { "../etc 1", "/bin/bash", { "/bin/bash", "-c", "../etc 1" } },
    };
    (void)state;
    put("run.sh", "exit 0\n", 0600);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct strv env = { 0 };
        struct command c = { 0 };
        struct err e = { 0 };
        assert_int_equal(strv_push(&env, "PATH=/usr/bin:/bin"), 0);
        assert_int_equal(command_prepare(rows[i].text, dir, &env, &c, &e), 0);
        assert_string_equal(c.path, rows[i].path);
        for (size_t k = 0; k < ARRAY_LEN(rows[i].argv); k++) {
            if (!rows[i].argv[k]) {
                assert_int_equal(c.argv.n, k);
                break;
            }
            assert_string_equal(c.argv.v[k], rows[i].argv[k]);
        }
        command_done(&c);
        strv_done(&env);
    }
    assert_int_equal(access(own, X_OK), 0);
}

static void hadoops_libraries(void **state)
{
    struct strv env = { 0 };
    struct command c = { 0 };
    struct err e = { 0 };
    char home[100], bin[120];
    (void)state;
    snprintf(home, sizeof home, "HADOOP_HDFS_HOME=%s/hadoop", dir);
    snprintf(bin, sizeof bin, "%s/hadoop", dir);
    assert_int_equal(mkdir(bin, 0700), 0);
    snprintf(bin, sizeof bin, "%s/hadoop/bin", dir);
    assert_int_equal(mkdir(bin, 0700), 0);
    assert_int_equal(strv_push(&env, "PATH=/usr/bin:/bin"), 0);
    assert_int_equal(strv_push(&env, home), 0);
    assert_int_equal(command_prepare("env x", dir, &env, &c, &e), 0);
    assert_string_equal(c.path, "/usr/bin/env"); /* there is no program hadoop to ask */
    command_done(&c);
    put("hadoop/bin/hadoop", "#!/bin/sh\necho /a.jar:/b.jar\n", 0700);
    assert_int_equal(command_prepare("env x", dir, &env, &c, &e), 0);
    assert_string_equal(c.path, "/bin/bash");
    assert_string_equal(c.argv.v[c.argv.n - 2], "/usr/bin/env");
    assert_string_equal(c.argv.v[c.argv.n - 1], "x");
    command_done(&c);
    assert_int_equal(strv_push(&env, "SKIP_HADOOP_PATH=true"), 0);
    assert_int_equal(command_prepare("env x", dir, &env, &c, &e), 0);
    assert_string_equal(c.path, "/usr/bin/env");
    command_done(&c);
    strv_done(&env);
}

static int prepare_some(void *unused)
{
    (void)unused;
    struct strv env = { 0 };
    struct command c = { 0 };
    struct err e = { 0 };
    int rc = strv_push(&env, "PATH=/usr/bin:/bin");
    if (rc == 0 && (rc = command_prepare("env -i a b c", "/tmp", &env, &c, &e)) == 0)
        command_done(&c);
    if (rc == 0 && (rc = command_prepare("a && b", "/tmp", &env, &c, &e)) == 0)
        command_done(&c);
    strv_done(&env);
    return rc;
}

static void commands_without_memory(void **state)
{
    (void)state;
    assert_true(torture(prepare_some, NULL) > 5);
}

/* ---- ports ---- */

static int bind_port(uint16_t port, int option, bool v6)
{
    int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    if (fd == -1)
        return 0; /* no IPv6 here: the test proves nothing */
    if (option)
        assert_int_equal(setsockopt(fd, SOL_SOCKET, option, &on, sizeof on), 0);
    int rc = v6 ? bind(fd, (struct sockaddr *)&a6, sizeof a6)
                : bind(fd, (struct sockaddr *)&a4, sizeof a4);
    rc = rc == 0 ? listen(fd, 5) : rc;
    rc = rc == -1 ? -errno : 0;
    close(fd);
    return rc;
}

static void ports_are_kept_for_the_task(void **state)
{
    uint16_t port, others[50];
    int fds[50];
    struct err e = { 0 };
    (void)state;
    int fd = port_reserve(&port, &e);
    assert_true(fd >= 0 && port > 0);
    for (int i = 0; i < 50; i++) {
        fds[i] = port_reserve(&others[i], &e);
        assert_true(fds[i] >= 0);
        assert_int_not_equal(others[i], port);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(others[i], others[k]);
    }
    assert_int_equal(bind_port(port, SO_REUSEADDR, false), 0);
    assert_int_equal(bind_port(port, SO_REUSEPORT, false), 0);
    assert_int_equal(bind_port(port, SO_REUSEADDR, true), 0);
    assert_int_equal(bind_port(port, 0, false), -EADDRINUSE);
    for (int i = 0; i < 50; i++)
        close(fds[i]);
    close(fd);
    assert_int_equal(bind_port(port, SO_REUSEADDR, false), 0);
}

/* Reserve all four ports from `first` on. false: another program has one of them. */
static bool reserve_four(uint16_t first, int fds[4], uint16_t ports[4])
{
    struct err e = { 0 };
    ports_allow(first, (uint16_t)(first + 3));
    for (int i = 0; i < 4; i++)
        if ((fds[i] = port_reserve(&ports[i], &e)) < 0) {
            while (i-- > 0)
                close(fds[i]);
            return false;
        }
    return true;
}

/* tony.port-range: all ports of a task are in it; if all are in use, the message names the range.
 */
static void ports_of_an_allowed_range(void **state)
{
    uint16_t first = 23000, ports[4], none;
    int fds[4];
    struct err e = { 0 };
    char range[32];
    (void)state;
    while (!reserve_four(first, fds, ports))
        assert_true((first += 16) < 32000);
    for (int i = 0; i < 4; i++)
        assert_in_range(ports[i], first, first + 3);
    assert_int_equal(port_reserve(&none, &e), -EADDRINUSE);
    (void)snprintf(range, sizeof range, "(%u-%u)", first, first + 3U);
    assert_non_null(strstr(e.msg, range));
    close(fds[1]);
    assert_true((fds[1] = port_reserve(&none, &e)) >= 0);
    assert_int_equal(none, ports[1]);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    ports_allow(0, 0);
}

/* ---- process trees ---- */

static pid_t grow(int depth, int out)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (depth > 0)
        (void)grow(depth - 1, out);
    else
        (void)!write(out, "x", 1);
    for (;;)
        pause();
}

static void walking_and_killing(void **state)
{
    int up[2];
    char byte;
    (void)state;
    assert_int_equal(pipe(up), 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t a = grow(3, up[1]), b = grow(0, up[1]);
    assert_int_equal(read(up[0], &byte, 1), 1);
    assert_int_equal(read(up[0], &byte, 1), 1);
    struct pids list = { 0 };
    proctree_children(getpid(), &list);
    assert_int_equal(list.n, 2);
    assert_true((list.v[0] == a && list.v[1] == b) || (list.v[0] == b && list.v[1] == a));
    list.n = 0;
    proctree_below(getpid(), &list);
    assert_int_equal(list.n, 5);
    struct pids none = { 0 }, without = { .v = &a, .n = 1 }, rest = { 0 };
    proctree_below_except(getpid(), &without, &rest); /* and without the children of a */
    assert_int_equal(rest.n, 1);
    assert_int_equal(rest.v[0], b);
    vec_done(&rest);
    assert_true(proctree_rss(&without, false) < proctree_rss(&none, false));
    assert_true(proctree_rss(&none, false) > 0);
    assert_true(proctree_rss(&none, true) > 0);
    assert_true(proctree_rss(&none, true) <= proctree_rss(&none, false));
    assert_int_equal(proctree_signal(SIGKILL, true), 5);
    int n = 0;
    while (waitpid(-1, NULL, 0) > 0)
        n++;
    assert_int_equal(n, 5);
    assert_int_equal(proctree_signal(SIGKILL, false), 0);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    free(list.v);
    close(up[0]);
    close(up[1]);
}

/* A process that sleeps until it is killed; `name` is the last argument of its command line. */
static pid_t sleeper(const char *name)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)execl("/bin/sh", "sh", "-c", "sleep 1000; true", name, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static bool runs(const struct span *command, pid_t pid)
{
    pid_t found;
    proctree_find(command, 1, &found);
    return found == pid;
}

/* proctree_find() reads /proc once and finds several processes by their command lines. */
static void processes_are_found_by_their_commands(void **state)
{
    (void)state;
    char text[3][80];
    struct span commands[3];
    pid_t pids[2], found[3];
    for (int i = 0; i < 3; i++) {
        char name[40];
        (void)snprintf(name, sizeof name, "tony-test-%d-%d", (int)getpid(), i);
        int len = snprintf(text[i], sizeof text[i], "sh%c-c%csleep 1000; true%c%s", 0, 0, 0, name);
        commands[i] = span_mem(text[i], (size_t)len + 1);
        if (i < 2)
            pids[i] = sleeper(name);
    }
    int64_t until = clock_mono_ms() + 60000; /* for both to run the shell */
    for (int i = 0; i < 2; i++)
        while (!runs(&commands[i], pids[i]) && clock_mono_ms() < until)
            (void)usleep(1000);
    proctree_find(commands, 3, found);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(found[i], pids[i]);
        struct pids below = { 0 };
        proctree_below(pids[i], &below);
        for (size_t k = 0; k < below.n; k++)
            (void)kill(below.v[k], SIGKILL);
        vec_done(&below);
        (void)kill(pids[i], SIGKILL);
        (void)waitpid(pids[i], NULL, 0);
    }
    assert_int_equal(found[2], 0);
}

static void killing_by_environment(void **state)
{
    (void)state;
    pid_t pids[2];
    char ids[2][48], vars[2][80]; /* unique ids: another run of this test may be active */
    for (int i = 0; i < 2; i++) {
        snprintf(ids[i], sizeof ids[i], "application_%d_009%s", getpid(), i ? "9" : "");
        snprintf(vars[i], sizeof vars[i], "TONY_APPLICATION_ID=%s", ids[i]);
    }
    for (int i = 0; i < 2; i++) {
        int up[2];
        char byte;
        assert_int_equal(pipe2(up, O_CLOEXEC), 0);
        pids[i] = fork();
        if (pids[i] == 0) {
            const char *env[] = { vars[i], NULL };
            execle("/bin/sleep", "sleep", "100", (char *)NULL, (char *const *)env);
            _exit(1);
        }
        close(up[1]);
        assert_int_equal(read(up[0], &byte, 1), 0); /* the exec closed the pipe */
        close(up[0]);
    }
    unsigned n_killed = 0;
    /* A zombie has no environment, so it does not count as alive. */
    assert_int_equal(proctree_kill_job(ids[1], 0, 5000, &n_killed), 0);
    assert_true(n_killed >= 1);
    int status;
    assert_int_equal(waitpid(pids[1], &status, 0), pids[1]);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    /* The id of another job with the same beginning. */
    assert_int_equal(waitpid(pids[0], &status, WNOHANG), 0);
    kill(pids[0], SIGKILL);
    waitpid(pids[0], &status, 0);
}

/* A process that calls exec all the time has no environment for much of its time, and is found all
 * the same. */
static void look_during_execs(const char *padding)
{
    enum { EXEC_WAIT_MS = 1000 }; /* a look-up that took longer has given up, as it should */
    const char *env[] = { "X=exec /bin/sh -c \"$X\"", padding, "MARK=here", NULL };
    int up[2], missed = 0;
    char byte;
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        execle("/bin/sh", "sh", "-c", "exec /bin/sh -c \"$X\"", (char *)NULL, (char *const *)env);
        _exit(1);
    }
    close(up[1]);
    assert_int_equal(read(up[0], &byte, 1), 0); /* the exec closed the pipe */
    close(up[0]);
    for (int i = 0; i < 20000; i++) {
        int64_t began_ms = clock_mono_ms();
        bool found = proctree_has_variable(pid, "MARK=here");
        missed += !found && clock_mono_ms() - began_ms < EXEC_WAIT_MS;
    }
    assert_false(proctree_has_variable(pid, "MARK=her"));
    for (int i = 0; i < 5000; i++) {
        struct buf text = { 0 };
        int64_t began_ms = clock_mono_ms();
        bool found = proctree_environment(pid, &text) && memmem(text.p, text.len, "MARK=here", 10);
        missed += !found && clock_mono_ms() - began_ms < EXEC_WAIT_MS;
        buf_done(&text);
    }
    kill(pid, SIGKILL);
    siginfo_t si;
    assert_int_equal(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
    struct buf none = { 0 };
    assert_false(proctree_environment(pid, &none)); /* a zombie */
    assert_int_equal(none.len, 0);
    waitpid(pid, NULL, 0);
    assert_false(proctree_has_variable(pid, "MARK=here"));
    assert_int_equal(missed, 0);
}

static void a_process_is_found_during_its_exec(void **state)
{
    (void)state;
    look_during_execs("PAD=");
}

/* The environment is read in pieces. The exec may come between two of them. */
static void a_process_with_a_large_environment_is_found_during_its_exec(void **state)
{
    char pad[100000];
    (void)state;
    memset(pad, 'x', sizeof pad);
    memcpy(pad, "PAD=", 4);
    pad[sizeof pad - 1] = '\0';
    look_during_execs(pad);
}

/* ---- control groups ---- */

/* Together all jobs have the weight of one process for each core. */
static bool weighs(const struct cgroup_job *job)
{
    bool v2 = job->kind == CGROUP_V2;
    AUTO(buf_done) struct buf text = { 0 };
    cpu_set_t set;
    if (!v2 && !job->cpu)
        return true; /* this host sets no CPU weights */
    AUTO(free_p)
    char *path =
        str_printf("%s/../%s", v2 ? job->memory : job->cpu, v2 ? "cpu.weight" : "cpu.shares");
    if (fs_read(AT_FDCWD, path, &text, NULL) < 0)
        return v2; /* some v2 hosts lack the controller */
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return strtol(buf_cstr(&text), NULL, 10) >= CPU_COUNT(&set) * (v2 ? 100 : 1024);
}

/* In a container with the /sys/fs/cgroup of the machine: the kernel shows the root of that mount as
 * above the root of the container's cgroup namespace. */
static void control_groups_of_the_machine_in_a_container(void **state)
{
    static const struct {
        const char *root;
        bool found, outside;
    } cases[] = { { "/", true, false },
                  { "/..", false, true },
                  { "/../../..", false, true },
                  { "/..x", true, false } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = { 0 };
        AUTO(cgroup_texts_done) struct cgroup_texts t = { 0 };
        AUTO(free_p) char *top = NULL;
        assert_int_equal(buf_adds(&t.own, "0::/\n"), 0);
        buf_addf(&t.mounts,
                 "21 20 0:19 / /proc rw - proc proc rw\n"
                 "36 35 0:31 %s /sys rw,nosuid - cgroup2 cgroup rw\n",
                 cases[i].root);
        AUTO(free_p) char *group = cgroup_find_in(&t, "", &top, &e);
        assert_int_equal(group != NULL, cases[i].found);
        if (group)
            assert_string_equal(group, "/sys");
        assert_int_equal(cgroup_only_outside(&t), cases[i].outside);
    }
}

static void control_groups(void **state)
{
    struct cgroup_job job;
    struct cgroup g;
    struct err why = { 0 }, e = { 0 };
    (void)state;
    char app[64], container[64]; /* unique ids: another run of this test may be active */
    snprintf(app, sizeof app, "application_%lld_4242", 1700000000000LL + getpid());
    snprintf(container, sizeof container, "container%s_01_000007", strchr(app, '_'));
    pid_t pid = fork(); /* the process that opens the groups moves into one of them */
    if (pid == 0) {
        cgroup_job_open(&job, app, NULL, &why);
        if (job.kind == CGROUP_NONE) {
            printf("# no control groups here: %s\n", why.msg);
            _exit(77);
        }
        if (!weighs(&job))
            _exit(9);
        cgroup_job_weight(&job, 0);
        cgroup_job_weight(&job, 3);
        if (!cgroup_of(&job, container, &g) || !str_ends(g.path, "/4242/01_000007"))
            if (!str_ends(g.path, "_4242/01_000007"))
                _exit(1);
        if (cgroup_make(&g, 32 << 20, &e) < 0)
            _exit(2);
        char procs[CGROUP_PATH_MAX + 16];
        cgroup_procs_path(&g, procs);
        pid_t hog = fork();
        if (hog == 0) {
            if (cgroup_enter(procs) < 0)
                _exit(3);
            volatile char *p = malloc(100 << 20);
            for (size_t i = 0; p && i < 100 << 20; i += 4096)
                p[i] = 1;
            _exit(4);
        }
        int status;
        waitpid(hog, &status, 0);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
            _exit(5);
        if (cgroup_oom_kills(&g) != 1 || cgroup_memory_max(&g) < (30 << 20))
            _exit(6);
        pid_t sleeper = fork();
        if (sleeper == 0) {
            (void)cgroup_enter(procs);
            for (;;)
                pause();
        }
        while (cgroup_kill(&g) == 0)
            usleep(1000);
        waitpid(sleeper, &status, 0);
        if (cgroup_kill(&g) != 0)
            _exit(7);
        char path[CGROUP_PATH_MAX];
        snprintf(path, sizeof path, "%s", job.memory);
        cgroup_job_remove(&job, (struct spare_groups){ 0 });
        _exit(access(path, F_OK) == 0 ? 8 : 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(status, 0);
}

/* ---- the working directory ---- */

static void mounts(void **state)
{
    char from[200], job[200];
    (void)state;
    snprintf(job, sizeof job, "%s/job", dir);
    assert_int_equal(mkdir(job, 0700), 0);
    put("vocab.txt", "words\n", 0640);
    snprintf(from, sizeof from, "%s/vocab.txt", dir);
    Tony__Mount link_it, copy_it, *list[3] = { &link_it, &copy_it };
    tony__mount__init(&link_it);
    tony__mount__init(&copy_it);
    link_it.kind = TONY__MOUNT__KIND__LINK;
    copy_it.kind = TONY__MOUNT__KIND__FILE_COPY;
    link_it.path = copy_it.path = from;
    link_it.name = (char *)"data/deep/v";
    copy_it.name = (char *)"copy.txt";
    char *out = NULL, path[300];
    struct err e = { 0 };
    assert_int_equal(workdir_make(job, "c1", NULL, list, 2, &out, &e), 0);
    struct stat st;
    snprintf(path, sizeof path, "%s/data/deep/v", out);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    snprintf(path, sizeof path, "%s/copy.txt", out);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode) && (st.st_mode & 0777) == 0640 && st.st_size == 6);
    free(out);
    out = NULL;
    /* The directory exists already. */
    assert_int_equal(workdir_make(job, "c1", NULL, list, 0, &out, &e), -EEXIST);
    static const char *const bad[] = { "../x", "/etc/x", "a/../../x", "..", "", "a/.." };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char id[16];
        snprintf(id, sizeof id, "bad%zu", i);
        link_it.name = (char *)(uintptr_t)bad[i];
        assert_int_equal(workdir_make(job, id, NULL, list, 1, &out, &e), -EINVAL);
    }
    copy_it.name = link_it.name = (char *)"same";
    list[0] = &copy_it;
    list[1] = &link_it;
    assert_int_equal(workdir_make(job, "c3", NULL, list, 2, &out, &e), -EEXIST);
    assert_non_null(strstr(e.msg, "'same'"));
    copy_it.path = (char *)"/no/such/file";
    assert_int_equal(workdir_make(job, "c4", NULL, list, 1, &out, &e), -ENOENT);
    assert_null(out);
}

/* Only directories that still look new are kept, and each is used once. */
static void spare_directories(void **state)
{
    char spare[100], all[100], path[200];
    char *out = NULL;
    struct err e = { 0 };
    struct stat st;
    (void)state;
    snprintf(spare, sizeof spare, "%s/spare", dir);
    snprintf(all, sizeof all, "%s/containers", dir);
    for (int i = 1; i <= 4; i++) {
        char id[40];
        snprintf(id, sizeof id, "container_1_0001_01_%06d", i);
        assert_int_equal(workdir_make(dir, id, spare, NULL, 0, &out, &e), 0);
        free(out);
    }
    put("containers/container_1_0001_01_000002/left", "x", 0600);
    snprintf(path, sizeof path, "%s/container_1_0001_01_000003", all);
    assert_int_equal(chmod(path, 0755), 0);
    spare_keep(spare, all);
    static const char *const kept[] = { "1", "4" };
    ino_t inodes[2];
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", spare, kept[i]);
        assert_int_equal(stat(path, &st), 0);
        inodes[i] = st.st_ino;
    }
    static const char *const not_kept[] = { "2", "3" };
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", spare, not_kept[i]);
        assert_int_equal(access(path, F_OK), -1);
    }
    assert_int_equal(workdir_make(dir, "container_1_0002_01_000004", spare, NULL, 0, &out, &e), 0);
    assert_int_equal(stat(out, &st), 0);
    assert_int_equal(st.st_ino, inodes[1]);
    free(out);
    assert_int_equal(workdir_make(dir, "container_1_0003_01_000004", spare, NULL, 0, &out, &e), 0);
    assert_int_equal(stat(out, &st), 0);
    assert_int_not_equal(st.st_ino, inodes[1]);
    free(out);
    /* an existing directory is not replaced */
    assert_int_equal(workdir_make(dir, "container_1_0001_01_000002", spare, NULL, 0, &out, &e),
                     -EEXIST);
    /* Two directories for one place: the second stays and is removed with the rest. */
    spare_keep(spare, all);
    snprintf(path, sizeof path, "%s/4", spare);
    assert_int_equal(access(path, F_OK), 0);
}

/* Is this the log directory of a task with its files, empty? */
static void check_logs(const struct log_place *at, uint32_t attempt, bool is_spare)
{
    char path[300];
    struct logs l;
    struct stat st;
    struct err e = { 0 };
    assert_int_equal(logs_open(at, attempt, &l, &e), 0);
    snprintf(path, sizeof path, "%s/%s-%u/%u", at->log_dir, at->role, at->index, attempt);
    assert_string_equal(l.dir, path);
    assert_int_equal(write(l.out_fd, "o", 1), 1);
    assert_int_equal(write(l.err_fd, "e", 1), 1);
    assert_int_equal(stat(l.err_path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_true(st.st_size >= 1);
    assert_int_equal(stat(l.dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    logs_close(&l);
    const char *number = strrchr(at->container_id, '_') + 1;
    snprintf(path, sizeof path, "%s/logs/%u", at->spare_dir, (unsigned)strtoul(number, NULL, 10));
    assert_int_equal(access(path, F_OK), is_spare ? 0 : -1);
}

/* Mount a file system at `at` that has room for n files and directories. Runs in a child, which has
 * its own mounts. */
static bool mount_small(const char *at, unsigned n)
{
    char options[64];
    (void)snprintf(options, sizeof options, "nr_inodes=%u,size=1m", n);
    if (geteuid() == 0)
        return unshare(CLONE_NEWNS) == 0 &&
               mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
               mount("none", at, "tmpfs", 0, options) == 0;
    char map[64];
    (void)snprintf(map, sizeof map, "0 %u 1", (unsigned)geteuid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == -1)
        return false;
    AUTO(close_p) int fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, map, strlen(map)) > 0 &&
           mount("none", at, "tmpfs", 0, options) == 0;
}

static bool is_there(const char *name)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* There is no room for all that is missing. Then what was made is removed: jobs need the room. */
static void spare_log_directories_on_a_full_disk(void **state)
{
    enum { CANNOT_MOUNT = 3, INODES = 24 }; /* enough for three of them */
    (void)state;
    char spare[100], room[100];
    (void)snprintf(spare, sizeof spare, "%s/spare", dir);
    (void)snprintf(room, sizeof room, "%s/room", dir);
    pid_t pid = fork();
    if (pid == 0) {
        if (!mount_small(dir, INODES))
            _exit(CANNOT_MOUNT);
        (void)mkdir(spare, 0700);
        spare_make_logs(spare, room, 2);
        bool first = is_there("spare/logs/1/1/stderr") && is_there("spare/logs/2/1/stderr");
        spare_make_logs(spare, room, 6);
        bool none = !is_there("room") && !is_there("spare/logs/3") && is_there("spare/logs/2");
        _exit(!first ? 1 : !none ? 2 : 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CANNOT_MOUNT)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A task takes the log directory that was made for the number of its container. It makes what is
 * missing: a keeper may have died at any step. */
static void spare_log_directories(void **state)
{
    char logs[100], spare[100], room[100], path[200];
    struct log_place at = { .log_dir = logs, .role = "worker", .spare_dir = spare };
    (void)state;
    snprintf(logs, sizeof logs, "%s/logs", dir);
    snprintf(spare, sizeof spare, "%s/spare", dir);
    at.container_id = "container_1_0001_01_000001";
    check_logs(&at, 1, false); /* there is no spare one */
    snprintf(room, sizeof room, "%s/room", dir);
    assert_int_equal(mkdir(spare, 0700), 0);
    spare_make_logs(spare, room, 6);
    spare_make_logs(spare, room, 7); /* makes only the one that is missing */
    assert_int_equal(access(room, F_OK), -1);
    check_logs(&at, 2, true); /* only for the first attempt */
    at.index = 1;
    check_logs(&at, 1, false);
    static const char *const missing[] = { "3/1/stderr", "4/1/stdout", "5/1" };
    for (size_t i = 0; i < ARRAY_LEN(missing); i++) {
        char id[40];
        snprintf(path, sizeof path, "%s/logs/%s", spare, missing[i]);
        if (i == 2) {
            char file[240];
            snprintf(file, sizeof file, "%s/stdout", path);
            assert_int_equal(unlink(file), 0);
            snprintf(file, sizeof file, "%s/stderr", path);
            assert_int_equal(unlink(file), 0);
        }
        assert_int_equal(i == 2 ? rmdir(path) : unlink(path), 0);
        snprintf(id, sizeof id, "container_1_0001_01_%06zu", i + 3);
        at.container_id = id;
        at.index++;
        check_logs(&at, 1, false);
    }
    /* the directory of the task exists: after a master that had no journal of it */
    at.container_id = "container_1_0001_01_000006";
    check_logs(&at, 1, true);
    at.index++;
    check_logs(&at, 1, false);
    snprintf(path, sizeof path, "%s/logs/7/1/stdout", spare);
    assert_int_equal(access(path, F_OK), 0);
}

/* ---- links ---- */

static void frames_over_a_link(void **state)
{
    int fds[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    struct link a = { .fd = fds[0] }, b = { .fd = fds[1] };
    Tony__Refused body = TONY__REFUSED__INIT;
    static char text[100000];
    memset(text, 'x', sizeof text - 1);
    body.message = text;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_REFUSED;
    f.refused = &body;
    for (uint32_t i = 0; i < 40; i++) { /* far more than the kernel buffers */
        body.num = i;
        assert_int_equal(link_send(&a, &f), 0);
    }
    assert_true(link_unsent(&a));
    const Tony__Frame *got;
    struct err e = { 0 };
    for (uint32_t i = 0; i < 40;) {
        assert_int_equal(link_fill(&b), 0);
        while (link_next(&b, &got, &e) == 1) {
            assert_int_equal(got->refused->num, i++);
            assert_string_equal(got->refused->message, text);
        }
        assert_int_equal(link_flush(&a), 0);
    }
    assert_false(link_unsent(&a));
    /* the last frames can be read although the peer is gone */
    assert_int_equal(link_send(&a, &f), 0);
    while (link_unsent(&a)) {
        (void)link_fill(&b);
        (void)link_flush(&a);
    }
    link_close(&a);
    while (link_fill(&b) == 0)
        ;
    assert_int_equal(link_next(&b, &got, &e), 1);
    assert_int_equal(link_next(&b, &got, &e), 0);
    assert_int_equal(link_send(&b, &f), -EPIPE);
    link_close(&b);
    link_close(&b);
}

static void invalid_frames_close_the_link(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } rows[] = { { "\xff\xff\xff\xff", 4 }, { "\0\0\0\0", 4 }, { "\0\0\0\2\xff\xff", 6 } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int fds[2];
        const Tony__Frame *got;
        struct err e = { 0 };
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
                         0);
        struct link b = { .fd = fds[1] };
        assert_int_equal(write(fds[0], rows[i].bytes, rows[i].n), rows[i].n);
        assert_int_equal(link_fill(&b), 0);
        assert_int_equal(link_next(&b, &got, &e), -EPROTO);
        link_close(&b);
        close(fds[0]);
    }
}

/* link_queue() sends nothing; the next link_send() sends both frames in their order. */
static void a_queued_frame_waits_for_the_next(void **state)
{
    (void)state;
    int fds[2];
    char byte;
    const Tony__Frame *got;
    struct err e = { 0 };
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    struct link a = { .fd = fds[0], .out.max = 1 << 20 }, b = { .fd = fds[1] };
    Tony__AttemptStarted started = TONY__ATTEMPT_STARTED__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_ATTEMPT_STARTED;
    f.attempt_started = &started;
    started.pid = 1;
    assert_int_equal(link_queue(&a, &f), 0);
    assert_true(link_unsent(&a));
    assert_int_equal(recv(fds[1], &byte, 1, MSG_PEEK), -1);
    started.pid = 2;
    assert_int_equal(link_send(&a, &f), 0);
    assert_false(link_unsent(&a));
    assert_int_equal(link_fill(&b), 0);
    for (int pid = 1; pid <= 2; pid++) {
        assert_int_equal(link_next(&b, &got, &e), 1);
        assert_int_equal(got->attempt_started->pid, pid);
    }
    link_close(&a);
    assert_int_equal(link_queue(&a, &f), -EPIPE);
    link_close(&b);
}

/* A child that waits for a byte, and then uses the processor until a tick of the clock counts it.
 */
static pid_t fork_waiter(int *out_fd)
{
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        close(fds[1]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (read(fds[0], &byte, 1) == 1)
            for (volatile unsigned long i = 0;; i = i + 1)
                ;
        _exit(0);
    }
    close(fds[0]);
    *out_fd = fds[1];
    return pid;
}

static void end_child(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static bool becomes(struct usage_trace *t, pid_t pid, bool idle)
{
    for (int64_t until = clock_mono_ms() + 60000; clock_mono_ms() < until; usleep(20000))
        if (usage_is_idle(t, pid, 1) == idle)
            return true;
    return false;
}

static void an_idle_task_is_noticed(void **state)
{
    (void)state;
    struct usage_trace t = { 0 };
    int fd, other_fd;
    pid_t pid = fork_waiter(&fd), other = fork_waiter(&other_fd);
    assert_false(usage_is_idle(&t, pid, 1)); /* there is nothing to compare with */
    assert_true(becomes(&t, pid, true));
    assert_true(usage_is_idle(&t, pid, 1));
    assert_false(usage_is_idle(&t, pid, 2)); /* more memory */
    assert_true(usage_is_idle(&t, pid, 2));
    assert_true(becomes(&t, pid, true));
    assert_int_equal(write(fd, "x", 1), 1);
    assert_true(becomes(&t, pid, false));      /* it uses the processor */
    assert_false(usage_is_idle(&t, other, 1)); /* another process */
    assert_true(becomes(&t, other, true));
    end_child(other);
    assert_false(usage_is_idle(&t, other, 1)); /* it is dead */
    end_child(pid);
    usage_trace_done(&t);
    close(fd);
    close(other_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(which_commands_need_a_shell),
        cmocka_unit_test_setup_teardown(how_commands_are_run, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(hadoops_libraries, make_dir, remove_dir),
        cmocka_unit_test(commands_without_memory),
        cmocka_unit_test(ports_are_kept_for_the_task),
        cmocka_unit_test(ports_of_an_allowed_range),
        cmocka_unit_test(walking_and_killing),
        cmocka_unit_test(processes_are_found_by_their_commands),
        cmocka_unit_test(killing_by_environment),
        cmocka_unit_test(a_process_is_found_during_its_exec),
        cmocka_unit_test(a_process_with_a_large_environment_is_found_during_its_exec),
        cmocka_unit_test(control_groups_of_the_machine_in_a_container),
        cmocka_unit_test(control_groups),
        cmocka_unit_test_setup_teardown(mounts, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(spare_directories, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(spare_log_directories, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(spare_log_directories_on_a_full_disk, make_dir, remove_dir),
        cmocka_unit_test(frames_over_a_link),
        cmocka_unit_test(invalid_frames_close_the_link),
        cmocka_unit_test(a_queued_frame_waits_for_the_next),
        cmocka_unit_test(an_idle_task_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
