/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds configuration files, checks their size, and detects their syntax.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"
#include "codec/yaml.h"
#include "conf/conf_int.h"
#include "conf/load.h"

/* TonY looks for the site file here if TONY_CONF_DIR is not set. */
static const char default_conf_dir[] = "/export/apps/tony/conf";

int conf_load_text(struct conf *c, enum conf_layer layer, const char *name, struct span text,
                   bool xml, struct err *e)
{
    struct load l = { .conf = c, .layer = layer, .name = name, .e = e };
    if (layer == CL_JOB) {
        free(c->job_file);
        c->job_file = strdup(name);
        if (!c->job_file)
            return err_set(e, ENOMEM, "%s: cannot read it: %m", name);
    }
    int rc = xml ? load_xml(&l, text) : load_yaml(&l, text);
    map_done(&l.lines, NULL);
    return rc;
}

int load_set(struct load *l, const char *key, const char *value, uint32_t line, bool final,
             bool xml)
{
    AUTO(free_p)
    char *origin = str_printf("%s%s:%u", l->layer == CL_SITE ? "site file " : "", l->name, line);
    uint32_t earlier = (uint32_t)(uintptr_t)map_get(&l->lines, key);
    if (!origin)
        return err_set(l->e, ENOMEM, "%s: cannot read it: %m", l->name);
    /* In Hadoop's XML site files a later value replaces an earlier one, unless the earlier one is
     * final. */
    if (earlier > 0 && !(xml && l->layer == CL_SITE)) {
        (void)err_set(l->e, EINVAL, "%s:%u: '%s' is given twice, first in line %u", l->name, line,
                      key, earlier);
        return err_hint(l->e, "remove one of the two");
    }
    const struct entry *old = earlier > 0 ? conf_find(l->conf, key) : NULL;
    if (old && old->final)
        return 0;
    if (map_set(&l->lines, key, (void *)(uintptr_t)line, NULL) < 0)
        return err_set(l->e, ENOMEM, "%s: cannot read it: %m", l->name);
    struct entry x = { .key = key,
                       .value = value,
                       .origin = origin,
                       .layer = l->layer,
                       .final = final && l->layer == CL_SITE,
                       .from_xml = xml };
    return conf_set_from(l->conf, &x, xml, l->e);
}

/* Is it XML? It is if the path ends in .xml or the text begins with '<'; no YAML job file does. */
static bool looks_like_xml(const char *path, struct span text)
{
    if (text.len >= 3 && memcmp(text.p, "\xef\xbb\xbf", 3) == 0)
        text = span_mem(text.p + 3, text.len - 3);
    text = span_trim(text);
    return str_ends(path, ".xml") || (text.len > 0 && text.p[0] == '<');
}

static int read_file(const char *path, struct buf *out, struct err *e)
{
    struct stat st;
    if (stat(path, &st) == -1)
        return err_set(e, errno, "cannot open '%s': %m", path);
    if (S_ISDIR(st.st_mode))
        return err_set(e, EISDIR, "'%s' is a directory, not a configuration file", path);
    if (S_ISREG(st.st_mode) && st.st_size > YAML_TEXT_MAX)
        return err_set(e, EFBIG, "'%s' is larger than %d MiB and cannot be a configuration file",
                       path, YAML_TEXT_MAX >> 20);
    return fs_read(AT_FDCWD, path, out, e);
}

int conf_load_file(struct conf *c, enum conf_layer layer, const char *path, struct err *e)
{
    AUTO(buf_done) struct buf text = { .max = YAML_TEXT_MAX };
    int rc = read_file(path, &text, e);
    if (rc < 0)
        return rc;
    return conf_load_text(c, layer, path, buf_span(&text), looks_like_xml(path, buf_span(&text)),
                          e);
}

int conf_load_site(struct conf *c, struct err *e)
{
    static const char *const names[] = { "tony-site.xml", "tony-site.yaml" };
    const char *dir = getenv("TONY_CONF_DIR");
    if (!dir || !*dir)
        dir = default_conf_dir;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTO(free_p) char *path = fs_join(dir, names[i]);
        if (!path)
            return err_set(e, ENOMEM, "cannot read the site file: %m");
        if (access(path, F_OK) == -1 && (errno == ENOENT || errno == ENOTDIR))
            continue;
        int rc = conf_load_file(c, CL_SITE, path, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}
