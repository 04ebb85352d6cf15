/* SPDX-License-Identifier: Apache-2.0 */
#include "cgroup/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cgroup/find.h"

int group_put(const char *dir, const char *file, const char *text)
{
    char path[CGROUP_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd == -1)
        return -errno;
    ssize_t n = write(fd, text, strlen(text));
    int rc = n == -1 ? -errno : 0;
    close(fd);
    return rc;
}

ssize_t group_get(const char *dir, const char *file, char *out, size_t size)
{
    char path[CGROUP_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return -errno;
    ssize_t n = read(fd, out, size - 1);
    close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n;
}

uint64_t group_get_u64(const char *dir, const char *file)
{
    char text[64];
    return group_get(dir, file, text, sizeof text) > 0 ? strtoull(text, NULL, 10) : 0;
}

uint64_t group_find_key(const char *text, const char *key)
{
    size_t len = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return strtoull(line + len, NULL, 10);
    }
    return 0;
}

uint64_t group_get_key(const char *dir, const char *file, const char *key)
{
    char text[1024];
    return group_get(dir, file, text, sizeof text) > 0 ? group_find_key(text, key) : 0;
}

bool group_has_word(const char *dir, const char *file, const char *word)
{
    char text[512];
    if (group_get(dir, file, text, sizeof text) <= 0)
        return false;
    size_t len = strlen(word);
    for (char *p = text; (p = strstr(p, word)); p += len)
        if ((p == text || p[-1] == ' ') && (p[len] == ' ' || p[len] == '\n' || p[len] == '\0'))
            return true;
    return false;
}

bool group_has_file(const char *dir, const char *file)
{
    char path[CGROUP_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return access(path, F_OK) == 0;
}
