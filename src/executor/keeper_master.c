/* SPDX-License-Identifier: Apache-2.0 */
/* The master's process, and its requests. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "executor/keeper_int.h"

enum {
    DEATHS_WINDOW_MS = 60000, /* 5 deaths (k->deaths) within this time end the job */
    LONG_LIFE_MS = 10000,     /* a master that lived this long resets the count of deaths */
    WORKED_MS = 1000,         /* a killed master resets the count if it lived this long */
    RESTART_PAUSE_MS = 50,
    RESTART_PAUSE_MAX_MS = 800,
    FINAL_EXIT_CODE = 4,        /* MASTER_HOPELESS: do not restart the master */
    LEAVES_EXIT_CODE = 5,       /* MASTER_LEAVES: this run of the job is over */
    FINISH_PATIENCE_MS = 10000, /* after FinishJob: for the master and the executors to exit */
    FINISH_GRACE_MS = 1000,
    REPORT_MAX = 20000,          /* ends in one frame; each takes at most 500 bytes of FRAME_MAX */
    PARTS_QUEUED_MAX = 16 << 20, /* unsent bytes with which no further part of Registered is sent */
    PROTOCOL = TONY__VERSION__PROTOCOL_VERSION,
};

/* ---- the process ---- */

/* Runs in the child. It inherits only /dev/null as standard input and the log file. */
static _Noreturn void exec_program(const struct keeper *k, pid_t keeper, const char *program,
                                   char *const *argv, int log_fd)
{
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper)
        _exit(127);
    if (log_fd >= 0 && (dup2(log_fd, 1) == -1 || dup2(log_fd, 2) == -1))
        _exit(127);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* Keepers of nodes kill processes with this variable after the death of a keeper. So the master
     * of a job on a cluster does not have it; it dies with the head keeper. */
    if (k->kind == KEEPER_HEAD)
        (void)signal(SIGUSR1, SIG_IGN); /* until the master handles notices */
    if (k->kind == KEEPER_OF_POOL)
        setenv("TONY_APPLICATION_ID", k->app_id, 1);
    execv(program, argv);
    dprintf(2, "tony-executor: cannot run '%s': %m\n", program);
    _exit(127);
}

/* Pass a notice of the cluster on to the master, or to the next one. */
void master_notice(struct keeper *k)
{
    k->noticed = !keeper_peer(k, PEER_MASTER);
    if (!k->noticed && k->master_pid)
        (void)kill(k->master_pid, SIGUSR1);
}

static int fork_master(struct keeper *k, struct err *e)
{
    AUTO(free_p) char *program = paths_program("tony-master");
    if (!program)
        return err_set(e, ENOENT,
                       "cannot find the program tony-master beside tony-executor or on PATH");
    AUTO(free_p) char *log_path = str_printf("%s/master.log", k->job_dir);
    AUTO(close_p)
    int log_fd = log_path
                     ? open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600)
                     : -1;
    char epoch[16];
    snprintf(epoch, sizeof epoch, "%u", k->epoch);
    const char *mode = k->kind == KEEPER_HEAD ? "--cluster" : NULL;
    const char *argv[] = { "tony-master", "--epoch", epoch, k->app_id, mode, NULL };
    pid_t keeper = getpid(), pid = fork();
    if (pid == 0)
        exec_program(k, keeper, program, (char *const *)argv, log_fd);
    if (pid == -1)
        return err_set(e, errno, "cannot start the master: %m");
    k->master_pid = pid;
    k->master_began_ms = clock_mono_ms();
    return 0;
}

void master_start(struct keeper *k)
{
    struct err e = { 0 };
    k->master_at_ms = INT64_MAX;
    k->epoch++;
    sockets_check(k);    /* the master gives up if it cannot connect */
    exits_add_master(k); /* before the start, so that no epoch is used twice */
    if (fork_master(k, &e) < 0) {
        log_err(LOG_ERROR, "keeper.master", &e);
        master_died(k, 127 << 8);
        return;
    }
    log_event(LOG_INFO, "keeper.master_started", f_int("epoch", k->epoch),
              f_int("pid", k->master_pid));
    pool_tell(k, false);
}

/* A record in the journal shows that an earlier keeper had a master, even if that keeper died
 * before it could write a line to `exits`. */
static bool has_journal(const struct keeper *k)
{
    AUTO(free_p) char *path = str_printf("%s/journal", k->job_dir);
    return path && fs_has_text(path);
}

