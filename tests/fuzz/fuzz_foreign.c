/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the trace of another cluster. The first line may be a list of columns: then it
 * begins with '='. A trace that was read has jobs in the order of their arrival, and each can be
 * resized only within its bounds. */
#include <stdint.h>
#include <stdlib.h>

#include "base/base.h"
#include "simulate/foreign.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(trace_done) struct trace t = { 0 };
    AUTO(free_p) char *columns = NULL;
    struct span text = span_mem(data, size), line;
    struct foreign_options o = { .low = 0.25, .high = 2, .exponent = 0.9 };
    struct foreign_result result;
    struct err e = { 0 };
    if (size > 0 && data[0] == '=' && span_split(&text, '\n', &line)) {
        columns = span_dup(span_mem(line.p + 1, line.len - 1));
        if (!columns)
            return 0;
        o.columns = columns;
    }
    if (foreign_parse("input", text, &o, &t, &result, &e) < 0) {
        if (!e.msg[0])
            abort();
        return 0;
    }
    for (size_t i = 0; i < t.n_jobs; i++) {
        const struct trace_job *job = &t.jobs[i];
        if (job->min < 1 || job->min > job->fixed || job->fixed > job->max ||
            !(job->duration_s > 0) || (i > 0 && job->arrival_s < job[-1].arrival_s))
            abort();
    }
    return 0;
}
