/* SPDX-License-Identifier: Apache-2.0 */
#include "client/show/names.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "client/client_int.h"
#include "cluster/cluster.h"
#include "codec/json.h"
#include "history/history.h"
#include "storage/paths.h"

enum {
    NUMBER_MAX = 16,
};

struct job_names {
    struct map names;   /* id -> name as it is shown; "" = not known */
    struct map numbers; /* id -> the text behind the name: "12", or the id */
    struct map labels;  /* id -> "train (12)" */
    struct map newest;  /* number -> id of the newest job of this home that has it */
    bool has_newest;
};

static const char id_start[] = "application_";

/* ---- names ---- */

const char *names_cell(const char *name, char out[NAMES_CELL_MAX])
{
    size_t columns = 0, n = 0;
    for (; name[n]; n++) {
        columns += ((unsigned char)name[n] & 0xc0) != 0x80;
        if (columns > NAMES_COLUMNS)
            break;
    }
    bool whole = !name[n] && n < NAMES_CELL_MAX;
    n = MIN(n, (size_t)NAMES_CELL_MAX - sizeof "...");
    if (whole)
        (void)str_copy(out, NAMES_CELL_MAX, name);
    else
        (void)snprintf(out, NAMES_CELL_MAX, "%.*s...", (int)n, name);
    return out;
}

/* Does a character begin at p that changes the direction of the text behind it? With U+202E a
 * terminal would show " (12)" as " (21)". All of these have three bytes. */
static bool is_direction(const char *p)
{
    if (str_starts(p, "\xe2\x80")) /* U+202A to U+202E */
        return (unsigned char)p[2] >= 0xaa && (unsigned char)p[2] <= 0xae;
    if (str_starts(p, "\xe2\x81")) /* U+2066 to U+2069 */
        return (unsigned char)p[2] >= 0xa6 && (unsigned char)p[2] <= 0xa9;
    return false;
}

/* A name as it may stand in a sentence. */
static char *shown_name(const char *name)
{
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(buf_done) struct buf plain = { 0 };
    char cell[NAMES_CELL_MAX];
    client_shown(&text, span_of(name), false);
    if (text.failed)
        return NULL;
    for (const char *p = text.len ? buf_cstr(&text) : ""; *p; p++) {
        bool turns = is_direction(p);
        (void)buf_addc(&plain, turns ? '?' : *p);
        p += turns ? 2 : 0;
    }
    if (plain.failed)
        return NULL;
    (void)names_cell(plain.len ? buf_cstr(&plain) : "", cell);
    for (char *p = cell; *p; p++)
        if (strchr("'\"()\t", *p))
            *p = '?';
    return str_dup(cell);
}

static void keep_name(struct job_names *n, const char *id, const char *name)
{
    void *old = NULL;
    char *shown = shown_name(name);
    if (!shown || map_set(&n->names, id, shown, &old) < 0)
        free(shown); /* no memory: the text has the id */
    free(old);
}

/* Keep the names that the document itself has. */
static void collect(struct job_names *n, const json_t *v)
{
    static const char *const pairs[][2] = { { "application_id", "name" },
                                            { "holder", "holder_name" },
                                            { "unknown_id", "unknown_name" } };
    const char *key;
    json_t *member;
    size_t i;
    for (i = 0; json_is_object(v) && i < ARRAY_LEN(pairs); i++)
        if (doc_str(v, pairs[i][0])[0] && doc_str(v, pairs[i][1])[0])
            keep_name(n, doc_str(v, pairs[i][0]), doc_str(v, pairs[i][1]));
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
    {
        collect(n, member);
    }
    json_array_foreach(v, i, member)
    {
        collect(n, member);
    }
}

/* The name of a job; "" = not known. */
static const char *name_of(struct client *c, const char *id)
{
    struct job_names *n = c->names;
    struct err unread;
    if (!map_has(&n->names, id)) {
        AUTO(free_p)
        char *name =
            host_look_paths(&c->host, &unread) == 0 ? history_name(&c->host.paths, id) : NULL;
        keep_name(n, id, name ? name : "");
    }
    const char *name = map_get(&n->names, id);
    return name ? name : "";
}

/* ---- numbers ---- */

/* Keep the newest job of each number in a directory of jobs. */
static void scan(struct job_names *n, const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *x; d && (x = readdir(d));) {
        int64_t start, other_start = -1;
        uint32_t number, unused;
        char text[NUMBER_MAX];
        void *old = NULL;
        if (app_id_parse(x->d_name, &start, &number, NULL) < 0)
            continue;
        (void)snprintf(text, sizeof text, "%u", number);
        const char *other = map_get(&n->newest, text);
        if (other && app_id_parse(other, &other_start, &unused, NULL) == 0 && other_start >= start)
            continue;
        char *id = str_dup(x->d_name);
        if (!id || map_set(&n->newest, text, id, &old) < 0)
            free(id); /* no memory: the text has the id */
        free(old);
    }
    if (d)
        (void)closedir(d);
}

static const char *newest_of(struct client *c, const char *number)
{
    struct err unread;
    if (!c->names->has_newest && host_look_paths(&c->host, &unread) == 0) {
        scan(c->names, c->host.paths.jobs);
        scan(c->names, c->host.paths.history);
        c->names->has_newest = true;
    }
    const char *id = map_get(&c->names->newest, number);
    return id ? id : "";
}

/* Does the number of the job, as an argument of a command, mean this job? As client_find() finds
 * it. */
