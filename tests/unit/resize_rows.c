/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/base.h"
#include "drive.h"
#include "job/job_int.h"
#include "resize_rows.h"

const char *resize_state(const struct drive *d)
{
    static const char *const names[] = {
        [RESIZE_STEADY] = "steady", [RESIZE_WAITING] = "waiting", [RESIZE_FORMING] = "forming"
    };
    return names[d->job->resize.state];
}

void resize_shape(const struct drive *d, struct buf *out)
{
    for (uint32_t r = 0; r < job_n_roles(d->job); r++) {
        for (uint32_t i = 0; i < job_role_tasks(d->job, r); i++) {
            struct slot_view v;
            job_slot(d->job, job_task(d->job, r, i), &v);
            (void)buf_addf(out, "%s%s:%u=", out->len ? " " : "", v.role, v.index);
            if (v.state == SLOT_RUNNING)
                (void)buf_addf(out, "%u.%u", v.generation, v.attempt);
            else
                (void)buf_adds(out, slot_state_name(v.state));
        }
    }
}

void resize_check(const struct resize_row *r)
{
    struct drive d;
    AUTO(buf_done) struct buf text = { 0 };

    drive_init(&d, r->job);
    drive_run(&d, r->script);
    resize_shape(&d, &text);
    if (!str_eq(buf_cstr(&text), r->shape) || !str_eq(resize_state(&d), r->state) ||
        (r->outcome && d.job->resize.outcome != r->outcome))
        fail_msg("[%s] after [%s]: %s, %s, outcome %d \"%s\" (%s), but designed: %s, %s", r->job,
                 r->script, buf_cstr(&text), resize_state(&d), (int)d.job->resize.outcome,
                 d.job->resize.detail, d.e.msg, r->shape, r->state);
    uint32_t n = 0;
    for (uint32_t role = 0; role < job_n_roles(d.job); role++)
        n += job_role_tasks(d.job, role);
    assert_int_equal(job_n_tasks(d.job), n);
    for (uint32_t i = 0; i < job_n_slots(d.job); i++)
        assert_true(r->charged || d.job->slots[i].tally.n == 0);
    drive_done(&d);
}

void resize_check_all(const struct resize_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        resize_check(&rows[i]);
}
