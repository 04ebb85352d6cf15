/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "base/base.h"
#include "codec/frame.h"
#include "proto/tony.pb-c.h"
#include "torture.h"

static void pack_hello(struct buf *out, const char *id, uint32_t slot)
{
    Tony__ExecutorHello hello = TONY__EXECUTOR_HELLO__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    uint32_t ports[] = { 40001, 40002 };
    hello.slot = slot;
    hello.container_id = (char *)id;
    hello.ports = ports;
    hello.n_ports = 2;
    f.body_case = TONY__FRAME__BODY_EXECUTOR_HELLO;
    f.executor_hello = &hello;
    assert_int_equal(frame_pack(&f, out), 0);
}

static void check_hello(struct span payload, const char *id, uint32_t slot)
{
    struct err e = { 0 };
    AUTO(frame_freep) Tony__Frame *f = frame_unpack(payload, &e);
    assert_non_null(f);
    assert_int_equal(f->body_case, TONY__FRAME__BODY_EXECUTOR_HELLO);
    assert_string_equal(f->executor_hello->container_id, id);
    assert_int_equal(f->executor_hello->slot, slot);
    assert_int_equal(f->executor_hello->n_ports, 2);
    assert_int_equal(f->executor_hello->ports[1], 40002);
}

/* Three frames in one stream, cut in two at every byte. */
static void test_split_at_every_byte(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf all = { 0 };
    pack_hello(&all, "a", 1);
    pack_hello(&all, "container_1_0001_01_000002", 2);
    pack_hello(&all, "", 3);
    static const char *const ids[] = { "a", "container_1_0001_01_000002", "" };

    for (size_t cut = 0; cut <= all.len; cut++) {
        AUTO(buf_done) struct buf in = { 0 };
        struct span payload;
        unsigned n = 0;
        for (int half = 0; half < 2; half++) {
            if (half == 0)
                assert_int_equal(buf_add(&in, all.p, cut), 0);
            else
                assert_int_equal(buf_add(&in, all.p + cut, all.len - cut), 0);
            int rc;
            while ((rc = frame_peek(&in, &payload, NULL)) == 1) {
                assert_in_range(n, 0, 2);
                check_hello(payload, ids[n], n + 1);
                frame_consume(&in, payload);
                n++;
            }
            assert_int_equal(rc, 0);
        }
        assert_int_equal(n, 3);
        assert_int_equal(in.len, 0);
    }
}

static void test_lengths(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        int want;
    } rows[] = {
        { "", 0, 0 },
        { "\0\0\0", 3, 0 },
        { "\0\0\0\0", 4, -EPROTO }, /* a frame is never empty */
        { "\0\0\0\1", 4, 0 },       /* the frame's byte is missing */
        { "\0\0\0\1x", 5, 1 },
        { "\0\0\0\1xyz", 7, 1 },      /* the next frame has begun */
        { "\x02\0\0\0", 4, 0 },       /* FRAME_MAX */
        { "\x02\0\0\1", 4, -EPROTO }, /* FRAME_MAX + 1 */
        { "\xff\xff\xff\xff", 4, -EPROTO },
        { "GET / HTTP/1.1\r\n", 16, -EPROTO },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf in = { .p = (char *)rows[i].bytes, .len = rows[i].n };
        struct span payload = { 0 };
        struct err e = { 0 };
        assert_int_equal(frame_peek(&in, &payload, &e), rows[i].want);
        assert_int_equal(e.num, rows[i].want < 0 ? EPROTO : 0);
        assert_int_equal(payload.len, rows[i].want == 1 ? 1 : 0);
    }
}

static void test_pack_refuses(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf out = { 0 };
    Tony__Frame f = TONY__FRAME__INIT;
    assert_int_equal(frame_pack(&f, &out), -EMSGSIZE); /* each receiver would refuse it */

    Tony__Answer answer = TONY__ANSWER__INIT;
    AUTO(free_p) uint8_t *big = calloc(1, FRAME_MAX);
    assert_non_null(big);
    answer.json.data = big;
    /* Two tags of 2 bytes and 1 byte, and two lengths of 4 bytes. */
    answer.json.len = FRAME_MAX - 11;
    f.body_case = TONY__FRAME__BODY_ANSWER;
    f.answer = &answer;
    assert_int_equal(frame_pack(&f, &out), 0);
    buf_clear(&out);
    answer.json.len = FRAME_MAX;
    assert_int_equal(frame_pack(&f, &out), -EMSGSIZE);
    assert_int_equal(out.len, 0);
}

