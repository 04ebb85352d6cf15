/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/log_mark.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

void log_mark_add(struct log_mark *m, const char *text, size_t len)
{
    size_t n = MIN(len, (size_t)LOG_MARK_MAX);
    size_t kept = MIN((size_t)m->n, LOG_MARK_MAX - n);
    memmove(m->text, m->text + m->n - kept, kept);
    memcpy(m->text + kept, text + len - n, n);
    m->n = (uint8_t)(kept + n);
}

bool log_was_truncated(struct log_mark *m, int fd, int64_t at, int64_t size)
{
    char now[LOG_MARK_MAX];
    if (size == at || at == 0)
        return false;
    if (size > at && (m->n == 0 || (pread(fd, now, m->n, at - m->n) == m->n &&
                                    memcmp(now, m->text, m->n) == 0)))
        return false;
    m->n = 0;
    return true;
}

bool log_was_replaced(int fd, int path_fd)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstat(path_fd, &b) == 0 && S_ISREG(b.st_mode) && b.st_size > 0 &&
           (a.st_dev != b.st_dev || a.st_ino != b.st_ino);
}
