/* SPDX-License-Identifier: Apache-2.0 */
/* libtony: see tony.h. The work is done by the client's and the clusters' code. */
#include "libtony/tony.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/job/jobconf.h"
#include "client/monitor/series.h"
#include "codec/json.h"
#include "conf/conf.h"

_Static_assert((int)TONY_ID_SIZE >= (int)APP_ID_MAX, "an id must fit");
_Static_assert((int)TONY_EMISUSE == (int)EXIT_MISUSE && (int)TONY_ECLUSTER == (int)EXIT_CLUSTER,
               "the codes are those of the program");

struct tony {
    struct client c;
    void (*note)(const char *sentence, void *arg);
    void *note_arg;
};

/* ---- sessions ---- */

static int give(struct tony_error *to, int code, const struct err *e)
{
    if (to) {
        to->code = code;
        (void)str_copy(to->message, sizeof to->message, e->msg);
        (void)str_copy(to->hint, sizeof to->hint, e->hint);
    }
    return -code;
}

static int no_memory(struct tony_error *to)
{
    struct err e = { 0 };
    (void)err_set(&e, ENOMEM, "libtony has no memory left");
    return give(to, TONY_ECLUSTER, &e);
}

static void on_note(const char *text, void *arg)
{
    struct tony *t = arg;
    if (t->note)
        t->note(text, t->note_arg);
}

const char *tony_version(void)
{
    return TONY_VERSION;
}

struct tony *tony_open(struct tony_error *e)
{
    struct tony *t = calloc(1, sizeof *t);
    if (!t) {
        (void)no_memory(e);
        return NULL;
    }
    t->c.cmd = command_find("submit");
    t->c.host = (struct cluster_host){
        .version = TONY_VERSION, .program = "libtony", .note = on_note, .arg = t
    };
    return t;
}

void tony_close(struct tony *t)
{
    if (!t)
        return;
    cluster_ops_close(t->c.cluster);
    conf_free(t->c.site);
    host_done(&t->c.host);
    free(t);
}

void tony_free(char *text)
{
    free(text);
}

void tony_on_note(struct tony *t, void (*fn)(const char *sentence, void *arg), void *arg)
{
    t->note = fn;
    t->note_arg = arg;
}

/* Find a job and its cluster. */
static int find(struct tony *t, const char *job, struct cluster **out, char id[APP_ID_MAX],
                struct tony_error *to)
{
    struct err e = { 0 };
    int rc = client_find(&t->c, job, out, id, &e);
    return rc < 0 ? give(to, -rc, &e) : 0;
}

/* Give the text of a document to the caller. Takes doc. */
static int give_document(json_t *doc, char **out, struct tony_error *to)
{
    char *text = doc && out ? json_dumps(doc, JSON_COMPACT) : NULL;
    bool failed = !doc || (out && !text);
    json_decref(doc);
    if (out)
        *out = text;
    return failed ? no_memory(to) : 0;
}

/* The code for an error of a function that returns -errno. */
static int code_of(int rc)
{
    return rc == -ENOENT || rc == -EINVAL ? TONY_EMISUSE : TONY_ECLUSTER;
}

/* ---- submit ---- */

static int parse_words(struct tony *t, const char *job_file, const char *const *options,
                       struct err *e)
{
    size_t n = 0;
    while (options && options[n])
        n++;
    AUTO(free_p) char **words = calloc(n + 2, sizeof *words);
    if (!words)
        return err_set(e, ENOMEM, "no memory to submit the job");
    int argc = 0;
    if (job_file)
        words[argc++] = (char *)(uintptr_t)job_file;
    for (size_t i = 0; i < n; i++)
        words[argc++] = (char *)(uintptr_t)options[i];
    int rc = options_parse(argc, words, t->c.cmd->options, &t->c.o, e);
    if (rc == 0 && t->c.o.n_before > 1)
        rc = err_set(e, EINVAL, "a job has one job file, and '%s' is another", t->c.o.args[1]);
    return rc;
}

