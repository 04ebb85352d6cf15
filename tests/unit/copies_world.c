/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/fs.h"
#include "copies_world.h"
#include "loop/loop.h"
#include "master/copies.h"
#include "storage/journal.h"

/* ---- files in memory ---- */

struct files f;

unsigned dice(unsigned n)
{
    f.seed = f.seed * 1103515245u + 12345u;
    return (f.seed >> 16) % n;
}

struct file *find(const char *path)
{
    for (size_t i = 0; i < f.files.n; i++)
        if (str_eq(f.files.v[i].path, path))
            return &f.files.v[i];
    return NULL;
}

void file_put(const char *path, struct span text)
{
    struct file *x = find(path);
    if (!x) {
        struct file new = { .path = str_dup(path), .text.max = SIZE_MAX / 4 };
        assert_int_equal(vec_push(&f.files, new), 0);
        x = &f.files.v[f.files.n - 1];
    }
    buf_clear(&x->text);
    assert_int_equal(buf_add(&x->text, text.p, text.len), 0);
    f.most_files = MAX(f.most_files, f.files.n);
}

void file_remove(const char *path)
{
    struct file *x = find(path);
    if (!x)
        return;
    free(x->path);
    buf_done(&x->text);
    *x = f.files.v[--f.files.n];
}

static int begin_op(enum op_type type, const char *path, struct span text, files_done_fn *done,
                    void *arg)
{
    struct op op = { type, str_dup(path), text, done, arg };
    for (size_t i = 0; i < f.ops.n; i++) /* only gets run at the same time */
        assert_true(type == OP_GET || f.ops.v[i].arg != arg);
    assert_int_equal(vec_push(&f.ops, op), 0);
    loop_timer_set(f.timer, clock_mono_ms());
    return 0;
}

static int put(void *fs, const char *path, mode_t mode, struct span text, files_done_fn *done,
               void *arg, struct err *e)
{
    (void)fs;
    (void)e;
    assert_int_equal(mode, 0600);
    f.n_begun++;
    f.last_put_ms = clock_mono_ms();
    (void)str_copy(f.last_put, sizeof f.last_put, path);
    return begin_op(OP_PUT, path, text, done, arg);
}

static int rm(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e)
{
    (void)fs;
    (void)e;
    return begin_op(OP_REMOVE, path, SPAN(""), done, arg);
}

static int list(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e)
{
    (void)fs;
    (void)e;
    if (f.hang_at_list)
        f.hang = 1;
    f.hang_at_list = false;
    return begin_op(OP_LIST, path, SPAN(""), done, arg);
}

static int get(void *fs, const char *path, files_done_fn *done, void *arg, struct err *e)
{
    (void)fs;
    (void)e;
    return begin_op(OP_GET, path, SPAN(""), done, arg);
}

const struct files_ops files = { .put = put, .remove = rm, .list = list, .get = get };

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct files_stat *)a)->name, ((const struct files_stat *)b)->name);
}

static void do_list(const struct op *op)
{
    struct files_stat stats[64];
    struct files_result r = { .stats = stats };
    const struct err e = { 0 };
    assert_true(f.files.n <= ARRAY_LEN(stats));
    for (size_t i = 0; i < f.files.n; i++)
        stats[r.n_stats++] = (struct files_stat){ .name = strrchr(f.files.v[i].path, '/') + 1 };
    qsort(stats, r.n_stats, sizeof *stats, by_name);
    op->done(&r, &e, op->arg);
    if (f.after_list) {
        void (*after_list)(void) = f.after_list;
        f.after_list = NULL;
        after_list();
    }
}

static void do_get(const struct op *op)
{
    const struct file *x = find(op->path);
    struct files_result r = { .data = x ? buf_span(&x->text) : SPAN("") };
    struct err e = { 0 };
    if (!x)
        (void)err_set(&e, ENOENT, "no file '%s'", op->path);
    op->done(x ? &r : NULL, &e, op->arg);
}

/* Change the files as a put or a removal does. how_much: 0 = not at all, 1 = in part, 2 = wholly.
 */
static void apply(const struct op *op, unsigned how_much)
{
    if (op->type == OP_PUT && how_much > 0)
        file_put(op->path,
                 span_mem(op->text.p, how_much == 2 ? op->text.len : dice((unsigned)op->text.len)));
    else if (op->type == OP_REMOVE && how_much == 2)
        file_remove(op->path);
}

