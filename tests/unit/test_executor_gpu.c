/* SPDX-License-Identifier: Apache-2.0 */
/* tony-gpu with a stand-in for NVIDIA's library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/util.h"

static int run(const char *env, const char *args, char *out, size_t size)
{
    char command[1000];
    const char *build = getenv("TONY_BUILD");
    snprintf(
        command, sizeof command,
        "TONY_NVML=%s/tests/fixtures/libfake_nvml.so %s timeout 20 %s/bin/tony-gpu %s 2>/dev/null",
        build, env, build, args);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n = fread(out, 1, size - 1, f);
    out[n] = '\0';
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void lists_and_exit_codes(void **state)
{
    static const struct {
        const char *env, *args;
        int code;
        const char *out;
    } rows[] = {
        { "", "", 0,
          "{\"index\":0,\"uuid\":\"GPU-fake-0000\",\"name\":\"Fake ?GPU? "
          "0\",\"memory_mib\":16384}\n"
          "{\"index\":1,\"uuid\":\"GPU-fake-0001\",\"name\":\"Fake ?GPU? "
          "1\",\"memory_mib\":16384}\n" },
        { "FAKE_GPUS=3 FAKE_GPU_LOST=0", "", 0,
          "{\"index\":1,\"uuid\":\"GPU-fake-0001\",\"name\":\"Fake ?GPU? "
          "1\",\"memory_mib\":16384}\n"
          "{\"index\":2,\"uuid\":\"GPU-fake-0002\",\"name\":\"Fake ?GPU? "
          "2\",\"memory_mib\":16384}\n" },
        { "FAKE_GPUS=0", "", 1, "" },
        { "TONY_NVML=/no/such/library", "", 1, "" },
        { "", "--watch", 2, "" },
        { "", "--watch 100 --gpus", 2, "" },
        { "", "--watch 100 --only 1", 2, "" },
        { "", "--watch 5x", 2, "" },
        { "", "--nonsense", 2, "" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char out[4096];
        assert_int_equal(run(rows[i].env, rows[i].args, out, sizeof out), rows[i].code);
        assert_string_equal(out, rows[i].out);
    }
}

static void watching_ends_when_nobody_reads(void **state)
{
    char out[4096];
    (void)state;
    assert_int_equal(run("", "--watch 10 | head -n 5", out, sizeof out), 0);
    int n = 0;
    for (const char *p = out; (p = strstr(p, "\"gpu_percent\":5")); p++)
        n++;
    assert_int_equal(n, 5);
    assert_non_null(strstr(out, "\"used_mib\":2048"));
    assert_null(strstr(out, "power_mw")); /* this device does not report it */
}

/* As nvidia-smi, without the 512 MiB that the driver keeps for itself. An old driver counts them.
 */
static void used_memory(void **state)
{
    char out[4096];
    (void)state;
    assert_int_equal(run("", "--watch 10 | head -n 1", out, sizeof out), 0);
    assert_non_null(strstr(out, "\"used_mib\":1024,\"used_percent\":6.25"));
    assert_int_equal(run("FAKE_DRIVER_OLD=1", "--watch 10 | head -n 1", out, sizeof out), 0);
    assert_non_null(strstr(out, "\"used_mib\":1536,\"used_percent\":9.38"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(used_memory),
        cmocka_unit_test(lists_and_exit_codes),
        cmocka_unit_test(watching_ends_when_nobody_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
