/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "history/history.h"
#include "job/job.h"
#include "loop/loop.h"
#include "pool/pool_int.h"
#include "storage/gpulock.h"

/* If the time limit for waiting expires while the job's keeper starts, check again after this time:
 * the job may go back to the queue. */
enum { LIMIT_AGAIN_MS = 200 };

/* ---- the list ---- */

const char *pool_phase_name(enum job_phase phase)
{
    static const char *const names[] = { [PH_NONE] = "NONE",
#define X(id, name) [id] = name,
                                         JOB_PHASES(X)
#undef X
    };
    return names[phase];
}

bool pool_job_admitted(const struct pool_job *j)
{
    return j->phase != PH_WAITING;
}

struct pool_job *pool_job_find(const struct pool *p, const char *id)
{
    for (size_t i = 0; i < p->jobs.n; i++)
        if (str_eq(p->jobs.v[i]->id, id))
            return p->jobs.v[i];
    return NULL;
}

static void pool_job_free(struct pool_job *j)
{
    keeper_forget(j);
    loop_timer_free(j->away);
    loop_timer_free(j->limit);
    free(j->master_socket);
    free(j->name);
    free(j);
}

struct pool_job *pool_job_new(struct pool *p, const char *id, struct err *e)
{
    struct pool_job *j = calloc(1, sizeof *j);
    if (!j) {
        (void)err_set(e, ENOMEM, "cannot take job '%s': %m", id);
        return NULL;
    }
    j->pool = p;
    j->phase = PH_WAITING;
    int64_t start_ms;
    bool ok = keeper_init(j) == 0 && str_copy(j->id, sizeof j->id, id) &&
              app_id_parse(id, &start_ms, &j->number, NULL) == 0 && (j->name = str_dup("")) &&
              (j->master_socket = paths_socket(&p->paths, id, "m"));
    if (ok && vec_push(&p->jobs, j) == 0)
        return j;
    pool_job_free(j);
    (void)err_set(e, ENOMEM, "cannot take job '%s': %m", id);
    return NULL;
}

void pool_job_remove(struct pool_job *j)
{
    struct pool *p = j->pool;
    for (struct pool_client *c = p->clients; c; c = c->next)
        if (c->job == j)
            c->job = NULL;
    size_t to = 0;
    for (size_t i = 0; i < p->jobs.n; i++) /* keep the order of the others */
        if (p->jobs.v[i] != j)
            p->jobs.v[to++] = p->jobs.v[i];
    p->jobs.n = to;
    pool_job_free(j);
}

/* ---- locks ---- */

bool job_is_kept(const struct pool_job *j)
{
    AUTO(free_p) char *path = paths_job_lock(&j->pool->paths, j->id);
    /* no memory: assume yes; the caller checks again later */
    return !path || lockfile_is_held(path);
}

/* ---- admission ---- */

/* The input of admission_decide(): all jobs, in the order of the list, then the extensions. */
struct queue {
    struct admission_job *v;
    size_t n;
    bool gpus_unknown; /* an adopted job holds GPUs, and its keeper has not reported which */
    bool unheard;      /* the keeper of an adopted job has not reported yet */
};

static void queue_done(struct queue *q)
{
    free(q->v);
}

static void queue_add_jobs(const struct pool *p, struct queue *q)
{
    for (size_t i = 0; i < p->jobs.n; i++) {
        const struct pool_job *j = p->jobs.v[i];
        bool admitted = pool_job_admitted(j);
        q->v[q->n++] = (struct admission_job){
            .needs = j->needs,
            .priority = j->priority,
            .number = j->number,
            .admitted = admitted,
            .allowed = sharing_allows(j, false),
        };
        if (admitted && !j->gpus_known) {
            q->gpus_unknown |= j->needs.gpus > 0;
            q->unheard = true;
        }
    }
}

static int queue_fill(const struct pool *p, struct queue *q)
{
    q->v = calloc(2 * p->jobs.n, sizeof *q->v);
    if (!q->v)
        return -ENOMEM;
    queue_add_jobs(p, q);
    for (size_t i = 0; i < p->jobs.n; i++) {
        const struct pool_job *j = p->jobs.v[i];
        if (j->wish.open && j->phase == PH_LIVE) /* a lost keeper asks again later */
            q->v[q->n++] = (struct admission_job){ .needs = extension_lacks(j),
                                                   .priority = j->priority,
                                                   .number = j->wish.arrival,
                                                   .extension = true,
                                                   .of = i,
                                                   .allowed = sharing_allows(j, true) };
    }
    return 0;
}

