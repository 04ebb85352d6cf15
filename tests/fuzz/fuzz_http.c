/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the answer of a web server, in two pieces. The body is never longer than the input. */
#include <stdint.h>

#include "base/base.h"
#include "loop/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void count(const char *p, size_t n, void *arg)
{
    (void)p;
    *(size_t *)arg += n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_parse x = { .head.max = 1 << 14 };
    size_t cut = size > 0 ? data[size - 1] % size : 0, body = 0;
    const char *p = (const char *)data;
    ssize_t rc = http_parse(&x, p, cut, count, &body, NULL);
    if (rc == (ssize_t)cut)
        rc = http_parse(&x, p + cut, size - cut, count, &body, NULL);
    if (body > size || (rc >= 0 && x.state == HP_DONE && (x.status < 100 || x.status > 999)))
        abort();
    (void)http_find(buf_span(&x.head), "Location"); /* the result does not matter */
    http_parse_done(&x);
    return 0;
}
