/* SPDX-License-Identifier: Apache-2.0 */
/* What squeue and the files in TONY_HOME say about a job. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/base.h"
#include "cluster/local/local.h"
#include "cluster/remote.h"
#include "cluster/slurm/slurm.h"
#include "cluster/slurm/slurm_int.h"
#include "codec/json.h"
#include "history/history.h"
#include "job/event.h"
#include "loop/loop.h"
#include "storage/jobkey.h"
#include "storage/publish.h"

enum {
    SQUEUE_MS = 20000,
    FILE_MAX = 64 << 10,
    CONNECT_MS = 2000,
    ASK_MS = 1000, /* the first pause between two questions to squeue about the same job */
    ASK_MAX_MS = 30000,
    RECENT_MAX = 1000,     /* jobs */
    LINE_MAX_BYTES = 400,  /* of batch.log in a message */
    FULL_BYTES = 64 << 10, /* a file system with less room than this counts as full */
    TRY_BYTES = 4096,      /* written to see whether a quota is used up */
};

/* ---- files ---- */

json_t *slurm_read_json(const char *dir, const char *name)
{
    AUTO(free_p) char *path = fs_join(dir, name);
    AUTO(buf_done) struct buf text = { .max = FILE_MAX };
    if (!path || fs_read_file(AT_FDCWD, path, &text, NULL) < 0 || text.len == 0)
        return NULL;
    return json_loadb(text.p, text.len, JSON_REJECT_DUPLICATES, NULL);
}

static bool is_number(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
    return text.len > 0 && text.len < 32;
}

void slurm_number(const char *dir, char out[static 32])
{
    AUTO(free_p) char *path = fs_join(dir, "slurm_id");
    AUTO(buf_done) struct buf text = { .max = 100 };
    json_t *doc = slurm_read_json(dir, "slurm.json");
    struct span id = span_of(json_string_value(json_object_get(doc, "job")));
    if (!is_number(id) && path && fs_read_file(AT_FDCWD, path, &text, NULL) == 0)
        id = span_trim(buf_span(&text)); /* the client died before it wrote the number */
    (void)snprintf(out, 32, "%.*s", is_number(id) ? (int)id.len : 0, id.p ? id.p : "");
    json_decref(doc);
}

bool slurm_master(const char *dir, struct cluster_master *out)
{
    json_t *doc = slurm_read_json(dir, "master.json");
    const char *host = json_string_value(json_object_get(doc, "host"));
    int64_t port = json_int(doc, "port", 0);
    bool there = host && *host && port > 0 && port < 65536;
    if (there) {
        free(out->host);
        out->host = str_dup(host);
        out->port = (uint16_t)port;
        out->attempt = (int32_t)json_int(doc, "epoch", 0);
    }
    json_decref(doc);
    return there && out->host;
}

bool slurm_has_left(const char *dir)
{
    enum { LEFT_S = 60 };
    AUTO(free_p) char *path = dir ? fs_join(dir, "left") : NULL;
    struct stat st;
    return path && stat(path, &st) == 0 && clock_wall_ms() / 1000 - st.st_mtime < LEFT_S;
}

/* ---- states ---- */

int slurm_exit_code(const char *state)
{
    static const struct {
        const char *state;
        int code;
    } codes[] = {
        { "COMPLETED", EXIT_DONE },    { "FAILED", EXIT_JOB_FAILED },
        { "CANCELLED", EXIT_STOPPED }, { "TIMEOUT", EXIT_STOPPED },
        { "DEADLINE", EXIT_STOPPED },  { "OUT_OF_MEMORY", EXIT_JOB_FAILED },
    };
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (str_eq(state, codes[i].state))
            return codes[i].code;
    return EXIT_CLUSTER; /* NODE_FAIL, BOOT_FAIL, PREEMPTED, REVOKED; or Slurm has forgotten it */
}

/* ---- a job that ended without a verdict ---- */

/* The batch script writes slurm_id before anything else. If Slurm cannot open the output of the
 * script in the job's directory, the script does not even start. */
static bool was_not_seen(const char *dir, const struct slurm_state *s)
{
    AUTO(free_p) char *path = fs_join(dir, "slurm_id");
    return str_eq(s->state, "FAILED") && path && access(path, F_OK) == -1;
}

