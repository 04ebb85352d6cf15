/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints docs/keys.md from the table of keys. With --check FILE: exits 1 if FILE has another
 * content.
 */
#include <stdio.h>
#include <string.h>

#include <fcntl.h>

#include "base/base.h"
#include "conf/conf.h"
#include "wrap.h"

static const struct {
    enum conf_effect effect;
    const char *title, *text;
} sections[] = {
    { CE_ACTS, "Keys that act", "Honoured on every cluster of this release." },
    { CE_YARN, "Keys for YARN", "Known and checked; they act only with `tony.cluster` = `yarn`." },
    { CE_SLURM, "Keys for Slurm",
      "Known and checked; they act only with `tony.cluster` = `slurm`." },
    { CE_LATER, "Keys for later", "Known and checked; this release does not act on them." },
    { CE_JVM, "Keys without meaning here",
      "Accepted, so that job files need no change. If a job sets one, tony says why it has no "
      "effect." },
    { CE_REFUSED, "Keys that are refused", "Setting one is an error." },
};

static const char *type_name(const struct conf_key *k)
{
    switch (k->type) {
    case CT_INT:
        return "number";
    case CT_BOOL:
        return "true or false";
    case CT_LIST:
        return "list";
    case CT_MEM:
        return "size";
    case CT_ENVS:
        return "environment";
    case CT_ENUM:
        return "one of";
    case CT_REAL:
        return "decimal number";
    case CT_STR:
    case CT_NONE:
    case CT_COUNT:
        break;
    }
    return "text";
}

static int add_type(struct buf *b, const struct conf_key *k)
{
    int rc = buf_adds(b, type_name(k));
    struct span rest = span_of(k->choices), one;
    const char *sep = " ";
    while (rc == 0 && k->choices && span_split(&rest, '|', &one)) {
        rc = buf_addf(b, "%s`%.*s`", sep, (int)one.len, one.p);
        sep = ", ";
    }
    if (rc == 0 && *k->unit)
        rc = buf_addf(b, ", %s", k->unit);
    if (rc == 0 && (k->type == CT_INT || k->type == CT_REAL || k->type == CT_MEM) &&
        k->min != INT64_MIN) {
        rc = buf_addf(b, ", from %lld", (long long)k->min);
        if (rc == 0 && k->max != INT64_MAX)
            rc = buf_addf(b, " to %lld", (long long)k->max);
    }
    return rc;
}

static int add_key(struct buf *b, const struct conf_key *k)
{
    AUTO(buf_done) struct buf text = { 0 };
    int rc = buf_addf(&text, "`%s` (", k->name);
    if (rc == 0)
        rc = add_type(&text, k);
    if (rc == 0 && k->dflt)
        rc = *k->dflt ? buf_addf(&text, "; default `%s`", k->secret ? "***" : k->dflt)
                      : buf_adds(&text, "; default empty");
    if (rc == 0)
        rc = buf_addf(&text, "; since %s): %s", k->since, k->help);
    return rc < 0 ? rc : wrap_item(b, 0, buf_span(&text));
}

static int add_page(struct buf *b)
{
    size_t n;
    const struct conf_key *k = conf_keys(&n);
    int rc = buf_adds(
        b,
        "# Keys\n\n"
        "```sh\n"
        "tony doctor --keys | grep memory          # the same list in your terminal\n"
        "tony run -n 2 --conf tony.worker.memory=64m -- true\n"
        "```\n\n"
        "Every setting of a job, a site and the pool is a key with a value. In a YAML job file "
        "some keys "
        "have\n"
        "shorter names ([job files](job-files.md#yaml)).\n\n"
        "Printed from the table in `src/conf/keys.c` by `gen-docs`: change that, not this page.\n\n"
        "A name in angle brackets stands for letters, digits, `-` and `_`: `tony.<role>.memory` "
        "is\n"
        "`tony.worker.memory` for the role `worker`. Sizes are whole MiB, or have a unit: `512m`, "
        "`2g`. Times are\n"
        "whole numbers in the unit of the key (ms or s), or have a unit: `500ms`, `90s`, `10m`, "
        "`2h`, `1d`. Lists are\n"
        "separated by commas; a comma inside an item is written `\\,`. Environments are lists of "
        "`NAME=VALUE`.\n\n"
        "The last of these values wins: default, site file, job file, options, `--conf`. Values "
        "for\n"
        "`tony.containers.envs`, `tony.execution.envs` and `tony.containers.resources` from "
        "options and `--conf` are\n"
        "added to the values of the files.\n\n"
        "Behind each key: its type, its default, and the first program that had it. `TonY` and "
        "`TonY 0.5` are the\n"
        "original; keys since `tony 1` are new.\n");
    for (size_t s = 0; s < ARRAY_LEN(sections) && rc == 0; s++) {
        bool begun = false;
        for (size_t i = 0; i < n && rc == 0; i++) {
            if (k[i].effect != sections[s].effect)
                continue;
            if (!begun)
                rc = buf_addf(b, "\n## %s\n\n%s\n\n", sections[s].title, sections[s].text);
            begun = true;
            if (rc == 0)
                rc = add_key(b, &k[i]);
        }
    }
    return rc;
}

static int check(const char *path, const struct buf *page)
{
    AUTO(buf_done) struct buf old = { 0 };
    struct err e = { 0 };
    if (fs_read(AT_FDCWD, path, &old, &e) < 0) {
        fprintf(stderr, "gen-docs: %s\n", e.msg);
        return 1;
    }
    if (span_eq(buf_span(&old), buf_span(page)))
        return 0;
    fprintf(stderr, "gen-docs: '%s' is not current: run gen-docs > %s\n", path, path);
    return 1;
}

int main(int argc, char **argv)
{
    AUTO(buf_done) struct buf page = { 0 };
    if (add_page(&page) < 0) {
        fputs("gen-docs: no memory\n", stderr);
        return 1;
    }
    if (argc == 3 && strcmp(argv[1], "--check") == 0)
        return check(argv[2], &page);
    if (argc != 1) {
        fputs("usage: gen-docs [--check FILE]\n", stderr);
        return 2;
    }
    return fwrite(page.p, 1, page.len, stdout) == page.len && fflush(stdout) == 0 ? 0 : 1;
}
