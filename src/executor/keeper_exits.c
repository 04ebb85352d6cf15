/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file `exits`: JSON lines, which the keeper appends before it reports an exit. A new keeper
 * reads it to learn what happened before:
 *
 *   {"keeper":1,"pid":17,"wall_ms":1}   a keeper has started; its containers have this number
 *   {"master":1,"wall_ms":1}            a master was started with this epoch
 *   {"master_exit":1,"code":0,"signal":9,"wall_ms":1}
 *   {"container":"container_..","slot":3,"code":0,"signal":0,"reason":"exited","detail":"","wall_ms":1,"mono_us":1}
 *
 * A torn last line, after a crash of the machine in mid-write, is ignored. The file is not synced
 * to disk: if only the keeper dies, all written bytes are safe. If the machine crashes, no process
 * of the job is alive.
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
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "executor/keeper_int.h"

enum { UNWRITTEN_MAX = 4 << 20 };

/* Lines that cannot be written, because the disk is full, are kept in memory and written later. The
 * keeper reports the exit to the master all the same. If the keeper dies meanwhile, the next one
 * lacks them. */
void exits_retry(struct keeper *k)
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
        buf_consume(b, (size_t)n); /* after a partial write, the rest of the line follows */
    }
    if (k->exits_failed)
        log_event(LOG_INFO, "keeper.exits_written");
    k->exits_failed = false;
}

static void add_line(struct keeper *k, struct buf *line)
{
    buf_addc(line, '\n');
    k->unwritten.max = UNWRITTEN_MAX;
    if (line->failed || buf_add(&k->unwritten, line->p, line->len) < 0)
        log_event(LOG_ERROR, "keeper.exit_forgotten");
    buf_done(line);
    exits_retry(k);
}

static void add_text(struct buf *line, const char *s)
{
    buf_addc(line, '"');
    for (; s && *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == '"' || *s == '\\')
            buf_addf(line, "\\u%04x", (unsigned)(unsigned char)*s);
        else
            buf_addc(line, *s);
    }
    buf_addc(line, '"');
}

void exits_add_container(struct keeper *k, const struct container *c)
{
    struct buf line = { 0 };
    buf_addf(
        &line,
        "{\"container\":\"%s\",\"slot\":%u,\"code\":%d,\"signal\":%d,\"reason\":\"%s\",\"detail\":",
        c->id, c->slot, c->exit_code, c->signal, end_reason_name(c->reason));
    add_text(&line, c->detail);
    int64_t age_ms = (clock_mono_us() - c->ended_us) / 1000;
    buf_addf(&line, ",\"wall_ms\":%lld,\"mono_us\":%lld}", (long long)(clock_wall_ms() - age_ms),
             (long long)c->ended_us);
    add_line(k, &line);
}

void exits_add_master(struct keeper *k)
{
    struct buf line = { 0 };
    buf_addf(&line, "{\"master\":%u,\"wall_ms\":%lld}", k->epoch, (long long)clock_wall_ms());
    add_line(k, &line);
}

void exits_add_master_exit(struct keeper *k, int status)
{
    struct buf line = { 0 };
    buf_addf(&line, "{\"master_exit\":%u,\"code\":%d,\"signal\":%d,\"wall_ms\":%lld}", k->epoch,
             WIFEXITED(status) ? WEXITSTATUS(status) : 0,
             WIFSIGNALED(status) ? WTERMSIG(status) : 0, (long long)clock_wall_ms());
    add_line(k, &line);
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static int64_t number_of(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static int add_old(struct keeper *k, const json_t *o)
{
    struct container *c = container_new(k);
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
    return vec_push(&k->old, c);
}

static int read_line(struct keeper *k, struct span line)
{
    json_t *o = json_loadb(line.p, line.len, JSON_REJECT_DUPLICATES, NULL);
    if (!o)
        return 0;
    int rc = 0;
    if (json_object_get(o, "container"))
        rc = add_old(k, o);
    else if (json_object_get(o, "keeper"))
        k->life = MAX(k->life, (uint32_t)number_of(o, "keeper"));
    else if (json_object_get(o, "master"))
        k->epoch = MAX(k->epoch, (uint32_t)number_of(o, "master"));
    json_decref(o);
    return rc;
}

int exits_open(struct keeper *k, struct err *e)
{
    AUTO(free_p) char *path = str_printf("%s/exits", k->job_dir);
    AUTO(buf_done) struct buf text = { 0 };
    if (!path)
        return err_set(e, ENOMEM, "cannot open the file of exits: %m");
    int rc = fs_read(AT_FDCWD, path, &text, e);
    if (rc < 0 && rc != -ENOENT)
        return rc;
    struct span rest = buf_span(&text), line;
    while (text.len > 0 && span_split(&rest, '\n', &line))
        if (read_line(k, line) < 0)
            return err_set(e, ENOMEM, "cannot read '%s': %m", path);
    k->life++;
    k->exits_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (k->exits_fd == -1)
        return err_set(e, errno, "cannot open '%s': %m", path);
    struct buf first = { 0 };
    if (text.len > 0 && text.p[text.len - 1] != '\n')
        buf_addc(&first, '\n'); /* end a torn line */
    buf_addf(&first, "{\"keeper\":%u,\"pid\":%d,\"wall_ms\":%lld}", k->life, (int)getpid(),
             (long long)clock_wall_ms());
    add_line(k, &first);
    return 0;
}
