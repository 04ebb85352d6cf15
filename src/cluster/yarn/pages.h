/* SPDX-License-Identifier: Apache-2.0 */
/* Reads logs out of the web pages of NodeManagers and log servers, without I/O. */
#ifndef TONY_CLUSTER_YARN_PAGES_H
#define TONY_CLUSTER_YARN_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/*
 * Reads the page of a log piece by piece, so that a log may have any size. fn gets the text of the
 * file, without the header and footer of the server; the whole page if there is no header.
 *
 *     struct yarn_page g = { .fn = fn, .arg = arg };
 *     yarn_page_feed(&g, p, n);      for each piece
 *     rc = yarn_page_end(&g);        frees what g has; call it in any case
 */
struct yarn_page {
    int (*fn)(struct span text, void *arg); /* 0, or -errno to end the reading */
    void *arg;
    /* The members below belong to the functions. */
    struct buf kept; /* what may be a part of the header or of the footer */
    bool in_text, bare;
    int64_t size, length; /* bytes of text so far; those that the header names */
    int rc;
};
int yarn_page_feed(struct yarn_page *g, const char *p, size_t n); /* 0 or -errno, also later */
int yarn_page_end(struct yarn_page *g);
/* The size of the whole log. The page may be only a part of it. */
int64_t yarn_page_size(const struct yarn_page *g);
/* The URL of the page of one file: from the log URL of the container, or from the URL of a log
 * server (yarn.log.server.web-service.url). The caller frees it; NULL = there is none. */
char *yarn_page_of_node(const char *log_url, const char *file);
char *yarn_page_of_server(const char *base, const char *container, const char *file);

#endif