int tony_submit(struct tony *t, const char *job_file, const char *const *options,
                char id[TONY_ID_SIZE], struct tony_error *to)
{
    struct err e = { 0 };
    struct cluster_job j = { 0 };
    struct cluster *k = NULL;
    struct cluster_submitted s = { .id = "" };
    int code = parse_words(t, job_file, options, &e) < 0 ? TONY_EMISUSE : 0;
    bool loaded = false;
    if (code == 0 && client_job_load(&t->c, &j, &e) < 0)
        code = e.num == ENOMEM ? TONY_ECLUSTER : TONY_EMISUSE;
    else if (code == 0)
        loaded = true;
    if (loaded)
        code = -client_submit(&t->c, &j, false, &k, &s, &e);
    if (code == 0)
        (void)str_copy(id, TONY_ID_SIZE, s.id);
    cluster_submitted_done(&s);
    cluster_ops_close(TAKE(t->c.cluster)); /* it uses the configuration of the job */
    if (loaded)
        client_job_done(&j);
    options_done(&t->c.o);
    t->c.o = (struct options){ 0 };
    return code ? give(to, code, &e) : 0;
}

/* ---- status and wait ---- */

int tony_status(struct tony *t, const char *job, char **out, struct tony_error *to)
{
    struct cluster *k = NULL;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    json_t *doc = NULL;
    int rc = find(t, job, &k, id, to);
    if (rc < 0)
        return rc;
    rc = cluster_ops_of(k)->status(k, id, &doc, &e);
    return rc < 0 ? give(to, -rc, &e) : give_document(doc, out, to);
}

int tony_wait(struct tony *t, const char *job, int *out_code, char **out, struct tony_error *to)
{
    struct cluster *k = NULL;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    const struct follow_options o = { 0 };
    struct follow_result r = { 0 };
    int rc = find(t, job, &k, id, to);
    if (rc < 0)
        return rc;
    rc = cluster_follow(k, id, &o, &r, &e);
    if (rc < 0)
        return give(to, -rc, &e);
    *out_code = r.exit_code;
    json_t *doc = NULL;
    if (cluster_ops_of(k)->status(k, id, &doc, &e) < 0)
        doc = json_incref(r.summary);
    const char *state = json_str(r.summary, "state", "");
    if (r.finished)
        cluster_settle(k, id, state, str_eq(state, "KILLED"));
    follow_result_done(&r);
    return give_document(doc, out, to);
}

/* ---- events ---- */

struct telling {
    tony_event_fn *fn;
    void *arg;
    bool ended; /* the caller's function has returned another number than 0 */
};

static int tell(const json_t *event, void *arg)
{
    struct telling *to = arg;
    AUTO(free_p) char *text = json_dumps(event, JSON_COMPACT);
    if (!text)
        return -ENOMEM;
    to->ended = to->fn(text, strlen(text), to->arg) != 0;
    return to->ended ? -ECANCELED : 0;
}

int tony_events(struct tony *t, const char *job, int follow, tony_event_fn *fn, void *arg,
                struct tony_error *to)
{
    struct cluster *k = NULL;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    struct telling telling = { fn, arg, false };
    int rc = find(t, job, &k, id, to);
    if (rc < 0)
        return rc;
    rc = cluster_events(k, id, follow != 0, tell, &telling, &e);
    return rc < 0 && !telling.ended ? give(to, code_of(rc), &e) : 0;
}

struct writer {
    char *job;
    int fd;
};

static int write_line(const char *event, size_t len, void *arg)
{
    const struct writer *w = arg;
    AUTO(free_p) char *line = str_printf("%.*s\n", (int)len, event);
    return line ? fs_write_all(w->fd, line, len + 1) : -ENOMEM;
}

static void write_error(struct writer *w, const struct tony_error *e)
{
    AUTO(json_freep)
    json_t *doc =
        json_pack("{s:s, s:i, s:s}", "event", "error", "code", e->code, "message", e->message);
    AUTO(free_p) char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    if (text)
        (void)write_line(text, strlen(text), w); /* if this fails, the program has closed its end */
}

static void *write_events(void *arg)
{
    struct writer *w = arg;
    struct tony_error e = { 0 };
    struct tony *t = tony_open(&e);
    if (!t || tony_events(t, w->job, 1, write_line, w, &e) < 0)
        write_error(w, &e);
    tony_close(t);
    (void)close(w->fd);
    free(w->job);
    free(w);
    return NULL;
}

