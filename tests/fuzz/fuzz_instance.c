/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the input of `tony allocate`: each policy answers with JSON, or refuses with a
 * sentence. */
#include <stdint.h>
#include <stdlib.h>

#include "base/base.h"
#include "codec/json.h"
#include "partition/instance.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void answer(struct span text, const struct part_policy *policy)
{
    const struct part_limit limit = { .steps = 1000 };
    AUTO(buf_done) struct buf out = { 0 };
    AUTO(json_freep) json_t *j = NULL;
    struct err e = { 0 };
    int rc = instance_answer("input", text, policy, &limit, NULL, &out, &e);
    if (rc < 0 && (out.len > 0 || !e.msg[0]))
        abort();
    if (rc == 0 && json_parse("answer", buf_span(&out), &j, &e) < 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span text = span_mem(data, size);
    answer(text, NULL);
    for (const struct part_policy *p = part_policies; p->name; p++)
        answer(text, p);
    return 0;
}
