/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of a job's secrets (tony.application.secrets). They are kept apart from job.conf,
 * which many programs read and which becomes a part of the history.
 *
 * A text of secrets is "NAME=VALUE" and a NUL for each of them. It is
 *
 *   on one machine and on Slurm   in the file SECRETS_FILE of the job's directory, mode 0600, until
 *                                 the job goes to the history
 *   on YARN                       in a file of the staging directory, encrypted (storage/sealed.h)
 *
 * The master adds the values to the environment of the tasks. Executors get that over the
 * connection to their master, and keep it in memory.
 */
#ifndef TONY_STORAGE_SECRETS_H
#define TONY_STORAGE_SECRETS_H

#include "base/buf.h"
#include "base/vec.h"

struct err;

#define SECRETS_FILE "secrets"

enum {
    /* Of a whole text. Linux gives a program little more room for its whole environment. */
    SECRETS_TEXT_MAX = 64 << 10,
};

/*
 * Read the values where the job says they are: in the environment and in files of this client. One
 * newline at the end of a file does not belong to the value.
 *
 * refs       job_spec.secrets
 * out        the text; end it with secrets_wipe()
 * warnings   gets a sentence for each file that other users can read
 * Errors     -EINVAL a variable or file is missing or empty, or has a NUL byte; -E2BIG too large;
 *            or those of reading the file. No error contains a value.
 */
int secrets_gather(const struct strv *refs, struct buf *out, struct strv *warnings, struct err *e);
/* Remove the variables from which secrets were read from the environment of this process, so that
 * programs that it starts do not inherit them. Variables that they need, such as HOME, stay. */
void secrets_hide_sources(const struct strv *refs);
/* Read the file in a job's directory. -ENOENT: there is none. */
int secrets_load(const char *job_dir, struct buf *out, struct err *e);
/* Remove it; it is no error if there is none. */
void secrets_remove(const char *job_dir);
/* Set the variables of a text in env. 0 or -ENOMEM; -EBADMSG: the text is damaged. */
int secrets_add_to(struct span text, struct strv *env);
/* Overwrite the text and free it. */
void secrets_wipe(struct buf *text);

#endif