static void on_timer(void *arg)
{
    const struct files_result r = { 0 };
    struct err e = { 0 };
    (void)arg;
    if (f.ops.n == 0 || f.hang)
        return;
    struct op op = f.ops.v[0];
    memmove(f.ops.v, f.ops.v + 1, --f.ops.n * sizeof op);
    if (f.ops.n)
        loop_timer_set(f.timer, clock_mono_ms());
    f.idle = 0;
    f.ops_left -= f.ops_left > 0;
    f.n_puts += op.type == OP_PUT;
    f.n_removes += op.type == OP_REMOVE;
    f.bytes_put += op.text.len;
    if (op.type == OP_LIST) {
        do_list(&op);
    } else if (op.type == OP_GET) {
        do_get(&op);
    } else {
        bool half = op.type == OP_PUT && f.fail_puts > 0;
        bool fails =
            half || (f.faults && dice(f.faults) == 0) || (f.fail_removes && op.type == OP_REMOVE);
        f.fail_puts -= half;
        if (half)
            file_put(op.path, span_mem(op.text.p, op.text.len / 2));
        else
            apply(&op, fails && !f.fail_removes ? dice(3) : fails ? 0 : 2);
        if (fails)
            (void)err_set(&e, EIO, "scripted");
        op.done(fails ? NULL : &r, &e, op.arg);
    }
    free(op.path);
}

void drop_ops_of(const void *arg)
{
    for (size_t i = 0; i < f.ops.n;) {
        if (f.ops.v[i].arg != arg) {
            i++;
            continue;
        }
        apply(&f.ops.v[i], dice(3));
        free(f.ops.v[i].path);
        memmove(f.ops.v + i, f.ops.v + i + 1, (--f.ops.n - i) * sizeof *f.ops.v);
    }
}

/* ---- running the loop ---- */

static void on_end(void *arg)
{
    int64_t *by = arg;
    if ((f.until && f.until()) || (!f.until && (f.ops_left == 0 || ++f.idle > 2)))
        loop_stop(f.loop);
    else if (clock_mono_ms() > *by)
        fail_msg("it does not come: %zu files, %zu operations", f.files.n, f.ops.n);
    else
        loop_timer_set(f.end, clock_mono_ms() + 1);
}

void run_until(bool (*until)(void))
{
    static int64_t by;
    by = clock_mono_ms() + 20000;
    f.until = until;
    f.idle = 0;
    loop_timer_free(f.end);
    f.end = loop_timer_new(f.loop, on_end, &by);
    loop_timer_set(f.end, clock_mono_ms());
    assert_int_equal(loop_run(f.loop), 0);
}

/* Completes n operations, or as many as there are. */
void run_ops(unsigned n)
{
    f.ops_left = n;
    run_until(NULL);
}

char dir[64];

int setup(void **state)
{
    (void)state;
    memset(&f, 0, sizeof f);
    sim_times = (struct sim_times){ 0 };
    (void)snprintf(dir, sizeof dir, "/tmp/tony-copies-XXXXXX");
    assert_non_null(mkdtemp(dir));
    f.loop = loop_new(NULL);
    f.timer = loop_timer_new(f.loop, on_timer, NULL);
    log_setup(getenv("TONY_TEST_LOG") ? 2 : -1, getenv("TONY_TEST_LOG") ? LOG_DEBUG : LOG_ERROR,
              false);
    return 0;
}

int teardown(void **state)
{
    (void)state;
    while (f.files.n)
        file_remove(f.files.v[0].path);
    for (size_t i = 0; i < f.ops.n; i++)
        free(f.ops.v[i].path);
    vec_done(&f.files);
    vec_done(&f.ops);
    loop_timer_free(f.timer);
    loop_timer_free(f.end);
    loop_free(f.loop);
    return fs_remove_tree(AT_FDCWD, dir, NULL);
}

/* ---- a master: its journal and its copies ---- */

static void on_stored(void *arg)
{
    ((struct sim *)arg)->n_on_stored++;
}

struct sim_times sim_times;

