/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a corpus without a fuzzer: each argument is a file or a directory of files. Each input is
 * used whole, empty, and cut at up to CUTS places: incomplete text is the most frequent error in
 * practice.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CUTS = 32 };

/* The copy has exactly the input's size, so that a sanitizer finds each read beyond its end. */
static void feed(const char *p, size_t len)
{
    uint8_t *copy = calloc(1, len > 0 ? len : 1);
    if (!copy)
        abort();
    if (len > 0)
        memcpy(copy, p, len);
    (void)LLVMFuzzerTestOneInput(copy, len); /* the result is reserved and always 0 */
    free(copy);
}

static int replay_file(const char *path)
{
    struct buf text = { 0 };
    struct err e = { 0 };
    if (fs_read(AT_FDCWD, path, &text, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        buf_done(&text);
        return -1;
    }
    feed(text.p, text.len);
    for (size_t i = 1; i <= CUTS && i <= text.len; i++)
        feed(text.p, text.len <= CUTS ? text.len - i : text.len / (CUTS + 1) * i);
    buf_done(&text);
    return 1;
}

static int replay(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? 0 : replay_file(path);
    int n = 0;
    for (struct dirent *d; (d = readdir(dir));) {
        if (d->d_name[0] == '.')
            continue;
        char *file = fs_join(path, d->d_name);
        int rc = file ? replay_file(file) : -1;
        free(file);
        if (rc < 0) {
            n = -1;
            break;
        }
        n += rc;
    }
    (void)closedir(dir); /* opened only for reading */
    return n;
}

int main(int argc, char **argv)
{
    int n = 0;
    feed(NULL, 0);
    for (int i = 1; i < argc; i++) {
        int rc = replay(argv[i]);
        if (rc < 0)
            return 1;
        n += rc;
    }
    printf("%d inputs replayed\n", n);
    return 0;
}