/* Append the reason for which the last master could not start, if its log ends with it. */
static void add_words_of_master(const char *dir, struct buf *out)
{
    static const char mark[] = " master.failed error=\"";
    AUTO(free_p) char *log = fs_join(dir, "master.log");
    AUTO(buf_done) struct buf line = { 0 };
    struct err unread = { 0 };
    if (log)
        (void)fs_tail(AT_FDCWD, log, 1, LINE_MAX_BYTES, &line, &unread);
    const char *begin = strstr(buf_cstr(&line), mark), *end;
    if (!begin)
        return;
    begin += strlen(mark);
    for (end = begin; *end && *end != '"'; end++)
        if (*end == '\\' && end[1])
            end++; /* a quote after it does not end the text */
    (void)buf_add(out, begin, (size_t)(end - begin));
}

/* The end of a job frees some blocks: sockets and lock files go. So a few free blocks count as
 * none.
 */
static bool is_full(const char *dir)
{
    struct statvfs at;
    return statvfs(dir, &at) == 0 && at.f_bavail * at.f_frsize < FULL_BYTES;
}

/* Has a quota of the user no room left? statvfs() does not show quotas, so try. Network file
 * systems report the error when the file is written to the server. */
static bool is_over_quota(const char *dir)
{
    static const char bytes[TRY_BYTES];
    AUTO(free_p) char *path = fs_join(dir, ".room");
    if (path)
        (void)unlink(path); /* of a client that was killed here */
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    int num = fd == -1 ? errno : 0;
    if (fd >= 0) {
        for (size_t at = 0; num == 0 && at < sizeof bytes;) {
            ssize_t n = write(fd, bytes + at, sizeof bytes - at);
            num = n == -1 ? errno : 0;
            at += n > 0 ? (size_t)n : 0;
        }
        if (num == 0 && fsync(fd) == -1)
            num = errno;
        if (close(fd) == -1 && num == 0)
            num = errno;
        (void)unlink(path);
    }
    return path && fs_no_room(num);
}

/* Its batch script could not cancel its further allocations. If that fails here, too, they end by
 * themselves as soon as they run. */
static void cancel_further(const char *dir, const char *id)
{
    AUTO(free_p) char *path = fs_join(dir, "further.json");
    AUTO(free_p) char *name = str_printf("tony-further-%s", id);
    const char *const argv[] = { "scancel", "-Q", "-n", name, NULL };
    struct slurm_answer a = { 0 };
    struct err unread = { 0 };
    if (path && name && access(path, F_OK) == 0)
        (void)slurm_run(argv, NULL, SQUEUE_MS, &a, &unread);
    slurm_answer_done(&a);
}

/* Its first component would wait in the queue for ever. */
static void cancel(const char *dir)
{
    char number[32];
    struct slurm_answer a;
    struct err unread = { 0 };
    slurm_number(dir, number);
    const char *const argv[] = { "scancel", number, NULL };
    if (number[0]) {
        (void)slurm_run(argv, NULL, SQUEUE_MS, &a, &unread); /* the user sees it in squeue, then */
        slurm_answer_done(&a);
    }
}

/* The number of the run: 0 = the first one, -1 = not known. */
static int64_t run_of(const char *dir)
{
    AUTO(free_p) char *path = fs_join(dir, "run");
    AUTO(buf_done) struct buf text = { .max = 100 };
    int64_t n = -1;
    if (!path || fs_read_file(AT_FDCWD, path, &text, NULL) < 0 ||
        str_i64(span_trim(buf_span(&text)), 0, INT32_MAX, "run", &n, NULL) < 0)
        return -1;
    return n;
}

/* A signal has killed the batch script, and the master could not put the job back. */
static bool was_killed(const char *dir, const struct slurm_state *s)
{
    int64_t run = run_of(dir);
    return str_eq(s->state, "FAILED") && !was_not_seen(dir, s) && !slurm_has_left(dir) &&
           (str_eq(s->reason, "JobLaunchFailure") || str_starts(s->reason, "RaisedSignal")) &&
           run >= 0 && run < SLURM_KILLED_MAX;
}

int slurm_ask_alive(const char *dir, const char *number, struct slurm_state *out, struct err *e)
{
    struct err why = { 0 };
    int rc = slurm_ask(number, out, e);
    if (rc < 0 || (!out->headless && !was_killed(dir, out)))
        return rc;
    rc = slurm_put_back(number, SQUEUE_MS, &why);
    if (rc == 0) {
        (void)str_copy(out->state, sizeof out->state, "PENDING");
        (void)str_copy(out->reason, sizeof out->reason, "BeginTime");
    } else if (rc == -EPERM && out->headless) { /* tony.slurm.requeue: false */
        cancel(dir);
        (void)str_copy(out->state, sizeof out->state, "NODE_FAIL");
        (void)str_copy(out->reason, sizeof out->reason, "the first node of the job is lost");
    }
    return rc == 0 || rc == -EPERM ? 0 : err_set(e, why.num, "%s", why.msg);
}

