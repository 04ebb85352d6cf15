/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The secrets of a job (storage/secrets.h), encrypted for the way to its master on YARN.
 *
 * The daemons of YARN store the launch context of the master's container, and may keep it long
 * after the job. So the context has only the job's key, and the secrets are in a file of the
 * staging directory, which tony removes at the end of the job. Without the file, a key that is left
 * in a store reveals nothing.
 *
 * The file: "TSE1", a nonce of 12 bytes, a tag of 16 bytes, and the text, encrypted with AES-256 in
 * GCM. The key is job_key_secrets(). The application id is authenticated with it, so the file of
 * another job is refused.
 */
#ifndef TONY_STORAGE_SEALED_H
#define TONY_STORAGE_SEALED_H

#include "base/buf.h"

struct err;
struct job_key;

#define SEALED_FILE "secrets.sealed" /* in the staging directory and in the master's container */

enum { SEALED_EXTRA = 4 + 12 + 16 }; /* a sealed text is longer by this number of bytes */

/* Append the content of the file. text may be empty. -ENOMEM, or the error of getrandom(2). */
int sealed_write(const struct job_key *k, const char *application_id, struct span text,
                 struct buf *out, struct err *e);
/* Append the text; end it with secrets_wipe(). -EBADMSG: the file is damaged, or was made for
 * another job; out is unchanged then. -EMSGSIZE: it is longer than out->max. */
int sealed_read(const struct job_key *k, const char *application_id, struct span sealed,
                struct buf *out, struct err *e);

#endif
