/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A resize of a job that has no master yet (docs/decisions/0014-a-queued-job-on-yarn.md). A client
 * leaves the request in the staging directory of the job, and the first master takes it:
 *
 *     <staging>/queued/          made by the client that submits the job
 *     <staging>/queued/<number>  one request; the file with the highest number counts
 *     <staging>/taken/           queued/, after a master has renamed it
 *
 * A client writes the file under another name outside of queued/ and renames it into queued/. The
 * first master removes queued/ if it is empty, and renames it if it is not. After that, no client
 * can put a file there. So each file was either in queued/ before the rename, or its client gets an
 * error.
 *
 * The file is one frame (codec/frame.h) with a ResizeJob, the message by which a client asks a
 * master.
 */
#ifndef TONY_SCHEDULER_YARN_RESIZEFILE_H
#define TONY_SCHEDULER_YARN_RESIZEFILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/files.h"

struct err;
typedef struct Tony__Frame Tony__Frame; /* generated from proto/tony.proto */
typedef struct Tony__ResizeJob Tony__ResizeJob;

#define RESIZE_QUEUED_DIR "queued"
#define RESIZE_TAKEN_DIR "taken"

enum {
    RESIZE_FILE_MAX = 64 << 10, /* bytes; 64 roles with names of 255 bytes need 17 KiB */
    RESIZE_NUMBER_MAX = 999999999,
};

/* Append the text of the file. -EMSGSIZE: it would be larger than RESIZE_FILE_MAX; -ENOMEM. */
int resize_file_encode(const Tony__ResizeJob *r, struct buf *out, struct err *e);
/* Read the file. *out has a resize_job; free it with frame_free(). -EBADMSG: the file is damaged,
 * or its request is for another job. */
int resize_file_decode(struct span text, const char *application_id, Tony__Frame **out,
                       struct err *e);

/* The number of the newest request in a list of a directory; 0 = there is none. *out_bytes, if
 * there is one: its size. Other names are ignored; dir: log them with this name of the directory;
 * NULL = do not log them. */
uint32_t resize_file_newest(const char *dir, const struct files_stat *stats, size_t n,
                            int64_t *out_bytes);

#endif
