/* SPDX-License-Identifier: Apache-2.0 */
/* Torch's TCPStore. The bytes were worked out by hand from the protocol, and partly recorded from
 * PyTorch 1.13 and 2.15. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "base/base.h"
#include "rendezvous/tcpstore.h"
#include "torture.h"

/* The numbers of the commands: of torch >= 2.2, and of older versions. */
enum {
    VALIDATE,
    SET,
    COMPARE_SET,
    GET,
    ADD,
    CHECK,
    WAIT,
    N_KEYS,
    DELETE,
    APPEND,
    GET_ALL,
    SET_ALL,
    CANCEL,
    PING,
    PUSH,
    POP,
    QUEUE_LEN,
    LIST,
    BARRIER,
    OLD_SET = 0,
    OLD_COMPARE_SET,
    OLD_GET,
    OLD_ADD,
    OLD_CHECK,
    OLD_WAIT,
    OLD_N_KEYS,
    OLD_WATCH,
    OLD_DELETE,
    OF_2_1_DELETE = 7,
    OF_2_1_APPEND,
    OF_2_1_GET_ALL,
    OF_2_1_SET_ALL,
    OF_2_1_CANCEL,
};

/* b a byte, d 4 bytes, q 8 bytes, s a string after its length */
static void vput(struct buf *b, const char *fmt, va_list ap)
{
    for (; *fmt; fmt++) {
        uint64_t v = 0;
        const char *s;
        switch (*fmt) {
        case 'b':
        case 'd':
            v = va_arg(ap, unsigned);
            buf_add(b, &v, *fmt == 'b' ? 1 : 4);
            break;
        case 'q':
            v = (uint64_t)va_arg(ap, long long);
            buf_add(b, &v, 8);
            break;
        default:
            s = va_arg(ap, const char *);
            v = strlen(s);
            buf_add(b, &v, 8);
            buf_add(b, s, v);
        }
    }
    assert_false(b->failed);
}

static void put(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vput(b, fmt, ap);
    va_end(ap);
}

/* Feed a command, whole or in pieces: the result must be the same. */
static size_t piece;
static int feed(struct tcpstore_client *c, const struct buf *b, struct err *e)
{
    int rc = 0;
    size_t step = piece ? piece : b->len ? b->len : 1;
    for (size_t at = 0; at < b->len && rc == 0; at += step)
        rc = tcpstore_feed(c, b->p + at, MIN(step, b->len - at), at + step < b->len, e);
    return rc;
}

static void say(struct tcpstore_client *c, int number, const char *fmt, ...)
{
    AUTO(buf_done) struct buf b = { 0 };
    struct err e = { 0 };
    va_list ap;
    buf_addc(&b, (char)number);
    va_start(ap, fmt);
    vput(&b, fmt, ap);
    va_end(ap);
    if (feed(c, &b, &e) < 0)
        fail_msg("%s", e.msg);
}

/* Checks the exact bytes that the client got; "" = none. */
static void got(struct tcpstore_client *c, const char *fmt, ...)
{
    AUTO(buf_done) struct buf want = { 0 };
    va_list ap;
    va_start(ap, fmt);
    vput(&want, fmt, ap);
    va_end(ap);
    struct span out = tcpstore_out(c);
    assert_int_equal(out.len, want.len);
    if (want.len)
        assert_memory_equal(out.p, want.p, want.len);
    tcpstore_sent(c, out.len);
}

/* Returns the -errno for an invalid command. */
static int refused(struct tcpstore_client *c, int number, const char *fmt, ...)
{
    AUTO(buf_done) struct buf b = { 0 };
    struct err e = { 0 };
    va_list ap;
    buf_addc(&b, (char)number);
    va_start(ap, fmt);
    vput(&b, fmt, ap);
    va_end(ap);
    int rc = feed(c, &b, &e);
    assert_true(rc < 0);
    assert_true(e.msg[0]);
    return rc;
}

static struct tcpstore_client *join(struct tcpstore *s)
{
    struct tcpstore_client *c = tcpstore_join(s, NULL);
    assert_non_null(c);
    say(c, VALIDATE, "d", 0x3c85f7ceu);
    return c;
}

