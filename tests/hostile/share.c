/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile master, for tests of the arbiter. It is the real one, except for its answers to the two
 * requests of an arbiter. It has a valid key, because it is the master of a registered job.
 *
 * The command of the first role contains LIES=PATH. The file PATH has the word that says how the
 * master lies; the test changes it while the job runs. Without such a file the master is honest.
 */
#define share_json honest_share_json
#define share_wish honest_share_wish
#include "master/share.c"
#undef share_json
#undef share_wish

#include <stdio.h>
#include <unistd.h>

#include "base/fs.h"

int share_json(const struct master *m, struct buf *out);
int share_wish(struct master *m, const Tony__SizeWish *a, struct err *e);

enum { SILENT_S = 5, LARGE = 8 << 20, MANY = 100000, DEEP = 100000 };

/* The word in the file; "" = be honest. */
static const char *lie(const struct master *m)
{
    static char word[64];
    char path[512];
    const char *at = m->spec->n_roles > 0 && m->spec->roles[0].command
                         ? strstr(m->spec->roles[0].command, "LIES=")
                         : NULL;
    word[0] = '\0';
    if (!at || sscanf(at, "LIES=%511[^ ;]", path) != 1)
        return word;
    FILE *f = fopen(path, "re");
    if (f) {
        if (fscanf(f, "%63s", word) != 1)
            word[0] = '\0';
        (void)fclose(f);
    }
    return word;
}

/* A node on which the job has a container. */
static const char *some_node(const struct master *m)
{
    for (uint32_t slot = 0; slot < m->n_slots; slot++) {
        const char *node = locations_node(m, slot);
        if (node)
            return node;
    }
    return "none:1";
}

static void add_repeated(struct buf *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)buf_adds(out, text);
}

static void add_many_nodes(struct buf *out)
{
    (void)buf_adds(out, "{\"runs\":true,\"changing\":false,\"instances\":1000000,\"nodes\":{");
    for (int i = 0; i < MANY; i++)
        (void)buf_addf(out, "%s\"n%d:1\":1", i ? "," : "", i);
    (void)buf_adds(out, "}}");
}

/* Each lie is one text; %s is a node of the job. */
static const struct {
    const char *word, *text;
} lies[] = {
    { "more", "{\"runs\":true,\"changing\":false,\"instances\":4,\"nodes\":{\"%s\":4}}" },
    { "huge",
      "{\"runs\":true,\"changing\":false,\"instances\":1000000,\"nodes\":{\"%s\":1000000}}" },
    { "less", "{\"runs\":true,\"changing\":false,\"instances\":1,\"nodes\":{\"%s\":1}}" },
    { "none", "{\"runs\":true,\"changing\":false,\"instances\":0,\"nodes\":{}}" },
    { "elsewhere",
      "{\"runs\":true,\"changing\":false,\"instances\":2,\"nodes\":{\"nowhere:1\":2}}" },
    { "negative", "{\"runs\":true,\"changing\":false,\"instances\":-2,\"nodes\":{\"%s\":-2},"
                  "\"left_ms\":-9223372036854775807,\"cost_ms\":-1}" },
    { "overflow", "{\"runs\":true,\"changing\":false,\"instances\":18446744073709551618,"
                  "\"nodes\":{\"%s\":2}}" },
    { "real", "{\"runs\":true,\"changing\":false,\"instances\":2.0,\"nodes\":{\"%s\":1e300}}" },
    { "times", "{\"runs\":true,\"changing\":false,\"instances\":2,\"nodes\":{\"%s\":2},"
               "\"left_ms\":9223372036854775807,\"cost_ms\":9223372036854775807}" },
    { "text", "\033[2J\033]0;owned\007%s" },
    { "screen", "{\"runs\":true,\"changing\":false,\"instances\":2,"
                "\"nodes\":{\"\\u001b[2J%s\":2}}" },
    { "list", "[[\"%s\"]]" },
    { "twice", "{\"runs\":true,\"changing\":false,\"instances\":2,\"nodes\":{\"%s\":1,\"%s\":1}}" },
    { "waits", "{\"runs\":false,\"changing\":false,\"instances\":4,\"nodes\":{}}" },
    { "changes", "{\"runs\":true,\"changing\":true,\"instances\":1000000,\"nodes\":{}}" },
};

int share_json(const struct master *m, struct buf *out)
{
    const char *word = lie(m), *node = some_node(m);
    for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
        if (!str_eq(word, lies[i].word))
            continue;
        for (const char *p = lies[i].text; *p; p++) {
            if (p[0] == '%' && p[1] == 's') {
                (void)buf_adds(out, node);
                p++;
            } else {
                (void)buf_addc(out, *p);
            }
        }
        return out->failed ? -ENOMEM : 0;
    }
    if (str_eq(word, "nomem"))
        return -ENOMEM; /* the caller refuses with this number */
    if (str_eq(word, "silent"))
        (void)sleep(SILENT_S);
    if (str_eq(word, "many"))
        add_many_nodes(out);
    else if (str_eq(word, "deep"))
        add_repeated(out, "[", DEEP);
    else if (str_eq(word, "large"))
        add_repeated(out, "        ", LARGE / 8);
    else
        return honest_share_json(m, out);
    return out->failed ? -ENOMEM : 0;
}

int share_wish(struct master *m, const Tony__SizeWish *a, struct err *e)
{
    const char *word = lie(m);
    if (str_eq(word, "agrees"))
        return 0; /* and does nothing */
    if (str_eq(word, "refuses"))
        return err_set(e, EPERM, "\033[2J\033]0;owned\007no\n\ntony: all is well");
    return honest_share_wish(m, a, e);
}
