/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a file of metrics. Its first byte chooses a way to read it: as a file with checksums, or
 * as records without them, so that the fuzzer need not find checksums. What was read is thinned,
 * and the result is a valid file. */
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"
#include "metrics/metrics.h"
#include "storage/metrics_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_value(void *arg, uint32_t task, uint32_t name, int64_t t_ms, double value)
{
    const struct metrics_reader *r = arg;
    assert(task < metrics_reader_n_tasks(r) && name < metrics_reader_n_names(r));
    assert(t_ms >= 0 && isfinite(value));
    return 0;
}

static int on_gone(void *arg, uint32_t task, int64_t t_ms)
{
    assert(task < metrics_reader_n_tasks(arg) && t_ms >= 0);
    return 0;
}

static void read_record(struct metrics_reader *r, struct metrics_thin *t, struct span record)
{
    const struct metrics_sink sink = { .value = on_value, .gone = on_gone, .arg = r };
    struct err e = { 0 };
    int rc = metrics_read(r, record, &sink, &e);
    assert(rc == 0 || e.msg[0]);
    (void)metrics_thin_add(t, record, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct metrics_records records;
    struct span record;
    struct buf out = { .max = 64 << 20 };
    if (size == 0)
        return 0;
    struct metrics_reader *r = metrics_reader_new();
    struct metrics_thin *t = metrics_thin_new(2, INT64_C(1800000000000), metrics_file_put, &out);
    assert(r && t);
    (void)buf_adds(&out, "tony-metrics 1\n");
    if (data[0] == 't') {
        if (metrics_records_begin(&records, span_mem(data, size), NULL) == 0) {
            while (metrics_records_next(&records, &record))
                read_record(r, t, record);
            assert(records.end <= (int64_t)size && (records.torn || records.end == (int64_t)size));
        }
    } else {
        read_record(r, t, span_mem(data + 1, size - 1));
    }
    (void)metrics_thin_end(t, NULL);
    metrics_thin_free(t);
    metrics_reader_free(r);
    r = metrics_reader_new();
    assert(metrics_records_begin(&records, buf_span(&out), NULL) == 0);
    const struct metrics_sink sink = { .value = on_value, .gone = on_gone, .arg = r };
    while (metrics_records_next(&records, &record))
        assert(metrics_read(r, record, &sink, NULL) == 0);
    assert(!records.torn);
    metrics_reader_free(r);
    buf_done(&out);
    return 0;
}
