/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a YAML job file. Tests the reader and the whole configuration. */
#include "base/base.h"
#include "codec/yaml.h"
#include "conf/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = { 0 };
    struct conf *c = conf_new();
    struct job_spec *s = NULL;
    struct job_demand d;
    if (c && conf_load_text(c, CL_JOB, "dir/job.yaml", span_mem(data, size), false, &e) == 0 &&
        job_spec_build(c, &s, &e) == 0)
        job_spec_demand(s, &d);
    else if (c && !*e.msg)
        abort(); /* a refusal without a message */
    job_spec_free(s);
    conf_free(c);
    return 0;
}
