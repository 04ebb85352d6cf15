/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into the static programs. libuv can look up the user's home directory, which we never ask
 * for; in a static program glibc's answer would need the very shared libraries that it was linked
 * with. Ours is: no such user.
 */
#include <errno.h>
#include <netdb.h>
#include <pwd.h>

int getpwuid_r(uid_t uid, struct passwd *entry, char *buf, size_t size, struct passwd **out)
{
    (void)uid;
    (void)entry;
    (void)buf;
    (void)size;
    *out = NULL;
    return ENOENT;
}

/* And c-ares could look up names of services, which we never give it. */
struct servent *getservbyname(const char *name, const char *proto)
{
    (void)name;
    (void)proto;
    return NULL;
}

int getservbyport_r(int port, const char *proto, struct servent *entry, char *buf, size_t size,
                    struct servent **out)
{
    (void)port;
    (void)proto;
    (void)entry;
    (void)buf;
    (void)size;
    *out = NULL;
    return ENOENT;
}
