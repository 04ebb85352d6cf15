/* SPDX-License-Identifier: Apache-2.0 */
/* Input: JSON, for the strict reader and as a stored configuration. Escaped text must be accepted
 * by the strict reader. */
#include "base/base.h"
#include "codec/json.h"
#include "conf/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span text = span_mem(data, size);
    struct err e = { 0 };
    struct buf out = { 0 };
    struct conf *c = NULL;
    json_t *j = NULL;
    if (json_parse("text", text, &j, &e) < 0 && !*e.msg)
        abort();
    json_decref(j);
    if (conf_decode(text, &c, &e) == 0) {
        struct job_spec *s = NULL;
        (void)job_spec_build(c, &s, &e); /* the result does not matter */
        job_spec_free(s);
    }
    conf_free(c);
    if (json_add_str(&out, text) < 0)
        abort();
    j = json_loadb(out.p, out.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!j)
        abort();
    json_decref(j);
    buf_done(&out);
    return 0;
}
