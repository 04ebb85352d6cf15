/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the OpenMetrics text of a job. If it is accepted twice, the text of both is accepted, too.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>

#include "base/err.h"
#include "metrics/metrics.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = { 0 };
    struct buf text = { 0 };
    struct metrics_merge *m = metrics_merge_new(), *again = metrics_merge_new();
    assert(m && again);
    int rc = metrics_merge_add(m, span_mem(data, size), &e);
    assert(rc == 0 || (rc == -EBADMSG && e.msg[0]));
    assert(metrics_merge_add(m, span_mem(data, size), NULL) == rc);
    assert(metrics_merge_text(m, true, &text) == 0 && metrics_text_end(&text, true) == 0);
    assert(metrics_merge_add(again, buf_span(&text), NULL) == 0);
    metrics_merge_free(m);
    metrics_merge_free(again);
    buf_done(&text);
    return 0;
}
