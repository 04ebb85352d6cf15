/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams between clients and tasks (docs/streams.md, decision 0022).
 *
 * 1. A client sends OpenStream on a connection of its own.
 * 2. The master makes a key for one use, and asks the executor of the task to connect (DialStream).
 * 3. A process of the executor connects and shows the key (StreamHello).
 * 4. The master copies the bytes of each connection to the other until one of them ends.
 *
 * A stream is in no journal. A new master knows none of the streams of the old one: both ends of
 * each have lost their connection, and end.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "master/master_int.h"
#include "proto/tony.pb-c.h"

enum {
    STREAMS_MAX = 256,         /* of the job; each takes up to 640 KiB, and 72 KiB more with TLS */
    STREAMS_PER_TASK_MAX = 32, /* as in executor/streams.h */
    DIAL_MS = 15000,           /* for the executor to connect */
    KEY_BYTES = 32,
};

#define MUTABLE(p) ((char *)(uintptr_t)(p))

struct stream {
    struct master *m;
    uint32_t id, slot;
    unsigned char key[KEY_BYTES];
    struct conn *client;   /* until the splice has it */
    struct splice *splice; /* NULL = the executor has not connected yet */
    struct loop_timer *timer;
    struct stream *next;
};

static void stream_free(struct stream *s)
{
    struct master *m = s->m;
    for (struct stream **at = &m->streams; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            m->n_streams--;
            break;
        }
    explicit_bzero(s->key, sizeof s->key);
    loop_timer_free(s->timer);
    free(s);
}

void streams_close(struct master *m)
{
    while (m->streams) {
        struct stream *s = m->streams;
        conn_close(s->client);
        splice_close(s->splice);
        stream_free(s);
    }
}

/* Send Refused to a client, and close its connection. Takes conn. */
static void refuse_conn(struct conn *conn, const struct err *e)
{
    Tony__Refused r = TONY__REFUSED__INIT;
    r.num = (uint32_t)(e->num ? e->num : EIO);
    r.message = MUTABLE(e->msg);
    r.hint = MUTABLE(e->hint);
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_REFUSED;
    f.refused = &r;
    (void)conn_send(conn, &f); /* an error does not matter: the connection ends anyway */
    conn_finish(conn);
}

static void give_up(struct stream *s, const struct err *e)
{
    log_err(LOG_INFO, "stream.failed", e);
    refuse_conn(TAKE(s->client), e);
    stream_free(s);
}

static void on_late(void *arg)
{
    struct err e = { 0 };
    (void)err_set(&e, ETIMEDOUT, "the executor of the task did not connect within %d s",
                  DIAL_MS / 1000);
    give_up(arg, &e);
}

/* ---- opening: the client's side ---- */

/* Find the task that `name` means: "worker:3", or "worker" if the role has only one task. */
static int find_slot(const struct master *m, const char *name, uint32_t *out, struct err *e)
{
    const char *colon = strrchr(name, ':');
    size_t len = colon ? (size_t)(colon - name) : strlen(name);
    int64_t index = -1;
    uint32_t found = 0;
    if (colon && str_i64(span_of(colon + 1), 0, UINT32_MAX, "task index", &index, e) < 0)
        return -ENOENT;
    for (uint32_t i = 0; i < job_n_slots(m->job); i++) {
        struct slot_view v;
        job_slot(m->job, i, &v);
        if (v.spare || v.state == SLOT_ABSENT || strlen(v.role) != len ||
            memcmp(v.role, name, len) != 0 || (colon && v.index != index))
            continue;
        found++;
        *out = i;
    }
    if (found == 0)
        return err_set(e, ENOENT, "the job has no task '%.64s'", name);
    if (found > 1)
        return err_set(e, ENOENT, "role '%.64s' has %u tasks: name one, such as %.64s:0", name,
                       found, name);
    return 0;
}

static unsigned n_streams_of(const struct master *m, uint32_t slot)
{
    unsigned n = 0;
    for (const struct stream *s = m->streams; s; s = s->next)
        n += s->slot == slot;
    return n;
}

/* May a task in this state run later? Then the client asks again. */
static bool is_before_a_run(enum slot_state state)
{
    return state >= SLOT_HELD && state < SLOT_LEAVING;
}

static int check(const struct master *m, const Tony__OpenStream *o, uint32_t *out_slot,
                 struct err *e)
{
    struct slot_view v;
    if (m->phase == MP_STARTING)
        return err_set(e, EAGAIN, "the job's master is starting; try again");
    if (m->phase != MP_RUNNING)
        return err_set(e, ESTALE, "the job is over");
    if (!m->spec->streams)
        return err_set(e, EACCES, "exec, forward and cp are switched off (tony.task.streams)");
    int rc = find_slot(m, o->task, out_slot, e);
    if (rc < 0)
        return rc;
    job_slot(m->job, *out_slot, &v);
    if (v.state != SLOT_RUNNING || !m->executors[*out_slot])
        return err_set(e, is_before_a_run(v.state) ? EAGAIN : ENOENT,
                       "task '%s:%u' is not running now; it is %s", v.role, v.index,
                       v.state == SLOT_RUNNING ? "not connected" : slot_state_name(v.state));
    if (m->n_streams >= STREAMS_MAX || n_streams_of(m, *out_slot) >= STREAMS_PER_TASK_MAX)
        return err_set(e, EBUSY, "too many streams are open; a task can have %d, a job %d",
                       STREAMS_PER_TASK_MAX, STREAMS_MAX);
    return 0;
}

