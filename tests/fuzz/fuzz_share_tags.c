/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as a tag that the client of another user has set: the needs of a job, or the public half
 * of the key pair from which the arbiter derives a resize key. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "arbiter/share.h"
#include "base/base.h"
#include "partition/partition.h"
#include "storage/resizekey.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TAG_MAX = 200 }; /* YARN allows 100 characters */

/* Needs that were accepted can be written as a tag again, with the same numbers. */
static void needs(const char *tag)
{
    struct share_needs s, again;
    char text[SHARE_TAG_MAX];
    struct err e = { 0 };
    int rc = share_needs_read(tag, &s, &e);
    if (rc < 0) {
        if (!e.msg[0])
            abort();
        return;
    }
    if (s.min < 1 || s.min >= s.max || s.max > PART_CONTAINERS_MAX || s.each_mib < 1 ||
        s.weight < 1 || s.weight > PART_WEIGHT_MAX || !(s.budget >= 0 && s.budget <= 1e9))
        abort();
    if (!share_needs_tag(&s, text))
        return; /* the budget has another form, which is longer */
    if (share_needs_read(text, &again, &e) < 0 || again.n != s.n || again.min != s.min ||
        again.max != s.max || again.each_mib != s.each_mib || again.each_gpus != s.each_gpus ||
        again.fixed_containers != s.fixed_containers || again.fixed_mib != s.fixed_mib ||
        again.fixed_gpus != s.fixed_gpus || again.master_mib != s.master_mib ||
        again.weight != s.weight)
        abort();
}

/* The corpus has a tag for the arbiter with this private key. */
static void key(const char *tag)
{
    struct arbiter_key secret;
    struct tls_key out = { .len = 0 };
    struct err e = { 0 };
    memset(secret.bytes, 't', sizeof secret.bytes);
    int rc = resize_key_accept(&secret, tag, "application_1_0001", &out, &e);
    if (rc < 0 && (rc != -EINVAL || !e.msg[0] || out.len != 0))
        abort();
    if (rc == 0 && (out.len != ARBITER_KEY_BYTES || strlen(tag) != RESIZE_TAG_MAX - 1))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > TAG_MAX)
        return 0;
    AUTO(free_p) char *tag = calloc(1, size + 1);
    if (!tag)
        abort();
    if (size > 0)
        memcpy(tag, data, size);
    needs(tag);
    key(tag);
    return 0;
}
