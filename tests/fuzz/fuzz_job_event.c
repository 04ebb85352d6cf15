/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: journal records, one line of JSON each. Each accepted record is fed to a job, encoded
 * again and read back. Nothing may crash, and the second reading must give the same as the first.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "conf/conf.h"
#include "job/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const struct job_event *ev, int64_t t)
{
    AUTO(buf_done) struct buf once = { 0 }, twice = { 0 };
    struct job_event back;
    int64_t t_back;
    void *holder;

    if (job_event_encode(ev, t, &once) < 0)
        abort();
    if (job_event_decode(buf_span(&once), &back, &t_back, &holder, NULL) < 0 || t_back != t)
        abort();
    if (job_event_encode(&back, t_back, &twice) < 0 || once.len != twice.len ||
        memcmp(once.p, twice.p, once.len) != 0)
        abort();
    job_event_release(holder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char chief[] = "chief", worker[] = "worker", ps[] = "ps", name[] = "fuzz", group[] = "A";
    uint32_t chief_role = 0;
    struct role_spec roles[] = {
        { .name = chief, .instances = 1, .memory_mib = 512, .kind = ROLE_TRACKED },
        { .name = worker, .instances = 2, .memory_mib = 512, .kind = ROLE_TRACKED },
        { .name = ps,
          .instances = 1,
          .memory_mib = 512,
          .kind = ROLE_UNTRACKED,
          .waits_for = &chief_role,
          .n_waits_for = 1 },
    };
    struct group_timeout limit = {
        .role = 1, .members = &chief_role, .n_members = 1, .timeout_ms = 1000, .group = group
    };
    struct job_spec spec = { .name = name,
                             .gang = true,
                             .roles = roles,
                             .n_roles = ARRAY_LEN(roles),
                             .n_tasks = 4,
                             .heartbeat_ms = 1000,
                             .max_missed_heartbeats = 25,
                             .client_away_ms = 60000,
                             .kill_grace_ms = 5000,
                             .app_timeout_ms = 100000,
                             .allocation_timeout_ms = 1000,
                             .registration_timeout_ms = 1000,
                             .group_timeouts = &limit,
                             .n_group_timeouts = 1 };
    struct job *j = job_new(&spec, NULL);
    struct job_actions acts = { 0 };
    struct span rest = span_mem(data, size), line;

    while (j && span_split(&rest, '\n', &line)) {
        struct job_event ev, due;
        int64_t t;
        void *holder;
        if (job_event_decode(line, &ev, &t, &holder, NULL) < 0)
            continue;
        check_again(&ev, t);
        acts.n = 0;
        if (job_feed(j, &ev, t, &acts, NULL) < 0)
            abort();
        for (int i = 0; i < 4 && job_due(j, job_now(j), &due); i++)
            (void)job_feed(j, &due, t, &acts, NULL);
        job_event_release(holder);
    }
    if (j) {
        AUTO(buf_done) struct buf json = { 0 };
        if (job_status_json(j, true, &json) < 0)
            abort();
    }
    job_free(j);
    free(acts.v);
    return 0;
}
