/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/json.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"

/* Is the text nested too deeply? Counts brackets outside of strings. The parser finds other
 * errors. */
static bool too_deep(struct span text, size_t *out_at)
{
    unsigned depth = 0;
    bool in_str = false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];
        if (in_str) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_str = false;
        } else if (c == '"') {
            in_str = true;
        } else if (c == '[' || c == '{') {
            if (++depth > JSON_DEPTH_MAX) {
                *out_at = i;
                return true;
            }
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return false;
}

int json_parse(const char *what, struct span text, json_t **out, struct err *e)
{
    size_t at = 0;
    json_error_t je = { .line = 0 };
    if (too_deep(text, &at))
        return err_set(e, EINVAL, "%s:%u: nested more than %d levels deep", what,
                       span_line_at(text, at), JSON_DEPTH_MAX);
    json_t *j = json_loadb(text.len > 0 ? text.p : "", text.len,
                           JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    /* jansson reports a failure of its first allocation without a text. */
    if (!j && (je.text[0] == '\0' || json_error_code(&je) == json_error_out_of_memory))
        return err_set(e, ENOMEM, "%s: cannot read it: %m", what);
    if (!j)
        return err_set(e, EINVAL, "%s:%d: cannot be read as JSON: %s", what,
                       je.line > 0 ? je.line : 1, je.text);
    *out = j;
    return 0;
}

/* ---- without a parser ---- */

size_t json_value_len(struct span s)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.p[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            depth++;
        } else if (c == ']' || c == '}') {
            if (depth == 0)
                return i;
            if (--depth == 0)
                return i + 1;
        } else if (c == ',' && depth == 0) {
            return i;
        }
    }
    return 0;
}

static struct span after(struct span s, size_t n)
{
    return span_mem(s.p + n, s.len - n);
}

/* Is this the member "name":..., with or without a space before the colon? */
static bool is_named(struct span member, const char *name)
{
    size_t n = strlen(name);
    member = span_trim(member);
    return member.len > n + 2 && member.p[0] == '"' && memcmp(member.p + 1, name, n) == 0 &&
           member.p[n + 1] == '"';
}

int json_leave_out(struct span object, const char *name, struct buf *out)
{
    struct span rest = span_trim(object);
    bool first = true;
    if (rest.len < 2 || rest.p[0] != '{' || rest.p[rest.len - 1] != '}')
        return -EINVAL;
    rest = after(rest, 1);
    int rc = buf_addc(out, '{');
    while (rc == 0 && rest.len > 1) {
        struct span member = span_mem(rest.p, json_value_len(rest));
        if (member.len == 0 || member.len >= rest.len)
            return -EINVAL;
        if (!is_named(member, name)) {
            rc = first ? 0 : buf_addc(out, ',');
            if (rc == 0)
                rc = buf_add(out, member.p, member.len);
            first = false;
        }
        rest = span_trim(after(rest, member.len));
        if (rest.len > 1 && rest.p[0] != ',')
            return -EINVAL;
        if (rest.len > 1)
            rest = after(rest, 1);
    }
    return rc == 0 ? buf_addc(out, '}') : rc;
}

void json_freep(json_t **j)
{
    json_decref(*j);
    *j = NULL;
}

const char *json_str(const json_t *obj, const char *key, const char *dflt)
{
    const char *s = json_string_value(json_object_get(obj, key));
    return s ? s : dflt;
}

int64_t json_int(const json_t *obj, const char *key, int64_t dflt)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_integer(v) ? json_integer_value(v) : dflt;
}

bool json_flag(const json_t *obj, const char *key, bool dflt)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_boolean(v) ? json_is_true(v) : dflt;
}
