/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the bytes of a peer, for a TLS server and for a client, in two pieces. */
#include <stdint.h>

#include "base/base.h"
#include "codec/tls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct tls_key key = { "0123456789abcdef", 16 };

static bool key_of(const char *identity, struct tls_key *out, void *arg)
{
    (void)identity;
    (void)arg;
    *out = key;
    return true;
}

static void feed(struct tls *t, const uint8_t *data, size_t size)
{
    AUTO(buf_done) struct buf plain = { 0 };
    size_t cut = size > 0 ? data[size - 1] % size : 0;
    if (t && tls_feed(t, data, cut, &plain, NULL) == 0)
        (void)tls_feed(t, data + cut, size - cut, &plain, NULL);
    if (t && tls_ready(t))
        abort(); /* impossible without the other half of the key exchange */
    tls_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    feed(tls_server_new(key_of, NULL, NULL), data, size);
    feed(tls_client_new("worker:3", &key, NULL), data, size);
    return 0;
}
