/* SPDX-License-Identifier: Apache-2.0 */
/* A real keeper: which ends of containers it keeps, and when it forgets them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "cgroup/spare.h"
#include "cgroup/tree.h"
#include "node_world.h"

enum { LONG_MS = 60000 };

/* Write the file `exits` of an earlier keeper of which n containers have ended. */
static void write_exits(struct world *w, int n, const char *detail)
{
    char path[300];
    snprintf(path, sizeof path, "%s/exits", w->job_dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"keeper\":1,\"pid\":1,\"wall_ms\":1}\n{\"master\":4,\"wall_ms\":1}\n");
    for (int i = 1; i <= n; i++)
        fprintf(f,
                "{\"container\":\"container%s_01_%06d\",\"slot\":0,\"code\":3,\"signal\":0,"
                "\"reason\":\"exited\",\"detail\":\"%s\",\"wall_ms\":1,\"mono_us\":%d}\n",
                strchr(w->app, '_'), i, detail, i);
    assert_int_equal(fclose(f), 0);
}

static int64_t exits_size(struct world *w)
{
    struct stat st;
    char path[300];
    snprintf(path, sizeof path, "%s/exits", w->job_dir);
    return stat(path, &st) == 0 ? st.st_size : -1;
}

static bool exits_is_small(struct world *w)
{
    return exits_size(w) < 1000;
}

static bool write_number(const char *path, int n)
{
    FILE *f = fopen(path, "w");
    return f && fprintf(f, "%d", n) > 0 && fclose(f) == 0;
}

/* Waits for a state that the keeper reaches without a message to the test. */
static void await(struct world *w, bool (*reached)(struct world *w))
{
    int64_t until = clock_mono_ms() + LONG_MS;
    while (!reached(w)) {
        if (clock_mono_ms() > until)
            fail_msg("the keeper did not do it in time; 'exits' has %lld bytes",
                     (long long)exits_size(w));
        (void)world_until(w, never, 5);
    }
}

static void register_again(struct world *w)
{
    world_drop_master(w);
    world_register(w, w->epoch);
}

static void kill_keeper(struct world *w)
{
    kill(w->keeper, SIGKILL);
    assert_int_equal(world_wait_keeper(w, LONG_MS), 1009);
    world_drop_master(w);
}

/* The list for a new master is larger than a frame may be, and the file is larger than tony builds
 * in memory. */
static void more_ends_than_fit_into_a_frame(void **state)
{
    enum { N = 320000 };
    char detail[101];
    (void)state;
    memset(detail, 'x', sizeof detail - 1);
    detail[sizeof detail - 1] = '\0';
    struct world *w = world_new(NULL);
    write_exits(w, N, detail);
    assert_true(exits_size(w) > 64 << 20);
    world_start_keeper(w, "");
    world_register(w, 5);
    assert_int_equal(w->n_registered_done, N);
    assert_int_equal(w->n_registered, N);
    assert_true(w->n_parts > 1);
    world_end_well(w);
}

static void the_keeper_forgets_acknowledged_ends(void **state)
{
    (void)state;
    struct world *w = world_new("");
    world_run(w, 50, "true");
    register_again(w);
    assert_int_equal(w->n_registered_done, 50);
    world_ack_completed(w, 20);
    register_again(w);
    assert_int_equal(w->n_registered_done, 30);
    world_ack_completed(w, 20); /* counted on the new connection */
    world_ack_completed(w, 20); /* says the same again */
    register_again(w);
    assert_int_equal(w->n_registered_done, 10);
    world_ack_completed(w, 1000); /* more than there are */
    register_again(w);
    assert_int_equal(w->n_registered, 0);
    assert_int_equal(w->n_parts, 1);
    /* it still grants, launches and reports */
    for (int i = 0; i < WORLD_SLOTS; i++)
        w->slots[i] = (struct world_slot){ .link.fd = -1 };
    world_run(w, 3, "exit 7");
    assert_int_equal(w->slots[2].exit_status, 7);
    register_again(w);
    assert_int_equal(w->n_registered_done, 3);
    world_end_well(w);
}