static struct tcpstore_client *join_old(struct tcpstore *s)
{
    struct tcpstore_client *c = tcpstore_join(s, NULL);
    assert_non_null(c);
    return c;
}

static struct tcpstore *store(void)
{
    struct tcpstore *s = tcpstore_new(1 << 20, 7);
    assert_non_null(s);
    return s;
}

/* ---- the commands of torch >= 2.2 ---- */

static void keys_and_values(struct tcpstore *s)
{
    struct tcpstore_client *c = join(s);
    got(c, "");
    say(c, PING, "d", 0x01020304u);
    got(c, "d", 0x01020304u);
    say(c, SET, "ss", "/a", "one");
    got(c, "");
    say(c, GET, "s", "/a");
    got(c, "s", "one");
    say(c, GET, "s", "/nobody");
    got(c, "s", "");
    say(c, SET, "ss", "/a", "");
    say(c, GET, "s", "/a");
    got(c, "s", "");
    say(c, CHECK, "qs", 1LL, "/a");
    got(c, "b", 0);
    say(c, CHECK, "qss", 2LL, "/a", "/b");
    got(c, "b", 1);
    say(c, CHECK, "q", 0LL);
    got(c, "b", 0);
    say(c, APPEND, "ss", "/b", "x");
    say(c, APPEND, "ss", "/b", "yz");
    say(c, GET, "s", "/b");
    got(c, "s", "xyz");
    say(c, N_KEYS, "");
    got(c, "q", 2LL);
    say(c, LIST, "");
    struct span out = tcpstore_out(c); /* in any order */
    assert_int_equal(out.len, 8 + 2 * (8 + 2));
    assert_int_equal(out.p[0], 2);
    tcpstore_sent(c, out.len);
    say(c, DELETE, "s", "/a");
    got(c, "q", 1LL);
    say(c, DELETE, "s", "/a");
    got(c, "q", 0LL);
    say(c, SET_ALL, "qssss", 2LL, "/m", "1", "/n", "22");
    got(c, "");
    say(c, GET_ALL, "qsss", 3LL, "/n", "/none", "/m");
    got(c, "sss", "22", "", "1");
    tcpstore_leave(c);
}

static void numbers(struct tcpstore *s)
{
    struct tcpstore_client *c = join(s);
    say(c, ADD, "sq", "/init/", 1LL);
    got(c, "q", 1LL);
    say(c, ADD, "sq", "/init/", 41LL);
    got(c, "q", 42LL);
    say(c, ADD, "sq", "/init/", -50LL);
    got(c, "q", -8LL);
    say(c, GET, "s", "/init/");
    got(c, "s", "-8");
    say(c, SET, "ss", "/init/", " 7 and more");
    say(c, ADD, "sq", "/init/", 0LL);
    got(c, "q", 7LL);
    say(c, SET, "ss", "/init/", "9223372036854775807");
    assert_int_equal(refused(c, ADD, "sq", "/init/", 1LL), -ERANGE);
    tcpstore_leave(c);
    c = join(s);
    say(c, SET, "ss", "/word", "seven");
    assert_int_equal(refused(c, ADD, "sq", "/word", 1LL), -EINVAL);
    tcpstore_leave(c);
}

static void compare_and_set(struct tcpstore *s)
{
    struct tcpstore_client *c = join(s), *w = join(s);
    say(w, WAIT, "qs", 1LL, "/k");
    say(c, COMPARE_SET, "sss", "/k", "old", "new"); /* the key does not exist */
    got(c, "s", "old");
    got(w, "");
    say(c, COMPARE_SET, "sss", "/k", "", "first");
    got(c, "s", "first");
    got(w, "b", 0);
    say(c, COMPARE_SET, "sss", "/k", "wrong", "second");
    got(c, "s", "first");
    say(c, COMPARE_SET, "sss", "/k", "first", "second");
    got(c, "s", "second");
    say(c, GET, "s", "/k");
    got(c, "s", "second");
    tcpstore_leave(c);
    tcpstore_leave(w);
}