static struct pool_job *job_at(const struct pool *p, const struct queue *q, size_t i)
{
    return p->jobs.v[q->v[i].extension ? q->v[i].of : i];
}

static bool is_gpu_of_own_job(const struct pool *p, uint32_t device)
{
    for (size_t k = 0; k < p->jobs.n; k++) {
        const struct pool_job *j = p->jobs.v[k];
        for (uint32_t g = 0; pool_job_admitted(j) && g < j->needs.gpus; g++)
            if (j->gpus[g] == device)
                return true;
    }
    return false;
}

/* Devices that other pools hold are chosen only if there are not enough free ones. The keeper
 * claims the devices; if another keeper was faster, the job waits. */
void pool_choose_gpus(struct pool_job *j, uint32_t from)
{
    const struct pool *p = j->pool;
    uint32_t n = from, taken[MACHINE_GPUS_MAX], n_taken = 0;
    uint32_t needed = j->needs.gpus;
    j->needs.gpus = from; /* for is_gpu_of_own_job(): the devices that the job has so far */
    for (uint32_t i = 0; i < p->machine.n_gpus && n < needed; i++) {
        uint32_t device = p->machine.gpus[i];
        if (is_gpu_of_own_job(p, device))
            continue;
        if (gpulock_is_held(gpulock_dir(), device))
            taken[n_taken++] = device;
        else
            j->gpus[n++] = device;
    }
    for (uint32_t i = 0; i < n_taken && n < needed; i++)
        j->gpus[n++] = taken[i];
    j->needs.gpus = needed;
}

void pool_retry_gpus_later(struct pool_job *j)
{
    j->not_before_ms = clock_mono_ms() + GPU_PAUSE_MS;
    loop_timer_set(j->pool->gpu_retry, j->not_before_ms);
}

/* Set the place of a job or its extension in the queue. true: followers should be told. */
static bool set_place(struct pool_job *j, bool extension, uint32_t place, const char *behind)
{
    uint32_t *at = extension ? &j->wish.place : &j->place;
    char *after = extension ? j->wish.behind : j->behind;
    if (*at == place && str_eq(after, behind))
        return false;
    *at = place;
    (void)str_copy(after, APP_ID_MAX, behind); /* an id, or "" */
    return !extension;                         /* followers are not told of extensions */
}

/* Start the job, or grant its extension. */
static void admit_one(struct pool_job *j, bool extension)
{
    (void)set_place(j, extension, 0, "");
    if (extension) {
        extension_grant(j);
        return;
    }
    pool_choose_gpus(j, 0);
    if (j->away)
        loop_timer_stop(j->away); /* from now on the master watches for an absent client */
    j->started_ms = clock_mono_ms();
    keeper_start(j);
    clients_tell(j);
}

/* Admit the first entries of the queue, those with `start`. If the devices of an entry are in use
 * by others, or may be in use by an adopted job, that entry waits, and so do all behind it. */
static void admit_queue(struct pool *p, const struct queue *q, const size_t *order)
{
    int64_t now = clock_mono_ms();
    if (!q->unheard && p->hear_until_ms) { /* all keepers have said what they hold */
        p->hear_until_ms = 0;
        loop_timer_stop(p->hear);
    }
    bool all_wait = p->stopping || now < p->hear_until_ms;
    struct pool_job *last = NULL;
    for (size_t k = 0; k < q->n && q->v[order[k]].start; k++) {
        const struct admission_job *a = &q->v[order[k]];
        struct pool_job *j = job_at(p, q, order[k]);
        all_wait = all_wait || (a->needs.gpus > 0 && (q->gpus_unknown || j->not_before_ms > now));
        if (!all_wait) {
            admit_one(j, a->extension);
            continue;
        }
        p->left.memory_mib += a->needs.memory_mib;
        p->left.gpus += a->needs.gpus;
        if (set_place(j, a->extension, 1, last ? last->id : ""))
            clients_tell(j);
        last = j;
    }
}

