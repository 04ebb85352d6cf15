/* SPDX-License-Identifier: Apache-2.0 */
/* A journal whose sync fails: which records are written again, and which failures are final. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "journal_world.h"
#include "storage/journal.h"

/* A new journal with a record that is durable, and another one in memory. Returns the size of the
 * durable part. */
static int64_t one_durable(struct journal *j)
{
    fresh(j);
    add(j, "a", 1);
    flush(j, true);
    int64_t durable = j->size;
    add(j, "a", 2);
    return durable;
}

/* The kernel has dropped the bytes that were not synced: all of them are written again. */
static void test_the_sync_reports_a_full_disk(void **state)
{
    (void)state;
    static const int errors[] = { ENOSPC, EDQUOT };
    for (size_t i = 0; i < ARRAY_LEN(errors) * 2; i++) {
        struct journal j;
        struct err e = { 0 };
        int64_t durable = one_durable(&j);
        flush(&j, false);
        add(&j, "a", 3);
        j.probe = &probe;
        fault = (struct fault){ .call = JOURNAL_CALL_SYNC,
                                .number = 1,
                                .n = 3,
                                .rc = -errors[i % 2],
                                .drop_from = i < 2 ? durable : 0 };
        for (int k = 0; k < 3; k++) {
            assert_int_equal(journal_flush(&j, k == 0, &e), -errors[i % 2]);
            assert_non_null(strstr(e.msg, "cannot make the journal durable"));
            assert_int_equal(journal_add(&j, SPAN("{}")), -errors[i % 2]);
            assert_int_equal(journal_retry(&j), 0);
            add(&j, "b", k);
        }
        flush(&j, false); /* it is synced although no action asks for it */
        assert_int_equal(j.n_written, 0);
        assert_int_equal(j.pending.len, 0);
        expect("H1 E2 E3 E4 E5 E6 E7");
        add(&j, "a", 9);
        flush(&j, true);
        expect("H1 E2 E3 E4 E5 E6 E7 E8");
        journal_close(&j);
        open_it(&j);
        assert_int_equal(j.next_n, 9);
        journal_close(&j);
    }
}

/* NFS reports with a later write(), once, that an earlier one did not reach the server. */
static void test_the_next_write_reports_a_full_disk(void **state)
{
    (void)state;
    struct journal j;
    struct err e = { 0 };
    int64_t durable = one_durable(&j);
    flush(&j, false);
    add(&j, "a", 3);
    j.probe = &probe;
    fault = (struct fault){
        .call = JOURNAL_CALL_WRITE, .number = 1, .rc = -ENOSPC, .drop_from = durable
    };
    assert_int_equal(journal_flush(&j, false, &e), -ENOSPC);
    assert_int_equal(journal_retry(&j), 0);
    flush(&j, false);
    expect("H1 E2 E3 E4");
    journal_close(&j);
}

static void test_other_failures_of_a_sync_are_final(void **state)
{
    (void)state;
    static const int errors[] = { EIO, EROFS };
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        struct journal j;
        struct err e = { 0 };
        fresh(&j);
        add(&j, "a", 1);
        j.probe = &probe;
        fault = (struct fault){ .call = JOURNAL_CALL_SYNC, .number = 1, .rc = -errors[i] };
        assert_int_equal(journal_flush(&j, true, &e), -errors[i]);
        assert_int_equal(journal_retry(&j), -errors[i]);
        journal_close(&j);
    }
}

/* The bytes were written again and the sync succeeded, but the file does not have them. */
static void test_rewritten_records_are_missing(void **state)
{
    (void)state;
    struct journal j;
    struct err e = { 0 };
    int64_t durable = one_durable(&j);
    j.probe = &probe;
    fault = (struct fault){ .call = JOURNAL_CALL_SYNC, .number = 1, .rc = -ENOSPC };
    assert_int_equal(journal_flush(&j, true, &e), -ENOSPC);
    assert_int_equal(journal_retry(&j), 0);
    fault = (struct fault){ .call = JOURNAL_CALL_SYNC, .number = 1, .drop_from = durable };
    assert_int_equal(journal_flush(&j, true, &e), -EIO);
    assert_non_null(strstr(e.msg, "written again"));
    assert_int_equal(journal_retry(&j), -EIO);
    journal_close(&j);
}

/* Killed while it writes again after a failed sync: no earlier record is lost. */
static void test_killed_while_it_writes_again(void **state)
{
    (void)state;
    bool over = false;
    for (int number = 1; !over; number++) {
        assert_true(number < 20);
        struct journal j;
        (void)unlink(path);
        pid_t pid = fork();
        assert_int_not_equal(pid, -1);
        if (pid == 0) {
            struct err e = { 0 };
            open_it(&j);
            add(&j, "a", 1);
            flush(&j, true);
            add(&j, "a", 2);
            flush(&j, false);
            j.probe = &probe;
            fault = (struct fault){ .call = JOURNAL_CALL_SYNC, .number = 1, .rc = -ENOSPC };
            if (journal_flush(&j, true, &e) != -ENOSPC || journal_retry(&j) < 0)
                _exit(1);
            fault = (struct fault){ .number = number, .rc = 1 };
            add(&j, "a", 3);
            flush(&j, true);
            _exit(0);
        }
        int how = 0;
        assert_int_equal(waitpid(pid, &how, 0), pid);
        over = WIFEXITED(how);
        assert_true(over ? WEXITSTATUS(how) == 0 : WTERMSIG(how) == SIGKILL);
        struct err e = { 0 };
        const char *got = content(&e);
        assert_non_null(got);
        assert_true(str_eq(got, "H1 E2 E3") || str_eq(got, "H1 E2 E3 E4"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_sync_reports_a_full_disk),
        cmocka_unit_test(test_the_next_write_reports_a_full_disk),
        cmocka_unit_test(test_other_failures_of_a_sync_are_final),
        cmocka_unit_test(test_rewritten_records_are_missing),
        cmocka_unit_test(test_killed_while_it_writes_again),
    };
    return cmocka_run_group_tests_name("journal_sync", tests, setup, teardown);
}
