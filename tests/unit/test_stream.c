/* SPDX-License-Identifier: Apache-2.0 */
/* The frames of a stream, and trees of files in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "codec/stream.h"
#include "proto/tony.pb-c.h"
#include "storage/treewire.h"

/* ---- frames ---- */

struct seen {
    struct buf text; /* "type:payload;" for each call */
    int rc;
};

static int on_frame(enum stream_type type, struct span p, void *arg)
{
    struct seen *s = arg;
    assert_int_equal(buf_addf(&s->text, "%d:%.*s;", (int)type, (int)p.len, p.len ? p.p : ""), 0);
    return s->rc;
}

static void a_stream_is_read_in_any_pieces(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf in = { 0 };
    assert_int_equal(stream_add(&in, SF_STARTED, NULL, 0), 0);
    assert_int_equal(stream_add(&in, SF_NOTE, "one note", 8), 0);
    assert_int_equal(stream_add(&in, SF_END, NULL, 0), 0);
    for (size_t piece = 1; piece <= in.len; piece++) {
        struct seen s = { 0 };
        struct stream_reader r = { .on_frame = on_frame, .arg = &s };
        for (size_t at = 0; at < in.len; at += piece)
            assert_int_equal(stream_feed(&r, in.p + at, MIN(piece, in.len - at), NULL), 0);
        assert_string_equal(buf_cstr(&s.text), "2:;12:one note;6:;");
        stream_reader_done(&r);
        buf_done(&s.text);
    }
}

static void data_comes_in_pieces_without_a_copy(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf in = { 0 };
    struct seen s = { 0 };
    struct stream_reader r = { .on_frame = on_frame, .arg = &s };
    assert_int_equal(stream_add(&in, SF_DATA, "abcdef", 6), 0);
    assert_int_equal(stream_feed(&r, in.p, STREAM_HEADER + 2, NULL), 0);
    assert_int_equal(stream_feed(&r, in.p + STREAM_HEADER + 2, 4, NULL), 0);
    assert_string_equal(buf_cstr(&s.text), "4:ab;4:cdef;");
    assert_int_equal(r.control.len, 0);
    stream_reader_done(&r);
    buf_done(&s.text);
}

