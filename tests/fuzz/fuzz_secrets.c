/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a text of secrets, and the encrypted file of such a text. */
#include <stdint.h>

#include "base/base.h"
#include "storage/jobkey.h"
#include "storage/sealed.h"
#include "storage/secrets.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct job_key key = { "0123456789abcdef0123456789abcde" };
    AUTO(strv_done) struct strv env = { 0 };
    struct buf out = { .max = SECRETS_TEXT_MAX };
    (void)secrets_add_to(span_mem(data, size), &env);
    for (size_t i = 0; i < env.n; i++)
        if (!strchr(env.v[i], '='))
            abort();
    if (sealed_read(&key, "application_1700000000000_0007", span_mem(data, size), &out, NULL) < 0 &&
        out.len > 0)
        abort();
    secrets_wipe(&out);
    return 0;
}
