/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file `exits`: JSON lines, which the keeper appends before it reports an exit: one write() for
 * all exits of a turn of its loop. A new keeper reads the file to learn what happened before:
 *
 *   {"keeper":1,"pid":17,"wall_ms":1}   a keeper has started; its containers have this number
 *   {"master":1,"wall_ms":1}            a master was started with this epoch
 *   {"master_exit":1,"code":0,"signal":9,"wall_ms":1}
 *   {"container":"container_..","slot":3,"code":0,"signal":0,"reason":"exited","detail":"","wall_ms":1,"mono_us":1}
 *
 * A line that no keeper has written so costs only itself, however long it is, and the log tells the
 * number of such lines: a crash of the machine may tear the end of the file, or fill it with zeros.
 * The file is not synced to disk: if only the keeper dies, all written bytes are safe. If the
 * machine crashes, no process of the job is alive.
 *
 * When the journal has an end, the keeper forgets it (ends_acked()). From time to time it replaces
 * the file by one that has only the other ends: it writes and syncs `exits.new`, and renames it. An
 * end that is only in the journal must not be lost if the machine crashes, so the keeper syncs the
 * journal first. If the keeper is killed before the rename, the next one finds the old file. It
 * tells the master of ends that the journal has, and the master ignores these.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "executor/keeper_int.h"

enum {
    UNWRITTEN_MAX = 4 << 20,
    READ_SIZE = 64 << 10,
    LINE_MAX_BYTES = 16 << 10, /* no line that a keeper has written is longer */
};

/* Lines that cannot be written, because the disk is full, are kept in memory and written later. The
 * keeper reports the exit to the master nevertheless. If the keeper dies meanwhile, these lines are
 * lost for the next keeper. */
void exits_write(struct keeper *k)
{
    struct buf *b = &k->unwritten;
    while (b->len) {
        ssize_t n = write(k->exits_fd, b->p, b->len);
        if (n == -1 && errno == EINTR)
            continue;
        if (n <= 0) {
            struct err e = { 0 };
            (void)err_set(&e, n ? errno : ENOSPC, "cannot write an exit to the file 'exits': %m");
            if (!k->exits_failed)
                log_err(LOG_ERROR, "keeper.exits", &e);
            k->exits_failed = true;
            return;
        }
        k->exits_size += (uint64_t)n;
        buf_consume(b, (size_t)n); /* after a partial write, the rest of the line follows */
    }
    if (k->exits_failed)
        log_event(LOG_INFO, "keeper.exits_written");
    k->exits_failed = false;
}

/* The line is written with the next exits_write(). */
static void add_line(struct keeper *k, struct buf *line)
{
    buf_addc(line, '\n');
    if (k->unwritten.len + line->len > UNWRITTEN_MAX && !k->exits_failed)
        exits_write(k);
    bool fits = !line->failed && k->unwritten.len + line->len <= UNWRITTEN_MAX;
    if (k->unwritten.failed) /* there was no memory; try again with the lines that are left */
        k->unwritten.failed = false;
    if (!fits || buf_add(&k->unwritten, line->p, line->len) < 0)
        log_event(LOG_ERROR, "keeper.exit_forgotten");
    buf_done(line);
}

static void container_line(struct buf *line, const struct container *c)
{
    buf_addf(
        line,
        "{\"container\":\"%s\",\"slot\":%u,\"code\":%d,\"signal\":%d,\"reason\":\"%s\",\"detail\":",
        c->id, c->slot, c->exit_code, c->signal, end_reason_name(c->reason));
    (void)json_add_str(line, span_of(c->detail)); /* add_line() looks at line->failed */
    int64_t age_ms = (clock_mono_us() - c->ended_us) / 1000;
    buf_addf(line, ",\"wall_ms\":%lld,\"mono_us\":%lld}", (long long)(clock_wall_ms() - age_ms),
             (long long)c->ended_us);
}

static void keeper_line(const struct keeper *k, struct buf *line)
{
    buf_addf(line, "{\"keeper\":%u,\"pid\":%d,\"wall_ms\":%lld}", k->life, (int)getpid(),
             (long long)clock_wall_ms());
}

static void master_line(const struct keeper *k, struct buf *line)
{
    buf_addf(line, "{\"master\":%u,\"wall_ms\":%lld}", k->epoch, (long long)clock_wall_ms());
}

void exits_add_container(struct keeper *k, struct container *c)
{
    struct buf line = { 0 };
    container_line(&line, c);
    c->line_len = (uint32_t)line.len + 1;
    add_line(k, &line);
}

void exits_add_master(struct keeper *k)
{
    struct buf line = { 0 };
    master_line(k, &line);
    add_line(k, &line);
    exits_write(k);
}

