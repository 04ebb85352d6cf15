/* SPDX-License-Identifier: Apache-2.0 */
#include "hadoop/rpc_client_int.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/base.h"

static void step(void *arg);
static void dial(struct rpc_client *c);
static void lost(struct rpc_client *c, const struct rpc_error *why);

/* ---- creation and end ---- */

static void disconnect(struct rpc_client *c)
{
    tcp_close(TAKE(c->tcp));
    rpc_conn_free(TAKE(c->conn));
    c->answered = false;
}

static void destroy(struct rpc_client *c)
{
    free(c->what);
    free(c->protocol);
    free(c->user);
    free(c->broken);
    token_done(&c->token);
    site_addresses_done(&c->addresses);
    free(c);
}

void rpc_client_free(struct rpc_client *c)
{
    if (!c || c->dead)
        return;
    c->dead = true;
    disconnect(c);
    loop_timer_free(TAKE(c->timer));
    while (c->calls) {
        struct rpc_call *call = c->calls;
        call_unlink(call);
        call_free(call);
    }
    if (c->depth == 0)
        destroy(c);
}

static void enter(struct rpc_client *c)
{
    c->depth++;
}

/* Call it after a callback. false: the client has been freed meanwhile. */
static bool leave(struct rpc_client *c)
{
    if (--c->depth > 0)
        return !c->dead;
    if (!c->dead && c->retiring && c->n_calls == 0)
        rpc_client_free(c); /* this frees c */
    else if (c->dead)
        destroy(c);
    else
        return true;
    return false;
}

void rpc_client_retire(struct rpc_client *c)
{
    if (!c || c->dead)
        return;
    c->retiring = true;
    if (c->n_calls == 0 && c->depth == 0)
        rpc_client_free(c);
}

static int fill(struct rpc_client *c, const struct rpc_client_options *o)
{
    c->loop = o->loop;
    c->calls_end = &c->calls;
    c->idle_ms = o->idle_ms ? o->idle_ms : RPC_IDLE_MS;
    c->retry_max_ms = o->retry_max_ms ? o->retry_max_ms : RPC_RETRY_MAX_MS;
    c->reach_ms = o->reach_ms;
    c->on_retry = o->on_retry;
    c->arg = o->arg;
    c->what = str_dup(o->what);
    c->protocol = str_dup(o->protocol);
    if (!c->what || !c->protocol || (o->user && !(c->user = str_dup(o->user))))
        return -ENOMEM;
    if (o->token && token_copy(o->token, &c->token) < 0)
        return -ENOMEM;
    c->has_token = o->token != NULL;
    c->timer = loop_timer_new(o->loop, step, c);
    if (!c->timer)
        return -ENOMEM;
    return site_addresses_copy(o->addresses, &c->addresses);
}

int rpc_client_new(const struct rpc_client_options *o, struct rpc_client **out, struct err *e)
{
    if (o->addresses->n == 0)
        return err_set(e, EINVAL, "%s: no address is configured", o->what);
    struct rpc_client *c = calloc(1, sizeof *c);
    int rc = c ? fill(c, o) : -ENOMEM;
    if (rc == 0 && getrandom(c->id, sizeof c->id, 0) != (ssize_t)sizeof c->id)
        rc = -EIO;
    if (rc < 0) {
        rpc_client_free(c);
        return err_set(e, -rc, "cannot call %s: %m", o->what);
    }
    *out = c;
    return 0;
}

size_t rpc_client_pending(const struct rpc_client *c)
{
    return c->n_calls;
}

const char *rpc_client_local(const struct rpc_client *c)
{
    return c->local[0] ? c->local : NULL;
}

const char *rpc_client_address(const struct rpc_client *c)
{
    struct rpc_client *self = (struct rpc_client *)c; /* the text is stored in c */
    const struct site_address *a = &c->addresses.v[c->address];
    (void)snprintf(self->address_text, sizeof self->address_text,
                   strchr(a->host, ':') ? "[%s]:%u" : "%s:%u", a->host, a->port);
    return c->address_text;
}

/* ---- deadlines ---- */

static void earlier(int64_t *at, int64_t other)
{
    if (other < *at)
        *at = other;
}

static bool in_flight(const struct rpc_client *c)
{
    for (const struct rpc_call *call = c->calls; call; call = call->next)
        if (call->sent)
            return true;
    return false;
}

static int64_t ends_by(const struct rpc_call *call)
{
    return call->sent ? call->deadline_ms : MIN(call->deadline_ms, call->reach_by_ms);
}

static int64_t reach_by(const struct rpc_client *c, int64_t now)
{
    return c->reach_ms ? now + c->reach_ms : INT64_MAX;
}