/* `exits` gets shorter, and has what a later keeper needs: its number, the master's, and the ends
 * that the journal may lack. */
static void exits_is_replaced(void **state)
{
    enum { N = 12000, LEFT = 2 };
    (void)state;
    struct world *w = world_new(NULL);
    write_exits(w, N, "");
    assert_true(exits_size(w) > 1 << 20);
    world_start_keeper(w, "");
    world_register(w, 5);
    world_ack_completed(w, N - LEFT); /* there is no journal that could be synced */
    register_again(w);
    assert_true(exits_size(w) > 1 << 20);
    kill_keeper(w);

    int fd = open(world_read(w, "keeper.log") ? w->job_dir : "", O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    assert_int_equal(close(openat(fd, "journal", O_WRONLY | O_CREAT, 0600)), 0);
    assert_int_equal(close(openat(fd, "exits.new", O_WRONLY | O_CREAT, 0600)), 0);
    world_start_keeper(w, "");
    assert_int_equal(faccessat(fd, "exits.new", F_OK, 0), -1);
    world_register(w, 6);
    assert_int_equal(w->n_registered_done, N);
    world_ack_completed(w, N - LEFT);
    await(w, exits_is_small);
    assert_int_equal(faccessat(fd, "exits.new", F_OK, 0), -1);
    register_again(w);
    assert_int_equal(w->n_registered_done, LEFT);
    kill_keeper(w);

    world_start_keeper(w, "");
    world_register(w, 7);
    assert_int_equal(w->n_registered_done, LEFT);
    assert_int_equal(w->n_registered, LEFT);
    world_ask(w, 1, 64, 0);
    AUTO(free_p) char *id = str_printf("container%s_04_000001", strchr(w->app, '_'));
    assert_string_equal(w->slots[0].container, id);
    close(fd);
    world_end_well(w);
}

/* Bytes of address space. */
static long vm_size(pid_t pid)
{
    char path[64];
    long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld", &pages), 1);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

/* How many control groups have the containers of this job? */
static unsigned count_groups(struct world *w)
{
    unsigned n = 0;
    char path[512];
    const char *lines = world_read(w, "cgroups");
    if (!lines[0])
        return 0; /* there are no control groups here */
    (void)snprintf(path, sizeof path, "%.*s", (int)strcspn(lines, "\n"), lines);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d));)
        n += x->d_type == DT_DIR && x->d_name[0] != '.';
    closedir(d);
    return n;
}

/* Containers that come and go do not make the keeper larger, and leave few control groups. */
static void memory_stays(void **state)
{
    enum { ROUNDS = 16, WARM = 4, EACH = 75, KEPT = 1024 /* GROUPS_KEPT of the keeper */ };
    long before = 0;
    (void)state;
    struct world *w = world_new("");
    for (int round = 0; round < ROUNDS; round++) {
        if (round == WARM)
            before = vm_size(w->keeper);
        for (int i = 0; i < WORLD_SLOTS; i++) {
            link_close(&w->slots[i].link);
            w->slots[i] = (struct world_slot){ .link.fd = -1 };
        }
        world_run(w, EACH, "true");
        world_ack_completed(w, (uint64_t)(round + 1) * EACH);
    }
#ifndef TONY_SANITIZED /* the allocators of sanitizers keep freed memory */
    /* malloc() enlarges the heap by 132 KiB at once, which may happen once more after the first
     * rounds. A leak of 250 bytes for each of the 900 containers would be more than that. */
    assert_in_range(vm_size(w->keeper) - before + (1 << 20), 0, (1 << 20) + (200 << 10));
#else
    (void)before;
#endif
    /* The keeper may not have seen the last acknowledgement yet. */
    assert_in_range(count_groups(w), 0, KEPT + EACH);
    register_again(w);
    assert_int_equal(w->n_registered, 0);
    world_end_well(w);
}

/* ---- groups for the next job ---- */