int slurm_settle(struct cluster_host *h, const char *id, const struct slurm_state *s, struct err *e)
{
    AUTO(free_p) char *dir = paths_job(&h->paths, id);
    AUTO(free_p) char *why = NULL;
    char number[32];
    AUTO(buf_done) struct buf line = { 0 };
    bool killed = slurm_exit_code(s->state) == EXIT_STOPPED;
    int rc;
    if (!dir || access(dir, F_OK) == -1)
        return 0;
    if (s->torn)
        cancel(dir);
    cancel_further(dir, id);
    slurm_number(dir, number);
    if (str_eq(s->state, SLURM_NEVER))
        why = str_dup("its client ended during the submission; Slurm never got the job");
    else if (killed && !number[0])
        why = str_dup("it was stopped before Slurm had it");
    else if (str_eq(s->state, "TIMEOUT"))
        why = str_dup("the time limit of its job in Slurm was over");
    else if (killed)
        why = str_dup("its job in Slurm was cancelled");
    else if (is_full(dir))
        why = str_printf("its job in Slurm ended as %s, and the file system of '%s' is full",
                         s->state[0] ? s->state : "unknown", h->paths.home);
    else if (is_over_quota(dir))
        why = str_printf("its job in Slurm ended as %s, and there is no room for files in '%s': a "
                         "quota or a limit of the user is used up",
                         s->state[0] ? s->state : "unknown", h->paths.home);
    else if (was_not_seen(dir, s))
        why = str_printf(
            "the first node of its job in Slurm cannot use '%s'; the first node must see "
            "TONY_HOME under the same path (docs/slurm.md)",
            dir);
    else if (s->state[0]) {
        AUTO(free_p) char *log = fs_join(dir, "batch.log");
        struct err unread = { 0 };
        add_words_of_master(dir, &line);
        if (log && !line.len)
            (void)fs_tail(AT_FDCWD, log, 1, LINE_MAX_BYTES, &line, &unread);
        struct span said = span_trim(buf_span(&line));
        why =
            str_printf("its job in Slurm ended as %s%s%s%s%s%.*s; batch.log and keeper.log in the "
                       "job's directory may say more",
                       s->state, s->reason[0] ? " (" : "", s->reason, s->reason[0] ? ")" : "",
                       said.len ? ": " : "", (int)said.len, said.len ? said.p : "");
    } else
        why =
            str_printf("Slurm does not know its job %s any more, so how it has ended is not known; "
                       "batch.log and keeper.log in the job's directory may say more",
                       number);
    if (!why)
        return err_set(e, ENOMEM, "no memory to end the job");
    struct job_event ev = { .type = killed ? EV_STOP : EV_LAUNCH_FAILED_JOB };
    if (killed)
        ev.stop = (struct ev_stop){ .who = number[0] ? "Slurm" : "tony", .why = why };
    else
        ev.launch_failed_job.why = why;
    rc = history_abort(&h->paths, id, &ev, e);
    AUTO(free_p) char *final = rc == 0 ? paths_history(&h->paths, id) : NULL;
    struct err unshared = { 0 };
    if (final && publish_job(final, id, &unshared) < 0)
        host_note(h, "%s", unshared.msg);
    return rc;
}

/* ---- the report ---- */

struct probe {
    struct loop *loop;
    bool there, over;
};

static void probe_end(struct probe *p, bool there)
{
    p->there = there;
    p->over = true;
    loop_stop(p->loop);
}

static void on_open(struct conn *c, void *arg)
{
    (void)c;
    probe_end(arg, true);
}

static void on_frame(struct conn *c, const Tony__Frame *f, void *arg)
{
    (void)c;
    (void)f;
    (void)arg;
}

static void on_close(struct conn *c, const struct err *e, void *arg)
{
    (void)c; /* the loop frees it */
    (void)e;
    probe_end(arg, false);
}

