/* SPDX-License-Identifier: Apache-2.0 */
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

char dir[64], path[96], beside[96];

int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/tony-segment-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof path, "%s/journal", dir);
    (void)snprintf(beside, sizeof beside, "%s/journal.new", dir);
    log_setup(-1, LOG_ERROR, false);
    return 0;
}

int teardown(void **state)
{
    (void)state;
    return fs_remove_tree(AT_FDCWD, dir, NULL);
}

/* ---- helpers ---- */

void add(struct journal *j, const char *what, int i)
{
    AUTO(free_p) char *text = str_printf("{\"e\":\"%s\",\"i\":%d}", what, i);
    assert_int_equal(journal_add(j, span_of(text)), 0);
}

void flush(struct journal *j, bool sync)
{
    struct err e = { 0 };
    if (journal_flush(j, sync, &e) < 0)
        fail_msg("flush: %s", e.msg);
}

void open_it(struct journal *j)
{
    struct err e = { 0 };
    if (journal_open(j, path, &e) < 0)
        fail_msg("open: %s", e.msg);
}

void fresh(struct journal *j)
{
    (void)unlink(path);
    open_it(j);
}

int snapshot(struct journal *j, int n, struct err *e)
{
    struct strv texts = { 0 };
    struct span payloads[50];
    for (int i = 0; i < n; i++) {
        assert_int_equal(strv_pushf(&texts, "{\"part\":%d}", i), 0);
        payloads[i] = span_of(texts.v[i]);
    }
    int rc = journal_begin_segment(j, payloads, (size_t)n, e);
    strv_done(&texts);
    return rc;
}

const char *content(struct err *e)
{
    static char said[4000];
    struct journal_reader r;
    struct journal_record rec;
    size_t len = 0;
    said[0] = '\0';
    int rc = journal_reader_open(&r, path, e);
    while (rc == 0 && (rc = journal_reader_next(&r, &rec, e)) == 1) {
        static const char kinds[] = {
            [JOURNAL_HEADER] = 'H', [JOURNAL_SNAPSHOT] = 'S', [JOURNAL_EVENT] = 'E'
        };
        len += (size_t)snprintf(said + len, sizeof said - len, "%s%c%d", len ? " " : "",
                                kinds[rec.kind], (int)rec.n);
        assert_true(len < sizeof said);
        rc = 0;
    }
    if (r.torn)
        (void)snprintf(said + len, sizeof said - len, " torn");
    journal_reader_close(&r);
    return rc < 0 ? NULL : said;
}

void expect(const char *want)
{
    struct err e = { 0 };
    const char *got = content(&e);
    if (!got)
        fail_msg("expected %s: %s", want, e.msg);
    assert_string_equal(got, want);
}

void write_text(const char *p, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_not_equal(fd, -1);
    assert_int_equal(fs_write_all(fd, p, len), 0);
    close(fd);
}

/* ---- faults ---- */

struct fault fault;

static int before(void *arg, enum journal_call call)
{
    struct fault *f = arg;
    if ((f->call && call != f->call) || ++f->count < f->number || !f->number ||
        f->count >= f->number + MAX(f->n, 1))
        return 0;
    if (f->rc == 1)
        (void)raise(SIGKILL);
    if (f->drop_from > 0)
        assert_int_equal(truncate(path, f->drop_from), 0);
    return f->rc;
}

const struct journal_probe probe = { before, &fault };
