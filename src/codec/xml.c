/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/xml.h"

#include <errno.h>
#include <expat.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "codec/arena.h"

enum { VALUE_MAX = 1 << 20 }; /* bytes of one name or value */

enum where { W_OUTSIDE = 0, W_ROOT, W_PROPERTY, W_NAME, W_VALUE, W_FINAL, W_INCLUDE, W_IGNORED };

struct doc {
    struct xml_conf conf; /* must be the first member: the caller has a pointer to it */
    struct arena arena;
    VEC(struct xml_prop) props;
};

struct reader {
    const char *name;
    XML_Parser p;
    struct doc *doc;
    enum where where;
    unsigned depth, ignored_from;      /* ignored_from: depth at which an ignored element began */
    enum where ignored_in;             /* where it began */
    bool site;                         /* set by xml_site_parse() */
    size_t includes[XML_INCLUDES_MAX]; /* indices of the open <xi:include> elements */
    unsigned n_includes;
    struct buf text;      /* text of the open element */
    struct xml_prop prop; /* the open property */
    uint32_t prop_line;
    bool has_final, root_seen;
    int rc; /* the first failure */
    struct err *e;
};

static uint32_t line_now(const struct reader *r)
{
    return (uint32_t)XML_GetCurrentLineNumber(r->p);
}

/* Keep the first failure and stop the parser. */
static void refuse(struct reader *r, int num, uint32_t line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void refuse(struct reader *r, int num, uint32_t line, const char *fmt, ...)
{
    if (r->rc < 0)
        return;
    va_list ap;
    va_start(ap, fmt);
    int rc = err_vset(r->e, num, fmt, ap);
    va_end(ap);
    r->rc = err_wrap(r->e, rc, "%s:%u", r->name, line);
    (void)XML_StopParser(r->p, XML_FALSE); /* fails only if the parser was stopped before */
}

static void no_memory(struct reader *r)
{
    if (r->rc < 0)
        return;
    r->rc = err_set(r->e, ENOMEM, "%s: cannot read it: %m", r->name);
    (void)XML_StopParser(r->p, XML_FALSE);
}

static const char *keep(struct reader *r, const char *what, struct span s)
{
    s = span_trim(s);
    if (memchr(s.p ? s.p : "", '\0', s.len)) {
        refuse(r, EINVAL, line_now(r), "%s has a NUL byte in it", what);
        return NULL;
    }
    const char *copy = arena_dup(&r->doc->arena, s.p, s.len);
    if (!copy)
        no_memory(r);
    return copy;
}

static void set_part(struct reader *r, enum where what, struct span text, uint32_t line)
{
    static const char *const names[] = {
        [W_NAME] = "name", [W_VALUE] = "value", [W_FINAL] = "final"
    };
    bool twice = (what == W_NAME && r->prop.name) || (what == W_VALUE && r->prop.value) ||
                 (what == W_FINAL && r->has_final);
    if (twice) {
        refuse(r, EINVAL, line, "a property has two <%s>", names[what]);
        return;
    }
    if (what == W_NAME) {
        r->prop.name = keep(r, "a name", text);
        r->prop.line = line;
        if (r->prop.name && !*r->prop.name)
            refuse(r, EINVAL, line, "the name of a property is empty");
    } else if (what == W_VALUE) {
        r->prop.value = keep(r, "a value", text);
    } else {
        r->has_final = true;
        text = span_trim(text);
        r->prop.final = text.len == 4 && strncasecmp(text.p, "true", 4) == 0;
    }
}

static const char *local_name(const char *tag)
{
    const char *colon = strrchr(tag, ':');
    return colon ? colon + 1 : tag;
}

static bool is_include(const char *tag)
{
    return strcmp(local_name(tag), "include") == 0 || strcmp(local_name(tag), "fallback") == 0;
}

static void ignore(struct reader *r)
{
    r->ignored_in = r->where;
    r->ignored_from = r->depth;
    r->where = W_IGNORED;
}

static void add_prop(struct reader *r, struct xml_prop prop)
{
    if (r->doc->props.n == XML_PROPS_MAX)
        refuse(r, EFBIG, prop.line, "more than %d properties", XML_PROPS_MAX);
    else if (vec_push(&r->doc->props, prop) < 0)
        no_memory(r);
}

/* <xi:include href="...">, in the root or in the fallback of another one */
static void open_include(struct reader *r, const char **attr)
{
    struct xml_prop prop = { .include = true, .line = line_now(r) };
    for (size_t i = 0; attr[i] && r->rc == 0; i += 2)
        if (strcmp(attr[i], "href") == 0)
            prop.value = keep(r, "a href", span_of(attr[i + 1]));
    if (r->rc < 0)
        return;
    if (!prop.value || !*prop.value)
        refuse(r, EINVAL, prop.line, "an <xi:include> has no href");
    else if (r->n_includes == XML_INCLUDES_MAX)
        refuse(r, EFBIG, prop.line, "more than %d includes in each other", XML_INCLUDES_MAX);
    if (r->rc < 0)
        return;
    r->includes[r->n_includes++] = r->doc->props.n;
    r->where = W_INCLUDE;
    add_prop(r, prop);
}

/* An element in the root of a site file. */
static void site_element(struct reader *r, const char *tag, const char **attr)
{
    const char *local = local_name(tag);
    if (strcmp(local, "include") == 0)
        open_include(r, attr);
    else if (strcmp(tag, "configuration") == 0)
        refuse(r, EINVAL, line_now(r), "a <configuration> stands in another one");
    else
        ignore(r);
}

static void include_part(struct reader *r, const char *tag)
{
    struct xml_prop *open = &r->doc->props.v[r->includes[r->n_includes - 1]];
    if (strcmp(local_name(tag), "fallback") == 0 && !open->has_fallback) {
        open->has_fallback = true;
        r->where = W_ROOT;
    } else {
        ignore(r);
    }
}

static void close_fallback(struct reader *r)
{
    size_t at = r->includes[r->n_includes - 1];
    r->doc->props.v[at].n_fallback = (uint32_t)(r->doc->props.n - at - 1);
    r->where = W_INCLUDE;
}

static void open_property(struct reader *r, const char **attr)
{
    r->where = W_PROPERTY;
    r->prop = (struct xml_prop){ 0 };
    r->has_final = false;
    r->prop_line = line_now(r);
    for (size_t i = 0; attr[i] && r->rc == 0; i += 2) {
        struct span v = span_of(attr[i + 1]);
        if (strcmp(attr[i], "name") == 0)
            set_part(r, W_NAME, v, line_now(r));
        else if (strcmp(attr[i], "value") == 0)
            set_part(r, W_VALUE, v, line_now(r));
        else if (strcmp(attr[i], "final") == 0)
            set_part(r, W_FINAL, v, line_now(r));
    }
}

static void open_part(struct reader *r, const char *tag)
{
    static const struct {
        const char *tag;
        enum where where;
    } parts[] = { { "name", W_NAME },           { "value", W_VALUE },    { "final", W_FINAL },
                  { "description", W_IGNORED }, { "source", W_IGNORED }, { "tag", W_IGNORED } };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (strcmp(tag, parts[i].tag) != 0)
            continue;
        if (parts[i].where == W_IGNORED)
            ignore(r);
        r->where = parts[i].where;
        buf_clear(&r->text);
        return;
    }
    if (r->site) {
        ignore(r);
        return;
    }
    refuse(r, EINVAL, line_now(r), "unknown element <%s> in a <property>", tag);
    err_hint(r->e, "a property has <name>, <value> and perhaps <final> and <description>");
}