/* A memory group of control groups v1 for this test alone: other pools would take its spare groups.
 * This process is in it until leave_group(). NULL: there are no such groups here. */
static char *enter_group(void)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct span rest, line;
    if (fs_read(AT_FDCWD, "/proc/self/cgroup", &text, NULL) < 0)
        return NULL;
    rest = buf_span(&text);
    while (span_split(&rest, '\n', &line)) {
        AUTO(free_p) char *s = strndup(line.p, line.len);
        const char *own = s ? strstr(s, ":memory:") : NULL;
        char *path =
            own ? str_printf("/sys/fs/cgroup/memory%s/tony-test-XXXXXX", own + strlen(":memory:"))
                : NULL;
        if (path && mkdtemp(path)) {
            AUTO(free_p) char *tasks = str_printf("%s/tasks", path);
            if (write_number(tasks, getpid()))
                return path;
            (void)rmdir(path);
        }
        free(path);
    }
    return NULL;
}

static void leave_group(const char *path)
{
    AUTO(free_p) char *tasks = str_printf("%s/../tasks", path);
    assert_true(write_number(tasks, getpid()));
}

/* Groups that an earlier job has left. */
static void make_spare_groups(const char *user, unsigned n, unsigned long long limit)
{
    AUTO(free_p) char *spare = str_printf("%s/spare-%u-%llu", user, n, limit);
    assert_int_equal(mkdir(user, 0755), 0);
    assert_int_equal(mkdir(spare, 0755), 0);
    for (unsigned i = 1; i <= n; i++) {
        AUTO(free_p) char *path = str_printf("%s/01_%06u", spare, i);
        assert_int_equal(mkdir(path, 0755), 0);
    }
}

static bool has_group(const char *spare, unsigned number)
{
    AUTO(free_p) char *path = str_printf("%s/01_%06u", spare, number);
    return access(path, F_OK) == 0;
}

/* Many containers are granted one after the other, and none of them at the same time as many
 * others. The number of the last one is above GROUPS_KEPT. Its task makes a group below its own, so
 * the next job must not get this group. */
static void a_used_group_with_a_high_number(void **state)
{
    enum { EACH = 206, ROUNDS = 5, READY = 1100, USED = EACH * ROUNDS + 1, MIB = 64 };
    (void)state;
    AUTO(free_p) char *base = enter_group();
    if (!base)
        skip();
    AUTO(free_p) char *user = str_printf("%s/tony-%u", base, (unsigned)geteuid());
    AUTO(free_p) char *spare = str_printf("%s/spare-0-%llu", user, (unsigned long long)MIB << 20);
    make_spare_groups(user, READY, (unsigned long long)MIB << 20);
    struct world *w = world_new("");
    leave_group(base);
    world_register(w, 1);
    for (int round = 0; round < ROUNDS; round++) {
        world_ask(w, EACH, MIB, 0);
        for (int i = 0; i < EACH; i++) {
            world_stop_container(w, i, 0);
            w->slots[i] = (struct world_slot){ .link.fd = -1 };
        }
    }
    world_run(w, 1, "mkdir /sys/fs/cgroup/memory$(sed -n s/.*:memory://p /proc/self/cgroup)/below");
    assert_int_equal(strtoul(strrchr(w->slots[0].container, '_') + 1, NULL, 10), USED);
    world_end_well(w);
    assert_true(has_group(spare, USED + 1));
    assert_false(has_group(spare, USED));
    cgroup_tree_remove(spare);
    cgroup_tree_remove(base);
    assert_int_equal(access(base, F_OK), -1);
}

/* Groups 1 to n in a directory, with this limit. */
static void make_groups(const char *path, unsigned n, unsigned long long limit)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%llu", limit);
    assert_int_equal(mkdir(path, 0755), 0);
    for (unsigned i = 1; i <= n; i++) {
        AUTO(free_p) char *group = str_printf("%s/01_%06u", path, i);
        assert_int_equal(mkdir(group, 0755), 0);
        AUTO(free_p) char *file = str_printf("%s/memory.limit_in_bytes", group);
        AUTO(close_p) int fd = open(file, O_WRONLY | O_CLOEXEC);
        assert_true(write(fd, text, strlen(text)) > 0);
    }
}