static int send_dial(struct stream *s)
{
    Tony__DialStream d = TONY__DIAL_STREAM__INIT;
    d.id = s->id;
    d.key.data = s->key;
    d.key.len = sizeof s->key;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_DIAL_STREAM;
    f.dial_stream = &d;
    return conn_send(s->m->executors[s->slot]->conn, &f);
}

static int open_stream(struct master *m, struct conn *client, uint32_t slot, struct err *e)
{
    struct stream *s = calloc(1, sizeof *s);
    if (s) {
        *s = (struct stream){ .m = m, .slot = slot, .client = client };
        s->timer = loop_timer_new(m->loop, on_late, s);
    }
    if (!s || !s->timer || getrandom(s->key, sizeof s->key, 0) != (ssize_t)sizeof s->key) {
        if (s)
            loop_timer_free(s->timer);
        free(s);
        return err_set(e, ENOMEM, "no memory to open a stream");
    }
    s->id = ++m->last_stream;
    s->next = m->streams;
    m->streams = s;
    m->n_streams++;
    loop_timer_set(s->timer, clock_mono_ms() + DIAL_MS);
    if (send_dial(s) < 0) {
        stream_free(s);
        return err_set(e, EAGAIN, "the executor of the task is not connected");
    }
    return 0;
}

static const struct conn_ops waiting_ops = { 0 };

void streams_open(struct peer *p, const Tony__OpenStream *o)
{
    struct master *m = p->m;
    struct err e = { 0 };
    uint32_t slot = UINT32_MAX;
    log_event(LOG_INFO, "client.stream", f_str("who", o->who), f_str("what", o->what),
              f_str("task", o->task));
    int rc = check(m, o, &slot, &e);
    struct conn *conn = peer_detach(p);
    conn_set_arg(conn, &waiting_ops, NULL); /* not read until the other side is there */
    if (rc == 0)
        rc = open_stream(m, conn, slot, &e);
    if (rc < 0) {
        log_err(LOG_INFO, "stream.refused", &e);
        refuse_conn(conn, &e);
    }
}

/* ---- opening: the executor's side ---- */

/* Compare in a time that does not depend on the content. */
static bool is_key(const struct stream *s, const ProtobufCBinaryData *key)
{
    unsigned char differ = 0;
    if (key->len != sizeof s->key)
        return false;
    for (size_t i = 0; i < sizeof s->key; i++)
        differ |= (unsigned char)(s->key[i] ^ key->data[i]);
    return differ == 0;
}

static struct stream *find_stream(const struct master *m, const Tony__StreamHello *h)
{
    struct slot_view v;
    for (struct stream *s = m->streams; s; s = s->next) {
        if (s->id != h->id || s->splice)
            continue;
        job_slot(m->job, s->slot, &v);
        return is_key(s, &h->key) && v.container && str_eq(v.container, h->container_id) ? s : NULL;
    }
    return NULL;
}

static void on_splice_done(struct splice *splice, void *arg)
{
    struct stream *s = arg;
    uint64_t in = 0, out = 0;
    splice_count(splice, &in, &out);
    log_event(LOG_INFO, "stream.ended", f_int("id", s->id), f_int("in", (int64_t)in),
              f_int("out", (int64_t)out));
    s->splice = NULL;
    stream_free(s);
}

static int say_opened(struct stream *s)
{
    struct slot_view v;
    char task[300];
    job_slot(s->m->job, s->slot, &v);
    (void)snprintf(task, sizeof task, "%s:%u", v.role, v.index);
    Tony__StreamOpened o = TONY__STREAM_OPENED__INIT;
    o.id = s->id;
    o.task = task;
    o.attempt = v.attempt;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_STREAM_OPENED;
    f.stream_opened = &o;
    return conn_send(s->client, &f);
}

void streams_hello(struct peer *p, const Tony__StreamHello *h)
{
    struct master *m = p->m;
    struct stream *s = m->phase == MP_RUNNING && h->version == TONY__VERSION__PROTOCOL_VERSION
                           ? find_stream(m, h)
                           : NULL;
    if (!s) {
        log_event(LOG_WARN, "stream.unknown", f_int("id", h->id),
                  f_str("container", h->container_id));
        peer_refuse(p, EACCES, "the master does not wait for this stream");
        return;
    }
    explicit_bzero(s->key, sizeof s->key); /* it is for one use */
    loop_timer_stop(s->timer);
    struct conn *task = peer_detach(p), *client = TAKE(s->client);
    s->client = client;
    int rc = say_opened(s);
    s->client = NULL;
    if (rc < 0) { /* the client has disconnected */
        conn_close(client);
        conn_close(task);
        stream_free(s);
        return;
    }
    s->splice = splice_new(m->loop, client, task, on_splice_done, s);
    if (!s->splice)
        stream_free(s);
}

void streams_refused(struct master *m, uint32_t slot, const Tony__StreamRefused *r)
{
    struct err e = { 0 };
    for (struct stream *s = m->streams; s; s = s->next)
        if (s->id == r->id && s->slot == slot && !s->splice) {
            (void)err_set(&e, r->num > 0 && r->num < 4096 ? (int)r->num : EIO, "%s", r->message);
            give_up(s, &e);
            return;
        }
}