static void waiting(struct tcpstore *s)
{
    struct tcpstore_client *a = join(s), *b = join(s), *c = join(s);
    say(c, SET, "ss", "/there", "x");
    say(a, WAIT, "qs", 1LL, "/there");
    got(a, "b", 0);
    say(a, WAIT, "qsss", 3LL, "/there", "/1", "/2");
    say(b, WAIT, "qss", 2LL, "/1", "/1"); /* the same key twice */
    got(a, "");
    while (tcpstore_ready(s))
        ;
    say(c, ADD, "sq", "/1", 1LL);
    got(c, "q", 1LL);
    got(b, "b", 0);
    got(a, "");
    say(c, SET_ALL, "qss", 1LL, "/2", "v");
    got(a, "b", 0);
    bool told_a = false, told_b = false;
    for (struct tcpstore_client *x; (x = tcpstore_ready(s));) {
        told_a = told_a || x == a;
        told_b = told_b || x == b;
    }
    assert_true(told_a && told_b);
    say(a, WAIT, "qss", 2LL, "/3", "/4"); /* disconnects */
    say(c, SET, "ss", "/3", "");
    say(a, CANCEL, "");
    got(a, "b", 1);
    say(c, SET, "ss", "/4", "");
    got(a, "");
    say(b, WAIT, "qs", 1LL, "/5"); /* disconnects */
    tcpstore_leave(b);
    say(c, APPEND, "ss", "/5", "");
    /* Sends another request, as torch <= 2.0 does after its timeout. */
    say(a, WAIT, "qs", 1LL, "/6");
    say(a, GET, "s", "/there");
    got(a, "s", "x");
    say(c, SET, "ss", "/6", "");
    got(a, "");
    tcpstore_leave(a);
    tcpstore_leave(c);
}

static void queues(struct tcpstore *s)
{
    struct tcpstore_client *a = join(s), *b = join(s), *c = join(s);
    say(a, WAIT, "qs", 1LL, "/q");
    say(b, WAIT, "qs", 1LL, "/q");
    say(c, PUSH, "ss", "/q", "job 1"); /* goes to one of the waiting clients */
    got(a, "b", 0);
    got(b, "");
    say(c, PUSH, "ss", "/q", "job 2");
    got(b, "b", 0);
    say(c, QUEUE_LEN, "s", "/q");
    got(c, "q", 2LL);
    say(c, N_KEYS, "");
    got(c, "q", 0LL);
    say(c, CHECK, "qs", 1LL, "/q");
    got(c, "b", 0);
    say(a, POP, "s", "/q");
    got(a, "qs", 2LL, "job 1");
    say(b, POP, "s", "/q");
    got(b, "qs", 1LL, "job 2");
    say(b, POP, "s", "/q");
    got(b, "q", 0LL);
    say(c, QUEUE_LEN, "s", "/q");
    got(c, "q", 0LL);
    say(c, PUSH, "ss", "/left", "behind");
    tcpstore_leave(a);
    tcpstore_leave(b);
    tcpstore_leave(c);
}

static void barriers(struct tcpstore *s)
{
    struct tcpstore_client *a = join(s), *b = join(s), *c = join(s);
    say(a, BARRIER, "sq", "/all", 3LL);
    say(b, BARRIER, "sq", "/all", 3LL);
    got(a, "");
    say(c, BARRIER, "sq", "/all", 3LL);
    got(a, "b", 0);
    got(b, "b", 0);
    got(c, "b", 0);
    say(a, BARRIER, "sq", "/two", 2LL);
    say(a, CANCEL, "");
    got(a, "b", 1);
    say(b, BARRIER, "sq", "/two", 2LL); /* it has already arrived, so it counts */
    got(b, "b", 0);
    tcpstore_leave(a);
    tcpstore_leave(b);
    tcpstore_leave(c);
}

/* ---- commands of older versions ---- */

