/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads logs out of the pages of NodeManagers and log servers, without I/O.
 */
#include "cluster/yarn/pages.h"
#include "base/base.h"

struct span yarn_page_text(struct span page)
{
    static const char head[] = "LogContents:\n", foot[] = "End of LogType:";
    const char *p = page.len ? memmem(page.p, page.len, head, sizeof head - 1) : NULL;
    if (!p)
        return page;
    p += sizeof head - 1;
    size_t len = page.len - (size_t)(p - page.p);
    const char *end = memmem(p, len, foot, sizeof foot - 1);
    /* Find the last footer: a task may have printed such a line itself. */
    for (const char *next = end; next;) {
        end = next;
        next = memmem(next + 1, len - (size_t)(next + 1 - p), foot, sizeof foot - 1);
    }
    return span_mem(p, end ? (size_t)(end - p) : len);
}

/* log_url: http://<node>/node/containerlogs/<container>/<user> */
char *yarn_page_of_node(const char *log_url, const char *file)
{
    const char *host = str_starts(log_url, "http://") ? log_url + strlen("http://") : NULL;
    const char *slash = host ? strchr(host, '/') : NULL;
    const char *id = slash ? strstr(slash, "/containerlogs/") : NULL;
    if (!id)
        return NULL;
    id += strlen("/containerlogs/");
    return str_printf("http://%.*s/ws/v1/node/containers/%.*s/logs/%s", (int)(slash - host), host,
                      (int)strcspn(id, "/"), id, file);
}

char *yarn_page_of_server(const char *base, const char *container, const char *file)
{
    if (!base || !*base || !container || !*container)
        return NULL;
    size_t n = strlen(base);
    while (n > 0 && base[n - 1] == '/')
        n--;
    return str_printf("%s%.*s/containers/%s/logs/%s", strstr(base, "://") ? "" : "http://", (int)n,
                      base, container, file);
}