void exits_add_master_exit(struct keeper *k, int status)
{
    struct buf line = { 0 };
    buf_addf(&line, "{\"master_exit\":%u,\"code\":%d,\"signal\":%d,\"wall_ms\":%lld}", k->epoch,
             WIFEXITED(status) ? WEXITSTATUS(status) : 0,
             WIFSIGNALED(status) ? WTERMSIG(status) : 0, (long long)clock_wall_ms());
    add_line(k, &line);
    exits_write(k);
}

/* ---- a shorter file ---- */

bool exits_wants_rewrite(const struct keeper *k)
{
    return k->exits_size - k->exits_tried_at > EXITS_MIN && k->exits_size > 2 * k->ends.line_bytes;
}

static int sync_journal(int dir_fd, struct err *e)
{
    AUTO(close_p) int fd = openat(dir_fd, "journal", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && fdatasync(fd) == 0 ? 0 : err_set(e, errno, "cannot sync the journal: %m");
}

/* The lines of the ends that the journal may lack, and what the next keeper has to know. */
static void add_kept_lines(const struct keeper *k, struct buf *out)
{
    keeper_line(k, out);
    buf_addc(out, '\n');
    master_line(k, out);
    buf_addc(out, '\n');
    for (size_t i = k->ends.at; i < k->ends.n; i++) {
        container_line(out, k->ends.v[i]);
        buf_addc(out, '\n');
    }
}

/* Write `exits.new`. Returns its descriptor, for appending. */
static int write_new(int dir_fd, const struct buf *text, struct err *e)
{
    int fd = openat(dir_fd, "exits.new",
                    O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = fd == -1 ? -errno : fs_write_all(fd, text->p, text->len);
    if (rc == 0 && fdatasync(fd) == -1)
        rc = -errno;
    if (rc == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    (void)unlinkat(dir_fd, "exits.new", 0); /* may be missing; the first error is reported */
    return err_set(e, -rc, "cannot write the file 'exits.new': %m");
}

static int rewrite(struct keeper *k, struct err *e)
{
    AUTO(close_p) int dir_fd = open(k->job_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd == -1)
        return err_set(e, errno, "cannot open '%s': %m", k->job_dir);
    AUTO(buf_done) struct buf text = { 0 };
    add_kept_lines(k, &text);
    if (text.failed)
        return err_set(e, ENOMEM, "no memory for a shorter file 'exits'");
    int rc = sync_journal(dir_fd, e);
    int fd = rc == 0 ? write_new(dir_fd, &text, e) : rc;
    if (fd < 0)
        return fd;
    if (renameat(dir_fd, "exits.new", dir_fd, "exits") == -1) {
        rc = err_set(e, errno, "cannot replace the file 'exits': %m");
        close(fd);
        return rc;
    }
    (void)fsync(dir_fd); /* if it fails, a crash of the machine may bring back the old file */
    close(k->exits_fd);
    k->exits_fd = fd;
    k->exits_size = text.len;
    k->exits_tried_at = 0;
    buf_done(&k->unwritten); /* the new file has these lines */
    k->exits_failed = false;
    return 0;
}

void exits_rewrite(struct keeper *k)
{
    struct err e = { 0 };
    uint64_t before = k->exits_size;
    if (rewrite(k, &e) < 0) {
        k->exits_tried_at = before; /* the next try is EXITS_MIN bytes later */
        log_err(LOG_WARN, "keeper.exits_kept", &e);
        return;
    }
    log_event(LOG_INFO, "keeper.exits_rewritten", f_int("bytes", (int64_t)before),
              f_int("now", (int64_t)k->exits_size));
}

/* ---- reading ---- */

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static int64_t number_of(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static int add_old(struct keeper *k, const json_t *o, size_t line_len)
{
    struct container *c = vec_reserve(&k->ends, k->ends.n + 1) < 0 ? NULL : container_new(k);
    if (!c)
        return -ENOMEM;
    (void)str_copy(c->id, sizeof c->id, text_of(o, "container"));
    c->state = CONTAINER_ENDED;
    c->slot = (uint32_t)number_of(o, "slot");
    c->exit_code = (int)number_of(o, "code");
    c->signal = (int)number_of(o, "signal");
    c->reason = end_reason_parse(text_of(o, "reason"));
    c->detail = str_dup(text_of(o, "detail"));
    int64_t age_ms = clock_wall_ms() - number_of(o, "wall_ms"), now_us = clock_mono_us();
    c->ended_us = number_of(o, "mono_us");
    if (c->ended_us <= 0 || c->ended_us > now_us) /* the machine was rebooted since */
        c->ended_us = now_us - MAX(age_ms, (int64_t)0) * 1000;
    c->line_len = (uint32_t)line_len;
    ends_add(k, c);
    return 0;
}

/* An earlier version wrote bytes that are no UTF-8: replace them by question marks. */
static json_t *read_repaired(struct span line)
{
    size_t bad = 0;
    if (span_utf8(line, &bad))
        return NULL;
    AUTO(free_p) char *text = span_dup(line);
    for (struct span rest = span_mem(text, text ? line.len : 0); !span_utf8(rest, &bad);) {
        text[(size_t)(rest.p - text) + bad] = '?';
        rest = span_mem(rest.p + bad + 1, rest.len - bad - 1);
    }
    return text ? json_loadb(text, line.len, JSON_REJECT_DUPLICATES, NULL) : NULL;
}

/* Lines that no keeper has written: a crash of the machine has torn them, or somebody has changed
 * the file. They are left out. */
struct unread {
    uint64_t lines, bytes;
    bool in_line; /* the start of the line is left out already, because the line is too long */
};

static void leave_out(struct unread *u, size_t bytes, bool ends)
{
    u->lines += !u->in_line;
    u->bytes += bytes;
    u->in_line = !ends;
}

static bool names_container(const json_t *o)
{
    return text_of(o, "container")[0] != '\0';
}

static int read_line(struct keeper *k, struct span line, struct unread *u)
{
    if (u->in_line) {
        leave_out(u, line.len, true);
        return 0;
    }
    json_t *o = json_loadb(line.p, line.len, JSON_REJECT_DUPLICATES, NULL);
    int rc = 0;
    if (!o)
        o = read_repaired(line);
    if (names_container(o))
        rc = add_old(k, o, line.len + 1);
    else if (number_of(o, "keeper") > 0)
        k->life = MAX(k->life, (uint32_t)number_of(o, "keeper"));
    else if (number_of(o, "master") > 0)
        k->epoch = MAX(k->epoch, (uint32_t)number_of(o, "master"));
    else if (!json_object_get(o, "master_exit") && line.len)
        leave_out(u, line.len, true);
    json_decref(o);
    return rc;
}

/* Read the lines up to the last newline in `text`, and leave the rest there. If that is longer than
 * a line can be, leave it out. */
static int read_lines(struct keeper *k, struct buf *text, struct unread *u)
{
    const char *last = text->len ? memrchr(text->p, '\n', text->len) : NULL;
    if (last) {
        struct span rest = span_mem(text->p, (size_t)(last - text->p)), line;
        while (span_split(&rest, '\n', &line))
            if (read_line(k, line, u) < 0)
                return -ENOMEM;
        buf_consume(text, (size_t)(last - text->p) + 1);
    }
    if (text->len > LINE_MAX_BYTES) {
        leave_out(u, text->len, false);
        buf_clear(text);
    }
    return 0;
}

static void warn_unread(const struct unread *u)
{
    if (u->lines)
        log_event(LOG_WARN, "keeper.exits_unreadable", f_int("lines", (int64_t)u->lines),
                  f_int("bytes", (int64_t)u->bytes));
}

/* Read the file in pieces: it may be large. *out_torn: its last line has no newline. */
static int read_file(struct keeper *k, int fd, bool *out_torn)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct unread u = { 0 };
    for (;;) {
        char *to = buf_reserve(&text, READ_SIZE);
        ssize_t n = to ? read(fd, to, READ_SIZE) : -1;
        if (!to)
            return -ENOMEM;
        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1)
            return -errno;
        *out_torn = text.len > 0 || u.in_line;
        if (n == 0) {
            int rc = text.len > 0 ? read_line(k, buf_span(&text), &u) : 0;
            warn_unread(&u);
            return rc;
        }
        buf_commit(&text, (size_t)n);
        k->exits_size += (uint64_t)n;
        if (read_lines(k, &text, &u) < 0)
            return -ENOMEM;
    }
}

int exits_open(struct keeper *k, struct err *e)
{
    AUTO(free_p) char *path = str_printf("%s/exits", k->job_dir);
    AUTO(free_p) char *new_path = str_printf("%s/exits.new", k->job_dir);
    bool torn = false;
    if (!path || !new_path)
        return err_set(e, ENOMEM, "cannot open the file of exits: %m");
    (void)unlink(new_path); /* an earlier keeper may have died while it wrote that */
    k->exits_fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (k->exits_fd == -1)
        return err_set(e, errno, "cannot open '%s': %m", path);
    int rc = read_file(k, k->exits_fd, &torn);
    if (rc < 0)
        return err_set(e, -rc, "cannot read '%s': %m", path);
    k->life++;
    struct buf first = { 0 };
    if (torn)
        buf_addc(&first, '\n'); /* end the torn line */
    keeper_line(k, &first);
    add_line(k, &first);
    exits_write(k);
    return 0;
}