static void arm(struct rpc_client *c)
{
    int64_t at = INT64_MAX;
    for (const struct rpc_call *call = c->calls; call; call = call->next) {
        earlier(&at, call->too_large ? 0 : ends_by(call));
        if (!call->sent && c->conn)
            earlier(&at, call->not_before_ms);
    }
    if (c->broken)
        earlier(&at, 0);
    if (c->retry_ms && !c->tcp && c->n_calls > 0)
        earlier(&at, c->retry_ms);
    if (c->conn && c->n_calls == 0 && c->idle_ms != UINT32_MAX)
        earlier(&at, c->used_ms + c->idle_ms);
    if (c->conn && c->n_calls > 0)
        earlier(&at, c->ping_ms);
    if (at == INT64_MAX)
        loop_timer_stop(c->timer);
    else
        loop_timer_set(c->timer, at);
}

/* The next call that is marked as doomed. NULL: there is none, or a callback has freed the client.
 */
static struct rpc_call *first_doomed(const struct rpc_client *c)
{
    struct rpc_call *call = c->dead ? NULL : c->calls;
    while (call && !call->doomed)
        call = call->next;
    return call;
}

/* End the calls that are marked as doomed with the error c->doom. Calls that callbacks make
 * meanwhile are not marked. */
static void end_doomed(struct rpc_client *c)
{
    for (struct rpc_call *call; (call = first_doomed(c));)
        call_end_error(call, &c->doom);
}

/* ---- a connection ---- */

static void found_broken(struct rpc_client *c, enum rpc_fault kind, int num)
{
    if (c->broken)
        return;
    c->broken = calloc(1, sizeof *c->broken);
    if (c->broken)
        (void)rpc_error_set(c->broken, kind, num, "cannot send: %m");
}

static void flush(struct rpc_client *c)
{
    struct buf *out = rpc_conn_out(c->conn);
    if (out->len == 0)
        return;
    int rc = tcp_write(c->tcp, out->p, out->len);
    if (out->cap > 256 << 10)
        buf_done(out);
    else
        buf_clear(out);
    if (rc < 0 && rc != -EPIPE) /* on -EPIPE, on_close() follows */
        found_broken(c, RPC_FAULT_BROKEN, -rc);
}

static void send_call(struct rpc_client *c, struct rpc_call *call)
{
    struct rpc_request rq = {
        .method = call->m->name, .id = call->id, .retry = call->retry, .body = buf_span(&call->body)
    };
    int rc = rpc_conn_call(c->conn, &rq);
    if (rc < 0) {
        found_broken(c, RPC_FAULT_LOCAL, rc == -EPIPE ? EIO : -rc);
        return;
    }
    call->sent = true;
    call->not_before_ms = 0;
    call->sent_ms = c->used_ms = clock_mono_ms();
    if (c->n_calls == 1)
        c->ping_ms = call->sent_ms + RPC_PING_MS;
}

static void send_waiting(struct rpc_client *c, int64_t now)
{
    for (struct rpc_call *call = c->calls; call; call = call->next)
        if (!call->sent && !call->too_large && call->not_before_ms <= now)
            send_call(c, call);
    flush(c);
}

static void on_open(struct tcp *t, void *arg)
{
    struct rpc_client *c = arg;
    struct rpc_conn_config cfg = { .protocol = c->protocol,
                                   .user = c->user,
                                   .token = c->has_token ? &c->token : NULL };
    struct tcp_address local;
    memcpy(cfg.client_id, c->id, sizeof cfg.client_id);
    if (tcp_local(t, &local) == 0)
        (void)tcp_text(&local, false, c->local, sizeof c->local);
    c->conn = rpc_conn_new(&cfg);
    c->read_ms = c->used_ms = clock_mono_ms();
    c->ping_ms = c->read_ms + RPC_PING_MS;
    if (!c->conn)
        found_broken(c, RPC_FAULT_LOCAL, ENOMEM);
    else
        send_waiting(c, c->read_ms);
    arm(c);
}

/* The next pause between retries, with random jitter. */
static uint32_t next_pause(struct rpc_client *c)
{
    uint32_t pause = c->pause_ms ? c->pause_ms : RPC_RETRY_MIN_MS;
    uint32_t noise = 0;
    if (getrandom(&noise, sizeof noise, GRND_NONBLOCK) < 0)
        noise = 0; /* without jitter */
    pause = MIN(pause, c->retry_max_ms);
    c->pause_ms = pause * 2;
    return pause - pause / 4 + noise % (pause / 2 + 1);
}