static void torch_1_13(struct tcpstore *s)
{
    struct tcpstore_client *c = join_old(s), *w = join_old(s);
    say(c, OLD_ADD, "sq", "init/", 1LL);
    got(c, "q", 1LL);
    say(w, OLD_WATCH, "s", "/k"); /* on its own connection */
    got(w, "b", 3);
    say(c, OLD_SET, "ss", "/k", "v");
    got(w, "bsss", 1, "/k", "", "v");
    say(c, OLD_COMPARE_SET, "sss", "/k", "v", "w");
    got(c, "s", "w");
    got(w, "bsss", 0, "/k", "v", "w");
    say(c, OLD_GET, "s", "/k");
    got(c, "s", "w");
    say(c, OLD_CHECK, "qs", 1LL, "/k");
    got(c, "b", 0);
    say(c, OLD_WAIT, "qs", 1LL, "/k");
    got(c, "b", 0);
    say(c, OLD_N_KEYS, "");
    got(c, "q", 2LL);
    say(c, OLD_DELETE, "s", "/k");
    got(c, "q", 1LL);
    got(w, "bsss", 2, "/k", "w", "");
    tcpstore_leave(w);
    say(c, OLD_SET, "ss", "/k", "again");
    tcpstore_leave(c);
}

static void torch_1_13_deletes(struct tcpstore *s)
{
    struct tcpstore_client *c = join_old(s);
    say(c, OLD_SET, "ss", "/k", "v"); /* 0 and a length: no magic number */
    say(c, OLD_DELETE, "s", "/k");
    got(c, "q", 1LL);
    say(c, OLD_DELETE, "s", "/k");
    got(c, "q", 0LL);
    tcpstore_leave(c);
}

static void torch_2_1(struct tcpstore *s)
{
    struct tcpstore_client *c = join_old(s), *w = join_old(s);
    say(c, OLD_ADD, "sq", "init/", 1LL);
    got(c, "q", 1LL);
    say(c, OF_2_1_APPEND, "ss", "/k", "ab");
    got(c, "");
    say(c, OF_2_1_APPEND, "ss", "/k", "c");
    say(c, OF_2_1_GET_ALL, "qs", 1LL, "/k");
    got(c, "s", "abc");
    say(c, OF_2_1_SET_ALL, "qss", 1LL, "/l", "x");
    say(w, OLD_WAIT, "qs", 1LL, "/never");
    say(w, OF_2_1_CANCEL, "");
    got(w, "b", 1);
    say(c, OF_2_1_DELETE, "s", "/k");
    got(c, "q", 1LL);
    say(w, OF_2_1_DELETE, "s", "/l");
    got(w, "q", 1LL);
    tcpstore_leave(w);
    tcpstore_leave(c);
}

/* ---- all commands, in pieces of any size ---- */

static void scenarios(void **state)
{
    (void)state;
    static void (*const all[])(struct tcpstore *) = {
        keys_and_values, numbers,    compare_and_set,    waiting,   queues,
        barriers,        torch_1_13, torch_1_13_deletes, torch_2_1,
    };
    for (piece = 0; piece < 20; piece++)
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
            struct tcpstore *s = store();
            all[i](s);
            assert_int_equal(tcpstore_n_clients(s), 0);
            tcpstore_free(s);
        }
    piece = 0;
}

static void memory_is_returned(void **state)
{
    (void)state;
    struct tcpstore *s = store();
    struct tcpstore_client *a = join(s), *b = join(s);
    char name[32];
    say(a, SET, "ss", "/k0", "");
    say(a, DELETE, "s", "/k0");
    tcpstore_sent(a, tcpstore_out(a).len);
    size_t before = tcpstore_used(s);
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "/k%d", i);
        say(b, WAIT, "qs", 1LL, name);
        say(a, SET, "ss", name, "some value");
        say(a, PUSH, "ss", name, "some item");
        say(a, POP, "s", name);
        say(a, DELETE, "s", name);
        tcpstore_sent(a, tcpstore_out(a).len);
        tcpstore_sent(b, tcpstore_out(b).len);
    }
    tcpstore_leave(b);
    assert_true(tcpstore_used(s) <= before);
    tcpstore_free(s);
}

/* ---- limits ---- */

