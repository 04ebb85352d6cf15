/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that is resized while it runs. Its keeper says which containers the job wants; the pool
 * decides how much memory and how many GPUs it gets.
 *
 * The pool's figure for a job, `needs`, is never less than what the keeper may use:
 *
 * - The pool raises it before it sends an Admit, which lets the keeper use more.
 * - The pool takes the keeper's figure only from a KeeperState that answers the last Admit
 *   (admit_heard).
 *
 * The file `admitted` in the job's directory has the same figure. It is written before the Admit is
 * sent. A new pool reads it if the keeper is dead or does not answer, because job.conf only has the
 * size with which the job was submitted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "codec/json.h"
#include "loop/loop.h"
#include "pool/pool_int.h"
#include "proto/tony.pb-c.h"

enum { FILE_MAX = 65536 };

/* ---- the file `admitted` ---- */

static char *file_of(const struct pool_job *j)
{
    AUTO(free_p) char *dir = paths_job(&j->pool->paths, j->id);
    return dir ? fs_join(dir, "admitted") : NULL;
}

/* Write the file. It is not synced to disk: after a crash of the machine, no keeper is alive. */
static void save(const struct pool_job *j)
{
    struct err e = { 0 };
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(free_p) char *path = file_of(j);
    (void)buf_addf(&text, "{\"memory_mib\":%llu,\"vcores\":%u,\"containers\":%u,\"gpus\":[",
                   (unsigned long long)j->needs.memory_mib, j->vcores, j->n_containers);
    for (uint32_t i = 0; i < j->needs.gpus; i++)
        (void)buf_addf(&text, "%s%u", i ? "," : "", j->gpus[i]);
    (void)buf_adds(&text, "]}\n");
    int rc = text.failed || !path
                 ? err_set(&e, ENOMEM, "cannot write the file 'admitted' of a job: %m")
                 : fs_write_atomic(AT_FDCWD, path, buf_span(&text), 0600, false, &e);
    if (rc < 0)
        log_err(LOG_WARN, "job.admitted", &e); /* the keeper still reports the limits */
}

static void take_file(struct pool_job *j, const json_t *o)
{
    const json_t *gpus = json_object_get(o, "gpus");
    int64_t memory = json_int(o, "memory_mib", 0);
    if (memory <= 0 || !json_is_array(gpus) || json_array_size(gpus) > MACHINE_GPUS_MAX)
        return; /* damaged: keep the figures of job.conf */
    j->needs = (struct admission_amount){ (uint64_t)memory, (uint32_t)json_array_size(gpus) };
    for (size_t i = 0; i < json_array_size(gpus); i++)
        j->gpus[i] = (uint32_t)json_integer_value(json_array_get(gpus, i));
    j->vcores = (uint32_t)json_int(o, "vcores", j->vcores);
    j->n_containers = (uint32_t)json_int(o, "containers", j->n_containers);
}

void extension_load(struct pool_job *j)
{
    AUTO(free_p) char *path = file_of(j);
    AUTO(buf_done) struct buf text = { .max = FILE_MAX };
    AUTO(json_freep) json_t *o = NULL;
    struct err e = { 0 };
    if (path && fs_read(AT_FDCWD, path, &text, &e) == 0 &&
        json_parse("admitted", buf_span(&text), &o, &e) == 0)
        take_file(j, o);
    else if (e.num && e.num != ENOENT)
        log_err(LOG_WARN, "job.admitted", &e);
}

/* ---- to the keeper ---- */

static void send_admit(struct pool_job *j, const char *refused)
{
    Tony__Admit m = TONY__ADMIT__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    m.number = ++j->admit_number;
    m.memory_mib = j->needs.memory_mib;
    m.gpus = j->gpus;
    m.n_gpus = j->needs.gpus;
    m.refused = (char *)(refused ? refused : "");
    m.wants_number = j->wish.number;
    f.body_case = TONY__FRAME__BODY_ADMIT;
    f.admit = &m;
    int rc = j->keeper ? conn_send(j->keeper, &f) : -EPIPE;
    if (rc < 0) /* on_close() of the connection follows, and the pool reconnects */
        log_event(LOG_WARN, "keeper.send", f_str("job", j->id), f_int("rc", rc));
}