static void open_copies(struct sim *s)
{
    const struct copies_config cfg = {
        .loop = f.loop,
        .files = &files,
        .dir = "/s/journal",
        .file = s->path,
        .epoch = s->epoch,
        .first_n = s->j.first_n,
        .last_n = s->j.next_n - 1,
        .size = (uint64_t)s->j.size,
        .delay_ms = sim_times.delay_ms,
        .retry_ms = sim_times.retry_ms,
        .patience_ms = sim_times.patience_ms ? sim_times.patience_ms : COPIES_PATIENCE_MS,
        .on_stored = on_stored,
        .arg = s,
    };
    assert_int_equal(copies_new(&cfg, &s->c, NULL), 0);
}

/* The events of a journal file: those in its snapshot, and those after it. */
static void read_events(const char *path, struct buf *out)
{
    struct journal_reader r;
    struct journal_record rec;
    struct err e = { 0 };
    int rc;
    buf_clear(out);
    assert_int_equal(journal_reader_open(&r, path, &e), 0);
    while ((rc = journal_reader_next(&r, &rec, &e)) == 1) {
        const char *at = memmem(rec.json.p, rec.json.len, "\"x\":\"", 5);
        if (rec.kind == JOURNAL_HEADER)
            continue;
        assert_non_null(at);
        assert_int_equal(buf_add(out, at + 5, (size_t)((char *)strchr(at + 5, '"') - at - 5)), 0);
    }
    if (rc < 0)
        fail_msg("%s", e.msg);
    journal_reader_close(&r);
}

struct sim *sim_open(uint32_t epoch)
{
    struct sim *s = calloc(1, sizeof *s);
    struct err e = { 0 };
    s->epoch = epoch;
    (void)snprintf(s->path, sizeof s->path, "%s/j%u", dir, epoch);
    if (journal_open(&s->j, s->path, &e) < 0)
        fail_msg("%s", e.msg);
    read_events(s->path, &s->events);
    open_copies(s);
    return s;
}

void sim_close(struct sim *s)
{
    drop_ops_of(s->c);
    copies_free(s->c);
    if (s->j.fd >= 0)
        journal_close(&s->j);
    buf_done(&s->events);
    free(s);
}

void sim_add(struct sim *s, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        char c = (char)('a' + dice(26));
        AUTO(free_p) char *text = str_printf("{\"e\":\"y\",\"x\":\"%c\"}", c);
        assert_int_equal(journal_add(&s->j, span_of(text)), 0);
        assert_int_equal(buf_addc(&s->events, c), 0);
    }
    assert_int_equal(journal_flush(&s->j, false, NULL), 0);
    copies_wrote(s->c, (uint64_t)s->j.size, s->j.next_n - 1);
    s->added = true;
}

/* Writes a segment whose snapshot has two records. */
void sim_segment(struct sim *s)
{
    size_t half = s->events.len / 2;
    AUTO(free_p) char *a = str_printf("{\"x\":\"%.*s\"}", (int)half, buf_cstr(&s->events));
    AUTO(free_p) char *b = str_printf("{\"x\":\"%s\"}", buf_cstr(&s->events) + half);
    const struct span payloads[] = { span_of(a), span_of(b) };
    struct err e = { 0 };
    if (journal_begin_segment(&s->j, payloads, 2, &e) < 0)
        fail_msg("%s", e.msg);
    copies_segment(s->c, s->j.first_n, (uint64_t)s->j.size, s->j.next_n - 1);
}

void sim_look(struct sim *s)
{
    if (s->added && copies_stored(s->c))
        s->n_stored = s->events.len;
}

/* ---- fetching ---- */

struct fetched got;

static void on_fetched(const struct copies_found *found, const struct err *e, void *arg)
{
    (void)arg;
    got.over = true;
    got.found = *found;
    got.why = *e;
}

static bool fetched(void)
{
    return got.over;
}

void fetch_kind(enum copies_kind kind, const char *from, const char *path)
{
    memset(&got, 0, sizeof got);
    assert_int_equal(copies_fetch(kind, &files, NULL, from, path, on_fetched, NULL, NULL), 0);
    run_until(fetched);
}

void fetch(uint32_t epoch)
{
    AUTO(free_p) char *path = str_printf("%s/j%u", dir, epoch);
    fetch_kind(COPIES_JOURNAL, "/s/journal", path);
}
