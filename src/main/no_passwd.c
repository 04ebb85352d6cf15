/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into the static programs. To look up users and services, glibc loads shared libraries,
 * which a static program does not have. So these functions replace those of glibc.
 */
#include <errno.h>
#include <netdb.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* libuv can look up the home directory of the user with it. tony never uses that, so the answer is
 * always: there is no such user. */
int getpwuid_r(uid_t uid, struct passwd *entry, char *buf, size_t size, struct passwd **out)
{
    (void)uid;
    (void)entry;
    (void)buf;
    (void)size;
    *out = NULL;
    return ENOENT;
}

/* Users of LDAP, for example, are not in /etc/passwd. The name service knows them, but a static
 * program cannot load its modules. So ask getent(1). tony uses only the name and the number. */
static struct passwd *ask_name_service(uid_t uid)
{
    static char line[256];
    static struct passwd entry;
    char command[64];
    (void)snprintf(command, sizeof command, "getent passwd %u 2> /dev/null", (unsigned)uid);
    FILE *f = popen(command, "re");
    bool found = f && fgets(line, sizeof line, f) && strchr(line, ':');
    if (f)
        (void)pclose(f);
    if (!found)
        return NULL;
    *strchr(line, ':') = '\0';
    entry = (struct passwd){ .pw_name = line, .pw_uid = uid };
    return &entry;
}

/* The client needs the name of its user. */
struct passwd *getpwuid(uid_t uid)
{
    FILE *f = fopen("/etc/passwd", "re");
    struct passwd *found = NULL;
    while (f && (found = fgetpwent(f)) && found->pw_uid != uid)
        continue;
    if (f)
        (void)fclose(f);
    return found ? found : ask_name_service(uid);
}

/* c-ares can look up the names of services with these two. tony never uses that. */
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