void master_take_over_or_start(struct keeper *k)
{
    int status;
    pid_t dead = k->master_pid > 0 ? waitpid(k->master_pid, &status, WNOHANG) : -1;
    if (dead >= 0 && k->life == 1) {
        k->epoch = 1;
        k->master_began_ms = clock_mono_ms();
        exits_add_master(k);
        log_event(LOG_INFO, "keeper.master_found", f_int("pid", k->master_pid));
        if (dead > 0)
            master_died(k, status);
        return;
    }
    k->master_pid = 0;
    if (k->epoch == 0 && has_journal(k))
        k->epoch = 1;
    master_start(k);
}

static void forget_link(struct keeper *k)
{
    struct peer *p;
    while ((p = keeper_peer(k, PEER_MASTER)) || (p = keeper_peer(k, PEER_REGISTERING)))
        link_close(&p->link);
}

/* Have too many masters died soon after their start? Then the next one would die as well. Deaths by
 * SIGKILL do not count, because other processes caused them. */
static bool cannot_live(struct keeper *k, bool killed, int64_t now)
{
    if (now - k->master_began_ms >= (killed ? WORKED_MS : LONG_LIFE_MS))
        k->n_deaths = k->n_short = 0;
    k->n_short++;
    if (killed)
        return false;
    if (k->n_deaths == ARRAY_LEN(k->deaths))
        memmove(k->deaths, k->deaths + 1, sizeof k->deaths - sizeof k->deaths[0]);
    else
        k->n_deaths++;
    k->deaths[k->n_deaths - 1] = now;
    return k->n_deaths == ARRAY_LEN(k->deaths) && now - k->deaths[0] < DEATHS_WINDOW_MS;
}

/* The pause before the master is restarted: none for the first few deaths, then growing ones. */
static int64_t pause_ms(const struct keeper *k, bool killed)
{
    unsigned at_once = killed ? 6 : 2;
    if (k->n_short <= at_once)
        return 0;
    return MIN(RESTART_PAUSE_MS << MIN(k->n_short - at_once + 2, 16U), RESTART_PAUSE_MAX_MS);
}

void master_died(struct keeper *k, int status)
{
    int64_t now = clock_mono_ms();
    struct peer *p = keeper_peer(k, PEER_MASTER);
    k->master_pid = 0;
    exits_add_master_exit(k, status);
    if (p)
        keeper_read_frames(k, p); /* its last frames, such as FinishJob, may be unread */
    if (k->state != KEEPER_RUNNING)
        return;
    forget_link(k);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    log_event(LOG_WARN, "keeper.master_died", f_int("epoch", k->epoch), f_int("code", code),
              f_int("signal", signal));
    if (code == LEAVES_EXIT_CODE && k->kind == KEEPER_HEAD)
        run_leave(k);
    else if (code == FINAL_EXIT_CODE)
        keeper_abort_job(k, "the master gave up");
    else if (cannot_live(k, signal == SIGKILL, now))
        keeper_abort_job(k, "the master dies again and again");
    else
        k->master_at_ms = now + MAX(pause_ms(k, signal == SIGKILL), run_pause_ms(k));
}

/* ---- frames to the master ---- */

struct reply {
    Tony__Container *c;
    Tony__Container **list;
    size_t n;
};

static int reply_open(struct reply *r, size_t cap)
{
    *r = (struct reply){ .c = calloc(cap + 1, sizeof *r->c),
                         .list = calloc(cap + 1, sizeof *r->list) };
    return r->c && r->list ? 0 : -ENOMEM;
}

static void reply_done(struct reply *r)
{
    free(r->c);
    free(r->list);
}

static void reply_add(struct reply *r, const struct container *c)
{
    Tony__Container *m = r->list[r->n] = &r->c[r->n];
    r->n++;
    tony__container__init(m);
    m->id = (char *)c->id;
    m->slot = c->slot;
    m->memory_mib = c->memory_mib;
    m->vcores = c->vcores;
    m->gpus = c->gpus;
    m->n_gpus = c->n_gpus;
    m->launched = c->state >= CONTAINER_QUEUED && c->state <= CONTAINER_ENDED;
    m->pid = c->pid;
    if (c->state != CONTAINER_ENDED)
        return;
    m->completed = true;
    m->exit_status = c->signal ? 128 + c->signal : c->exit_code;
    m->reason = (Tony__Reason)c->reason;
    int64_t age = clock_mono_us() - c->ended_us;
    m->age_us = age > 0 ? (uint64_t)age : 0;
    m->ended_mono_us = c->ended_us > 0 ? (uint64_t)c->ended_us : 0;
    if (c->detail)
        m->detail = c->detail;
}