static void what_breaks_a_rule_is_refused(void **state)
{
    static const unsigned char bad[][STREAM_HEADER] = {
        { SF_NONE, 0, 0, 1 },        { SF_COUNT, 0, 0, 1 }, { 255, 0, 0, 0 },
        { SF_DATA, 4, 0, 1 }, /* STREAM_DATA_MAX + 1 */
        { SF_NOTE, 3, 0, 1 }, /* STREAM_CONTROL_MAX + 1 */
        { SF_ENTRY, 255, 255, 255 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct seen s = { 0 };
        struct stream_reader r = { .on_frame = on_frame, .arg = &s };
        struct err e = { 0 };
        assert_int_equal(stream_feed(&r, (const char *)bad[i], STREAM_HEADER, &e), -EPROTO);
        assert_int_equal(s.text.len, 0);
        assert_int_equal(e.num, EPROTO);
        stream_reader_done(&r);
    }
    AUTO(buf_done) struct buf out = { 0 };
    AUTO(free_p) char *big = calloc(1, STREAM_DATA_MAX + 1);
    assert_int_equal(stream_add(&out, SF_DATA, big, STREAM_DATA_MAX), 0);
    assert_int_equal(stream_add(&out, SF_DATA, big, STREAM_DATA_MAX + 1), -EMSGSIZE);
    assert_int_equal(stream_add(&out, SF_NOTE, big, STREAM_CONTROL_MAX + 1), -EMSGSIZE);
}

static void the_owner_ends_the_reading(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf in = { 0 };
    struct seen s = { .rc = -ECANCELED };
    struct stream_reader r = { .on_frame = on_frame, .arg = &s };
    (void)stream_add(&in, SF_END, NULL, 0);
    (void)stream_add(&in, SF_END, NULL, 0);
    assert_int_equal(stream_feed(&r, in.p, in.len, NULL), -ECANCELED);
    assert_string_equal(buf_cstr(&s.text), "6:;");
    stream_reader_done(&r);
    buf_done(&s.text);
}

static void a_reason_passes_unless_it_is_no_text(void **state)
{
    (void)state;
    AUTO(buf_done) struct buf in = { 0 };
    struct err e = { 0 }, got = { 0 };
    (void)err_set(&e, ENOENT, "there is no program 'x'");
    assert_int_equal(stream_add_failed(&in, &e), 0);
    struct span payload = span_mem(in.p + STREAM_HEADER, in.len - STREAM_HEADER);
    assert_int_equal(stream_failed(payload, &got), -ENOENT);
    assert_string_equal(got.msg, e.msg);
    assert_int_equal(stream_failed(span_mem("\0\0\0\2\033[2J", 8), &got), -ENOENT);
    assert_string_equal(got.msg, "?[2J");
    assert_int_equal(stream_failed(span_mem("\377\377\377\377\377\376", 6), &got), -EIO);
    assert_string_equal(got.msg, "the peer gave no reason");
    assert_int_equal(stream_failed(span_mem("", 0), &got), -EIO);
}

/* ---- trees ---- */

struct place {
    char dir[64];
    int fd;
};

static int setup(void **state)
{
    static struct place p;
    (void)snprintf(p.dir, sizeof p.dir, "/tmp/tony-test-stream-XXXXXX");
    if (!mkdtemp(p.dir) || (p.fd = open(p.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) == -1)
        return -1;
    *state = &p;
    return mkdirat(p.fd, "in", 0700);
}

static int teardown(void **state)
{
    struct place *p = *state;
    close(p->fd);
    return fs_remove_tree(AT_FDCWD, p->dir, NULL);
}

static ProtobufCBinaryData data_of(const char *s)
{
    return (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)s, .len = strlen(s) };
}

/* Give the receiver one entry of a hostile sender. */
static int entry(struct tree_receive *r, int kind, const char *path, const char *target,
                 uint64_t size, struct err *e)
{
    Tony__StreamEntry x = TONY__STREAM_ENTRY__INIT;
    unsigned char packed[16384];
    x.kind = (Tony__StreamEntry__Kind)kind;
    x.path = data_of(path);
    x.target = data_of(target);
    x.mode = 07777;
    x.size = size;
    size_t n = tony__stream_entry__pack(&x, packed);
    return tree_receive_frame(r, SF_ENTRY, span_mem(packed, n), e);
}

enum {
    NONE = TONY__STREAM_ENTRY__KIND__NONE,
    FILE_ENTRY = TONY__STREAM_ENTRY__KIND__FILE,
    DIRECTORY = TONY__STREAM_ENTRY__KIND__DIRECTORY,
    SYMLINK = TONY__STREAM_ENTRY__KIND__SYMLINK,
};

static unsigned n_notes;
static void on_note(const char *text, void *arg)
{
    (void)arg;
    assert_false(span_has_control(span_of(text)));
    n_notes++;
}

static struct tree_receive *receive(const struct place *p, const char *path, const char *name)
{
    struct tree_receive *r = NULL;
    struct err e = { 0 };
    n_notes = 0;
    if (tree_receive_open(p->fd, path, name, on_note, NULL, &r, &e) < 0)
        fail_msg("%s", e.msg);
    return r;
}

static void a_hostile_path_is_refused(void **state)
{
    static const char *const paths[] = { "..",   "../x",   "/etc/x", "a/../../x", "./x",
                                         "a//b", "a/..",   ".",      "/",         "a/",
                                         "",     "link/x", "file/x" };
    const struct place *p = *state;
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct tree_receive *r = receive(p, "in", "");
        struct err e = { 0 };
        assert_int_equal(entry(r, DIRECTORY, "", "", 0, &e), 0);
        assert_int_equal(entry(r, DIRECTORY, "a", "", 0, &e), 0);
        assert_int_equal(entry(r, SYMLINK, "link", "a", 0, &e), 0);
        assert_int_equal(entry(r, FILE_ENTRY, "file", "", 0, &e), 0);
        int rc = entry(r, FILE_ENTRY, paths[i], "", 0, &e);
        if (rc >= 0)
            fail_msg("path '%s' was accepted", paths[i]);
        assert_int_not_equal(e.num, 0);
        /* after an error all further frames are refused */
        assert_true(entry(r, FILE_ENTRY, "later", "", 0, &e) < 0);
        tree_receive_free(r);
        assert_int_equal(faccessat(p->fd, "in/later", F_OK, 0), -1);
        assert_int_equal(faccessat(p->fd, "in/a/x", F_OK, 0), -1);
        assert_int_equal(faccessat(p->fd, "x", F_OK, 0), -1);
    }
}

