/* SPDX-License-Identifier: Apache-2.0 */
/* The log: the form of a line, escaping, and limits against floods. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

struct capture {
    int fd;
    struct buf text;
};

static int setup(void **state)
{
    char path[] = "/tmp/tony-test-XXXXXX";
    struct capture *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->fd = mkostemp(path, O_APPEND | O_CLOEXEC);
    assert_true(c->fd >= 0);
    unlink(path);
    *state = c;
    log_setup(c->fd, LOG_INFO, false);
    return 0;
}

static int teardown(void **state)
{
    struct capture *c = *state;
    log_setup(2, LOG_INFO, false);
    close(c->fd);
    buf_done(&c->text);
    free(c);
    return 0;
}

/* Text that was logged since the last call. */
static const char *logged(struct capture *c)
{
    buf_clear(&c->text);
    lseek(c->fd, 0, SEEK_SET);
    assert_int_equal(buf_fill_fd(&c->text, c->fd, NULL), 0);
    assert_int_equal(ftruncate(c->fd, 0), 0);
    return buf_cstr(&c->text);
}

/* Checks the form of the time, and returns the rest of the line. */
static const char *after_time(const char *line)
{
    static const char form[] = "dddd-dd-ddTdd:dd:dd.dddZ ";
    for (size_t i = 0; i < sizeof form - 1; i++)
        assert_true(form[i] == 'd' ? line[i] >= '0' && line[i] <= '9' : line[i] == form[i]);
    return line + sizeof form - 1;
}

static void test_text(void **state)
{
    struct capture *c = *state;
    log_event(LOG_INFO, "task.ended", f_str("task", "worker:3"), f_int("exit", 137));
    assert_string_equal(after_time(logged(c)), "info  task.ended task=worker:3 exit=137\n");
    log_event(LOG_WARN, "bare");
    assert_string_equal(after_time(logged(c)), "warn  bare\n");
    log_event(LOG_ERROR, "x.y", f_int("n", INT64_MIN));
    assert_string_equal(after_time(logged(c)), "error x.y n=-9223372036854775808\n");
}

static void test_values_are_quoted_and_escaped(void **state)
{
    struct capture *c = *state;
    static const struct {
        const char *value, *text, *json;
    } cases[] = {
        { "plain", "plain", "\"plain\"" },
        { "", "\"\"", "\"\"" },
        { NULL, "-", "null" },
        { "a b", "\"a b\"", "\"a b\"" },
        { "a=b", "\"a=b\"", "\"a=b\"" },
        { "say \"hi\"", "\"say \\\"hi\\\"\"", "\"say \\\"hi\\\"\"" },
        { "back\\slash", "\"back\\\\slash\"", "\"back\\\\slash\"" },
        { "two\nlines", "\"two\\nlines\"", "\"two\\nlines\"" },
        { "\x1b[31m\x7f", "\"\\x1b[31m\\x7f\"", "\"\\u001b[31m\\u007f\"" },
        { "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f", "\"gr\xc3\xbc\xc3\x9f\"" },
        { "bad\xff\xc3", "\"bad\\xff\\xc3\"", "\"bad??\"" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char want[200];
        log_setup(c->fd, LOG_INFO, false);
        log_event(LOG_INFO, "e", f_str("v", cases[i].value));
        (void)snprintf(want, sizeof want, "info  e v=%s\n", cases[i].text);
        assert_string_equal(after_time(logged(c)), want);
        log_setup(c->fd, LOG_INFO, true);
        log_event(LOG_INFO, "e", f_str("v", cases[i].value));
        (void)snprintf(want, sizeof want, ",\"level\":\"info\",\"event\":\"e\",\"v\":%s}\n",
                       cases[i].json);
        assert_true(str_ends(logged(c), want));
        assert_true(str_starts(buf_cstr(&c->text), "{\"time\":\"2"));
    }
}

static void test_level(void **state)
{
    struct capture *c = *state;
    assert_false(log_enabled(LOG_DEBUG));
    log_event(LOG_DEBUG, "quiet");
    log_fields(LOG_DEBUG, "quiet", NULL); /* below the log level: the fields are not evaluated */
    assert_string_equal(logged(c), "");
    log_setup(c->fd, LOG_ERROR, false);
    log_event(LOG_WARN, "quiet");
    assert_string_equal(logged(c), "");
    log_setup(c->fd, LOG_DEBUG, false);
    log_event(LOG_DEBUG, "heard");
    assert_string_equal(after_time(logged(c)), "debug heard\n");
}

static void test_long_lines(void **state)
{
    struct capture *c = *state;
    static char huge[20000];
    memset(huge, 'x', sizeof huge - 1);
    for (int json = 0; json < 2; json++) {
        log_setup(c->fd, LOG_INFO, json);
        log_event(LOG_INFO, "e", f_str("a", huge), f_str("b", huge), f_str("c", huge),
                  f_str("d", huge), f_str("e", huge), f_int("last", 1));
        const char *line = logged(c);
        size_t len = strlen(line);
        assert_in_range(len, 2000, 8192);
        assert_ptr_equal(strchr(line, '\n'), line + len - 1);
        assert_non_null(strstr(line, "xxx...\""));
        if (json)
            assert_int_equal(line[len - 2], '}'); /* a field is never cut */
    }
}

static void test_err_event(void **state)
{
    struct capture *c = *state;
    struct err e = { 0 };
    err_set(&e, ENOENT, "cannot open 'x'");
    log_err(LOG_ERROR, "store.open", &e);
    assert_string_equal(after_time(logged(c)), "error store.open error=\"cannot open 'x'\"\n");
    err_hint(&e, "make it");
    errno = 77;
    log_err(LOG_ERROR, "store.open", &e);
    assert_int_equal(errno, 77);
    assert_string_equal(after_time(logged(c)),
                        "error store.open error=\"cannot open 'x'\" hint=\"make it\"\n");
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *s = text; (s = strstr(s, what)); s++)
        n++;
    return n;
}

static int64_t wait_for_second_after(int64_t second)
{
    while (clock_mono_ms() / 1000 <= second)
        nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    return clock_mono_ms() / 1000;
}

/* Events beyond the limit for one second are dropped. The next event in a later second reports once
 * how many. */
static void test_flood(void **state)
{
    struct capture *c = *state;
    int64_t second = clock_mono_ms() / 1000;
    size_t shown = 0;
    for (int tries = 0; tries < 60; tries++) {
        second = wait_for_second_after(second);
        for (int i = 0; i < LOG_BURST + 500; i++)
            log_event(LOG_INFO, "flood.this", f_int("n", i));
        log_event(LOG_INFO, "calm.other");
        /* If the second changed meanwhile, the machine was slow: repeat. */
        bool within = clock_mono_ms() / 1000 == second;
        const char *text = logged(c);
        shown = count(text, "flood.this n=");
        assert_int_equal(count(text, "calm.other"), 1);
        if (within)
            break;
    }
    assert_int_equal(shown, LOG_BURST);
    wait_for_second_after(second);
    log_event(LOG_INFO, "calm.other");
    const char *text = logged(c);
    assert_true(str_starts(after_time(text), "warn  log.hidden event=flood.this count=500\n"));
    assert_int_equal(count(text, "calm.other"), 1);
    log_event(LOG_INFO, "flood.this");
    assert_string_equal(after_time(logged(c)), "info  flood.this\n");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_text),      T(test_values_are_quoted_and_escaped),
        T(test_level),     T(test_long_lines),
        T(test_err_event), T(test_flood),
    };
    return cmocka_run_group_tests_name("base_log", tests, NULL, NULL);
}
