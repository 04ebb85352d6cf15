/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/yaml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "base/err.h"
#include "base/map.h"
#include "base/util.h"
#include "codec/arena.h"

struct ydoc {
    struct arena arena;
    struct ynode *root;
};

/* A mapping or list that is still open. */
struct level {
    struct ynode *node;
    struct map keys; /* of a mapping: key -> its ynode */
    const char *key; /* a key that was read and has no value yet */
    uint32_t key_line;
};

struct reader {
    const char *name;
    struct span text;
    struct ydoc *doc;
    struct level levels[YAML_DEPTH_MAX];
    size_t depth, n_nodes;
    bool started; /* a document has begun */
    bool ended;
    int rc; /* error code of a failed new_node() */
    struct err *e;
};

static uint32_t line_of(const yaml_mark_t *m)
{
    return (uint32_t)m->line + 1;
}

static int refuse(struct reader *r, int num, uint32_t line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static int refuse(struct reader *r, int num, uint32_t line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = err_vset(r->e, num, fmt, ap);
    va_end(ap);
    return err_wrap(r->e, rc, "%s:%u", r->name, line);
}

static int no_memory(struct reader *r)
{
    return err_set(r->e, ENOMEM, "%s: cannot read it: %m", r->name);
}

/* Turn an error of libyaml into a sentence with file and line. */
static int syntax_error(struct reader *r, const yaml_parser_t *p)
{
    if (p->error == YAML_MEMORY_ERROR)
        return no_memory(r);
    if (p->error == YAML_READER_ERROR) { /* this error has no mark; only its offset is known */
        (void)refuse(r, EINVAL, span_line_at(r->text, p->problem_offset),
                     "cannot be read as YAML: %s", p->problem);
        return err_hint(r->e, "remove it, or write it in quotes as \\x%02X", p->problem_value);
    }
    uint32_t line = line_of(&p->problem_mark);
    const char *problem = p->problem ? p->problem : "it is not YAML";
    if (p->context)
        (void)refuse(r, EINVAL, line, "cannot be read as YAML: %s (%s, line %u)", problem,
                     p->context, line_of(&p->context_mark));
    else
        (void)refuse(r, EINVAL, line, "cannot be read as YAML: %s", problem);
    return err_hint(r->e, "look at the indentation and at colons or quotes around line %u", line);
}

/* NULL: refused; r->rc has the error code. */
static struct ynode *new_node(struct reader *r, enum ynode_kind kind, uint32_t line)
{
    if (r->n_nodes++ >= YAML_NODES_MAX) {
        r->rc = refuse(r, EFBIG, line, "more than %d values in one file", YAML_NODES_MAX);
        return NULL;
    }
    struct ynode *n = arena_alloc(&r->doc->arena, sizeof *n);
    if (!n) {
        r->rc = no_memory(r);
        return NULL;
    }
    n->kind = kind;
    n->line = line;
    return n;
}

/* Add a node to the open mapping or list. */
static void attach(struct reader *r, struct ynode *n)
{
    if (r->depth == 0) {
        r->doc->root = n;
        return;
    }
    struct level *l = &r->levels[r->depth - 1];
    if (l->node->kind == YN_MAP) {
        n->key = TAKE(l->key);
        n->key_line = l->key_line;
    }
    if (l->node->last)
        l->node->last->next = n;
    else
        l->node->first = n;
    l->node->last = n;
    l->node->n++;
}

static bool wants_key(const struct reader *r)
{
    const struct level *l = r->depth > 0 ? &r->levels[r->depth - 1] : NULL;
    return l && l->node->kind == YN_MAP && !l->key;
}

static int on_key(struct reader *r, const char *text, size_t len, uint32_t line)
{
    struct level *l = &r->levels[r->depth - 1];
    if (len == 0)
        return refuse(r, EINVAL, line, "a key is empty");
    const char *key = arena_dup(&r->doc->arena, text, len);
    if (!key)
        return no_memory(r);
    void *earlier = map_get(&l->keys, key);
    if (earlier)
        return refuse(r, EINVAL, line, "'%s' is given twice, first in line %u", key,
                      (uint32_t)(uintptr_t)earlier);
    if (map_set(&l->keys, key, (void *)(uintptr_t)line, NULL) < 0)
        return no_memory(r);
    l->key = key;
    l->key_line = line;
    return 0;
}

static int check_plain(struct reader *r, const void *anchor, const void *tag, uint32_t line)
{
    if (anchor) {
        (void)refuse(r, EINVAL, line, "anchors (&name) and aliases (*name) are not supported");
        return err_hint(r->e, "write the value out, or put it in quotes");
    }
    if (tag) {
        (void)refuse(r, EINVAL, line, "tags (!name) are not supported");
        return err_hint(r->e, "put the value in quotes if it begins with '!'");
    }
    return 0;
}

static int on_scalar(struct reader *r, const yaml_event_t *ev)
{
    uint32_t line = line_of(&ev->start_mark);
    int rc = check_plain(r, ev->data.scalar.anchor, ev->data.scalar.tag, line);
    if (rc < 0)
        return rc;
    const char *text = (const char *)ev->data.scalar.value;
    size_t len = ev->data.scalar.length;
    if (memchr(text, '\0', len))
        return refuse(r, EINVAL, line, "a value has a NUL byte in it");
    if (wants_key(r))
        return on_key(r, text, len, line);
    struct ynode *n = new_node(r, YN_SCALAR, line);
    if (!n)
        return r->rc;
    n->quoted = ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    n->text = arena_dup(&r->doc->arena, text, len);
    n->len = len;
    if (!n->text)
        return no_memory(r);
    attach(r, n);
    return 0;
}

static int on_open(struct reader *r, enum ynode_kind kind, const void *anchor, const void *tag,
                   const yaml_mark_t *mark)
{
    uint32_t line = line_of(mark);
    int rc = check_plain(r, anchor, tag, line);
    if (rc < 0)
        return rc;
    if (wants_key(r))
        return refuse(r, EINVAL, line, "a key must be text, not a list or a mapping");
    if (r->depth == YAML_DEPTH_MAX)
        return refuse(r, EFBIG, line, "nested more than %d levels deep", YAML_DEPTH_MAX);
    struct ynode *n = new_node(r, kind, line);
    if (!n)
        return r->rc;
    attach(r, n);
    r->levels[r->depth++] = (struct level){ .node = n };
    return 0;
}

static void on_close(struct reader *r)
{
    map_done(&r->levels[--r->depth].keys, NULL);
}

static int on_event(struct reader *r, const yaml_event_t *ev)
{
    switch (ev->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (r->started) {
            (void)refuse(r, EINVAL, line_of(&ev->start_mark), "a second document begins here");
            return err_hint(r->e, "remove '---' and what belongs to another file");
        }
        r->started = true;
        return 0;
    case YAML_ALIAS_EVENT:
        return check_plain(r, ev->data.alias.anchor, NULL, line_of(&ev->start_mark));
    case YAML_SCALAR_EVENT:
        return on_scalar(r, ev);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(r, YN_LIST, ev->data.sequence_start.anchor, ev->data.sequence_start.tag,
                       &ev->start_mark);
    case YAML_MAPPING_START_EVENT:
        return on_open(r, YN_MAP, ev->data.mapping_start.anchor, ev->data.mapping_start.tag,
                       &ev->start_mark);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        on_close(r);
        return 0;
    case YAML_STREAM_END_EVENT:
        r->ended = true;
        return 0;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return 0;
    }
    return 0;
}

/* Check size and encoding before libyaml reads the text: libyaml would also accept UTF-16. */
static int check_bytes(struct reader *r)
{
    struct span text = r->text;
    size_t at = 0;
    if (text.len > YAML_TEXT_MAX)
        return err_set(r->e, EFBIG, "%s: larger than %d MiB", r->name, YAML_TEXT_MAX >> 20);
    if (span_utf8(text, &at))
        return 0;
    if (text.p[at] == '\0')
        return refuse(r, EINVAL, span_line_at(text, at), "the text has a NUL byte in it");
    (void)refuse(r, EINVAL, span_line_at(text, at), "the text is not UTF-8");
    return err_hint(r->e, "save it as UTF-8, for example by iconv -t UTF-8");
}

static int read_all(struct reader *r, yaml_parser_t *p)
{
    while (!r->ended) {
        yaml_event_t ev;
        if (!yaml_parser_parse(p, &ev))
            return syntax_error(r, p);
        int rc = on_event(r, &ev);
        yaml_event_delete(&ev);
        if (rc < 0)
            return rc;
    }
    if (r->doc->root)
        return 0;
    struct ynode *n = new_node(r, YN_SCALAR, 1);
    if (!n)
        return r->rc;
    n->text = "";
    attach(r, n);
    return 0;
}

int ydoc_parse(const char *name, struct span text, struct ydoc **out, struct err *e)
{
    struct reader *r = calloc(1, sizeof *r);
    AUTO(ydoc_freep) struct ydoc *doc = calloc(1, sizeof *doc);
    if (!r || !doc) {
        free(r);
        return err_set(e, ENOMEM, "%s: cannot read it: %m", name);
    }
    r->name = name;
    r->text = text;
    r->doc = doc;
    r->e = e;
    int rc = check_bytes(r);
    if (rc == 0) {
        yaml_parser_t p;
        if (yaml_parser_initialize(&p)) {
            yaml_parser_set_encoding(&p, YAML_UTF8_ENCODING);
            yaml_parser_set_input_string(&p, (const unsigned char *)(text.len > 0 ? text.p : ""),
                                         text.len);
            rc = read_all(r, &p);
            yaml_parser_delete(&p);
        } else {
            rc = no_memory(r);
        }
    }
    while (r->depth > 0)
        on_close(r);
    free(r);
    if (rc == 0)
        *out = TAKE(doc);
    return rc;
}

const struct ynode *ydoc_root(const struct ydoc *d)
{
    return d->root;
}

void ydoc_free(struct ydoc *d)
{
    if (!d)
        return;
    arena_done(&d->arena);
    free(d);
}

void ydoc_freep(struct ydoc **d)
{
    ydoc_free(*d);
    *d = NULL;
}

bool ynode_is_null(const struct ynode *n)
{
    return n->kind == YN_SCALAR && !n->quoted &&
           (n->len == 0 || strcmp(n->text, "~") == 0 || strcasecmp(n->text, "null") == 0);
}

const char *ynode_kind_name(const struct ynode *n)
{
    switch (n->kind) {
    case YN_LIST:
        return "a list";
    case YN_MAP:
        return "a mapping";
    case YN_SCALAR:
        return ynode_is_null(n) ? "nothing" : "text";
    case YN_NONE:
        break;
    }
    return "nothing";
}
