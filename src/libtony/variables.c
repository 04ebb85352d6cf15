/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of variables of libc, for the archives of other libraries in libtony.
 *
 * Debian compiles archives for programs. Their code reaches a variable of libc by its distance,
 * which a shared library must not do. So make-object renames the variables in these archives, and
 * the copies here take their place. environ is the only one that can change later: uv_spawn(),
 * which tony does not call, would not see that.
 */
#include <netinet/in.h>
#include <stdio.h>
#include <unistd.h>

extern FILE *tony_stdin, *tony_stderr;
extern char **tony_environ;
extern const struct in6_addr tony_in6addr_any;

FILE *tony_stdin, *tony_stderr;
char **tony_environ;
const struct in6_addr tony_in6addr_any = IN6ADDR_ANY_INIT;

__attribute__((constructor)) static void copy_variables(void)
{
    tony_stdin = stdin;
    tony_stderr = stderr;
    tony_environ = environ;
}
