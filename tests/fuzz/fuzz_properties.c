/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a properties file of Java. Keys and values are texts without NUL; an error has a sentence.
 */
#include "base/base.h"
#include "codec/properties.h"

static int take(const char *key, const char *value, void *arg)
{
    size_t *bytes = arg;
    *bytes += strlen(key) + strlen(value);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = { 0 };
    size_t bytes = 0;
    int rc = properties_parse("text", span_mem(data, size), take, &bytes, &e);
    /* an escape has at least as many bytes as what it stands for */
    if ((rc < 0 && !*e.msg) || bytes > size)
        abort();
    return 0;
}
