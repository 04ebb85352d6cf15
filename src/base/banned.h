/*
 * Functions that do not compile here. Included by the build with -include, first in every file.
 *
 *   strcpy strcat strncat sprintf vsprintf   buf_adds(), buf_addf(), str_copy(), snprintf()
 *   strtok                                   span_split()
 *   atoi atol atof                           str_i64(), str_mib()
 *   gets                                     buf_fill_fd()
 */
#ifndef TONY_BASE_BANNED_H
#define TONY_BASE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Some are macros in the C library, where it checks sizes. */
#undef strcpy
#undef strcat
#undef strncat
#undef sprintf
#undef vsprintf
#undef gets
#pragma GCC poison strcpy strcat sprintf vsprintf strtok atoi atol atof gets strncat

#endif