void pool_admit(struct pool *p)
{
    if (p->jobs.n == 0 || p->ended) {
        p->left = (struct admission_amount){ p->machine.memory_mib, p->machine.n_gpus };
        return;
    }
    AUTO(queue_done) struct queue q = { 0 };
    AUTO(free_p) size_t *order = calloc(2 * p->jobs.n, sizeof *order);
    if (!order || queue_fill(p, &q) < 0) {
        log_event(LOG_ERROR, "pool.no_memory", f_str("for", "admission"));
        return;
    }
    struct admission_amount capacity = { p->machine.memory_mib, p->machine.n_gpus };
    (sharing_divides(p) ? admission_allowed : admission_decide)(&capacity, q.v, q.n, order,
                                                                &p->left);
    admit_queue(p, &q, order);
    for (size_t i = 0; i < q.n; i++) {
        const struct admission_job *a = &q.v[i];
        struct pool_job *j = job_at(p, &q, i);
        if (a->place == 0)
            continue;
        const char *behind = a->behind == ADMISSION_NOBODY ? "" : job_at(p, &q, a->behind)->id;
        if (set_place(j, a->extension, a->place, behind))
            clients_tell(j);
    }
    sharing_carry_out(p);
}

/* ---- the end of a job, and of the pool ---- */

void pool_job_over(struct pool_job *j)
{
    struct pool *p = j->pool;
    char id[APP_ID_MAX];
    (void)str_copy(id, sizeof id, j->id); /* always fits: both have APP_ID_MAX bytes */
    clients_tell_end(j);
    hooks_start(p, j->id);
    pool_job_remove(j);
    pool_admit(p);
    sweep_tell_heard(p, id);
    pool_check_idle(p);
}

static void log_abort(const struct pool_job *j, const struct job_event *ev)
{
    bool stop = ev->type == EV_STOP;
    const char *who = stop ? ev->stop.who : NULL;
    const char *why = stop                               ? ev->stop.why
                      : ev->type == EV_LAUNCH_FAILED_JOB ? ev->launch_failed_job.why
                                                         : NULL;
    log_event(LOG_INFO, "job.aborted", f_str("job", j->id), f_str("who", who ? who : "pool"),
              f_str("why", why ? why : ""));
}

void pool_job_abort(struct pool_job *j, const struct job_event *ev)
{
    struct err e = { 0 };
    AUTO(free_p) char *path = paths_job_lock(&j->pool->paths, j->id);
    int fd = path ? lockfile_take(path, true) : -ENOMEM;
    int rc = fd < 0 ? err_set(&e, -fd, "cannot lock job '%s': %m", j->id)
                    : history_abort(&j->pool->paths, j->id, ev, &e);
    if (rc < 0)
        log_err(LOG_ERROR, "job.abort", &e);
    else
        log_abort(j, ev);
    sweep_sockets(j->pool, j->id);
    if (fd >= 0)
        (void)close(fd);
    pool_job_over(j);
}

static void on_limit(void *arg)
{
    struct pool_job *j = arg;
    struct job_event ev = { .type = EV_TIMER, .timer = { .limit = LIMIT_ALLOCATION } };
    if (j->phase == PH_WAITING)
        pool_job_abort(j, &ev);
    else if (j->phase != PH_LIVE) /* if its GPUs are in use, it goes back to waiting */
        loop_timer_set(j->limit, clock_mono_ms() + LIMIT_AGAIN_MS);
}

void pool_job_limit_wait(struct pool_job *j)
{
    if (j->allocation_ms > 0 && !j->limit)
        j->limit = loop_timer_new(j->pool->loop, on_limit, j);
    if (j->limit)
        loop_timer_set(j->limit,
                       clock_mono_ms() + MAX(j->allocation_ms - j->waited_ms, (int64_t)0));
}

void pool_stop(struct pool *p, const char *who)
{
    p->stopping = true;
    for (size_t i = 0; i < p->jobs.n;) {
        struct pool_job *j = p->jobs.v[i];
        if (pool_job_admitted(j)) {
            keeper_stop_job(j, who);
            i++;
        } else {
            struct job_event ev = { .type = EV_STOP,
                                    .stop = { .who = who, .why = "the pool was stopped" } };
            pool_job_abort(j, &ev); /* removes j from the list, so the next job is at i now */
        }
    }
    pool_check_idle(p);
}

void pool_check_idle(struct pool *p)
{
    if (p->ended)
        return;
    bool empty = p->jobs.n == 0 && p->n_submissions == 0;
    if (empty && clients_want_stop(p))
        p->stopping = true;
    if (p->stopping && empty) {
        log_event(LOG_INFO, "pool.stopped");
        loop_stop(p->loop); /* then close_all() in start.c answers the clients */
        return;
    }
    if (!empty || p->clients || p->idle_ms < 0)
        loop_timer_stop(p->idle);
    else
        loop_timer_set(p->idle, clock_mono_ms() + p->idle_ms);
}
