/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the plan that a user's driver has written. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "executor/driver.h"
#include "runtime/runtime.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rt_slot *slots = NULL;
    size_t n = 0;
    struct err e = { 0 };
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    int rc = driver_plan(text, &slots, &n, &e);
    if ((rc < 0) != (e.msg[0] != '\0') || (rc == 0 && (!slots || n == 0)))
        abort();
    free(slots);
    free(text);
    return 0;
}
