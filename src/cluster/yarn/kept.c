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
#include "storage/log_times.h"

enum {
    /* If only the last lines of a log are wanted, this many bytes of its end are requested. */
    TAIL_MAX = 1 << 20,
};

/* A log on its way from a page to the caller. */
struct kept {
    const struct cluster_kept_log *log;
    int (*fn)(struct span text, void *arg);
    void *arg;
    int64_t at;      /* bytes of text so far */
    struct buf tail; /* if only the last lines are wanted: the end of the text so far */
    bool fn_failed;
};

static int pass(struct kept *p, struct span text)
{
    int rc = text.len ? p->fn(text, p->arg) : 0;
    p->fn_failed = rc < 0;
    return rc;
}

static int on_text(struct span text, void *arg)
{
    struct kept *p = arg;
    int64_t skip = MIN(MAX(p->log->from - p->at, (int64_t)0), (int64_t)text.len);
    p->at += (int64_t)text.len;
    if (p->log->lines < 0)
        return pass(p, span_mem(text.p + skip, text.len - (size_t)skip));
    int rc = buf_add(&p->tail, text.p, text.len);
    if (rc == 0 && p->tail.len > 2 * (size_t)TAIL_MAX)
        buf_consume(&p->tail, p->tail.len - TAIL_MAX);
    return rc;
}

static int on_piece(const char *piece, size_t n, void *arg)
{
    return yarn_page_feed(arg, piece, n);
}

/* Read one page. -ENOENT: the log is not there. Another error: fn has failed, or the page broke off
 * after a part of the text was passed on. */
static int show(struct yarn *y, struct kept *p, const char *url, int64_t *out_size)
{
    struct yarn_page page = { .fn = on_text, .arg = p };
    struct err e = { 0 };
    int status = 0;
    if (!url)
        return -ENOENT;
    AUTO(free_p)
    char *at = p->log->lines < 0 ? str_dup(url) : str_printf("%s?size=-%d", url, TAIL_MAX);
    int rc = at ? yarn_get(y, at, on_piece, &page, &status, &e) : -ENOMEM;
    int ended = yarn_page_end(&page);
    rc = rc == 0 ? ended : rc;
    if (rc == 0 && status == 200 && p->log->lines >= 0)
        rc = pass(p, text_tail(buf_span(&p->tail), p->log->lines));
    *out_size = yarn_page_size(&page);
    bool nothing_passed = p->at <= p->log->from || p->log->lines >= 0;
    bool not_there = rc == 0 && status != 200;
    return not_there || (rc < 0 && nothing_passed && !p->fn_failed) ? -ENOENT : rc;
}

/* The name of a log file: "stdout", or "stdout.2" for the second attempt in one container. For a
 * rank other than 0, "stdout.1.3": rank 3 of the first attempt. The caller frees it. */
static char *file_of(const json_t *task, const char *stream, uint32_t rank)
{
    /* The file with the times has the number of the logs. */
    const char *like = str_eq(stream, LOG_TIMES_NAME) ? "stdout" : stream, *number = "";
    size_t i, n = strlen(like);
    json_t *name;
    json_array_foreach(json_object_get(task, "logs"), i, name)
    {
        const char *s = json_string_value(name);
        if (s && str_starts(s, like) && (!s[n] || s[n] == '.'))
            number = s + n;
    }
    return rank ? str_printf("%s%s.%u", stream, number[0] ? number : ".1", rank)
                : str_printf("%s%s", stream, number);
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
    AUTO(free_p) char *node = yarn_page_of_node(url, file);
    AUTO(free_p)
    char *kept = yarn_page_of_server(server, json_str(l->task, "container", ""), file);
    struct kept p = { .log = l, .fn = fn, .arg = arg };
    int rc = show(y, &p, node, out_size);
    if (rc == -ENOENT) {
        p.at = 0;
        buf_clear(&p.tail);
        rc = show(y, &p, kept, out_size);
    }
    buf_done(&p.tail);
    if (rc == -ENOENT)
        return missing(server, l->task, e);
    return rc < 0 ? err_set(e, -rc, "cannot show the logs: %m") : 0;
}
