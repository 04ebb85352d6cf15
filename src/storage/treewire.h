/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file or a directory tree as frames of a stream (codec/stream.h), for `tony cp`: an SF_ENTRY for
 * each file, directory and symbolic link, a directory before its content, SF_DATA with the content
 * of a file after its entry, and SF_DONE at the end.
 *
 * The receiver trusts nothing that it gets. It writes only below the place that it was given. It
 * follows no symbolic link. A link is made only if it cannot lead out of the tree. A file appears
 * under its name when its content is complete. Set-user-id bits are dropped.
 *
 * Sockets, pipes, devices, and links that lead out of the tree are left out, with an SF_NOTE (the
 * sender) or a call of note() (the receiver).
 */
#ifndef TONY_STORAGE_TREEWIRE_H
#define TONY_STORAGE_TREEWIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "codec/stream.h"

struct err;

enum {
    TREEWIRE_PATH_MAX = 4096,
    TREEWIRE_DEPTH_MAX = 128, /* each level needs a descriptor */
};

struct tree_send;
/* dirfd: where a relative path begins. */
int tree_send_open(int dirfd, const char *path, struct tree_send **out, struct err *e);
/* Append the next frames, at most about STREAM_DATA_MAX bytes. 1; 0: SF_DONE was appended, nothing
 * follows; or -errno. */
int tree_send_next(struct tree_send *s, struct buf *out, struct err *e);
void tree_send_free(struct tree_send *s);
uint64_t tree_send_bytes(const struct tree_send *s); /* of the content of files so far */

struct tree_receive;
/* path: the place for the copy. If it is a directory, the copy gets the name `name` in it; if name
 * is empty, the content of a directory goes there. note (may be NULL): called for each thing that
 * is left out; the text has no control characters. */
int tree_receive_open(int dirfd, const char *path, const char *name,
                      void (*note)(const char *text, void *arg), void *arg,
                      struct tree_receive **out, struct err *e);
/* Handle a frame of the sender. 0; 1: it was SF_DONE, and all is written; or -errno with e set. */
int tree_receive_frame(struct tree_receive *r, enum stream_type type, struct span payload,
                       struct err *e);
void tree_receive_free(struct tree_receive *r); /* removes an incomplete file */
uint64_t tree_receive_bytes(const struct tree_receive *r);
uint64_t tree_receive_files(const struct tree_receive *r);

#endif
