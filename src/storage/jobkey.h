/*
 * The keys of one job: 32 random bytes made by its client, and what is derived from them by
 * HKDF-SHA256 (RFC 5869, no salt), so that nobody who knows one derived key knows another:
 *
 *   the client's key      info "tony client"                 identity "client"
 *   a container's key     info "tony container <id>"         identity "executor <id>"
 *
 * The job's key lies in the token storage of the master's container under JOB_KEY_SECRET, a
 * container's in that of its own under CONTAINER_KEY_SECRET, each as JOB_KEY_BYTES raw bytes; the
 * client's lies in the staging directory as 64 hex digits and a newline. Never in an environment,
 * a command line or a log.
 */
#ifndef TONY_STORAGE_JOBKEY_H
#define TONY_STORAGE_JOBKEY_H

#include "base/buf.h"
#include "codec/tls.h"

struct err;

#define JOB_KEY_SECRET "tony.job.key"
#define CONTAINER_KEY_SECRET "tony.container.key"
#define JOB_KEY_CLIENT "client"      /* the identity of clients */
#define JOB_KEY_EXECUTOR "executor " /* an executor's begins so; its container's id follows */
#define JOB_KEY_CLIENT_FILE "client.key"

enum {
    JOB_KEY_BYTES = 32,
    JOB_KEY_HEX = 2 * JOB_KEY_BYTES + 2, /* digits, newline, NUL */
};

struct job_key {
    unsigned char bytes[JOB_KEY_BYTES];
};

/* A new one, of getrandom(2). */
int job_key_new(struct job_key *out, struct err *e);
/* Of a secret's raw bytes. -EINVAL: not JOB_KEY_BYTES of them. */
int job_key_read(struct span secret, struct job_key *out, struct err *e);

/* Derived keys; the caller wipes them (job_key_wipe). */
void job_key_client(const struct job_key *k, struct tls_key *out);
void job_key_container(const struct job_key *k, const char *container_id, struct tls_key *out);

/* The ports at which a container's executor can be called by a new master, in the order in which it
 * tries to listen there: both know them from the container's key alone, so that nothing has to be
 * written down for it. Below what kernels give to who asks for any port. */
enum { JOB_KEY_PORTS = 8, JOB_KEY_PORT_FIRST = 20000, JOB_KEY_PORT_COUNT = 8000 };
void job_key_ports(const struct tls_key *container, uint16_t out[JOB_KEY_PORTS]);

/* The text of client.key, and back. */
void job_key_text(const struct tls_key *k, char out[JOB_KEY_HEX]);
int job_key_parse(struct span text, struct tls_key *out, struct err *e);

/* The identity of a container's executor. False: the id is too long for one. */
bool job_key_identity(const char *container_id, char out[TLS_IDENTITY_MAX]);
/* The container that an identity speaks for; NULL: it is no executor's. Borrowed from identity. */
const char *job_key_container_of(const char *identity);

void job_key_wipe(void *p, size_t n); /* explicit_bzero */

#endif
