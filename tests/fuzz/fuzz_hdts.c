/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a token storage. */
#include <stdint.h>

#include "base/base.h"
#include "codec/hdts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span text = span_mem(data, size), out;
    static const char *const names[] = { "my.secret", "", "a" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (hdts_secret(text, names[i], &out, NULL) == 0 && out.len > 0 &&
            (out.p < text.p || out.p + out.len > text.p + text.len))
            abort();
    return 0;
}
