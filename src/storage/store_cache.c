/* SPDX-License-Identifier: Apache-2.0 */
/* store/cache: one line for each source, "<source> <metadata> <entry> <bytes> <files>" as in struct
 * cache_row. The newest line is the last one. */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "storage/store_int.h"

enum {
    ROWS_MAX = 500, /* the oldest rows are dropped */
    FIELDS = 5,
};

static bool is_digest(struct span s)
{
    if (s.len != DIGEST_HEX - 1)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (!strchr("0123456789abcdef", s.p[i]) || s.p[i] == '\0')
            return false;
    }
    return true;
}

bool entry_name_ok(const char *name)
{
    return (name[0] == 'd' || name[0] == 'f') && name[1] == '-' && is_digest(span_of(name + 2));
}

static bool parse(struct span line, struct cache_row *out)
{
    struct span f[FIELDS];
    for (int i = 0; i < FIELDS; i++) {
        if (!span_split(&line, ' ', &f[i]))
            return false;
    }
    int64_t bytes, files;
    if (!is_digest(f[0]) || !is_digest(f[1]) || f[2].len != ENTRY_MAX - 1 ||
        str_i64(f[3], 0, INT64_MAX, "bytes", &bytes, NULL) < 0 ||
        str_i64(f[4], 0, UINT32_MAX, "files", &files, NULL) < 0)
        return false;
    *out = (struct cache_row){ .bytes = (uint64_t)bytes, .n_files = (uint32_t)files };
    memcpy(out->source, f[0].p, f[0].len);
    memcpy(out->metadata, f[1].p, f[1].len);
    memcpy(out->entry, f[2].p, f[2].len);
    return entry_name_ok(out->entry);
}

static int read_cache(const struct store *s, struct buf *text)
{
    text->max = 1 << 20;
    return fs_read(s->fd, "cache", text, NULL);
}

bool cache_find(const struct store *s, const char *source, const char *metadata,
                struct cache_row *out)
{
    AUTO(buf_done) struct buf text = { 0 };
    if (read_cache(s, &text) < 0)
        return false;
    struct span rest = buf_span(&text), line;
    while (span_split(&rest, '\n', &line)) {
        struct cache_row row;
        if (parse(line, &row) && str_eq(row.source, source) && str_eq(row.metadata, metadata)) {
            *out = row;
            return true;
        }
    }
    return false;
}

/* If two clients write the cache at the same time, the later one overwrites the row of the other.
 * That source is read again at its next use. */
void cache_add(const struct store *s, const struct cache_row *row)
{
    AUTO(buf_done) struct buf text = { 0 };
    AUTO(buf_done) struct buf out = { 0 };
    (void)read_cache(s, &text); /* if the cache is missing or unreadable, start an empty one */
    size_t rows = 0;
    for (size_t i = 0; i < text.len; i++)
        rows += text.p[i] == '\n';
    struct span rest = buf_span(&text), line;
    while (span_split(&rest, '\n', &line)) {
        struct cache_row old;
        bool keep = parse(line, &old) && !str_eq(old.source, row->source);
        if (keep && rows < ROWS_MAX)
            buf_addf(&out, "%.*s\n", (int)line.len, line.p);
        else if (rows > 0)
            rows--;
    }
    if (buf_addf(&out, "%s %s %s %" PRIu64 " %" PRIu32 "\n", row->source, row->metadata, row->entry,
                 row->bytes, row->n_files) == 0)
        (void)fs_write_atomic(s->fd, "cache", buf_span(&out), 0600, false, NULL);
}
