/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of one job on a cluster. The client makes the job's key: 32 random bytes. The other keys
 * are derived from it by HKDF-SHA256 (RFC 5869, no salt), so that knowing one derived key reveals
 * no other key. Each derived key is a TLS pre-shared key with an identity:
 *
 *   key                 info of HKDF              identity
 *   the client's key    "tony client"             "client"
 *   a container's key   "tony container <id>"     "executor <id>"
 *   a keeper's key      "tony keeper <node>"      "keeper <node>"
 *   for secrets         "tony secrets"            none: it encrypts a file (storage/sealed.h)
 *
 * Where the keys are:
 *
 *   the job's key       in the token storage of the master's container, under JOB_KEY_SECRET
 *   a container's key   in the token storage of that container, under CONTAINER_KEY_SECRET
 *   the client's key    in the staging directory, as 64 hex digits and a newline
 *
 * On Slurm the job's key is in the file `key` of the job's directory. Only keepers, masters and
 * clients of the user can read it, and they derive the other keys from it.
 *
 * A token storage holds a key as JOB_KEY_BYTES raw bytes. A key is never in an environment, on a
 * command line or in a log.
 */
#ifndef TONY_STORAGE_JOBKEY_H
#define TONY_STORAGE_JOBKEY_H

#include "base/buf.h"
#include "codec/tls.h"

struct err;

#define JOB_KEY_SECRET "tony.job.key"
#define CONTAINER_KEY_SECRET "tony.container.key"
/* The identity of every client. */
#define JOB_KEY_CLIENT "client"
/* The beginning of an executor's identity; its container id follows. */
#define JOB_KEY_EXECUTOR "executor "
/* The beginning of the identity of a node's keeper; the number of the node follows. */
#define JOB_KEY_KEEPER "keeper "
#define JOB_KEY_CLIENT_FILE "client.key"

enum {
    JOB_KEY_BYTES = 32,
    JOB_KEY_HEX = 2 * JOB_KEY_BYTES + 2, /* hex digits, newline, NUL */
};

struct job_key {
    unsigned char bytes[JOB_KEY_BYTES];
};

/* Make a new job's key with getrandom(2). */
int job_key_new(struct job_key *out, struct err *e);
/* Take the job's key from the raw bytes of a secret. -EINVAL: they are not JOB_KEY_BYTES bytes. */
int job_key_read(struct span secret, struct job_key *out, struct err *e);

/* Derive a key. The caller overwrites it after use with job_key_wipe(). If there is no memory, or
 * if the id is too long, out->len is 0, and no TLS session accepts such a key. */
void job_key_client(const struct job_key *k, struct tls_key *out);
void job_key_container(const struct job_key *k, const char *container_id, struct tls_key *out);
void job_key_keeper(const struct job_key *k, uint32_t node, struct tls_key *out);
void job_key_secrets(const struct job_key *k, struct tls_key *out);

/* The ports at which a container's executor listens for a new master, in the order in which it
 * tries to bind them. The executor and the master both compute them from the container's key, so no
 * file has to record them. among: the range of tony.port-range. If first is 0, the key is not set.
 * The default range lies below the ports that kernels assign when a program asks for any free port
 * (from 32768 on). */
struct job_ports {
    uint16_t first, last;
};
#define JOB_KEY_PORTS_ENV "TONY_PORT_RANGE" /* tells an executor the range, as FIRST-LAST */
enum { JOB_KEY_PORTS = 8, JOB_KEY_PORT_FIRST = 20000, JOB_KEY_PORT_LAST = 27999 };
void job_key_ports(const struct tls_key *container, struct job_ports among,
                   uint16_t out[JOB_KEY_PORTS]);

/* Write a key as the text of client.key, and read such a text. -EINVAL: not 64 hex digits. */
void job_key_text(const struct tls_key *k, char out[JOB_KEY_HEX]);
int job_key_parse(struct span text, struct tls_key *out, struct err *e);

/* The identity of a container's executor. false: the id is too long for TLS_IDENTITY_MAX. */
bool job_key_identity(const char *container_id, char out[TLS_IDENTITY_MAX]);
/* The container id in an executor's identity; NULL: it is not the identity of an executor. Borrowed
 * from identity. */
const char *job_key_container_of(const char *identity);
void job_key_keeper_identity(uint32_t node, char out[TLS_IDENTITY_MAX]);
/* The number of the node in the identity of its keeper. false: it is another identity. */
bool job_key_keeper_of(const char *identity, uint32_t *out_node);

/* Read the job's key from the file `key` of the job's directory. */
int job_key_open(const char *job_dir, struct job_key *out, struct err *e);

void job_key_wipe(void *p, size_t n); /* overwrites n bytes with zeros (explicit_bzero) */

#endif
