/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into the static programs. libuv contains a look-up of the user's home directory, which
 * tony never uses. In a static program, glibc's own function would need shared libraries. This
 * replacement always answers: no such user.
 */
#include <errno.h>
#include <netdb.h>
#include <pwd.h>
#include <stdio.h>

int getpwuid_r(uid_t uid, struct passwd *entry, char *buf, size_t size, struct passwd **out)
{
    (void)uid;
    (void)entry;
    (void)buf;
    (void)size;
    *out = NULL;
    return ENOENT;
}

/* The client shows the user's name. This replacement reads only /etc/passwd; it does not know the
 * users of LDAP and the like. Then the client uses the number. */
struct passwd *getpwuid(uid_t uid)
{
    FILE *f = fopen("/etc/passwd", "re");
    struct passwd *found = NULL;
    while (f && (found = fgetpwent(f)) && found->pw_uid != uid)
        continue;
    if (f)
        (void)fclose(f);
    return found;
}

/* The same for c-ares, which could look up the names of services. tony never uses that. */
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
