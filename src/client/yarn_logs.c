/*
 * logs of a job on YARN: live through the master, which passes the question on to the executor;
 * after the end from the NodeManagers, or from the site's log server, else a line that says where
 * they lie.
 */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/link.h"
#include "client/yarn.h"
#include "hadoop/yarn.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"
#include "storage/jobkey.h"

enum {
    PIECE = 256 << 10,
    PAGE_MAX = 64 << 20,
    LOOK_MS = 500,
    ANSWER_WAIT_MS = 30000,
};

struct logs {
    struct yarn *y;
    char id[APP_ID_MAX];
    const char *role; /* NULL = all */
    size_t role_len;
    int64_t index, attempt, lines;
    bool want[2], follow, heads;
    const char *last_task, *last_stream;
    /* live */
    struct conn *master;
    uint32_t number;
    struct yarn_join join;
    struct buf piece;
    int64_t at, size;
    int num;
    char message[480];
};

static const char *const streams[] = { "stdout", "stderr" };

static bool wanted(const struct logs *l, const json_t *task)
{
    const char *role = doc_str(task, "role");
    return !l->role || (strlen(role) == l->role_len && memcmp(role, l->role, l->role_len) == 0 &&
                        (l->index < 0 || doc_int(task, "index", -1) == l->index));
}

static int write_text(struct logs *l, const char *task, const char *stream, struct span text)
{
    if (!text.len)
        return 0;
    if (l->heads && (!str_eq(l->last_task, task) || !str_eq(l->last_stream, stream))) {
        AUTO(buf_done) struct buf head = { 0 };
        (void)buf_addf(&head, "%s==> %s %s <==\n", l->last_task ? "\n" : "", task, stream);
        (void)fs_write_all(STDOUT_FILENO, head.p, head.len); /* the text itself will fail too */
    }
    l->last_task = task;
    l->last_stream = stream;
    return fs_write_all(STDOUT_FILENO, text.p, text.len);
}

/* The last n lines of a text. */
static struct span tail(struct span text, int64_t n)
{
    size_t at = text.len;
    if (n < 0)
        return text;
    for (; at > 0 && n > 0; at--)
        if (text.p[at - 1] == '\n' && at != text.len && --n == 0)
            break;
    return span_mem(text.p + at, text.len - at);
}

/* ---- after the end ---- */

/* The NodeManager puts a head before the text and a line behind it. */
static struct span contents(struct span page)
{
    static const char head[] = "LogContents:\n", foot[] = "End of LogType:";
    const char *p = page.len ? memmem(page.p, page.len, head, sizeof head - 1) : NULL;
    if (!p)
        return page;
    p += sizeof head - 1;
    size_t len = page.len - (size_t)(p - page.p);
    const char *end = memmem(p, len, foot, sizeof foot - 1);
    for (const char *next = end; next;) { /* the last one */
        end = next;
        next = memmem(next + 1, len - (size_t)(next + 1 - p), foot, sizeof foot - 1);
    }
    return span_mem(p, end ? (size_t)(end - p) : len);
}

/* http://<node>/node/containerlogs/<container>/<user> -> the page of one file. */
static char *page_url(const char *log_url, const char *stream)
{
    const char *host = str_starts(log_url, "http://") ? log_url + strlen("http://") : NULL;
    const char *slash = host ? strchr(host, '/') : NULL;
    const char *id = slash ? strstr(slash, "/containerlogs/") : NULL;
    if (!id)
        return NULL;
    id += strlen("/containerlogs/");
    return str_printf("http://%.*s/ws/v1/node/containers/%.*s/logs/%s", (int)(slash - host), host,
                      (int)strcspn(id, "/"), id, stream);
}

static char *server_url(struct yarn *y, const char *container, const char *stream)
{
    const char *base = site_get(y->site, "yarn.log.server.web-service.url");
    return base && *container ? str_printf("%s/containers/%s/logs/%s", base, container, stream)
                              : NULL;
}

static bool fetch(struct logs *l, const char *url, struct buf *out)
{
    int status = 0;
    struct err e = { 0 };
    return url && yarn_get(l->y, url, PAGE_MAX, out, &status, &e) == 0 && status == 200;
}

static int show_page(struct logs *l, const json_t *task, const char *stream)
{
    const char *name = doc_str(task, "task"), *where = doc_str(task, "log_url");
    AUTO(buf_done) struct buf page = { .max = PAGE_MAX + 1 };
    AUTO(free_p) char *node = page_url(where, stream);
    AUTO(free_p) char *server = server_url(l->y, doc_str(task, "container"), stream);
    if (!where[0])
        return 0; /* it never had a container */
    bool ok = fetch(l, node, &page);
    if (!ok) {
        buf_clear(&page);
        ok = fetch(l, server, &page);
    }
    if (!ok) {
        client_note("the %s of %s is not to be had from the node any more; it lay at %s/%s", stream,
                    name, where, stream);
        return 0;
    }
    return write_text(l, name, stream, tail(contents(buf_span(&page)), l->lines));
}

