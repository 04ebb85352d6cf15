/* SPDX-License-Identifier: Apache-2.0 */
/* Strings in JSON that tony writes by hand: the only place that knows how they are escaped. */
#ifndef TONY_BASE_JSON_TEXT_H
#define TONY_BASE_JSON_TEXT_H

#include <stddef.h>

#include "base/buf.h"

enum { JSON_ESCAPE_MAX = 8 };

/* The escape of one byte of a string: its length, or 0 if the byte needs none. Escaped are quote,
 * backslash, control characters and DEL. Does not allocate. */
size_t json_escape(unsigned char c, char out[JSON_ESCAPE_MAX]);

/* Append s in quotes, escaped. Bytes that are not UTF-8 become U+FFFD. 0, -ENOMEM, -EMSGSIZE. */
int json_add_str(struct buf *b, struct span s);

#endif