int tony_events_fd(const char *job, int *out_fd, struct tony_error *to)
{
    int fds[2];
    pthread_t thread;
    struct err e = { 0 };
    struct writer *w = calloc(1, sizeof *w);
    if (!w || !(w->job = str_dup(job)) || pipe2(fds, O_CLOEXEC) == -1) {
        (void)err_set(&e, errno, "cannot follow the job: %m");
        if (w)
            free(w->job);
        free(w);
        return give(to, TONY_ECLUSTER, &e);
    }
    w->fd = fds[1];
    /* The thread gets no signal of the program, and no SIGPIPE when the program closes the pipe. */
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int num = pthread_create(&thread, NULL, write_events, w);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (num) {
        (void)close(fds[0]);
        (void)close(fds[1]);
        free(w->job);
        free(w);
        (void)err_set(&e, num, "cannot start a thread: %m");
        return give(to, TONY_ECLUSTER, &e);
    }
    (void)pthread_detach(thread);
    *out_fd = fds[0];
    return 0;
}

/* ---- logs and metrics ---- */

struct logging {
    tony_log_fn *fn;
    void *arg;
    bool ended;
};

static int tell_log(const struct cluster_log_text *t, void *arg)
{
    struct logging *to = arg;
    to->ended = to->fn(t->task, t->stream, t->text.p, t->text.len, to->arg) != 0;
    return to->ended ? -ECANCELED : 0;
}

int tony_logs(struct tony *t, const char *job, const char *task, int streams, int64_t lines,
              int follow, tony_log_fn *fn, void *arg, struct tony_error *to)
{
    struct cluster *k = NULL;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    struct logging logging = { fn, arg, false };
    const char *colon = task ? strrchr(task, ':') : NULL;
    struct cluster_log_choice one = {
        .role = task,
        .role_len = colon  ? (size_t)(colon - task)
                    : task ? strlen(task)
                           : 0,
        .index = -1,
    };
    struct cluster_log_wish w = { .tasks = &one,
                                  .n_tasks = task ? 1 : 0,
                                  .rank = -1,
                                  .lines = lines,
                                  .want_stdout = streams & TONY_STDOUT,
                                  .want_stderr = streams & TONY_STDERR,
                                  .follow = follow != 0 };
    if (!w.want_stdout && !w.want_stderr)
        (void)err_set(&e, EINVAL, "no stream is named");
    if (e.num ||
        (colon && str_i64(span_of(colon + 1), 0, UINT32_MAX, "task index", &one.index, &e) < 0))
        return give(to, TONY_EMISUSE, &e);
    int rc = find(t, job, &k, id, to);
    if (rc < 0)
        return rc;
    rc = cluster_ops_of(k)->logs(k, id, &w, tell_log, &logging, &e);
    return rc < 0 && !logging.ended ? give(to, -rc, &e) : 0;
}

int tony_metrics(struct tony *t, const char *job, char **out, struct tony_error *to)
{
    struct cluster *k = NULL;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    AUTO(buf_done) struct buf text = { 0 };
    const struct series_wish all = { 0 };
    struct series_set set = { 0 };
    int rc = find(t, job, &k, id, to);
    if (rc < 0)
        return rc;
    rc = cluster_metrics(k, id, &text, &e);
    if (rc < 0 && rc != -ENOENT)
        return give(to, TONY_ECLUSTER, &e);
    if (series_read(buf_span(&text), &all, &set, &e) < 0)
        return give(to, TONY_ECLUSTER, &e);
    json_t *doc = series_json(id, &set);
    series_done(&set);
    return give_document(doc, out, to);
}

/* ---- steering ---- */

int tony_resize(struct tony *t, const char *job, const char *role, uint32_t instances,
                const char *reason, char **out, struct tony_error *to)
{
    struct cluster *k = NULL;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    struct cluster_resize w = { .reason = reason };
    json_t *doc = NULL;
    int rc = find(t, job, &k, id, to);
    if (rc < 0)
        return rc;
    struct cluster_resize_role one = { .role = str_dup(role), .instances = instances };
    if (!one.role || vec_push(&w.sizes, one) < 0) {
        free(one.role);
        return no_memory(to);
    }
    rc = cluster_resize_checked(k, id, &w, &doc, &e);
    free(one.role);
    vec_done(&w.sizes);
    return rc < 0 ? give(to, -rc, &e) : give_document(doc, out, to);
}

int tony_stop(struct tony *t, const char *job, int flags, struct tony_error *to)
{
    struct cluster *k = NULL;
    char id[APP_ID_MAX];
    struct err e = { 0 };
    struct cluster_stopped s;
    int rc = find(t, job, &k, id, to);
    if (rc < 0)
        return rc;
    rc = cluster_stop(k, id, flags & TONY_STOP_CHECKPOINT, flags & TONY_STOP_NO_WAIT, &s, &e);
    return rc < 0 ? give(to, -rc, &e) : 0;
}
