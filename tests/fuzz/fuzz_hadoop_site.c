/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a site file. Tests its properties, their variables, and the addresses in it. The file is
 * in memory. */
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "hadoop/site.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct err e = { 0 };
    int fd = memfd_create("site", MFD_CLOEXEC);
    if (fd == -1 || fs_write_all(fd, data, size) < 0)
        abort();
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct site *s = site_new(&e);
    if (s && site_add_file(s, path, &e) == 0) {
        struct site_addresses a = { 0 };
        struct site_hdfs h = { 0 };
        if (site_hdfs(s, &h, &e) == 0)
            site_hdfs_done(&h);
        (void)site_rm(s, SITE_RM_CLIENT, &a, &e);
        site_addresses_done(&a);
    }
    site_free(s);
    (void)close(fd);
    return 0;
}
