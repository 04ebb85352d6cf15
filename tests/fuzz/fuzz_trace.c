/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a trace of `tony simulate`: a trace that was read and written can be read again, and
 * is the same when written again. */
#include <stdint.h>
#include <stdlib.h>

#include "base/base.h"
#include "simulate/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(trace_done) struct trace a = { 0 };
    AUTO(trace_done) struct trace b = { 0 };
    AUTO(buf_done) struct buf once = { 0 };
    AUTO(buf_done) struct buf twice = { 0 };
    struct err e = { 0 };
    if (trace_parse("input", span_mem(data, size), &a, &e) < 0) {
        if (!e.msg[0])
            abort();
        return 0;
    }
    if (trace_write(&a, &once) < 0)
        return 0; /* many groups of nodes: larger than a buffer may be */
    if (trace_parse("output", buf_span(&once), &b, &e) < 0 || trace_write(&b, &twice) < 0 ||
        !span_eq(buf_span(&once), buf_span(&twice)))
        abort();
    return 0;
}