static bool is_found_by_number(struct client *c, const char *id, char number[NUMBER_MAX])
{
    char recorded[APP_ID_MAX], place[CLUSTER_PLACE_MAX];
    int64_t start;
    uint32_t n;
    if (app_id_parse(id, &start, &n, NULL) < 0)
        return false;
    (void)snprintf(number, NUMBER_MAX, "%u", n);
    if (cluster_recorded(&c->host, NULL, number, recorded, place))
        return str_eq(recorded, id);
    struct err unread = { 0 };
    const struct cluster_ops *ops = cluster_of(&c->host, NULL, client_site(c, &unread), number);
    return ops && ops == cluster_at(0) && str_eq(newest_of(c, number), id);
}

/* ---- texts ---- */

/* The text behind the name of a job: its number, or its id. */
static const char *number_of(struct client *c, const char *id)
{
    struct job_names *n = c->names;
    char number[NUMBER_MAX];
    if (!map_has(&n->numbers, id)) {
        char *text = str_dup(is_found_by_number(c, id, number) ? number : id);
        if (!text || map_set(&n->numbers, id, text, NULL) < 0)
            free(text); /* no memory: the text has the id */
    }
    const char *known = map_get(&n->numbers, id);
    return known ? known : id;
}

/* Copy the id that begins at p to id; "" = none begins there. */
static void read_id(const char *p, char id[APP_ID_MAX])
{
    int64_t start;
    uint32_t number;
    size_t n = sizeof id_start - 1;
    id[0] = '\0';
    if (!str_starts(p, id_start))
        return;
    while (isdigit((unsigned char)p[n]) || p[n] == '_')
        n++;
    bool goes_on = isalnum((unsigned char)p[n]) || p[n] == '/' || p[n] == '-' ||
                   (p[n] == '.' && isalnum((unsigned char)p[n + 1]));
    if (n >= APP_ID_MAX || goes_on)
        return; /* a part of a path, or of another word */
    memcpy(id, p, n);
    id[n] = '\0';
    if (app_id_parse(id, &start, &number, NULL) < 0)
        id[0] = '\0';
}

/* The text with the names of jobs in place of their ids. NULL: no memory, or nothing changes. */
static char *named_text(struct client *c, const char *text)
{
    AUTO(buf_done) struct buf out = { 0 };
    const char *from = text, *p = text;
    char id[APP_ID_MAX];
    while ((p = strstr(p, id_start))) {
        bool inside = p > text && (isalnum((unsigned char)p[-1]) || strchr("_/-.", p[-1]));
        read_id(p, id);
        size_t len = strlen(id);
        const char *name = len && !inside ? name_of(c, id) : "";
        if (!name[0]) {
            p += sizeof id_start - 1;
            continue;
        }
        bool quoted = p > text && p[-1] == '\'' && p[len] == '\'';
        (void)buf_add(&out, from, (size_t)(p - from) - quoted);
        (void)buf_addf(&out, quoted ? "'%s' (%s)" : "%s (%s)", name, number_of(c, id));
        from = p = p + len + quoted;
    }
    if (from == text)
        return NULL;
    (void)buf_adds(&out, from);
    return out.failed ? NULL : str_dup(buf_cstr(&out));
}

/* ---- documents ---- */

/* Is the member a sentence of tony about jobs, or the id of another job? */
static bool names_jobs(const char *key)
{
    static const char *const keys[] = { "why",        "would_change", "behind",  "holder",
                                        "unknown_id", "held",         "pausing", "awaits" };
    for (size_t i = 0; key && i < ARRAY_LEN(keys); i++)
        if (str_eq(key, keys[i]))
            return true;
    return false;
}

static json_t *named_copy(struct client *c, const json_t *v, const char *name)
{
    const char *key;
    json_t *member, *copy;
    size_t i;
    if (json_is_string(v) && names_jobs(name)) {
        AUTO(free_p) char *text = named_text(c, json_string_value(v));
        return text ? json_string(text) : json_incref((json_t *)(uintptr_t)v);
    }
    if (!json_is_object(v) && !json_is_array(v))
        return json_incref((json_t *)(uintptr_t)v);
    copy = json_is_object(v) ? json_object() : json_array();
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
    {
        (void)json_object_set_new(copy, key, named_copy(c, member, key));
    }
    json_array_foreach(v, i, member)
    {
        (void)json_array_append_new(copy, named_copy(c, member, name));
    }
    return copy;
}

json_t *names_shown(struct client *c, const json_t *doc, bool lines)
{
    if (!c->names && !(c->names = calloc(1, sizeof *c->names)))
        return doc_shown(doc, lines); /* no memory: the text has the ids */
    collect(c->names, doc);
    AUTO(json_freep) json_t *copy = named_copy(c, doc, NULL);
    return doc_shown(copy, lines);
}

const char *names_label(struct client *c, const char *application_id)
{
    if (!c->names && !(c->names = calloc(1, sizeof *c->names)))
        return application_id;
    struct job_names *n = c->names;
    const char *name = name_of(c, application_id);
    if (!name[0])
        return application_id;
    void *old = NULL;
    char *label = str_printf("%s (%s)", name, number_of(c, application_id));
    if (!label || map_set(&n->labels, application_id, label, &old) < 0) {
        free(label);
        return application_id;
    }
    free(old);
    return label;
}

void names_free(struct job_names *n)
{
    if (!n)
        return;
    map_done(&n->names, free);
    map_done(&n->numbers, free);
    map_done(&n->labels, free);
    map_done(&n->newest, free);
    free(n);
}