int pool_job_wish(struct pool_job *j, bool grow, uint32_t n_containers, int64_t deadline_ms,
                  bool saved, const char *why, struct err *e)
{
    Tony__SizeWish m = TONY__SIZE_WISH__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    m.n_containers = n_containers;
    m.deadline_ms = (uint64_t)MAX(deadline_ms, (int64_t)0);
    m.grow = grow;
    m.saved = saved;
    m.why = (char *)why;
    f.body_case = TONY__FRAME__BODY_SIZE_WISH;
    f.size_wish = &m;
    if (j->phase != PH_LIVE || !j->keeper)
        return err_set(e, EAGAIN, "cannot ask job '%s' for a new size: it is not running now",
                       j->id);
    int rc = conn_send(j->keeper, &f);
    if (rc < 0)
        return err_set(e, -rc, "cannot ask job '%s' for a new size: %m", j->id);
    log_event(LOG_INFO, "job.wish", f_str("job", j->id), f_str("to", grow ? "grow" : "shrink"),
              f_int("containers", n_containers), f_str("why", why));
    return 0;
}

/* ---- what the job holds ---- */

static bool same_gpus(const struct pool_job *j, const Tony__KeeperState *s)
{
    if (s->n_gpus != j->needs.gpus)
        return false;
    for (uint32_t i = 0; i < j->needs.gpus; i++)
        if (s->gpus[i] != j->gpus[i])
            return false;
    return true;
}

/* If the keeper could not lock all devices of the last Admit, other users have locked them. Then
 * pause before the next try. */
static void pause_for_gpus(struct pool_job *j, const Tony__KeeperState *s)
{
    if (j->admit_number == 0 || s->n_gpus >= MIN(j->needs.gpus, s->wants_gpus))
        return;
    pool_retry_gpus_later(j);
}

/* Set j->needs to the limits that the keeper reports. true: they have changed. */
static bool take_holdings(struct pool_job *j, const Tony__KeeperState *s)
{
    if (s->admit_heard != j->admit_number)
        return false; /* the keeper has not handled the last Admit yet */
    pause_for_gpus(j, s);
    bool same = s->memory_mib == j->needs.memory_mib && same_gpus(j, s);
    if (s->memory_mib == 0 || same || s->n_gpus > MACHINE_GPUS_MAX)
        return false;
    j->needs = (struct admission_amount){ s->memory_mib, (uint32_t)s->n_gpus };
    for (size_t i = 0; i < s->n_gpus; i++)
        j->gpus[i] = s->gpus[i];
    if (s->wants_containers && s->wants_memory_mib <= s->memory_mib) {
        j->vcores = s->wants_vcores;
        j->n_containers = s->wants_containers;
    }
    log_event(LOG_INFO, "job.holds", f_str("job", j->id),
              f_int("memory_mib", (int64_t)j->needs.memory_mib), f_int("gpus", j->needs.gpus));
    save(j);
    return true;
}

/* ---- what the job wants ---- */

static bool wants_more(const struct admission_amount *wants, const struct admission_amount *has)
{
    return wants->memory_mib > has->memory_mib || wants->gpus > has->gpus;
}

struct admission_amount extension_lacks(const struct pool_job *j)
{
    struct admission_amount lacks = { 0 };
    if (j->wish.needs.memory_mib > j->needs.memory_mib)
        lacks.memory_mib = j->wish.needs.memory_mib - j->needs.memory_mib;
    if (j->wish.needs.gpus > j->needs.gpus)
        lacks.gpus = j->wish.needs.gpus - j->needs.gpus;
    return lacks;
}

/* The extension is behind the jobs that were submitted before the job asked for it, and before
 * later ones. A new pool computes the same order. */
static uint32_t arrival(const struct pool *p, int64_t asked_wall_ms)
{
    uint32_t last = 0;
    for (size_t i = 0; i < p->jobs.n; i++)
        if (p->jobs.v[i]->submitted_wall_ms <= asked_wall_ms)
            last = MAX(last, p->jobs.v[i]->number);
    return last;
}