/* Directories of control groups: of a user below base, and of the job 1_0001 below the user. No
 * process of a job is in them. */
struct places {
    char *base, *user, *job;
};

/* Skips the test without control groups of version 1. */
static void places_make(struct places *p)
{
    *p = (struct places){ .base = enter_group() };
    if (!p->base)
        skip();
    leave_group(p->base);
    p->user = str_printf("%s/tony-%u", p->base, (unsigned)geteuid());
    p->job = str_printf("%s/1_0001", p->user);
    assert_int_equal(mkdir(p->user, 0755), 0);
}

static void places_free(struct places *p)
{
    free(p->base);
    free(p->user);
    free(p->job);
}

/* A job that is much smaller than an earlier one does not keep all of its groups. */
static void a_small_job_leaves_few_groups(void **state)
{
    enum { READY = 1100, FEW = 1024 /* SPARE_GROUPS_FEW */, USED = 2, MORE = 300 };
    const uint64_t limit = 64 << 20;
    struct places p;
    (void)state;
    places_make(&p);
    static const struct {
        uint32_t used, kept;
    } cases[] = { { MORE, READY }, { USED, FEW } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct spare_groups ready = { READY, limit }, used = { cases[i].used, limit };
        make_groups(p.job, READY, limit);
        assert_true(spare_groups_keep(p.job, used, ready));
        assert_true(spare_groups_take(p.user, p.job, &ready));
        assert_int_equal(ready.n, cases[i].kept);
        assert_true(has_group(p.job, cases[i].kept));
        assert_false(has_group(p.job, cases[i].kept + 1));
        cgroup_tree_remove(p.job);
        (void)mkdir(p.user, 0755);
    }
    cgroup_tree_remove(p.base);
    assert_int_equal(access(p.base, F_OK), -1);
    places_free(&p);
}

/* A pool that ends removes the spare groups, while a job of another pool of the same user takes
 * them. The job gets all of them or none. */
static void spare_groups_are_removed_while_a_job_takes_them(void **state)
{
    enum { ROUNDS = 1500, N = 3 };
    const uint64_t limit = 64 << 20;
    struct places p;
    (void)state;
    places_make(&p);
    AUTO(free_p) char *other = str_printf("%s/1_0002", p.user); /* so that nobody removes `user` */
    AUTO(free_p) char *spare = str_printf("%s/spare-%d-%llu", p.user, N, (unsigned long long)limit);
    assert_int_equal(mkdir(other, 0755), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            spare_groups_remove(p.base);
    }
    bool complete = true;
    for (int round = 0; round < ROUNDS && complete; round++) {
        struct spare_groups got;
        make_groups(p.job, N, limit);
        assert_int_equal(rename(p.job, spare), 0);
        (void)usleep((useconds_t)(round % 500)); /* the other one begins to remove them meanwhile */
        if (!spare_groups_take(p.user, p.job, &got))
            continue;
        for (unsigned i = 1; i <= N; i++)
            complete = complete && has_group(p.job, i);
        cgroup_tree_remove(p.job);
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(complete);
    spare_groups_remove(p.base); /* also what the killed process has left */
    assert_int_equal(rmdir(other), 0);
    assert_int_equal(rmdir(p.user), 0);
    assert_int_equal(rmdir(p.base), 0);
    places_free(&p);
}

#define TEST(f) cmocka_unit_test_teardown(f, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(more_ends_than_fit_into_a_frame),
        TEST(the_keeper_forgets_acknowledged_ends),
        TEST(exits_is_replaced),
        TEST(memory_stays),
        TEST(a_used_group_with_a_high_number),
        TEST(a_small_job_leaves_few_groups),
        TEST(spare_groups_are_removed_while_a_job_takes_them),
    };
    if (getenv("ONLY"))
        cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