/* Does the master answer? Then Slurm need not be asked. */
static bool master_answers(struct cluster *k, const char *id, const struct cluster_master *m)
{
    static const struct conn_ops ops = { .on_open = on_open,
                                         .on_frame = on_frame,
                                         .on_close = on_close };
    struct err unread = { 0 };
    struct tls_key key;
    struct conn *conn = NULL;
    struct probe p = { .loop = host_loop(slurm_host(k), &unread) };
    if (!p.loop || cluster_slurm.key(k, id, &key, &unread) < 0)
        return false;
    const struct conn_target to = { .host = m->host,
                                    .port = m->port,
                                    .identity = JOB_KEY_CLIENT,
                                    .key = &key,
                                    .deadline_ms = clock_mono_ms() + CONNECT_MS };
    int rc = conn_dial_tls(p.loop, &to, &ops, &p, &conn, &unread);
    job_key_wipe(&key, sizeof key);
    while (rc == 0 && !p.over)
        (void)loop_run(p.loop);
    if (p.there)
        conn_close(conn);
    return p.there;
}

/* The answer of an earlier question. NULL: ask. */
static struct slurm_recent *recent_of(struct cluster *k, const char *id)
{
    struct slurm_cluster *c = (struct slurm_cluster *)(void *)k;
    for (size_t i = 0; i < c->recent.n; i++)
        if (str_eq(c->recent.v[i].id, id))
            return &c->recent.v[i];
    if (c->recent.n == RECENT_MAX)
        c->recent.n = 0;
    struct slurm_recent r = { .pause_ms = ASK_MS };
    (void)str_copy(r.id, sizeof r.id, id);
    return vec_push(&c->recent, r) == 0 ? &c->recent.v[c->recent.n - 1] : NULL;
}

/* `tony resize`, `tony wait` and others look several times a second. Of a job without a master,
 * squeue is asked with pauses of ASK_MS to ASK_MAX_MS. */
static void keep_answer(struct slurm_recent *r, const struct slurm_state *s)
{
    if (!r)
        return;
    r->state = *s;
    r->ask_at_ms = clock_mono_ms() + r->pause_ms;
    r->pause_ms = MIN(2 * r->pause_ms, (int64_t)ASK_MAX_MS);
}

/* Ask squeue for the job, or for its number. 0 or -errno. number: "" = it has none; then *s is not
 * set. */
static int ask_state(const char *dir, char number[static 32], struct slurm_state *s, struct err *e)
{
    slurm_number(dir, number);
    int rc = number[0] ? 0 : slurm_find_number(dir, number, e);
    return rc == 0 && number[0] ? slurm_ask_alive(dir, number, s, e) : rc;
}

static void from_squeue(struct cluster *k, const char *id, const char *dir,
                        struct cluster_report *out, struct slurm_state *s, struct err *e)
{
    char number[32] = "";
    bool never, none, asked = true;
    struct slurm_recent *recent = recent_of(k, id);
    if (recent && clock_mono_ms() < recent->ask_at_ms) {
        *s = recent->state;
        none = !s->state[0];
        asked = false; /* so nothing is decided by it */
    } else {
        int rc = ask_state(dir, number, s, e);
        if (rc < 0) {
            out->phase = out->at.host ? CLUSTER_RUNNING : CLUSTER_UNKNOWN;
            return;
        }
        none = !number[0];
        if (none || !slurm_state_is_over(s->state))
            keep_answer(recent, s);
    }
    if (none) { /* its client is about to submit it, or has died */
        bool never_sent = asked && slurm_is_given_up(dir);
        out->phase = never_sent ? CLUSTER_OVER : CLUSTER_WAITING;
        (void)str_copy(s->state, sizeof s->state, never_sent ? SLURM_NEVER : "");
        (void)str_copy(out->state, sizeof out->state, "NEW");
        return;
    }
    (void)str_copy(out->state, sizeof out->state, s->state[0] ? s->state : "FORGOTTEN");
    bool over = slurm_state_is_over(s->state);
    if (over && !slurm_has_left(dir))
        out->phase = CLUSTER_OVER;
    else if (over || str_eq(s->state, "PENDING"))
        out->phase = CLUSTER_WAITING;
    else
        out->phase = out->at.host ? CLUSTER_RUNNING : CLUSTER_STARTING;
    if (str_eq(s->state, "SUSPENDED"))
        out->message = str_dup(SLURM_SUSPENDED);
    if (out->phase == CLUSTER_WAITING) {
        out->why = slurm_why(s, &never);
        out->message = out->why ? str_dup(out->why) : NULL; /* for the status */
    }
    out->exit_code = slurm_exit_code(s->state);
}

static int from_history(struct cluster_host *h, const char *id, struct cluster_report *out,
                        struct err *e)
{
    json_t *doc = NULL;
    int rc = local_verdict(h, id, &doc, e);
    if (rc < 0)
        return rc;
    out->phase = CLUSTER_OVER;
    out->exit_code = (int)json_int(doc, "exit_code", EXIT_JOB_FAILED);
    (void)str_copy(out->state, sizeof out->state, json_str(doc, "state", ""));
    out->summary = doc;
    return 0;
}