static void a_link_that_was_there_is_not_followed(void **state)
{
    const struct place *p = *state;
    struct err e = { 0 };
    struct stat st;
    assert_int_equal(mkdirat(p->fd, "outside", 0700), 0);
    assert_int_equal(symlinkat("../outside", p->fd, "in/d"), 0);
    assert_int_equal(symlinkat("../outside/f", p->fd, "in/f"), 0);
    struct tree_receive *r = receive(p, "in", "");
    assert_int_equal(entry(r, DIRECTORY, "", "", 0, &e), 0);
    /* a file replaces the link of its name */
    assert_int_equal(entry(r, FILE_ENTRY, "f", "", 2, &e), 0);
    assert_int_equal(tree_receive_frame(r, SF_DATA, SPAN("ok"), &e), 0);
    assert_int_equal(fstatat(p->fd, "in/f", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(st.st_mode & 07777, 0777); /* no set-user-id bit */
    /* a directory does not */
    assert_true(entry(r, DIRECTORY, "d", "", 0, &e) < 0);
    tree_receive_free(r);
    assert_int_equal(faccessat(p->fd, "outside/f", F_OK, 0), -1);
}

static void links_that_lead_out_are_left_out(void **state)
{
    static const struct {
        const char *at, *target;
        bool made;
    } rows[] = {
        { "l", "a", true },       { "l", "a/b", true },         { "a/l", "../f", true },
        { "a/l", "..", true },    { "a/b/l", "../../f", true }, { "l", "/etc/passwd", false },
        { "l", "..", false },     { "l", "../x", false },       { "a/l", "../../x", false },
        { "l", "a/..", false },   { "l", "a/../..", false },    { "l", "", false },
        { "l", "./../x", false }, { "l", ".", true },
    };
    const struct place *p = *state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tree_receive *r = receive(p, "in", "");
        struct err e = { 0 };
        char path[64];
        assert_int_equal(entry(r, DIRECTORY, "", "", 0, &e), 0);
        assert_int_equal(entry(r, DIRECTORY, "a", "", 0, &e), 0);
        assert_int_equal(entry(r, DIRECTORY, "a/b", "", 0, &e), 0);
        assert_int_equal(entry(r, SYMLINK, rows[i].at, rows[i].target, 0, &e), 0);
        tree_receive_free(r);
        (void)snprintf(path, sizeof path, "in/%s", rows[i].at);
        bool made = faccessat(p->fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
        if (made != rows[i].made || n_notes != !made)
            fail_msg("link %s -> %s: made %d, notes %u", rows[i].at, rows[i].target, made, n_notes);
        (void)unlinkat(p->fd, path, 0);
    }
}

static void a_sender_that_breaks_the_order_is_refused(void **state)
{
    const struct place *p = *state;
    struct err e = { 0 };
    struct tree_receive *r = receive(p, "in", "");
    assert_true(tree_receive_frame(r, SF_DATA, SPAN("x"), &e) < 0);
    tree_receive_free(r);
    r = receive(p, "in", "");
    assert_true(tree_receive_frame(r, SF_DONE, SPAN(""), &e) < 0);
    tree_receive_free(r);
    r = receive(p, "in", "");
    assert_true(entry(r, FILE_ENTRY, "a", "", 0, &e) < 0); /* the first entry must be the root */
    tree_receive_free(r);
    r = receive(p, "in", "");
    assert_true(entry(r, FILE_ENTRY, "", "", 0, &e) < 0); /* a file cannot replace a directory */
    tree_receive_free(r);
    r = receive(p, "in", "name");
    assert_int_equal(entry(r, FILE_ENTRY, "", "", 3, &e), 0);
    assert_true(tree_receive_frame(r, SF_DATA, SPAN("more than 3"), &e) < 0);
    tree_receive_free(r);
    r = receive(p, "in", "name");
    assert_int_equal(entry(r, FILE_ENTRY, "", "", 3, &e), 0);
    assert_true(tree_receive_frame(r, SF_DONE, SPAN(""), &e) < 0); /* too early */
    tree_receive_free(r);
    r = receive(p, "in", "name");
    assert_int_equal(entry(r, FILE_ENTRY, "", "", 0, &e), 0);
    assert_true(entry(r, FILE_ENTRY, "second", "", 0, &e) < 0);
    tree_receive_free(r);
    r = receive(p, "in", "");
    assert_true(tree_receive_frame(r, SF_ENTRY, span_mem("\377\377", 2), &e) < 0);
    tree_receive_free(r);
    r = receive(p, "in", "");
    assert_int_equal(entry(r, DIRECTORY, "", "", 0, &e), 0);
    assert_true(entry(r, NONE, "x", "", 0, &e) < 0);
    tree_receive_free(r);
    assert_int_equal(unlinkat(p->fd, "in/name", 0), 0);       /* only the complete one */
    assert_int_equal(unlinkat(p->fd, "in", AT_REMOVEDIR), 0); /* and no temporary file */
}

static int pass_on(enum stream_type type, struct span p, void *arg)
{
    struct err e = { 0 };
    int rc = tree_receive_frame(arg, type, p, &e);
    if (rc < 0)
        fail_msg("%s", e.msg);
    return rc == 1 ? -EALREADY : 0;
}

static void a_tree_passes(void **state)
{
    const struct place *p = *state;
    struct tree_send *s = NULL;
    struct err e = { 0 };
    AUTO(buf_done) struct buf out = { 0 };
    assert_int_equal(mkdirat(p->fd, "in/d", 0750), 0);
    assert_int_equal(symlinkat("d/f", p->fd, "in/l"), 0);
    int fd = openat(p->fd, "in/d/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(fs_write_all(fd, "0123456789", 10), 0);
    close(fd);
    assert_int_equal(tree_send_open(p->fd, "in", &s, &e), 0);
    struct tree_receive *r = receive(p, "copy", "");
    struct stream_reader reader = { .on_frame = pass_on, .arg = r };
    int more = 1, rc = 0;
    while (more == 1) {
        buf_clear(&out);
        more = tree_send_next(s, &out, &e);
        assert_true(more >= 0);
        rc = stream_feed(&reader, out.p, out.len, &e);
    }
    assert_int_equal(rc, -EALREADY);
    assert_int_equal(tree_receive_bytes(r), 1000000);
    assert_int_equal(tree_send_bytes(s), 1000000);
    assert_int_equal(tree_receive_files(r), 1);
    tree_send_free(s);
    tree_receive_free(r);
    stream_reader_done(&reader);
    struct stat st;
    assert_int_equal(fstatat(p->fd, "copy/d/f", &st, 0), 0);
    assert_int_equal(st.st_size, 1000000);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(fstatat(p->fd, "copy/l", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISLNK(st.st_mode));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_read_in_any_pieces),
        cmocka_unit_test(data_comes_in_pieces_without_a_copy),
        cmocka_unit_test(what_breaks_a_rule_is_refused),
        cmocka_unit_test(the_owner_ends_the_reading),
        cmocka_unit_test(a_reason_passes_unless_it_is_no_text),
        cmocka_unit_test_setup_teardown(a_hostile_path_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_link_that_was_there_is_not_followed, setup, teardown),
        cmocka_unit_test_setup_teardown(links_that_lead_out_are_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sender_that_breaks_the_order_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tree_passes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
