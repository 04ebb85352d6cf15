/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of one of these functions does not compile. The build includes this header first in every
 * source file (compiler option -include). The right column says what to use instead.
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

/* With _FORTIFY_SOURCE, the C library defines some of them as macros. */
#undef strcpy
#undef strcat
#undef strncat
#undef sprintf
#undef vsprintf
#undef gets
#pragma GCC poison strcpy strcat sprintf vsprintf strtok atoi atol atof gets strncat

#endif
