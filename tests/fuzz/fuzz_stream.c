/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the bytes of a stream, as `tony cp` gets them from a task. The copy goes to a directory
 * that is removed afterwards. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "storage/treewire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_frame(enum stream_type type, struct span p, void *arg)
{
    struct err e = { 0 };
    int rc = tree_receive_frame(arg, type, p, &e);
    if (rc < 0 && !e.msg[0])
        abort(); /* a message for the user is missing */
    return rc == 1 ? -1 : rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char dir[] = "/tmp/tony-fuzz-stream-XXXXXX";
    struct tree_receive *to = NULL;
    struct err e = { 0 };
    if (!mkdtemp(dir))
        abort();
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1 || tree_receive_open(fd, "copy", "", NULL, NULL, &to, &e) < 0)
        abort();
    struct stream_reader r = { .on_frame = on_frame, .arg = to };
    (void)stream_feed(&r, (const char *)data, size / 2, &e);
    (void)stream_feed(&r, (const char *)data + size / 2, size - size / 2, &e);
    stream_reader_done(&r);
    tree_receive_free(to);
    close(fd);
    (void)fs_remove_tree(AT_FDCWD, dir, NULL);
    return 0;
}