void master_tell_granted(struct keeper *k, struct container *const *granted, size_t n,
                         const uint32_t *refused, size_t n_refused, const char *why)
{
    struct peer *p = keeper_peer(k, PEER_MASTER);
    AUTO(reply_done) struct reply r;
    if (reply_open(&r, n) < 0 || !p)
        return; /* a master that registers later gets all containers */
    for (size_t i = 0; i < n; i++)
        reply_add(&r, granted[i]);
    Tony__ContainersAllocated m = TONY__CONTAINERS_ALLOCATED__INIT;
    m.containers = r.list;
    m.n_containers = r.n;
    m.refused_slots = (uint32_t *)refused;
    m.n_refused_slots = n_refused;
    m.demand = k->demand + 1;
    if (why && n_refused)
        m.why = (char *)why;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_CONTAINERS_ALLOCATED;
    f.containers_allocated = &m;
    keeper_send(k, p, &f);
}

void master_tell_unasked(struct keeper *k, uint32_t slot, const char *why)
{
    struct peer *p = keeper_peer(k, PEER_MASTER);
    Tony__ContainersAllocated m = TONY__CONTAINERS_ALLOCATED__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    m.refused_slots = &slot;
    m.n_refused_slots = 1;
    m.why = (char *)why;
    m.not_asked = true;
    m.demand = k->demand + 1;
    f.body_case = TONY__FRAME__BODY_CONTAINERS_ALLOCATED;
    f.containers_allocated = &m;
    if (p)
        keeper_send(k, p, &f);
}

void master_tell_cancelled(struct keeper *k, uint32_t number)
{
    struct peer *p = keeper_peer(k, PEER_MASTER);
    Tony__ContainersAllocated m = TONY__CONTAINERS_ALLOCATED__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    m.cancelled = number;
    f.body_case = TONY__FRAME__BODY_CONTAINERS_ALLOCATED;
    f.containers_allocated = &m;
    if (p)
        keeper_send(k, p, &f);
}

/* The number of ends in the next frame: those that were not reported to the master yet. */
static size_t n_unreported_ends(const struct keeper *k)
{
    return MIN(k->ends.n - k->ends.n_reported, (size_t)REPORT_MAX);
}

static void reply_add_ends(struct keeper *k, struct reply *r)
{
    exits_write(k); /* first into the file, so that the next keeper knows what the master knows */
    for (size_t n = n_unreported_ends(k); n > 0; n--)
        reply_add(r, k->ends.v[k->ends.n_reported++]);
}

/* Send one Registered. It has ends that were not reported to the master yet, and, if these are the
 * last ones, also the live containers. */
static int send_registered(struct keeper *k, struct peer *p)
{
    AUTO(reply_done) struct reply r;
    if (reply_open(&r, n_unreported_ends(k) + k->live.n) < 0)
        return -ENOMEM;
    reply_add_ends(k, &r);
    Tony__Registered m = TONY__REGISTERED__INIT;
    m.more = k->ends.n_reported < k->ends.n;
    for (const struct container *c = k->live.first; c && !m.more; c = c->after)
        reply_add(&r, c);
    m.containers = r.list;
    m.n_containers = r.n;
    m.memory_mib = k->memory_mib;
    m.n_gpus = k->n_gpus;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_REGISTERED;
    f.registered = &m;
    keeper_send(k, p, &f);
    return m.more;
}

/* Several parts of Registered may be more than the connection takes at once. */
static void tell_parts(struct keeper *k, struct peer *p)
{
    int more = 1;
    while (more > 0 && p->link.fd >= 0 && p->link.out.len < PARTS_QUEUED_MAX)
        more = send_registered(k, p);
    if (more || p->link.fd < 0)
        return; /* the loop calls this again; also if there is no memory now */
    p->kind = PEER_MASTER;
    if (k->noticed)
        master_notice(k);
    sockets_tell_master(k, p);
    resize_tell_wish(k);
}

static int tell_completed(struct keeper *k, struct peer *p)
{
    AUTO(reply_done) struct reply r;
    if (reply_open(&r, n_unreported_ends(k)) < 0)
        return -ENOMEM;
    reply_add_ends(k, &r);
    Tony__ContainersCompleted m = TONY__CONTAINERS_COMPLETED__INIT;
    m.containers = r.list;
    m.n_containers = r.n;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_CONTAINERS_COMPLETED;
    f.containers_completed = &m;
    keeper_send(k, p, &f);
    return 0;
}

