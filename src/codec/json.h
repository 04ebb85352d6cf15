/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON: a strict reader that uses jansson. base/json_text.h, which this includes, writes strings.
 */
#ifndef TONY_CODEC_JSON_H
#define TONY_CODEC_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json_text.h"

struct err;

enum { JSON_DEPTH_MAX = 64 }; /* tony's own documents need 6; jansson parses recursively */

/*
 * Parse one JSON value, with nothing after it. Refused are repeated keys, NUL in strings, text that
 * is not UTF-8, and more than JSON_DEPTH_MAX levels. `what` names the text in the error:
 * "<what>:<line>: ...". *out is a new reference: free it with json_decref() or AUTO(json_freep).
 */
int json_parse(const char *what, struct span text, json_t **out, struct err *e);
void json_freep(json_t **j);

/* The length in bytes of the value at the beginning of s, without spaces behind it; 0 = the value
 * has no end. Only counts brackets and skips strings: json_parse() checks the value. */
size_t json_value_len(struct span s);
/* Append the text of an object without its member of this name. The name needs no escape. Less work
 * than to parse a long member that nobody wants. Checks the text no more than json_value_len().
 * -EINVAL: it is no object; -ENOMEM. */
int json_leave_out(struct span object, const char *name, struct buf *out);

/* A member of an object, borrowed; the default when it is absent or of another type. */
const char *json_str(const json_t *obj, const char *key, const char *dflt);
int64_t json_int(const json_t *obj, const char *key, int64_t dflt);
bool json_flag(const json_t *obj, const char *key, bool dflt);

#endif