static void refused(struct rpc_client *c, struct rpc_call *call, struct rpc_error *e)
{
    if (e->kind == RPC_FAULT_RETRIABLE && call->deadline_ms > clock_mono_ms()) {
        uint32_t pause = next_pause(c);
        log_event(LOG_INFO, "rpc.again", f_str("method", call->m->name), f_str("why", e->line),
                  f_int("next_ms", pause));
        call->sent = false;
        call->retry++;
        call->not_before_ms = clock_mono_ms() + pause;
        call->reach_by_ms = reach_by(c, call->not_before_ms);
        return;
    }
    if (e->kind == RPC_FAULT_STANDBY && c->addresses.n > 1) {
        call->sent = false;
        lost(c, e);
        return;
    }
    (void)err_wrap(&e->err, -e->err.num, "%s (%s) refused %s", c->what, rpc_client_address(c),
                   call->m->name);
    call_end_error(call, e);
}

static void take_replies(struct rpc_client *c)
{
    while (!c->dead && c->conn) {
        struct rpc_conn *conn = c->conn;
        struct rpc_reply r;
        int rc = rpc_conn_next(conn, &r);
        if (rc < 0) {
            struct rpc_error e = *rpc_conn_error(conn);
            lost(c, &e); /* the connection owns e.detail; lost() keeps it until its end */
            return;
        }
        if (rc == 0)
            return;
        c->answered = true;
        c->tries = 0;
        c->last.kind = RPC_FAULT_NONE;
        struct rpc_call *call = call_find(c, r.id);
        if (!call)
            continue; /* the call was cancelled */
        if (r.ok) {
            c->pause_ms = 0;
            call_end_answer(call, r.body);
        } else {
            refused(c, call, &r.error);
        }
    }
}

static void on_read(struct tcp *t, const char *p, size_t n, void *arg)
{
    struct rpc_client *c = arg;
    (void)t;
    if (!c->conn)
        return;
    enter(c);
    c->read_ms = c->used_ms = clock_mono_ms();
    c->ping_ms = c->read_ms + RPC_PING_MS;
    (void)rpc_conn_feed(c->conn, span_mem(p, n)); /* rpc_conn_next() reports a failure */
    take_replies(c);
    if (!c->dead && c->conn)
        flush(c);
    if (!c->dead)
        arm(c);
    (void)leave(c);
}

static void on_close(struct tcp *t, const struct err *why, void *arg)
{
    struct rpc_client *c = arg;
    struct rpc_error e;
    (void)t;
    enter(c);
    if (c->conn) {
        rpc_conn_eof(c->conn, why);
        e = *rpc_conn_error(c->conn);
    } else {
        e = (struct rpc_error){ .kind = RPC_FAULT_UNREACHABLE, .err = *why };
        if (e.err.num == 0)
            (void)err_set(&e.err, ECONNRESET, "the server closed the connection at once");
    }
    lost(c, &e);
    if (!c->dead)
        arm(c);
    (void)leave(c);
}

static const struct tcp_ops tcp_ops = { .on_open = on_open,
                                        .on_read = on_read,
                                        .on_close = on_close };

static void dial(struct rpc_client *c)
{
    const struct site_address *a = &c->addresses.v[c->address];
    struct err e = { 0 };
    c->retry_ms = 0;
    int rc = tcp_dial(c->loop, a->host, a->port, clock_mono_ms() + RPC_CONNECT_MS, &tcp_ops, c,
                      &c->tcp, &e);
    if (rc < 0)
        found_broken(c, RPC_FAULT_UNREACHABLE, -rc);
}

/* ---- lost connections and timeouts ---- */

static bool is_final(enum rpc_fault kind)
{
    return kind == RPC_FAULT_AUTH || kind == RPC_FAULT_PROTOCOL || kind == RPC_FAULT_LOCAL;
}

/* Choose the next address, and the pause before it. If the connection had given an answer,
 * reconnect to the same address at once: the server may have closed it because it was idle. */
static uint32_t choose_next(struct rpc_client *c, enum rpc_fault kind, bool had_served)
{
    if (kind == RPC_FAULT_RETRIABLE)
        return next_pause(c);
    if (kind != RPC_FAULT_STANDBY && had_served)
        return 0;
    c->address = (c->address + 1) % c->addresses.n;
    return ++c->tries % c->addresses.n == 0 ? next_pause(c) : 0;
}

/* The connection has ended, or could not be established. */
static void lost(struct rpc_client *c, const struct rpc_error *why)
{
    struct rpc_conn *conn = TAKE(c->conn); /* why->detail may point into it */
    bool ready = conn && rpc_conn_ready(conn), had_served = c->answered;
    disconnect(c);
    c->last = *why;
    client_wrap(c, &c->last);
    if (c->last.kind == RPC_FAULT_UNREACHABLE && c->addresses.n > 1) {
        AUTO(free_p) char *all = site_addresses_text(&c->addresses);
        (void)err_hint(&c->last.err, "tried: %s", all ? all : "");
    }
    c->doom = c->last;
    for (struct rpc_call *call = c->calls; call; call = call->next) {
        bool maybe = call->sent && ready && why->kind != RPC_FAULT_AUTH;
        call->doomed = is_final(why->kind) || (maybe && !call->m->idempotent);
        if (call->sent) {
            call->retry++;
            call->reach_by_ms = reach_by(c, clock_mono_ms());
        }
        call->sent = false;
        call->maybe_done = call->maybe_done || maybe;
    }
    end_doomed(c);
    if (!c->dead && c->n_calls > 0 && !c->tcp) {
        uint32_t pause = choose_next(c, why->kind, had_served);
        log_event(LOG_INFO, "rpc.retry", f_str("server", c->what), f_str("why", c->last.err.msg),
                  f_int("next_ms", pause));
        c->retry_ms = clock_mono_ms() + pause;
        if (c->on_retry)
            c->on_retry(&c->last, pause, c->arg);
    }
    c->last.detail = (struct span){ 0 };
    c->doom.detail = (struct span){ 0 };
    rpc_conn_free(conn);
}

