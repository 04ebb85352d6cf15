/* SPDX-License-Identifier: Apache-2.0 */
/* The UTF-8 check against a second decoder, and the functions that split text. */
#include <assert.h>
#include <stdint.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Decodes by arithmetic. span_utf8() compares ranges of bytes. Both must agree. */
static bool decodes(const uint8_t *p, size_t n)
{
    static const uint32_t least[] = { 0, 1, 0x80, 0x800, 0x10000 };
    for (size_t i = 0; i < n;) {
        size_t len = p[i] < 0x80       ? 1
                     : p[i] >> 5 == 6  ? 2
                     : p[i] >> 4 == 14 ? 3
                     : p[i] >> 3 == 30 ? 4
                                       : 0;
        if (len == 0 || n - i < len)
            return false;
        uint32_t c = len == 1 ? p[i] : p[i] & (0x7fu >> len);
        for (size_t k = 1; k < len; k++) {
            if (p[i + k] >> 6 != 2)
                return false;
            c = c << 6 | (p[i + k] & 0x3f);
        }
        if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
            return false;
        i += len;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span s = span_mem(data, size), rest = s, field;
    size_t bad = 0, total = 0, fields = 0;
    bool good = span_utf8(s, &bad);
    assert(good == decodes(data, size));
    if (!good)
        assert(bad < size && span_utf8(span_mem(data, bad), NULL));
    while (span_split(&rest, ',', &field)) {
        total += field.len;
        fields++;
    }
    assert(!data || total + fields - 1 == size);

    int64_t v = 0;
    bool truth = false;
    (void)str_i64(s, -1000, 1000, "x", &v, NULL);
    assert(v >= -1000 && v <= 1000);
    v = 1;
    (void)str_mib(s, 1, 1 << 20, "x", &v, NULL);
    assert(v >= 1 && v <= 1 << 20);
    (void)str_bool(s, "x", &truth, NULL);
    return 0;
}
