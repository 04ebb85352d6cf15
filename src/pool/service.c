/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/service.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "pool/pool_int.h"
#include "pool/sharing.h"

enum { FILE_MAX = 64 << 20 };

int service_load(struct pool *p, struct err *e)
{
    struct service_file *f = &p->sharing.service;
    AUTO(buf_done) struct buf text = { .max = FILE_MAX };
    struct err ignored = { 0 };

    f->path = fs_join(p->paths.pool, "service");
    if (!f->path)
        return err_set(e, ENOMEM, "cannot read what jobs have attained: %m");
    f->may_exist = true;
    if (fs_read(AT_FDCWD, f->path, &text, &ignored) == 0)
        (void)json_parse(f->path, buf_span(&text), &f->loaded, &ignored);
    return 0;
}

/* Take what the last pool has stored about the job. */
static void take_stored(struct pool_job *j, const json_t *all, int64_t now)
{
    const json_t *one = json_object_get(all, j->id);
    double attained_s = json_number_value(json_object_get(one, "attained_s"));
    double share = json_number_value(json_object_get(one, "share"));
    int64_t at_ms = json_integer_value(json_object_get(one, "at_ms"));
    bool counts_on = !j->pool->rebooted && at_ms <= now && share >= 0 && share <= 1;

    if (!(attained_s >= 0 && attained_s < INFINITY))
        return;
    j->service = (struct service){ .attained_s = attained_s, .at_ms = now };
    if (counts_on)
        j->service.attained_s += share * (double)(now - at_ms) / 1000;
}

static double part_of(uint64_t held, uint64_t all)
{
    return all > 0 ? MIN((double)held / (double)all, 1.0) : 0;
}

static double share_of(const struct pool_job *j)
{
    const struct machine *m = &j->pool->machine;

    if (!pool_job_admitted(j))
        return 0;
    return MAX(part_of(j->needs.memory_mib, m->memory_mib), part_of(j->needs.gpus, m->n_gpus));
}

static double attained_s(const struct service *s, int64_t now)
{
    return s->attained_s + s->share * (double)(now - s->at_ms) / 1000;
}

double service_attained_s(const struct pool_job *j)
{
    return attained_s(&j->service, clock_mono_ms());
}

static int store(const struct pool *p, struct err *e)
{
    AUTO(buf_done) struct buf text = { 0 };
    const char *sep = "";

    (void)buf_addc(&text, '{');
    for (size_t i = 0; i < p->jobs.n; i++) {
        const struct pool_job *j = p->jobs.v[i];
        const struct service *s = &j->service;
        if (s->share <= 0 && s->attained_s <= 0)
            continue;
        (void)buf_addf(&text, "%s\n\"%s\":{\"attained_s\":%.9g,\"share\":%.9g,\"at_ms\":%lld}", sep,
                       j->id, s->attained_s, s->share, (long long)s->at_ms);
        sep = ",";
    }
    (void)buf_adds(&text, "}\n");
    if (text.failed)
        return err_set(e, ENOMEM, "cannot write '%s': %m", p->sharing.service.path);
    return fs_write_atomic(AT_FDCWD, p->sharing.service.path, buf_span(&text), 0600, false, e);
}

/* Remove the file: this pool does not update it any more, and a later pool would continue from old
 * values. */
static void drop(struct service_file *f)
{
    f->is_old = true;
    if (f->may_exist && f->path && (unlink(f->path) == 0 || errno == ENOENT))
        f->may_exist = false;
}

void service_update(struct pool *p)
{
    struct service_file *f = &p->sharing.service;
    int64_t now = clock_mono_ms();
    struct err e = { 0 };

    for (size_t i = 0; i < p->jobs.n; i++) {
        struct pool_job *j = p->jobs.v[i];
        double share = share_of(j);
        if (f->loaded) {
            take_stored(j, f->loaded, now);
            f->is_old = true;
        }
        if (fabs(share - j->service.share) < 1e-12)
            continue;
        j->service = (struct service){ attained_s(&j->service, now), share, now };
        f->is_old = true;
    }
    if (p->jobs.n > 0) {
        json_decref(f->loaded);
        f->loaded = NULL;
    }
    const struct part_policy *policy = p->sharing.settings.policy;
    if (!policy || !policy->by_service) {
        drop(f);
        return;
    }
    if (!f->is_old || !f->path)
        return;
    if (store(p, &e) < 0)
        log_err(LOG_WARN, "policy.service", &e);
    f->is_old = false;
    f->may_exist = true;
}

void service_done(struct pool *p)
{
    json_decref(p->sharing.service.loaded);
    p->sharing.service.loaded = NULL;
    free(TAKE(p->sharing.service.path));
}
