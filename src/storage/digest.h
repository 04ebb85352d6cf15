/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 digests of files and trees, either of their content or of their metadata. Only the client
 * uses them. Each function writes 64 hex digits and a NUL to out, and returns 0 or -errno.
 *
 * kind: a word that is part of the digest. Equal content of two kinds has two digests, since the
 * store keeps it in two forms (an archive is stored unpacked, for example).
 *
 * name: the name of the source in error sentences.
 */
#ifndef TONY_STORAGE_DIGEST_H
#define TONY_STORAGE_DIGEST_H

#include <stddef.h>
#include <sys/types.h>

struct err;
struct tree;

enum { DIGEST_HEX = 65 }; /* 64 hex digits and the NUL */

/* The digest of a tree: of the names, types, modes, link targets and sizes in t, and of the file
 * contents below root_fd. Each file below root_fd that is read is also written out to disk before
 * the function returns. -EBUSY: a file's size differs from the size in t. */
int digest_tree(const char *kind, const struct tree *t, int root_fd, const char *name,
                char out[DIGEST_HEX], struct err *e);
/* The digest of kind, mode (the bits 0777) and the content of an open file. */
int digest_file(const char *kind, mode_t mode, int fd, const char *name, char out[DIGEST_HEX],
                struct err *e);
/* The digest of a tree's metadata: names, types, link targets and modes; and size, device, inode
 * and times of each file. If two scans have equal digests, no file changed between them. */
int digest_metadata(const struct tree *t, char out[DIGEST_HEX]);
int digest_text(const char *kind, const char *text, char out[DIGEST_HEX]);

#endif
