/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads logs out of the pages of NodeManagers and log servers, without I/O.
 */
#include "cluster/yarn/pages.h"
#include "base/base.h"

#define HEAD_END "LogContents:\n"
#define FOOT "End of LogType:"
enum {
    HEAD_MAX = 16 << 10, /* a header is some lines; without one, the page is the bare text */
    FOOT_MAX = 4 << 10,  /* a footer is two lines, with the name of the file */
};

static void give(struct yarn_page *g, struct span text)
{
    if (text.len > 0 && g->rc == 0)
        g->rc = g->fn(text, g->arg);
    g->size += (int64_t)text.len;
}

/* The size of the whole log, of which the page may have only the end. */
static void read_length(struct yarn_page *g, struct span head)
{
    static const char key[] = "LogLength:";
    const char *at = memmem(head.p, head.len, key, sizeof key - 1);
    if (!at)
        return;
    at += sizeof key - 1;
    struct span n = { at, strspn(at, "0123456789") };
    /* if this fails, the length is that of the text that arrives */
    (void)str_i64(n, 0, INT64_MAX, "length", &g->length, NULL);
}

/* Find the end of the header in what was kept. last: no more will come. */
static void see_head(struct yarn_page *g, bool last)
{
    const char *p = g->kept.len ? memmem(g->kept.p, g->kept.len, HEAD_END, strlen(HEAD_END)) : NULL;
    if (p) {
        size_t n = (size_t)(p - g->kept.p) + strlen(HEAD_END);
        read_length(g, span_mem(g->kept.p, n));
        buf_consume(&g->kept, n);
    }
    g->in_text = p || last || g->kept.len > HEAD_MAX;
    g->bare = g->in_text && !p;
}

int yarn_page_feed(struct yarn_page *g, const char *p, size_t n)
{
    if (g->rc == 0)
        g->rc = buf_add(&g->kept, p, n);
    if (g->rc == 0 && !g->in_text)
        see_head(g, false);
    size_t keep = g->bare ? 0 : FOOT_MAX;
    if (g->rc == 0 && g->in_text && g->kept.len > keep) {
        give(g, span_mem(g->kept.p, g->kept.len - keep));
        buf_consume(&g->kept, g->kept.len - keep);
    }
    return g->rc;
}

int yarn_page_end(struct yarn_page *g)
{
    if (g->rc == 0 && !g->in_text)
        see_head(g, true);
    size_t n = g->kept.len;
    /* Find the last footer: a task may have printed such a line itself. */
    for (size_t i = n; !g->bare && i-- > 0;)
        if (n - i >= strlen(FOOT) && memcmp(g->kept.p + i, FOOT, strlen(FOOT)) == 0) {
            n = i;
            break;
        }
    give(g, span_mem(g->kept.p, n));
    buf_done(&g->kept);
    return g->rc;
}

int64_t yarn_page_size(const struct yarn_page *g)
{
    return MAX(g->length, g->size);
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