/* ---- live ---- */

static void on_frame(struct conn *conn, const Tony__Frame *f, void *arg)
{
    struct logs *l = arg;
    (void)conn;
    if (f->body_case != TONY__FRAME__BODY_LOG_DATA || f->log_data->number != l->number ||
        !l->join.n)
        return;
    const Tony__LogData *d = f->log_data;
    buf_clear(&l->piece);
    l->num = (int)d->num;
    (void)str_copy(l->message, sizeof l->message, d->message);
    l->at = d->offset;
    l->size = d->size;
    if (buf_add(&l->piece, d->data.data, d->data.len) < 0)
        l->num = ENOMEM;
    yarn_join_end(&l->join, NULL);
}

static void on_close(struct conn *conn, const struct err *why, void *arg)
{
    struct logs *l = arg;
    (void)conn;
    l->master = NULL;
    if (l->join.n)
        yarn_join_end(&l->join, why);
}

static void late(void *arg)
{
    struct logs *l = arg;
    struct err e = { 0 };
    (void)err_set(&e, ETIMEDOUT, "the master does not answer");
    if (l->join.n)
        yarn_join_end(&l->join, &e);
}

static const struct conn_ops ops = { .on_frame = on_frame, .on_close = on_close };

static int read_piece(struct logs *l, uint32_t slot, const char *stream, int64_t offset)
{
    Tony__ReadLog ask = TONY__READ_LOG__INIT;
    ask.number = ++l->number;
    ask.slot = slot;
    ask.attempt = (uint32_t)l->attempt;
    ask.stream = (char *)(uintptr_t)stream;
    ask.offset = offset;
    ask.max = PIECE;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_READ_LOG;
    f.read_log = &ask;
    if (!l->master)
        return -ECONNRESET;
    int rc = conn_send(l->master, &f);
    if (rc < 0)
        return rc;
    struct loop_timer *t = loop_timer_new(l->y->loop, late, l);
    if (!t)
        return -ENOMEM;
    loop_timer_set(t, clock_mono_ms() + ANSWER_WAIT_MS);
    l->join = (struct yarn_join){ .loop = l->y->loop, .n = 1 };
    yarn_join_wait(&l->join);
    loop_timer_free(t);
    return l->join.e.num ? -l->join.e.num : l->master ? 0 : -ECONNRESET;
}

/* From *at to the file's present end. 1: the executor is gone, the node has it. */
static int copy_rest(struct logs *l, const char *task, uint32_t slot, const char *stream,
                     int64_t *at)
{
    for (bool first = true;; first = false) {
        bool from_end = first && *at < 0;
        int rc = read_piece(l, slot, stream, from_end ? -(int64_t)PIECE : *at);
        if (rc < 0)
            return rc;
        if (l->num) {
            if (*at < 0)
                *at = 0;
            return l->num == ESTALE ? 1 : 0; /* not there yet, or never */
        }
        struct span text = from_end ? tail(buf_span(&l->piece), l->lines) : buf_span(&l->piece);
        if ((rc = write_text(l, task, stream, text)) < 0)
            return rc;
        *at = l->at + (int64_t)l->piece.len;
        if (*at >= l->size || l->piece.len == 0)
            return 0;
    }
}

static int connect_master(struct logs *l, const struct yarn_report *r, struct err *e)
{
    struct tls_key key = { .len = 0 };
    int rc = yarn_client_key(l->y, l->id, &key, e);
    if (rc < 0)
        return rc;
    const struct conn_target to = { .host = r->host,
                                    .port = (uint16_t)r->rpc_port,
                                    .identity = JOB_KEY_CLIENT,
                                    .key = &key,
                                    .deadline_ms = yarn_deadline(l->y) };
    rc = conn_dial_tls(l->y->loop, &to, &ops, l, &l->master, e);
    job_key_wipe(&key, sizeof key);
    return rc < 0 ? rc : link_hello(l->y->c, l->master);
}

static void pause_over(void *arg)
{
    struct yarn_join *j = arg;
    yarn_join_end(j, NULL);
}

static void pause_a_bit(struct logs *l)
{
    struct yarn_join j = { .loop = l->y->loop, .n = 1 };
    struct loop_timer *t = loop_timer_new(l->y->loop, pause_over, &j);
    if (!t)
        return;
    loop_timer_set(t, clock_mono_ms() + LOOK_MS);
    yarn_join_wait(&j);
    loop_timer_free(t);
}

static bool is_over(const json_t *doc)
{
    return json_is_integer(json_object_get(doc, "exit_code"));
}

/* All wanted tasks have ended, as the document has it. */
static bool all_ended(const struct logs *l, const json_t *doc)
{
    bool ended = true;
    size_t i;
    json_t *task;
    json_array_foreach(json_object_get(doc, "tasks"), i, task) if (wanted(l, task)) ended =
        ended && str_eq(doc_str(task, "state"), "ended");
    return ended || is_over(doc);
}

