/* SPDX-License-Identifier: Apache-2.0 */
/* The small files of a control group's directory. Nothing here allocates memory. */
#ifndef TONY_CGROUP_FILE_H
#define TONY_CGROUP_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

int group_put(const char *dir, const char *file, const char *text); /* 0 or -errno */
/* The length of the text, or -errno. out is NUL-terminated. */
ssize_t group_get(const char *dir, const char *file, char *out, size_t size);
uint64_t group_get_u64(const char *dir, const char *file); /* 0 = not readable */
/* The value in a text of "key value" lines; 0 = there is none. */
uint64_t group_find_key(const char *text, const char *key);
uint64_t group_get_key(const char *dir, const char *file, const char *key);
/* Does the file have this word, such as "memory" in cgroup.controllers? */
bool group_has_word(const char *dir, const char *file, const char *word);
bool group_has_file(const char *dir, const char *file);

#endif
