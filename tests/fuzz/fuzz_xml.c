/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a TonY XML file, read as a job file and as a site file. */
#include "base/base.h"
#include "codec/xml.h"
#include "conf/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = { 0 };
    struct conf *c = conf_new();
    struct job_spec *s = NULL;
    struct span text = span_mem(data, size);
    struct buf out = { 0 };
    struct conf *again = NULL;
    if (c &&
        (conf_load_text(c, CL_SITE, "tony-site.xml", text, true, &e) == 0 ||
         conf_load_text(c, CL_JOB, "tony.xml", text, true, &e) == 0) &&
        job_spec_build(c, &s, &e) == 0) {
        /* an accepted configuration can be written and read back */
        if (conf_encode(c, &out, &e) < 0 || conf_decode(buf_span(&out), &again, &e) < 0)
            abort();
    }
    job_spec_free(s);
    conf_free(again);
    conf_free(c);
    buf_done(&out);
    return 0;
}
