/* SPDX-License-Identifier: Apache-2.0 */
/* Reads logs out of the web pages of NodeManagers and log servers, without I/O. */
#ifndef TONY_CLUSTER_YARN_PAGES_H
#define TONY_CLUSTER_YARN_PAGES_H

#include <stdint.h>

#include "base/buf.h"

/* The text of a file, without the header and footer of the server; the whole page if there are
 * none. The result points into page. */
struct span yarn_page_text(struct span page);
/* The URL of the page of one file: from the log URL of the container, or from the URL of a log
 * server (yarn.log.server.web-service.url). The caller frees it; NULL = there is none. */
char *yarn_page_of_node(const char *log_url, const char *file);
char *yarn_page_of_server(const char *base, const char *container, const char *file);

#endif