static void test_garbage(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } rows[] = {
        { "\xff", 1 },
        { "\x52\x7f", 2 },         /* announces 127 bytes, has none */
        { "\x52\x02\x1a\x7f", 4 }, /* the same one level deeper */
        { "\x52\x03\x1a\x01", 4 },
        { "\x00\x00", 2 }, /* field 0 */
        { "\x57", 1 },     /* wire type 7 */
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        assert_null(frame_unpack(span_mem(rows[i].bytes, rows[i].n), &e));
        assert_int_equal(e.num, EPROTO);
    }
    /* an unknown message of a later version is read as one without a body */
    struct err e = { 0 };
    AUTO(frame_freep) Tony__Frame *f = frame_unpack(span_mem("\xba\x3e\x01x", 4), &e);
    assert_non_null(f);
    assert_int_equal(f->body_case, TONY__FRAME__BODY__NOT_SET);
}

/* A message of two bytes becomes a whole struct: many of them must not take gigabytes. */
static void test_budget(void **state)
{
    (void)state;
    enum { N = 2 << 20 };
    AUTO(buf_done) struct buf b = { 0 };
    /* registered{containers...}: field 80, then N empty messages of field 1 */
    unsigned char head[8];
    size_t n = 0;
    head[n++] = 0x82;
    head[n++] = 0x05;
    for (uint32_t len = N * 2; len; len >>= 7)
        head[n++] = (unsigned char)((len & 0x7f) | (len >> 7 ? 0x80 : 0));
    assert_int_equal(buf_add(&b, head, n), 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(buf_add(&b, "\x0a\0", 2), 0);
    struct err e = { 0 };
    assert_null(frame_unpack(buf_span(&b), &e));
    assert_int_equal(e.num, EPROTO);
}

/* Many empty strings: small in memory, and accepted. */
static void test_budget_leaves_room(void **state)
{
    (void)state;
    enum { N = 20000 };
    static char *none[N];
    for (int i = 0; i < N; i++)
        none[i] = (char *)"";
    Tony__ReleaseContainers release = TONY__RELEASE_CONTAINERS__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    release.ids = none;
    release.n_ids = N;
    f.body_case = TONY__FRAME__BODY_RELEASE_CONTAINERS;
    f.release_containers = &release;
    AUTO(buf_done) struct buf b = { 0 };
    struct span payload;
    assert_int_equal(frame_pack(&f, &b), 0);
    assert_int_equal(frame_peek(&b, &payload, NULL), 1);
    AUTO(frame_freep) Tony__Frame *back = frame_unpack(payload, NULL);
    assert_non_null(back);
    assert_int_equal(back->release_containers->n_ids, N);
}

static int round_trip(void *arg)
{
    (void)arg;
    AUTO(buf_done) struct buf b = { 0 };
    Tony__KeeperState ks = TONY__KEEPER_STATE__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    uint32_t gpus[] = { 0, 3 };
    ks.application_id = (char *)"application_1_0001";
    ks.gpus = gpus;
    ks.n_gpus = 2;
    f.body_case = TONY__FRAME__BODY_KEEPER_STATE;
    f.keeper_state = &ks;
    int rc = frame_pack(&f, &b);
    if (rc < 0)
        return rc;
    struct span payload;
    assert_int_equal(frame_peek(&b, &payload, NULL), 1);
    AUTO(frame_freep) Tony__Frame *back = frame_unpack(payload, NULL);
    if (!back)
        return -ENOMEM;
    assert_int_equal(back->keeper_state->gpus[1], 3);
    return 0;
}

static void test_no_memory(void **state)
{
    (void)state;
    (void)torture(round_trip, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_at_every_byte),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_pack_refuses),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_budget_leaves_room),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