static int check_possible(const struct pool_job *j, struct err *e)
{
    const struct machine *m = &j->pool->machine;
    struct admission_amount all = { m->memory_mib, m->n_gpus };
    if (admission_possible(&all, &j->wish.needs))
        return submit_check_files(j->wish.n_containers, e);
    if (j->wish.needs.gpus > all.gpus)
        return err_set(e, ERANGE, "the job needs %u GPUs for its new size, the pool has %u",
                       j->wish.needs.gpus, all.gpus);
    char need[32], have[32];
    uint64_t most = UINT64_MAX >> 20; /* for a sum that the keeper has capped */
    return err_set(e, ERANGE,
                   "the job needs %s of memory (%llu MiB) for its new size, the pool has %s "
                   "(%llu MiB)",
                   str_size(MIN(j->wish.needs.memory_mib, most) << 20, need, sizeof need),
                   (unsigned long long)j->wish.needs.memory_mib,
                   str_size(all.memory_mib << 20, have, sizeof have),
                   (unsigned long long)all.memory_mib);
}

static void refuse(struct pool_job *j, const struct err *e)
{
    log_event(LOG_INFO, "job.extension_refused", f_str("job", j->id), f_str("why", e->msg));
    j->wish.refused_number = j->wish.number;
    send_admit(j, e->msg);
}

/* Store what the job wants, as its keeper reports it. true: the queue has changed. */
static bool take_wish(struct pool_job *j, const Tony__KeeperState *s)
{
    struct pool_wish before = j->wish;
    struct pool_wish *w = &j->wish;
    struct err e = { 0 };
    if (s->wants_containers == 0) {
        *w = (struct pool_wish){ 0 };
        return before.open;
    }
    w->number = s->wants_number;
    w->needs = (struct admission_amount){ s->wants_memory_mib, s->wants_gpus };
    w->n_containers = s->wants_containers;
    w->vcores = s->wants_vcores;
    w->open = wants_more(&w->needs, &j->needs) && w->refused_number != w->number;
    if (w->open && check_possible(j, &e) < 0) {
        w->open = false;
        refuse(j, &e);
    }
    if (w->open && (!before.open || before.number != w->number))
        w->arrival = arrival(j->pool, s->wants_since_ms);
    return w->open || before.open;
}

bool extension_heard(struct pool_job *j, const Tony__KeeperState *s)
{
    bool bounds = j->min_containers != s->min_containers || j->max_containers != s->max_containers;
    j->min_containers = s->min_containers;
    j->max_containers = s->max_containers;
    bool learnt = (j->ends_late_ms == 0) != (s->ends_late_ms == 0);
    j->ends_early_ms = s->ends_early_ms;
    j->ends_late_ms = s->ends_late_ms;
    bounds |= j->cost_known != s->cost_known || j->cost_ms != s->cost_ms;
    j->cost_known = s->cost_known;
    j->cost_ms = s->cost_ms;
    if (j->cost_known)
        sharing_learn(j);
    bool holdings_changed = take_holdings(j, s);
    bool wish_changed = take_wish(j, s);
    return holdings_changed || wish_changed || ((bounds || learnt) && sharing_divides(j->pool));
}

void extension_forget(struct pool_job *j)
{
    j->wish = (struct pool_wish){ 0 };
    j->admit_number = 0;
    j->min_containers = j->max_containers = 0;
    j->ends_early_ms = j->ends_late_ms = 0;
    sharing_keeper_died(j);
}

/* ---- granting ---- */

void extension_grant(struct pool_job *j)
{
    struct admission_amount more = extension_lacks(j);
    uint32_t had = j->needs.gpus;
    j->needs.memory_mib += more.memory_mib;
    j->needs.gpus += more.gpus;
    pool_choose_gpus(j, had);
    j->vcores = MAX(j->vcores, j->wish.vcores);
    j->n_containers = MAX(j->n_containers, j->wish.n_containers);
    j->wish.open = false;
    log_event(LOG_INFO, "job.extended", f_str("job", j->id),
              f_int("memory_mib", (int64_t)j->needs.memory_mib), f_int("gpus", j->needs.gpus));
    save(j);
    send_admit(j, NULL);
}
