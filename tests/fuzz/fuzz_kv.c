/* SPDX-License-Identifier: Apache-2.0 */
/* Input: requests to the store of Horovod's ranks, on several connections, one after the other. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "rendezvous/kv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kv kv;
    struct kv_request r = { 0 };
    kv_init(&kv, BYTES_MAX);
    for (size_t at = 0, n; at < size; at += n) {
        struct buf out = { 0 };
        n = (size_t)1 + data[at] % 64;
        n = n < size - at ? n : size - at;
        int rc = kv_feed(&kv, &r, span_mem(data + at, n), &out);
        if (rc != 0 || kv.bytes > BYTES_MAX) {
            if (rc == 1 && !span_starts(buf_span(&out), "HTTP/1.0 "))
                abort();
            if (kv.bytes > BYTES_MAX)
                abort();
            kv_request_done(&r);
            r = (struct kv_request){ 0 };
        }
        buf_done(&out);
    }
    kv_request_done(&r);
    kv_done(&kv);
    return 0;
}
