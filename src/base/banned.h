/*
 * Functions that do not compile here, with what to use instead. Included by the build with -include, first in every file.
 */
#ifndef TONY_BASE_BANNED_H
#define TONY_BASE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC poison strcpy strcat sprintf vsprintf strtok atoi atol atof gets strncat

#endif