static void XMLCALL on_start(void *ctx, const XML_Char *tag, const XML_Char **attr)
{
    struct reader *r = ctx;
    uint32_t line = line_now(r);
    if (r->rc < 0)
        return;
    if (++r->depth > XML_DEPTH_MAX) {
        refuse(r, EFBIG, line, "nested more than %d levels deep", XML_DEPTH_MAX);
        return;
    }
    if (is_include(tag) && r->where != W_IGNORED && !r->site) {
        refuse(r, EINVAL, line, "XInclude (<%s>) is not supported here", tag);
        if (r->rc < 0)
            (void)err_hint(r->e, "write the properties of the other file into this one");
        return;
    }
    switch (r->where) {
    case W_OUTSIDE:
        if (strcmp(tag, "configuration") == 0) {
            r->where = W_ROOT;
            r->root_seen = true;
            return;
        }
        refuse(r, EINVAL, line, "the outermost element must be <configuration>, not <%s>", tag);
        return;
    case W_ROOT:
        if (strcmp(tag, "property") == 0)
            open_property(r, attr);
        else if (r->site)
            site_element(r, tag, attr);
        else
            refuse(r, EINVAL, line, "unknown element <%s>: only <property> is known here", tag);
        return;
    case W_PROPERTY:
        open_part(r, tag);
        return;
    case W_INCLUDE:
        include_part(r, tag);
        return;
    case W_NAME:
    case W_VALUE:
    case W_FINAL:
        refuse(r, EINVAL, line, "element <%s> stands inside a text", tag);
        if (r->rc < 0)
            (void)err_hint(r->e, "write '<' in a value as '&lt;'");
        return;
    case W_IGNORED:
        return;
    }
}

static void close_property(struct reader *r)
{
    r->where = W_ROOT;
    if (r->site && (!r->prop.name || !r->prop.value))
        return;
    if (!r->prop.name)
        refuse(r, EINVAL, r->prop_line, "a property has no <name>");
    else if (!r->prop.value)
        refuse(r, EINVAL, r->prop.line, "property '%s' has no <value>", r->prop.name);
    else
        add_prop(r, r->prop);
}

