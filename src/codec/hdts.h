/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds one secret in Hadoop's token storage ("HDTS", the file that HADOOP_TOKEN_FILE_LOCATION
 * names). Executors need no more of Hadoop than this. Programs that also need the tokens use
 * src/hadoop/token.h.
 */
#ifndef TONY_CODEC_HDTS_H
#define TONY_CODEC_HDTS_H

#include "base/buf.h"

struct err;

enum {
    HDTS_MAX = 16 << 20,       /* bytes of a whole storage; real ones have a few KiB */
    HDTS_ENTRIES_MAX = 100000, /* of each kind */
};

/* Find the secret; if there are several of that name, the first one. Reads versions 0 (Writable)
 * and 1 (protobuf). *out points into text. -ENOENT: no secret of that name; -EINVAL: the storage is
 * incomplete, damaged, or of another version. */
int hdts_secret(struct span text, const char *alias, struct span *out, struct err *e);

#endif