void master_tell_ends(struct keeper *k)
{
    /* The cluster ends all processes of the job. The master got the same signal, and says why. */
    if (k->kind == KEEPER_OF_NODE && k->state == KEEPER_TAKING_DOWN)
        return;
    struct peer *p = keeper_peer(k, PEER_REGISTERING);
    if (p)
        tell_parts(k, p);
    p = keeper_peer(k, PEER_MASTER);
    while (p && p->link.fd >= 0 && k->ends.n_reported < k->ends.n)
        if (tell_completed(k, p) < 0)
            return; /* no memory: tried again in the next turn of the loop */
}

/* ---- frames of the master ---- */

static void on_register(struct keeper *k, struct peer *p, const Tony__RegisterMaster *m)
{
    bool stale = k->kind == KEEPER_OF_NODE ? m->epoch < k->epoch : m->epoch != k->epoch;
    if (stale || k->state != KEEPER_RUNNING) {
        Tony__Refused no = TONY__REFUSED__INIT;
        no.num = ESTALE;
        no.message = (char *)(k->state != KEEPER_RUNNING ? "the job is ending"
                                                         : "a newer master was started");
        Tony__Frame f = TONY__FRAME__INIT;
        f.body_case = TONY__FRAME__BODY_REFUSED;
        f.refused = &no;
        keeper_send(k, p, &f);
        link_close(&p->link);
        return;
    }
    forget_link(k);
    if (k->kind == KEEPER_OF_NODE)
        node_registered(k, m);
    p->kind = PEER_REGISTERING;
    k->demand = 0;
    containers_drop_asks(k); /* of the earlier master: the new one repeats those that it wants */
    k->ends.n_reported = k->ends.at;
    k->ends.n_acked = 0;
    tell_parts(k, p);
}

static void on_request(struct keeper *k, const Tony__RequestContainers *m)
{
    AUTO(free_p) struct ask *asks = calloc(m->n_asks + 1, sizeof *asks);
    if (!asks)
        return;
    for (size_t i = 0; i < m->n_asks; i++)
        asks[i] = (struct ask){ .slot = m->asks[i]->slot,
                                .memory_mib = m->asks[i]->memory_mib,
                                .vcores = m->asks[i]->vcores,
                                .gpus = m->asks[i]->gpus };
    containers_ask(k, asks, m->n_asks);
}

static void on_finish(struct keeper *k, const Tony__FinishJob *m)
{
    if (k->state != KEEPER_RUNNING)
        return;
    k->state = KEEPER_FINISHING;
    (void)str_copy(k->final_state, sizeof k->final_state, m->state);
    k->kill_at_ms = clock_mono_ms() + FINISH_PATIENCE_MS;
    containers_stop_all(k, FINISH_GRACE_MS);
}

void master_frame(struct keeper *k, struct peer *p, const Tony__Frame *f)
{
    struct container *c;
    switch ((int)f->body_case) { /* other frames are ignored */
    case TONY__FRAME__BODY_REGISTER_MASTER:
        on_register(k, p, f->register_master);
        break;
    case TONY__FRAME__BODY_REQUEST_CONTAINERS:
        on_request(k, f->request_containers);
        break;
    case TONY__FRAME__BODY_LAUNCH_CONTAINERS:
        for (size_t i = 0; i < f->launch_containers->n_containers; i++)
            if ((c = container_by_id(k, f->launch_containers->containers[i]->id))) {
                c->plain = f->launch_containers->containers[i]->plain;
                container_queue(k, c);
            }
        break;
    case TONY__FRAME__BODY_STOP_CONTAINER:
        if ((c = container_by_id(k, f->stop_container->id)))
            container_stop(k, c, f->stop_container->grace_ms);
        break;
    case TONY__FRAME__BODY_RELEASE_CONTAINERS:
        for (size_t i = 0; i < f->release_containers->n_ids; i++)
            if ((c = container_by_id(k, f->release_containers->ids[i])))
                container_release(k, c);
        break;
    case TONY__FRAME__BODY_WANT_CONTAINERS:
        resize_want(k, f->want_containers);
        break;
    case TONY__FRAME__BODY_SIZE_BOUNDS:
        resize_bounds(k, f->size_bounds);
        break;
    case TONY__FRAME__BODY_OUTLOOK:
        resize_outlook(k, f->outlook);
        break;
    case TONY__FRAME__BODY_CANCEL_ASKS:
        resize_cancel(k, f->cancel_asks);
        break;
    case TONY__FRAME__BODY_ACK_COMPLETED:
        ends_acked(k, f->ack_completed->n);
        break;
    case TONY__FRAME__BODY_FINISH_JOB:
        on_finish(k, f->finish_job);
        break;
    default: /* of a newer version */
        break;
    }
}
