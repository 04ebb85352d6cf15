/* SPDX-License-Identifier: Apache-2.0 */
/* A question to a master that is hostile: `tony arbiter` gets an error in time, and keeps no more
 * of the answer than it wants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/cluster.h"
#include "cluster/link.h"
#include "codec/frame.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

enum {
    WAIT_MS = 300,   /* the caller's timeout */
    MUST_MS = 3000,  /* the answer or the error must be there by then, also on a busy machine */
    LIFE_MS = 20000, /* the master ends itself after this time */
    MOST = 1 << 20   /* the largest answer that the caller wants */
};

/* ---- the hostile master, a process of its own ---- */

static void pause_ms(int ms)
{
    (void)poll(NULL, 0, ms);
}

static bool put(int fd, const char *p, size_t n)
{
    return send(fd, p, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* Append an Answer to the buffer. */
static void pack_answer(const char *json, size_t len, bool more, struct buf *out)
{
    Tony__Answer a = TONY__ANSWER__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    a.json.data = (uint8_t *)(uintptr_t)json;
    a.json.len = len;
    a.more = more;
    f.body_case = TONY__FRAME__BODY_ANSWER;
    f.answer = &a;
    if (frame_pack(&f, out) < 0)
        _exit(1);
}

static void garbage(int fd)
{
    for (bool goes_on = true; goes_on; pause_ms(1))
        goes_on = put(fd, "\0\0\0\x10 not a frame! \xff\xff\xff", 20);
}

static void huge_length(int fd)
{
    (void)put(fd, "\x7f\xff\xff\xff", 4);
    pause_ms(LIFE_MS);
}

static void never(int fd)
{
    (void)fd;
    pause_ms(LIFE_MS);
}

static void without_end(int fd)
{
    static char part[1 << 16];
    struct buf frame = { 0 };
    memset(part, 'x', sizeof part);
    pack_answer(part, sizeof part, true, &frame);
    while (put(fd, frame.p, frame.len))
        ;
}

/* Parts without a byte, each within the timeout. */
static void empty_parts(int fd)
{
    struct buf frame = { 0 };
    pack_answer("", 0, true, &frame);
    while (put(fd, frame.p, frame.len))
        pause_ms(WAIT_MS / 4);
}

static void byte_by_byte(int fd)
{
    struct buf frame = { 0 };
    pack_answer("{\"runs\":true,\"changing\":false,\"instances\":1,\"nodes\":{}}", 55, false,
                &frame);
    for (size_t i = 0; i < frame.len && put(fd, frame.p + i, 1); i++)
        pause_ms(WAIT_MS / 4);
}

/* Frames that are no answer, one after the other. */
static void other_frames(int fd)
{
    Tony__TaskWord w = TONY__TASK_WORD__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    struct buf frame = { 0 };
    f.body_case = TONY__FRAME__BODY_TASK_WORD;
    f.task_word = &w;
    for (int i = 0; i < 1000; i++)
        if (frame_pack(&f, &frame) < 0)
            _exit(1);
    while (put(fd, frame.p, frame.len))
        ;
}

static void two_parts(int fd)
{
    struct buf frames = { 0 };
    pack_answer("{\"a\"", 4, true, &frames);
    pack_answer(":1}", 3, false, &frames);
    (void)put(fd, frames.p, frames.len);
    pause_ms(LIFE_MS);
}

/* ---- the client ---- */

static const struct row {
    const char *name;
    void (*master)(int fd);
    int rc; /* 0: "{"a":1}" arrives; 1: any error */
} rows[] = {
    { "garbage", garbage, 1 },
    { "a frame of 2 GiB", huge_length, 1 },
    { "no answer", never, -ETIMEDOUT },
    { "an answer without end", without_end, 1 },
    { "empty parts without end", empty_parts, -ETIMEDOUT },
    { "one byte after the other", byte_by_byte, -ETIMEDOUT },
    { "other frames without end", other_frames, -ETIMEDOUT },
    { "an answer of two parts", two_parts, 0 },
};

static pid_t start_master(const struct row *row, const char *path)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && str_copy(to.sun_path, sizeof to.sun_path, path));
    assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(listen(fd, 1), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)alarm(LIFE_MS / 1000);
        int peer = accept(fd, NULL, NULL);
        if (peer >= 0)
            row->master(peer);
        _exit(0);
    }
    close(fd);
    return pid;
}

static int ask(const char *path, struct answer *answer)
{
    struct cluster_host h = { .version = "test", .program = "tony arbiter" };
    struct conn *conn = NULL;
    struct err e = { 0 };
    Tony__ClientAsk question = TONY__CLIENT_ASK__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    question.what = TONY__CLIENT_ASK__WHAT__SHARE;
    f.body_case = TONY__FRAME__BODY_CLIENT_ASK;
    f.client_ask = &question;
    int rc = link_dial(&h, path, &conn, &e);
    if (rc == 0)
        rc = link_ask(&h, &conn, &f, answer, &e);
    if (rc < 0 && !e.msg[0])
        fail_msg("an error without a sentence");
    conn_close(conn);
    host_done(&h);
    return rc;
}

static void test_masters(void **state)
{
    char dir[] = "/tmp/tony-test-link-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(dir));
    for (const struct row *r = rows; r < rows + ARRAY_LEN(rows); r++) {
        AUTO(free_p) char *path = str_printf("%s/%td", dir, r - rows);
        struct answer answer = { .wait_ms = WAIT_MS, .wait_is_total = true, .max = MOST };
        pid_t master = start_master(r, path);
        int64_t start_ms = clock_mono_ms();
        int rc = ask(path, &answer);
        int64_t took_ms = clock_mono_ms() - start_ms;
        (void)kill(master, SIGKILL);
        (void)waitpid(master, NULL, 0);
        if (r->rc == 1 ? rc >= 0 : rc != r->rc)
            fail_msg("%s: %d", r->name, rc);
        if (took_ms > MUST_MS)
            fail_msg("%s: it took %lld ms", r->name, (long long)took_ms);
        assert_true(answer.json.len <= MOST);
        if (rc == 0)
            assert_true(span_eq(buf_span(&answer.json), span_of("{\"a\":1}")));
        answer_done(&answer);
    }
    assert_int_equal(fs_remove_tree(AT_FDCWD, dir, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_masters) };
    return cmocka_run_group_tests_name("client_link", tests, NULL, NULL);
}