static void XMLCALL on_end(void *ctx, const XML_Char *tag)
{
    struct reader *r = ctx;
    (void)tag; /* expat has checked that it closes the open element */
    if (r->rc < 0)
        return;
    switch (r->where) {
    case W_NAME:
    case W_VALUE:
    case W_FINAL: {
        enum where what = r->where;
        r->where = W_PROPERTY;
        set_part(r, what, buf_span(&r->text), line_now(r));
        break;
    }
    case W_IGNORED:
        if (r->depth == r->ignored_from)
            r->where = r->ignored_in;
        break;
    case W_PROPERTY:
        close_property(r);
        break;
    case W_ROOT:
        if (r->n_includes > 0)
            close_fallback(r);
        else
            r->where = W_OUTSIDE;
        break;
    case W_INCLUDE:
        r->n_includes--;
        r->where = W_ROOT;
        break;
    case W_OUTSIDE:
        break;
    }
    r->depth--;
}

static void XMLCALL on_text(void *ctx, const XML_Char *s, int len)
{
    struct reader *r = ctx;
    if (r->rc < 0 || r->where == W_IGNORED)
        return;
    if (r->where == W_ROOT || r->where == W_PROPERTY || r->where == W_INCLUDE) {
        if (!r->site && span_trim(span_mem(s, (size_t)len)).len > 0)
            refuse(r, EINVAL, line_now(r), "text stands outside of <name> and <value>");
        return;
    }
    int rc = buf_add(&r->text, s, (size_t)len);
    if (rc == -EMSGSIZE)
        refuse(r, EFBIG, line_now(r), "a value is longer than %d KiB", VALUE_MAX >> 10);
    else if (rc < 0)
        no_memory(r);
}

static void XMLCALL on_doctype(void *ctx, const XML_Char *name, const XML_Char *sysid,
                               const XML_Char *pubid, int internal)
{
    struct reader *r = ctx;
    (void)name;
    (void)sysid;
    (void)pubid;
    (void)internal;
    if (r->rc < 0)
        return;
    refuse(r, EINVAL, line_now(r), "document types (<!DOCTYPE>) and entities are not supported");
    (void)err_hint(r->e, "remove the <!DOCTYPE ...> part and write the values out");
}

static int check_bytes(const struct reader *r, struct span text)
{
    size_t at = 0;
    if (text.len > XML_TEXT_MAX)
        return err_set(r->e, EFBIG, "%s: larger than %d MiB", r->name, XML_TEXT_MAX >> 20);
    if (span_utf8(text, &at))
        return 0;
    bool nul = text.p[at] == '\0';
    int rc = err_set(r->e, EINVAL, "%s:%u: the text %s", r->name, span_line_at(text, at),
                     nul ? "has a NUL byte in it" : "is not UTF-8");
    return nul ? rc : err_hint(r->e, "save it as UTF-8, for example by iconv -t UTF-8");
}

static int run(struct reader *r, struct span text)
{
    /* This encoding replaces the encoding that the text declares. */
    r->p = XML_ParserCreate("UTF-8");
    if (!r->p)
        return err_set(r->e, ENOMEM, "%s: cannot read it: %m", r->name);
    XML_SetUserData(r->p, r);
    XML_SetElementHandler(r->p, on_start, on_end);
    XML_SetCharacterDataHandler(r->p, on_text);
    XML_SetStartDoctypeDeclHandler(r->p, on_doctype);
    enum XML_Status st = XML_Parse(r->p, text.len > 0 ? text.p : "", (int)text.len, XML_TRUE);
    if (r->rc == 0 && st != XML_STATUS_OK) {
        enum XML_Error code = XML_GetErrorCode(r->p);
        if (code == XML_ERROR_NO_MEMORY)
            no_memory(r);
        else if (code == XML_ERROR_NO_ELEMENTS && !r->root_seen)
            refuse(r, EINVAL, line_now(r), "cannot be read as XML: there is no <configuration>");
        else
            refuse(r, EINVAL, line_now(r), "cannot be read as XML: %s", XML_ErrorString(code));
    }
    XML_ParserFree(r->p);
    r->p = NULL;
    return r->rc;
}

static int parse(const char *name, struct span text, bool site, struct xml_conf **out,
                 struct err *e)
{
    struct doc *doc = calloc(1, sizeof *doc);
    if (!doc)
        return err_set(e, ENOMEM, "%s: cannot read it: %m", name);
    struct reader r = {
        .name = name, .doc = doc, .site = site, .e = e, .text = { .max = VALUE_MAX }
    };
    AUTO(xml_conf_freep) struct xml_conf *x = &doc->conf;
    int rc = check_bytes(&r, text);
    if (rc == 0)
        rc = run(&r, text);
    buf_done(&r.text);
    if (rc < 0)
        return rc;
    doc->conf.v = doc->props.v;
    doc->conf.n = doc->props.n;
    *out = TAKE(x);
    return 0;
}

int xml_conf_parse(const char *name, struct span text, struct xml_conf **out, struct err *e)
{
    return parse(name, text, false, out, e);
}

int xml_site_parse(const char *name, struct span text, struct xml_conf **out, struct err *e)
{
    return parse(name, text, true, out, e);
}

void xml_conf_free(struct xml_conf *x)
{
    if (!x)
        return;
    struct doc *doc = (struct doc *)x;
    vec_done(&doc->props);
    arena_done(&doc->arena);
    free(doc);
}

void xml_conf_freep(struct xml_conf **x)
{
    xml_conf_free(*x);
    *x = NULL;
}
