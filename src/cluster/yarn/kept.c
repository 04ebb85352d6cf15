/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The logs of tasks that have ended: from the pages of the NodeManagers, else from the site's log
 * server. If both fail, the error says where the log was.
 */
#include <errno.h>

#include "base/base.h"
#include "cluster/remote.h"
#include "cluster/yarn/pages.h"
#include "cluster/yarn/yarn.h"
#include "codec/json.h"

enum { PAGE_MAX = 64 << 20 };

static bool fetch(struct yarn *y, const char *url, struct buf *out)
{
    int status = 0;
    struct err e = { 0 };
    buf_clear(out);
    return url && yarn_get(y, url, PAGE_MAX, out, &status, &e) == 0 && status == 200;
}

/* The name of a log file: "stdout", or "stdout.2" for the second attempt in one container. For a
 * rank other than 0, "stdout.1.3": rank 3 of the first attempt. The caller frees it. */
static char *file_of(const json_t *task, const char *stream, uint32_t rank)
{
    const char *file = stream;
    size_t i, n = strlen(stream);
    json_t *name;
    json_array_foreach(json_object_get(task, "logs"), i, name)
    {
        const char *s = json_string_value(name);
        if (s && str_starts(s, stream) && (!s[n] || s[n] == '.'))
            file = s;
    }
    return rank ? str_printf("%s%s.%u", file, file[n] ? "" : ".1", rank) : str_dup(file);
}

static int missing(const char *server, const json_t *task, struct err *e)
{
    return err_set(e, ENOENT,
                   "the log of %s can no longer be read from its node%s%s; it was at %s%s",
                   json_str(task, "task", ""), server ? ", nor from " : "", server ? server : "",
                   json_str(task, "log_url", ""),
                   server ? "" : ", and 'yarn logs' has it if the cluster collects logs");
}

int yarn_kept_log(struct cluster *k, const struct cluster_kept_log *l,
                  int (*fn)(struct span text, void *arg), void *arg, int64_t *out_size,
                  struct err *e)
{
    struct yarn *y = yarn_of(k);
    const char *url = json_str(l->task, "log_url", "");
    const char *server = site_get(y->site, "yarn.log.server.web-service.url");
    if (!url[0])
        return 0; /* the task never had a container */
    AUTO(free_p) char *file = file_of(l->task, l->stream, l->rank);
    if (!file)
        return err_set(e, ENOMEM, "cannot show the logs: %m");
    AUTO(buf_done) struct buf page = { .max = PAGE_MAX + 1 };
    AUTO(free_p) char *node = yarn_page_of_node(url, file);
    AUTO(free_p)
    char *kept = yarn_page_of_server(server, json_str(l->task, "container", ""), file);
    if (!fetch(y, node, &page) && !fetch(y, kept, &page))
        return missing(server, l->task, e);
    struct span text = yarn_page_text(buf_span(&page));
    size_t from = MIN((size_t)l->from, text.len);
    *out_size = (int64_t)text.len;
    text = l->lines >= 0 ? text_tail(text, l->lines) : span_mem(text.p + from, text.len - from);
    int rc = fn(text, arg);
    return rc < 0 ? err_set(e, -rc, "cannot show the logs: %m") : 0;
}
