#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "history/history.h"
#include "job/job.h"
#include "loop/loop.h"
#include "pool/pool_int.h"

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
    for (size_t i = 0; i < p->jobs.n; i++) /* the order stays */
        if (p->jobs.v[i] != j)
            p->jobs.v[to++] = p->jobs.v[i];
    p->jobs.n = to;
    pool_job_free(j);
}

/* ---- locks ---- */

/* Whoever gives a lock up for good unlinks its file first: a lock on a file that has no name any
 * more is worth nothing. */
int pool_lock_file(const char *path, bool create)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0600);
        if (fd == -1)
            return -errno;
        struct stat mine = { 0 }, named = { 0 };
        int rc = flock(fd, LOCK_EX | LOCK_NB) == -1 || fstat(fd, &mine) == -1 ? -errno : 0;
        if (rc == 0 && stat(path, &named) == 0 && named.st_ino == mine.st_ino &&
            named.st_dev == mine.st_dev)
            return fd;
        (void)close(fd); /* locked by another, or unlinked meanwhile */
        if (rc < 0)
            return rc;
    }
}

bool job_is_kept(const struct pool_job *j)
{
    AUTO(free_p) char *path = paths_socket(&j->pool->paths, j->id, "lock");
    if (!path)
        return true; /* no memory: look again later */
    int fd = pool_lock_file(path, false);
    if (fd >= 0)
        (void)close(fd);
    return fd == -EWOULDBLOCK;
}

/* ---- admission ---- */

static struct admission_job *queue_of(const struct pool *p, bool *out_gpus_unknown)
{
    struct admission_job *q = calloc(p->jobs.n, sizeof *q);
    *out_gpus_unknown = false;
    for (size_t i = 0; q && i < p->jobs.n; i++) {
        const struct pool_job *j = p->jobs.v[i];
        q[i] = (struct admission_job){ .needs = j->needs,
                                       .priority = j->priority,
                                       .number = j->number,
                                       .admitted = pool_job_admitted(j) };
        if (q[i].admitted && j->needs.gpus > 0 && !j->gpus_known)
            *out_gpus_unknown = true;
    }
    return q;
}

static bool held_by_us(const struct pool *p, uint32_t device)
{
    for (size_t k = 0; k < p->jobs.n; k++) {
        const struct pool_job *j = p->jobs.v[k];
        for (uint32_t g = 0; pool_job_admitted(j) && g < j->needs.gpus; g++)
            if (j->gpus[g] == device)
                return true;
    }
    return false;
}

/* Another user's pool, or another home's. Only a look: the keeper takes the lock, and where
 * somebody was faster the job waits. */
static bool held_elsewhere(uint32_t device)
{
    const char *set = getenv("TONY_GPU_LOCKS"); /* as in keeper_start.c */
    AUTO(free_p)
    char *path = str_printf("%s/tony-gpu-%u.lock", set && *set ? set : "/tmp", device);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    if (fd == -1)
        return false;
    bool held = flock(fd, LOCK_SH | LOCK_NB) == -1 && errno == EWOULDBLOCK;
    (void)close(fd);
    return held;
}

/* The lowest ones that nobody holds; those that others hold only where there are not enough. */
static void choose_gpus(struct pool_job *j)
{
    const struct pool *p = j->pool;
    uint32_t n = 0, taken[MACHINE_GPUS_MAX], n_taken = 0;
    for (uint32_t i = 0; i < p->machine.n_gpus && n < j->needs.gpus; i++) {
        uint32_t device = p->machine.gpus[i];
        if (held_by_us(p, device))
            continue;
        if (held_elsewhere(device))
            taken[n_taken++] = device;
        else
            j->gpus[n++] = device;
    }
    for (uint32_t i = 0; i < n_taken && n < j->needs.gpus; i++)
        j->gpus[n++] = taken[i];
}

/* Where a waiting job stands; true when that is news. */
static bool set_place(struct pool_job *j, uint32_t place, const char *behind)
{
    if (j->place == place && str_eq(j->behind, behind))
        return false;
    j->place = place;
    (void)str_copy(j->behind, sizeof j->behind, behind); /* an id, or "" */
    return true;
}

