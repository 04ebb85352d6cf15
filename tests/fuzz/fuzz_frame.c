/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a stream of frames, in two pieces. Each frame that can be unpacked is packed again. */
#include <stdint.h>

#include "base/buf.h"
#include "base/util.h"
#include "codec/frame.h"
#include "proto/tony.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(buf_done) struct buf in = { 0 };
    size_t cut = size > 0 ? data[0] % size : 0;
    const struct span pieces[] = { span_mem(data, cut), span_mem(data + cut, size - cut) };
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        struct span payload;
        if (pieces[i].len > 0 && buf_add(&in, pieces[i].p, pieces[i].len) < 0)
            return 0;
        while (frame_peek(&in, &payload, NULL) == 1) {
            AUTO(frame_freep) Tony__Frame *f = frame_unpack(payload, NULL);
            AUTO(buf_done) struct buf again = { 0 };
            if (f && f->body_case != TONY__FRAME__BODY__NOT_SET && frame_pack(f, &again) < 0)
                abort();
            frame_consume(&in, payload);
        }
    }
    return 0;
}
