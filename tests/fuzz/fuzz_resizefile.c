/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the request for a resize of a queued job; what decodes encodes again. */
#include <stdint.h>

#include "base/buf.h"
#include "base/util.h"
#include "codec/frame.h"
#include "proto/tony.pb-c.h"
#include "scheduler/yarn/resizefile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(frame_freep) Tony__Frame *f = NULL;
    AUTO(buf_done) struct buf again = { 0 };
    if (resize_file_decode(span_mem(data, size), "application_1_0001", &f, NULL) == 0 &&
        resize_file_encode(f->resize_job, &again, NULL) < 0)
        abort();
    return 0;
}