void pool_admit(struct pool *p)
{
    if (p->jobs.n == 0 || p->ended) {
        p->left = (struct admission_amount){ p->machine.memory_mib, p->machine.n_gpus };
        return;
    }
    bool gpus_unknown;
    AUTO(free_p) struct admission_job *q = queue_of(p, &gpus_unknown);
    AUTO(free_p) size_t *order = calloc(p->jobs.n, sizeof *order);
    if (!q || !order) {
        log_event(LOG_ERROR, "pool.no_memory", f_str("for", "admission"));
        return;
    }
    struct admission_amount capacity = { p->machine.memory_mib, p->machine.n_gpus };
    admission_decide(&capacity, q, p->jobs.n, order, &p->left);

    /* Those that fit come first in the order. One whose devices are held by somebody else, or not
     * known to be free, waits and with it all behind it. */
    bool held_up = p->stopping;
    struct pool_job *last = NULL;
    for (size_t k = 0; k < p->jobs.n && q[order[k]].start; k++) {
        struct pool_job *j = p->jobs.v[order[k]];
        held_up =
            held_up || (j->needs.gpus > 0 && (gpus_unknown || j->not_before_ms > clock_mono_ms()));
        if (held_up) {
            p->left.memory_mib += j->needs.memory_mib;
            p->left.gpus += j->needs.gpus;
            if (set_place(j, 1, last ? last->id : ""))
                clients_tell(j);
            last = j;
            continue;
        }
        choose_gpus(j);
        if (j->away)
            loop_timer_stop(j->away); /* from here on the master counts */
        (void)set_place(j, 0, "");
        keeper_start(j);
        clients_tell(j);
    }
    for (size_t i = 0; i < p->jobs.n; i++) {
        struct pool_job *j = p->jobs.v[i];
        if (q[i].place == 0)
            continue;
        const char *behind = q[i].behind == ADMISSION_NOBODY ? "" : p->jobs.v[q[i].behind]->id;
        if (set_place(j, q[i].place, behind))
            clients_tell(j);
    }
}

/* ---- the ends ---- */

void pool_job_over(struct pool_job *j)
{
    struct pool *p = j->pool;
    clients_tell_end(j);
    pool_job_remove(j);
    pool_admit(p);
    pool_look_idle(p);
}

void pool_job_abort(struct pool_job *j, const struct job_event *ev)
{
    struct err e = { 0 };
    AUTO(free_p) char *path = paths_socket(&j->pool->paths, j->id, "lock");
    int fd = path ? pool_lock_file(path, true) : -ENOMEM;
    int rc = fd < 0 ? err_set(&e, -fd, "cannot lock job '%s': %m", j->id)
                    : history_abort(&j->pool->paths, j->id, ev, &e);
    if (rc < 0)
        log_err(LOG_ERROR, "job.abort", &e);
    else
        log_event(LOG_INFO, "job.aborted", f_str("job", j->id),
                  f_str("who", ev->who ? ev->who : "pool"), f_str("why", ev->text ? ev->text : ""));
    sweep_sockets(j->pool, j->id);
    if (fd >= 0)
        (void)close(fd);
    pool_job_over(j);
}

static void on_limit(void *arg)
{
    struct pool_job *j = arg;
    struct job_event ev = { .type = EV_TIMER, .limit = LIMIT_ALLOCATION };
    if (j->phase == PH_WAITING)
        pool_job_abort(j, &ev);
    else if (j->phase == PH_STARTING) /* it may yet find its GPUs taken and wait again */
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
                                    .who = who,
                                    .text = "the pool was stopped",
                                    .wall_ms = clock_wall_ms() };
            pool_job_abort(j, &ev); /* out of the list: the next one is at i now */
        }
    }
    pool_look_idle(p);
}

void pool_look_idle(struct pool *p)
{
    if (p->ended)
        return;
    bool empty = p->jobs.n == 0 && p->n_submissions == 0;
    if (empty && clients_want_stop(p))
        p->stopping = true;
    if (p->stopping && empty) {
        log_event(LOG_INFO, "pool.stopped");
        loop_stop(p->loop); /* start.c answers and closes */
        return;
    }
    if (!empty || p->clients || p->idle_ms < 0)
        loop_timer_stop(p->idle);
    else
        loop_timer_set(p->idle, clock_mono_ms() + p->idle_ms);
}
