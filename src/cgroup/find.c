/* SPDX-License-Identifier: Apache-2.0 */
#include "cgroup/find.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"

/* Does a list such as "a,b,c" contain the word? */
static bool in_list(struct span list, const char *word)
{
    struct span item;
    while (span_split(&list, ',', &item))
        if (span_eqs(item, word))
            return true;
    return false;
}

/* The lines of the text look like "4:memory,cpu:/x" and "0::/x". */
bool cgroup_path_in(struct span text, const char *controller, struct span *out)
{
    struct span line;
    while (span_split(&text, '\n', &line)) {
        struct span number, list;
        if (!span_split(&line, ':', &number) || !span_split(&line, ':', &list) || !line.len)
            continue;
        *out = line;
        if (line.p[0] == '/' &&
            (controller[0] ? in_list(list, controller) : span_eqs(number, "0") && list.len == 0))
            return true;
    }
    return false;
}

void cgroup_texts_read(struct cgroup_texts *out)
{
    *out = (struct cgroup_texts){ 0 };
    if (fs_read(AT_FDCWD, "/proc/self/cgroup", &out->own, NULL) < 0 ||
        fs_read(AT_FDCWD, "/proc/self/mountinfo", &out->mounts, NULL) < 0)
        cgroup_texts_done(out);
}

void cgroup_texts_done(struct cgroup_texts *t)
{
    buf_done(&t->own);
    buf_done(&t->mounts);
}

/* Parse a line of mountinfo. If it is this hierarchy, set root and mount point. */
static bool match_mount(struct span line, const char *controller, struct span *root,
                        struct span *point)
{
    struct span f[6];
    for (size_t i = 0; i < ARRAY_LEN(f); i++)
        if (!span_split(&line, ' ', &f[i]))
            return false;
    *root = f[3];
    *point = f[4];
    struct span type, source, options;
    do /* the optional fields end with "-" */
        if (!span_split(&line, ' ', &type))
            return false;
    while (!span_eqs(type, "-"));
    if (!span_split(&line, ' ', &type) || !span_split(&line, ' ', &source))
        return false;
    if (!span_split(&line, ' ', &options))
        options = (struct span){ 0 };
    if (!controller[0])
        return span_eqs(type, "cgroup2");
    return span_eqs(type, "cgroup") && in_list(options, controller);
}

/* Does the mount show groups above those that this process may see? The kernel writes "/.." for
 * each group above the root of its cgroup namespace. Then the path of its own group does not say
 * where it is in this mount. */
static bool is_of_outside(struct span root)
{
    return span_eqs(root, "/..") || span_starts(root, "/../");
}

char *cgroup_find(const char *controller, char **out_top, struct err *e)
{
    AUTO(cgroup_texts_done) struct cgroup_texts t;
    cgroup_texts_read(&t);
    return cgroup_find_in(&t, controller, out_top, e);
}

char *cgroup_find_in(const struct cgroup_texts *t, const char *controller, char **out_top,
                     struct err *e)
{
    const char *name = controller[0] ? controller : "v2";
    struct span path, rest = buf_span(&t->mounts), line, root, point;
    AUTO(free_p)
    char *own = cgroup_path_in(buf_span(&t->own), controller, &path) ? span_dup(path) : NULL;
    if (!own) {
        (void)err_set(e, ENOENT, "this system has no control groups (%s)", name);
        return NULL;
    }
    while (span_split(&rest, '\n', &line)) {
        if (!match_mount(line, controller, &root, &point) || is_of_outside(root))
            continue;
        const char *below = own;
        /* In a container only a part of the hierarchy may be mounted. If this process is below that
         * part, skip the prefix; otherwise use the top of the part. */
        if (root.len > 1)
            below = strncmp(own, root.p, root.len) == 0 ? own + root.len : "";
        if (str_eq(below, "/"))
            below = "";
        char *dir = str_printf("%.*s%s", (int)point.len, point.p, below);
        struct stat st;
        if (dir && stat(dir, &st) == 0 && S_ISDIR(st.st_mode)) {
            if (out_top)
                *out_top = span_dup(point);
            return dir;
        }
        free(dir);
    }
    (void)err_set(e, ENOENT, "the control group of this process (%s) is not mounted", name);
    return NULL;
}

bool cgroup_only_outside(const struct cgroup_texts *t)
{
    struct span rest = buf_span(&t->mounts), line, root, point;
    bool outside = false;
    while (span_split(&rest, '\n', &line))
        if (match_mount(line, "", &root, &point)) {
            if (!is_of_outside(root))
                return false;
            outside = true;
        }
    return outside;
}

bool cgroup_machine_swaps(void)
{
    AUTO(buf_done) struct buf text = { 0 };
    if (fs_read(AT_FDCWD, "/proc/swaps", &text, NULL) < 0 || text.len == 0)
        return false;
    const char *nl = strchr(buf_cstr(&text), '\n');
    return nl && nl[1]; /* more than the heading */
}
