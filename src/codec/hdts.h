/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hadoop's token storage ("HDTS", the file that HADOOP_TOKEN_FILE_LOCATION names): finding one
 * secret in it. This is all that an executor has to know of Hadoop; programs that also want the
 * tokens use src/hadoop/token.h.
 */
#ifndef TONY_CODEC_HDTS_H
#define TONY_CODEC_HDTS_H

#include "base/buf.h"

struct err;

enum {
    HDTS_MAX = 16 << 20,       /* a whole storage; real ones have a few KiB */
    HDTS_ENTRIES_MAX = 100000, /* of each sort */
};

/* Version 0 (Writable) and 1 (protobuf). *out borrows from text; the first of that name counts.
 * -ENOENT: no secret of that name; -EINVAL: no whole token storage, or of another version. */
int hdts_secret(struct span text, const char *alias, struct span *out, struct err *e);

#endif