static void clients_of_other_protocols(void **state)
{
    (void)state;
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    struct tcpstore *s = store();
    struct tcpstore_client *c = tcpstore_join(s, NULL);
    struct err e = { 0 };
    assert_int_equal(tcpstore_feed(c, http, sizeof http - 1, false, &e), -EPROTO);
    tcpstore_leave(c);
    c = join_old(s);
    assert_int_equal(refused(c, 12, ""), -EPROTO);
    tcpstore_leave(c);
    c = join(s);
    assert_int_equal(refused(c, VALIDATE, "d", 0x3c85f7ceu), -EPROTO);
    tcpstore_leave(c);
    c = join(s);
    assert_int_equal(refused(c, BARRIER + 1, ""), -EPROTO);
    tcpstore_leave(c);
    tcpstore_free(s);
}

static void lengths(void **state)
{
    (void)state;
    static const struct {
        int number;
        long long first, second;
    } cases[] = {
        { GET, TCPSTORE_KEY_MAX + 1, 0 },
        { GET, -1, 0 },
        { GET, 0x7fffffffffffffff, 0 },
        { WAIT, TCPSTORE_KEYS_MAX + 1, 0 },
        { WAIT, -1, 0 },
        { WAIT, 1, -8 },
        { SET_ALL, 3, TCPSTORE_KEY_MAX + 1 },
        { SET, 0, TCPSTORE_VALUE_MAX + 1 },
        { PUSH, 0, -1 },
    };
    struct tcpstore *s = store();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tcpstore_client *c = join(s);
        assert_int_equal(refused(c, cases[i].number, "qq", cases[i].first, cases[i].second),
                         -EMSGSIZE);
        tcpstore_leave(c);
    }
    tcpstore_free(s);
}

/* The store limits the bytes of all kinds together. A refused client does not harm others. */
static void the_limit_covers_values_and_buffers(void **state)
{
    (void)state;
    static char big[300 << 10];
    memset(big, 'x', sizeof big - 1);
    struct tcpstore *s = store();
    struct tcpstore_client *good = join(s);
    say(good, SET, "ss", "/good", "value");
    for (int i = 0; i < 20; i++) { /* as values */
        struct tcpstore_client *c = join(s);
        char name[16];
        AUTO(buf_done) struct buf b = { 0 };
        snprintf(name, sizeof name, "/%d", i);
        put(&b, "bss", SET, name, big);
        struct err e = { 0 };
        int rc = feed(c, &b, &e);
        assert_int_equal(rc, i < 3 ? 0 : -ENOBUFS);
        tcpstore_leave(c);
        assert_true(tcpstore_used(s) <= 1 << 20);
    }
    say(good, DELETE, "s", "/2");
    say(good, DELETE, "s", "/1");
    struct tcpstore_client *half[8]; /* as commands that do not end */
    int held = 0;
    for (size_t i = 0; i < ARRAY_LEN(half); i++) {
        AUTO(buf_done) struct buf b = { 0 };
        half[i] = join(s);
        put(&b, "bss", SET, "/half", big);
        b.len -= 1;
        held += tcpstore_feed(half[i], b.p, b.len, false, NULL) == 0;
    }
    assert_in_range(held, 1, 3);
    for (size_t i = 0; i < ARRAY_LEN(half); i++)
        tcpstore_leave(half[i]);
    tcpstore_sent(good, tcpstore_out(good).len);
    say(good, GET, "s", "/good");
    got(good, "s", "value");
    tcpstore_free(s); /* while clients are connected */
}

/* A client that does not read its answers is not read from, and costs no more memory. */
static void slow_reader(void **state)
{
    (void)state;
    static char big[100 << 10];
    memset(big, 'y', sizeof big - 1);
    struct tcpstore *s = tcpstore_new(64 << 20, 7);
    struct tcpstore_client *c = join(s);
    AUTO(buf_done) struct buf b = { 0 };
    say(c, SET, "ss", "/big", big);
    for (int i = 0; i < 200; i++)
        put(&b, "bs", GET, "/big");
    put(&b, "bsq", ADD, "/n", 1LL);
    assert_int_equal(tcpstore_feed(c, b.p, b.len, false, NULL), 0);
    assert_true(tcpstore_paused(c));
    assert_in_range(tcpstore_out(c).len, TCPSTORE_OUT_PAUSE, TCPSTORE_OUT_PAUSE + sizeof big + 8);
    size_t read = 0;
    while (tcpstore_out(c).len) {
        size_t n = MIN(tcpstore_out(c).len, (size_t)70000);
        read += n;
        tcpstore_sent(c, n);
        if (!tcpstore_paused(c))
            assert_int_equal(tcpstore_feed(c, NULL, 0, false, NULL), 0);
        assert_true(tcpstore_out(c).len <= TCPSTORE_OUT_PAUSE + sizeof big + 8);
    }
    assert_int_equal(read, 200 * (sizeof big - 1 + 8) + 8);
    tcpstore_free(s);
}

