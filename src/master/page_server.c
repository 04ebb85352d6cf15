/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server of a master on a cluster: the page of page.c, and the status document as JSON. */
#include <errno.h>

#include "base/err.h"
#include "base/util.h"
#include "conf/conf.h"
#include "loop/http.h"
#include "loop/tcp.h"
#include "master/master_int.h"
#include "metrics/metrics.h"

static int answer_page(const char *path, const char *query, struct http_answer *a, void *arg,
                       struct err *e)
{
    (void)path;
    (void)query;
    return page_html(arg, &a->body) < 0 ? err_set(e, ENOMEM, "no memory for the job's page") : 0;
}

static int answer_status(const char *path, const char *query, struct http_answer *a, void *arg,
                         struct err *e)
{
    (void)path;
    (void)query;
    a->type = "application/json";
    a->body.max = JOB_STATUS_MAX;
    return master_status_json(arg, true, true, &a->body) < 0
               ? err_set(e, ENOMEM, "no memory for the job's status")
               : 0;
}

static int answer_metrics(const char *path, const char *query, struct http_answer *a, void *arg,
                          struct err *e)
{
    (void)path;
    (void)query;
    bool open = metrics_text_is_open(a->accept);
    a->type = metrics_text_type(open);
    a->body.max = JOB_STATUS_MAX;
    return metrics_text(arg, open, &a->body) < 0 ? err_set(e, ENOMEM, "no memory for the metrics")
                                                 : 0;
}

static const struct http_page pages[] = {
    { "/", answer_page },
    { "/status.json", answer_status },
    { "/metrics", answer_metrics },
};

static int open_at(void *arg, uint16_t port, struct err *e)
{
    struct master *m = arg;
    return http_server_open(m->loop, m->remote->address, port, pages, ARRAY_LEN(pages), m, &m->page,
                            e);
}

int page_open(struct master *m, struct err *e)
{
    int rc = tcp_open_among(m->spec->port_first, m->spec->port_last, open_at, m, e);
    m->page_port = rc == 0 ? http_server_port(m->page) : 0;
    return rc;
}

void page_close(struct master *m)
{
    http_server_close(TAKE(m->page));
    m->page_port = 0;
}
