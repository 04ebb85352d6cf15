/*
 * SHA-256 over files and trees, and over what they look like from outside. Only the client needs
 * it.
 */
#ifndef TONY_STORAGE_DIGEST_H
#define TONY_STORAGE_DIGEST_H

#include <stddef.h>
#include <sys/types.h>

struct err;
struct tree;

enum { DIGEST_HEX = 65 }; /* with the NUL */

/* Names, types, modes, targets and sizes are t's, contents are read below root_fd; a size that
 * differs is -EBUSY. Waits until what it read is on disk. kind separates what is stored in
 * different ways. */
int digest_tree(const char *kind, const struct tree *t, int root_fd, const char *name,
                char out[DIGEST_HEX], struct err *e);
/* kind, mode and the content of an open file. */
int digest_file(const char *kind, mode_t mode, int fd, const char *name, char out[DIGEST_HEX],
                struct err *e);
/* What a scan saw: equal means that nothing was changed since. */
int digest_looks(const struct tree *t, char out[DIGEST_HEX]);
int digest_text(const char *kind, const char *text, char out[DIGEST_HEX]);

#endif