/* If there is no room for an answer, only the client that should get it is disconnected. */
static void no_room_for_an_answer(void **state)
{
    (void)state;
    static char big[200 << 10];
    memset(big, 'z', sizeof big - 1);
    struct tcpstore *s = store();
    struct tcpstore_client *a = join(s), *b = join(s);
    AUTO(buf_done) struct buf all = { 0 };
    say(a, SET, "ss", "/big", big);
    put(&all, "bqssssssss", GET_ALL, 8LL, "/big", "/big", "/big", "/big", "/big", "/big", "/big",
        "/big");
    struct err e = { 0 };
    assert_int_equal(tcpstore_feed(a, all.p, all.len, false, &e), -ENOBUFS);
    assert_true(tcpstore_broken(a));
    tcpstore_leave(a);
    say(b, CHECK, "qs", 1LL, "/big");
    got(b, "b", 0);
    assert_true(tcpstore_used(s) < 300 << 10);
    tcpstore_free(s);
}

/* ---- without memory ---- */

static int all_sorts(void *ctx)
{
    (void)ctx;
    AUTO(buf_done) struct buf b = { 0 };
    struct tcpstore *s = tcpstore_new(1 << 20, 7);
    struct tcpstore_client *a = s ? tcpstore_join(s, NULL) : NULL;
    struct tcpstore_client *w = a ? tcpstore_join(s, NULL) : NULL;
    int rc = w ? 0 : -ENOMEM;
    static const char waits[] = "\6\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0a\1\0\0\0\0\0\0\0b";
    static const char adds[] = "\4\1\0\0\0\0\0\0\0a\1\0\0\0\0\0\0\0"
                               "\1\1\0\0\0\0\0\0\0b\2\0\0\0\0\0\0\0xx"
                               "\x9\1\0\0\0\0\0\0\0b\2\0\0\0\0\0\0\0yy"
                               "\xe\1\0\0\0\0\0\0\0q\2\0\0\0\0\0\0\0zz"
                               "\xf\1\0\0\0\0\0\0\0q"
                               "\x12\1\0\0\0\0\0\0\0c\2\0\0\0\0\0\0\0";
    static const char hello[] = "\0\xce\xf7\x85\x3c";
    for (struct tcpstore_client *c = a; c && rc == 0; c = c == a ? w : NULL)
        rc = tcpstore_feed(c, hello, 5, false, NULL);
    if (rc == 0)
        rc = tcpstore_feed(w, waits, 10, true, NULL);
    if (rc == 0)
        rc = tcpstore_feed(w, waits + 10, sizeof waits - 11, false, NULL);
    if (rc == 0)
        rc = tcpstore_feed(a, adds, sizeof adds - 1, false, NULL);
    if (rc == 0 && tcpstore_broken(w))
        rc = -ENOMEM;
    if (rc == 0)
        assert_int_equal(tcpstore_out(w).len, 1);
    tcpstore_free(s);
    return rc < 0 ? -ENOMEM : 0;
}

static void without_memory(void **state)
{
    (void)state;
    assert_true(torture(all_sorts, NULL) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scenarios),
        cmocka_unit_test(memory_is_returned),
        cmocka_unit_test(clients_of_other_protocols),
        cmocka_unit_test(lengths),
        cmocka_unit_test(the_limit_covers_values_and_buffers),
        cmocka_unit_test(slow_reader),
        cmocka_unit_test(no_room_for_an_answer),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
