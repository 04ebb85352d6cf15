/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a job.conf. A decoded file can be encoded, and decodes to the same again. */
#include <assert.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/util.h"
#include "storage/jobfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(job_file_freep) struct job_file *a = NULL;
    if (job_file_decode(span_mem(data, size), &a, NULL) < 0)
        return 0;
    AUTO(buf_done) struct buf once = { 0 };
    AUTO(buf_done) struct buf twice = { 0 };
    AUTO(job_file_freep) struct job_file *b = NULL;
    if (job_file_encode(a, &once, NULL) < 0)
        abort();
    if (job_file_decode(buf_span(&once), &b, NULL) < 0 || job_file_encode(b, &twice, NULL) < 0)
        abort();
    assert(span_eq(buf_span(&once), buf_span(&twice)));
    return 0;
}