int slurm_report(struct cluster *k, const char *id, struct cluster_report *out, struct err *e)
{
    struct cluster_host *h = slurm_host(k);
    struct slurm_state s = { 0 };
    struct err why = { 0 };
    uint32_t unused;
    *out = (struct cluster_report){ .own = true };
    (void)str_copy(out->id, sizeof out->id, id);
    (void)app_id_parse(id, &out->submitted_ms, &unused, NULL); /* else 0: not known */
    int rc = from_history(h, id, out, e);
    if (rc < 0)
        slurm_explain_absence(id, e);
    if (rc != -EBUSY)
        return rc;
    err_clear(e);
    AUTO(free_p) char *dir = paths_job(&h->paths, id);
    if (!dir)
        return err_set(e, ENOMEM, "no memory to look for job '%s'", id);
    if (slurm_master(dir, &out->at) && master_answers(k, id, &out->at)) {
        out->phase = CLUSTER_RUNNING;
        (void)str_copy(out->state, sizeof out->state, "RUNNING");
        return 0;
    }
    from_squeue(k, id, dir, out, &s, &why);
    if (out->phase != CLUSTER_OVER)
        return why.num ? err_set(e, why.num, "%s", why.msg) : 0;
    rc = slurm_settle(h, id, &s, e);
    return rc < 0 ? rc : from_history(h, id, out, e);
}

/* ---- the list ---- */

/* "12" and "12+0" are of job 12. */
static bool is_of_job(struct span *id)
{
    struct span number;
    if (!span_split(id, '+', &number))
        return false;
    bool first = id->len == 0 || span_eqs(*id, "0");
    *id = number;
    return first;
}

/* One question for all jobs of the user. */
static json_t *ask_all(struct err *e)
{
    const char *const argv[] = { "squeue", "-h", "--me", "-o", "%i|%T|%r", NULL };
    struct slurm_answer a;
    json_t *jobs = json_object();
    int rc = slurm_run(argv, NULL, SQUEUE_MS, &a, e);
    if (rc == 0 && a.status != 0)
        rc = slurm_failed(&a, "squeue", e);
    if (rc == 0) {
        struct span rest = buf_span(&a.out), line, id, state;
        while (rest.len && span_split(&rest, '\n', &line))
            /* a component is "12+0"; the first one says what the job does */
            if (span_split(&line, '|', &id) && span_split(&line, '|', &state) && is_of_job(&id))
                (void)json_object_setn_new(jobs, id.p, id.len, json_stringn(state.p, state.len));
    } else {
        json_decref(jobs);
        jobs = NULL;
    }
    slurm_answer_done(&a);
    return jobs;
}

/* A job without a master: its state is that of squeue. */
static void add_queue_state(struct cluster_host *h, const json_t *jobs, json_t *row)
{
    char number[32];
    const char *id = json_str(row, "application_id", "");
    AUTO(free_p) char *dir = paths_job(&h->paths, id);
    if (!json_is_true(json_object_get(row, "live")) || !dir)
        return;
    slurm_number(dir, number);
    const char *state = json_string_value(json_object_get(jobs, number));
    if (number[0])
        (void)json_object_set_new(row, "slurm_job", json_string(number));
    if (state)
        (void)json_object_set_new(row, "slurm_state", json_string(state));
    if (str_eq(state, "PENDING"))
        (void)json_object_set_new(row, "state", json_string("WAITING"));
    if (str_eq(state, "SUSPENDED"))
        (void)json_object_set_new(row, "state", json_string("SUSPENDED"));
}

static bool is_any_live(const json_t *rows)
{
    bool any = false;
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) any = any || json_is_true(json_object_get(row, "live"));
    return any;
}

int slurm_list(struct cluster *k, size_t max, json_t *rows, bool *out_more, struct err *e)
{
    struct cluster_host *h = slurm_host(k);
    struct err silent = { 0 };
    int rc = host_look_paths(h, e);
    if (rc == 0)
        slurm_adopt_all(h);
    if (rc == 0)
        rc = local_rows(h, max, true, rows, out_more, e);
    if (rc == 0)
        rc = slurm_shared_rows(h, max, rows, out_more, e);
    json_t *jobs = rc == 0 ? ask_all(&silent) : NULL;
    if (silent.num && is_any_live(rows))
        host_note(h, "%s; so it is not certain whether jobs that wait or run still do", silent.msg);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) add_queue_state(h, jobs, row);
    json_decref(jobs);
    return rc;
}
