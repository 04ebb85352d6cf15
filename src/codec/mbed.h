/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers of Mbed TLS that tony uses, and the differences between its versions 2.28 (Debian 12)
 * and 3.6 (Debian 13). The code uses the names of 3.6; this header gives 2.28 the same names. No
 * other file includes a header of Mbed TLS (tools/check-layers).
 *
 * Only macros and inline functions: a library that includes this header links what it calls.
 */
#pragma once

/* 3.x marks most members of its structs as private. tony reads these: the state and the last alert
 * of a TLS session (tls.c), the parts of an X25519 key (resizekey.c), and the key of ChaCha20
 * (chachapoly.c). */
#define MBEDTLS_ALLOW_PRIVATE_ACCESS

#include <mbedtls/base64.h>
#include <mbedtls/chachapoly.h>
#include <mbedtls/ecp.h>
#include <mbedtls/gcm.h>
#include <mbedtls/hkdf.h>
#include <mbedtls/md.h>
#include <mbedtls/md5.h>
#include <mbedtls/sha256.h>
#include <mbedtls/ssl.h>
#include <mbedtls/version.h>

#if MBEDTLS_VERSION_NUMBER < 0x03000000

/* In 2.28 the functions of these names return nothing, and those that end in _ret return errors. */
#define mbedtls_md5 mbedtls_md5_ret
#define mbedtls_md5_starts mbedtls_md5_starts_ret
#define mbedtls_md5_update mbedtls_md5_update_ret
#define mbedtls_md5_finish mbedtls_md5_finish_ret
#define mbedtls_sha256_starts mbedtls_sha256_starts_ret
#define mbedtls_sha256_update mbedtls_sha256_update_ret
#define mbedtls_sha256_finish mbedtls_sha256_finish_ret

#endif

/* TLS 1.2, with key exchange by X25519. 3.6 could speak TLS 1.3, too. */
static inline void mbed_conf_tls12_x25519(mbedtls_ssl_config *conf)
{
#if MBEDTLS_VERSION_NUMBER < 0x03000000
    static const mbedtls_ecp_group_id curves[] = { MBEDTLS_ECP_DP_CURVE25519, MBEDTLS_ECP_DP_NONE };
    mbedtls_ssl_conf_curves(conf, curves);
    mbedtls_ssl_conf_min_version(conf, MBEDTLS_SSL_MAJOR_VERSION_3, MBEDTLS_SSL_MINOR_VERSION_3);
    mbedtls_ssl_conf_max_version(conf, MBEDTLS_SSL_MAJOR_VERSION_3, MBEDTLS_SSL_MINOR_VERSION_3);
#else
    static const uint16_t groups[] = { MBEDTLS_SSL_IANA_TLS_GROUP_X25519,
                                       MBEDTLS_SSL_IANA_TLS_GROUP_NONE };
    mbedtls_ssl_conf_groups(conf, groups);
    mbedtls_ssl_conf_min_tls_version(conf, MBEDTLS_SSL_VERSION_TLS1_2);
    mbedtls_ssl_conf_max_tls_version(conf, MBEDTLS_SSL_VERSION_TLS1_2);
#endif
}
