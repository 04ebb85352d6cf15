/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/proctree.h"
#include "cgroup/find.h"
#include "conf/conf.h"
#include "pool/machine.h"

static void test_meminfo(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        uint64_t mib;
    } rows[] = {
        { "MemTotal:       16384000 kB\nMemFree: 1 kB\n", true, 16000 },
        { "MemFree: 1 kB\nMemTotal:  2048 kB\n", true, 2 },
        { "MemTotal:  2048 kB", true, 2 },
        { "MemTotal:  2048\n", false, 0 },
        { "MemTotal:  -1 kB\n", false, 0 },
        { "MemTotal:  kB\n", false, 0 },
        { "SwapMemTotal: 4 kB\n", false, 0 },
        { "", false, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t mib = 0;
        assert_int_equal(machine_meminfo(span_of(rows[i].text), &mib), rows[i].ok);
        assert_int_equal(mib, rows[i].mib);
    }
}

static void test_own_group(void **state)
{
    (void)state;
    static const char v1[] = "12:pids:/a\n4:cpu,memory:/user/x:y\n1:name=systemd:/z\n0::/\n";
    static const char v2[] = "0::/user.slice/user-0.slice\n";
    static const struct {
        const char *text, *controller, *want;
    } rows[] = {
        { v1, "memory", "/user/x:y" },
        { v1, "cpu", "/user/x:y" },
        { v1, "mem", NULL },
        { v1, "", "/" },
        { v2, "", "/user.slice/user-0.slice" },
        { v2, "memory", NULL },
        { "", "", NULL },
        { "garbage\n0:\n", "", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct span out;
        assert_int_equal(cgroup_path_in(span_of(rows[i].text), rows[i].controller, &out),
                         rows[i].want != NULL);
        if (rows[i].want)
            assert_true(span_eqs(out, rows[i].want));
    }
}

static void test_gpu_lines(void **state)
{
    (void)state;
    uint32_t gpus[MACHINE_GPUS_MAX];
    assert_int_equal(machine_gpu_lines(span_of(""), gpus), 0);
    assert_int_equal(machine_gpu_lines(span_of("cannot load libnvidia-ml.so.1\n"), gpus), 0);
    assert_int_equal(
        machine_gpu_lines(
            span_of("{\"index\":0,\"name\":\"A\"}\n\n{\"index\":2}\n{\"index\":2}\n{\"index\":-1}\n"
                    "{\"index\":\"3\"}\n{\"index\":5}"),
            gpus),
        3);
    assert_int_equal(gpus[0], 0);
    assert_int_equal(gpus[1], 2);
    assert_int_equal(gpus[2], 5);
}

static void test_survey_by_keys(void **state)
{
    (void)state;
    static const char *const set[][2] = { { "tony.pool.memory", "3g" },
                                          { "tony.pool.vcores", "7" },
                                          { "tony.pool.gpus", "3" } };
    AUTO(conf_freep) struct conf *conf = conf_new();
    struct machine m;
    machine_survey(conf, &m);
    assert_true(m.memory_mib > 0);
    assert_true(m.vcores > 0);
    for (size_t i = 0; i < ARRAY_LEN(set); i++)
        assert_int_equal(conf_set(conf, CL_CONF, set[i][0], set[i][1], "--conf", false, NULL), 0);
    machine_survey(conf, &m);
    assert_int_equal(m.memory_mib, 3072);
    assert_int_equal(m.vcores, 7);
    assert_int_equal(m.n_gpus, 3);
    assert_int_equal(m.gpus[2], 2);
}

static pid_t start_sleeper(const char *mark)
{
    char *argv[] = { (char *)"sleep", (char *)"60", NULL };
    char *envp[] = { (char *)"A=b", (char *)mark, NULL };
    pid_t pid;
    assert_int_equal(posix_spawnp(&pid, "sleep", NULL, NULL, argv, envp), 0);
    return pid;
}

static void test_leftovers(void **state)
{
    (void)state;
    char id[64], mark[128], other[128];
    (void)snprintf(id, sizeof id, "application_%ld_0001", (long)getpid());
    (void)snprintf(mark, sizeof mark, "TONY_APPLICATION_ID=%s", id);
    (void)snprintf(other, sizeof other, "TONY_APPLICATION_ID=%s1", id);
    pid_t a = start_sleeper(mark), b = start_sleeper(mark), not = start_sleeper(other);
    int status;
    /* the children are zombies until the test reaps them; zombies have no environment, so they are
     * not counted */
    assert_int_equal(proctree_kill_job(id, 1000, 5000, NULL), 0);
    assert_int_equal(waitpid(a, &status, 0), a);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(waitpid(b, &status, 0), b);
    assert_int_equal(waitpid(not, &status, WNOHANG), 0);
    assert_int_equal(proctree_kill_job(id, 1000, 5000, NULL), 0);
    (void)kill(not, SIGKILL);
    (void)waitpid(not, &status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meminfo),   cmocka_unit_test(test_own_group),
        cmocka_unit_test(test_gpu_lines), cmocka_unit_test(test_survey_by_keys),
        cmocka_unit_test(test_leftovers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