/* The deadline of a call has passed: find out why it is not done. */
static void time_out(struct rpc_client *c, struct rpc_call *call, int64_t now)
{
    struct rpc_error e;
    bool ready = c->conn && rpc_conn_ready(c->conn);
    if (call->too_large) {
        (void)rpc_error_set(&e, RPC_FAULT_LOCAL, EMSGSIZE,
                            "cannot call %s: the request is too large", call->m->name);
    } else if (!call->sent && c->last.kind != RPC_FAULT_NONE) {
        e = c->last;
    } else {
        (void)rpc_error_set(&e, RPC_FAULT_TIMEOUT, ETIMEDOUT, "no answer to %s within %lld s%s%s",
                            call->m->name,
                            (long long)(now - (call->sent ? call->sent_ms : now) + 999) / 1000,
                            c->has_token ? ", protection " : "",
                            c->has_token && c->conn ? rpc_conn_protection(c->conn) : "");
        client_wrap(c, &e);
        e.maybe_done = call->sent && ready;
    }
    bool silent = call->sent && c->read_ms <= call->sent_ms;
    call->sent = false;
    /* The connection may be dead: other calls should use a new one. */
    if (silent && !in_flight(c)) {
        c->last = e;
        disconnect(c);
        c->address = (c->address + 1) % c->addresses.n;
        c->retry_ms = now;
    }
    call_end_error(call, &e);
}

static void end_late(struct rpc_client *c, int64_t now)
{
    for (struct rpc_call *call = c->calls; call; call = call->next)
        call->doomed = call->too_large || ends_by(call) <= now;
    for (struct rpc_call *call; (call = first_doomed(c));)
        time_out(c, call, now);
}

/* The timer has fired: do everything that is due. */
static void step(void *arg)
{
    struct rpc_client *c = arg;
    int64_t now = clock_mono_ms();
    enter(c);
    if (c->broken) {
        struct rpc_error e = *c->broken;
        free(TAKE(c->broken));
        lost(c, &e);
    }
    if (!c->dead)
        end_late(c, now);
    if (!c->dead && c->n_calls > 0 && !c->tcp && c->retry_ms <= now)
        dial(c);
    if (!c->dead && c->conn) {
        send_waiting(c, now);
        if (c->n_calls > 0 && c->ping_ms <= now) {
            c->ping_ms = now + RPC_PING_MS;
            (void)rpc_conn_ping(c->conn); /* if this fails, the next call reports it */
            flush(c);
        }
        if (c->n_calls == 0 && c->idle_ms != UINT32_MAX && c->used_ms + c->idle_ms <= now)
            disconnect(c);
    }
    if (!c->dead)
        arm(c);
    (void)leave(c);
}

/* ---- calls ---- */

struct rpc_call *rpc_client_call(struct rpc_client *c, const struct rpc_method *m,
                                 const ProtobufCMessage *request, int64_t deadline_ms,
                                 void (*done)(void), void *arg)
{
    struct rpc_call *call = call_new(c, m, request);
    if (!call)
        return NULL;
    call->deadline_ms = deadline_ms ? deadline_ms : clock_mono_ms() + RPC_ANSWER_MS;
    call->reach_by_ms = reach_by(c, clock_mono_ms());
    call->done = done;
    call->arg = arg;
    call->id = c->next_call;
    c->next_call = c->next_call == RPC_ID_MAX ? 0 : c->next_call + 1;
    call_link(c, call);
    if (c->conn && !call->too_large && !c->broken) {
        send_call(c, call);
        flush(c);
    } else if (!c->tcp && !c->retry_ms) {
        dial(c);
    }
    arm(c);
    return call;
}

void rpc_call_cancel(struct rpc_call *call)
{
    if (!call)
        return;
    struct rpc_client *c = call->client;
    call_unlink(call);
    call_free(call);
    if (c->depth > 0)
        return; /* leave() frees the client later */
    if (c->retiring && c->n_calls == 0)
        rpc_client_free(c);
    else
        arm(c);
}
