/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Java's properties files, as java.util.Properties.store() writes and load() reads them: lines with
 * "key=value", "key: value" or "key value"; comments after '#' or '!'; '\' before a newline
 * continues the line; the escapes \t, \n, \r, \f and \uXXXX. Bytes above 127 are taken as they are,
 * which is right for UTF-8.
 */
#ifndef TONY_CODEC_PROPERTIES_H
#define TONY_CODEC_PROPERTIES_H

#include "base/buf.h"

struct err;

enum { PROPERTIES_MAX = 4 << 20 }; /* bytes of a text */

/* Gets each property, in the order of the file; borrowed. 0, or -errno to end the reading. */
typedef int property_fn(const char *key, const char *value, void *arg);
/* 0; -EFBIG; -EINVAL: \u is not followed by four digits, or a NUL is in the text; -ENOMEM; that of
 * fn. Errors name the line. */
int properties_parse(const char *name, struct span text, property_fn *fn, void *arg, struct err *e);

#endif