/* One round over all wanted files; at: a position for each task and stream, -1 at first with -n. */
static int show_round(struct logs *l, const json_t *doc, int64_t *at)
{
    size_t i;
    json_t *task;
    json_array_foreach(json_object_get(doc, "tasks"), i, task)
    {
        for (size_t s = 0; s < ARRAY_LEN(streams); s++) {
            int64_t *pos = &at[2 * i + s];
            if (!wanted(l, task) || !l->want[s])
                continue;
            int rc =
                l->master ? copy_rest(l, doc_str(task, "task"), (uint32_t)i, streams[s], pos) : 1;
            if (rc == 1 && *pos <= 0)
                rc = show_page(l, task, streams[s]);
            if (rc < 0 && rc != -ECONNRESET)
                return rc;
        }
    }
    return 0;
}

static int show(struct logs *l, json_t **doc, const struct yarn_report *r, struct err *e)
{
    size_t n = json_array_size(json_object_get(*doc, "tasks")), n_wanted = 0, i;
    json_t *task;
    json_array_foreach(json_object_get(*doc, "tasks"), i, task) n_wanted += wanted(l, task);
    if (n_wanted == 0) {
        (void)err_set(e, ENOENT, "job '%s' has no such task", l->id);
        err_hint(e, "tony tasks %s lists them", l->id);
        return -EXIT_MISUSE;
    }
    l->heads = n_wanted > 1 || (l->want[0] && l->want[1]);
    AUTO(free_p) int64_t *at = calloc(2 * n + 1, sizeof *at);
    if (!at) {
        (void)err_set(e, ENOMEM, "cannot show the logs: %m");
        return -EXIT_CLUSTER;
    }
    for (size_t k = 0; l->lines >= 0 && k < 2 * n; k++)
        at[k] = -1;
    bool live = !is_over(*doc) && r->state == HADOOP__YARN_APPLICATION_STATE__RUNNING;
    if (live && connect_master(l, r, e) < 0)
        return -EXIT_CLUSTER;
    for (;;) {
        bool last = !l->follow || !live || all_ended(l, *doc) || !l->master;
        int rc = show_round(l, *doc, at);
        if (rc < 0) {
            (void)err_set(e, -rc, "cannot show the logs: %m");
            return -EXIT_CLUSTER;
        }
        if (last)
            return 0;
        pause_a_bit(l);
        json_t *now = NULL;
        struct err unread = { 0 };
        if (yarn_status(l->y, l->id, &now, &unread) == 0 &&
            json_array_size(json_object_get(now, "tasks")) == n) {
            l->last_task = NULL; /* it points into the old one */
            json_decref(*doc);
            *doc = now;
        } else {
            json_decref(now);
        }
    }
}

static int set_up(struct logs *l, const char *word, struct err *e)
{
    struct client *c = l->y->c;
    l->want[0] = options_has(&c->o, OPT_STDOUT) || !options_has(&c->o, OPT_STDERR);
    l->want[1] = options_has(&c->o, OPT_STDERR) || !options_has(&c->o, OPT_STDOUT);
    l->follow = options_has(&c->o, OPT_FOLLOW);
    if (options_int(&c->o, OPT_N, 0, INT32_MAX, -1, &l->lines, e) < 0 ||
        options_int(&c->o, OPT_ATTEMPT, 1, UINT32_MAX, 0, &l->attempt, e) < 0)
        return -EXIT_MISUSE;
    l->index = -1;
    if (c->o.n_args > 1) {
        const char *colon = strrchr(c->o.args[1], ':');
        l->role = c->o.args[1];
        l->role_len = colon ? (size_t)(colon - l->role) : strlen(l->role);
        if (colon && str_i64(span_of(colon + 1), 0, UINT32_MAX, "task index", &l->index, e) < 0)
            return -EXIT_MISUSE;
    }
    return yarn_find(l->y, word, l->id, e);
}

int yarn_cmd_logs(struct client *c, const char *word)
{
    struct err e = { 0 };
    AUTO(yarn_freep) struct yarn *y = NULL;
    struct logs l = { 0 };
    struct yarn_report r = { 0 };
    json_t *doc = NULL;
    int rc = yarn_open(c, NULL, &y, &e);
    l.y = y;
    if (rc == 0)
        rc = set_up(&l, word, &e);
    if (rc == 0)
        rc = yarn_status(y, l.id, &doc, &e);
    struct err unread = { 0 };
    if (rc == 0)
        (void)yarn_report(y, l.id, &r, &unread); /* forgotten: then it is over */
    if (rc == 0)
        rc = show(&l, &doc, &r, &e);
    conn_close(l.master);
    buf_done(&l.piece);
    yarn_report_done(&r);
    json_decref(doc);
    return rc < 0 ? client_fail(-rc, &e) : EXIT_DONE;
}
