/*
 * Logs as the pages of NodeManagers and of log servers have them, without I/O.
 */
#ifndef TONY_CLIENT_YARN_PAGES_H
#define TONY_CLIENT_YARN_PAGES_H

#include <stdint.h>

#include "base/buf.h"

/* The text of a file, without the head and the foot that servers put around it; the whole page
 * where there are none. Borrowed from page. */
struct span yarn_page_text(struct span page);
/* The address of one file's page, out of the address below which a container's logs can be seen, or
 * at a log server (yarn.log.server.web-service.url). The caller's; NULL: there is none. */
char *yarn_page_of_node(const char *log_url, const char *file);
char *yarn_page_of_server(const char *base, const char *container, const char *file);
/* The last n lines; all of it when n < 0. */
struct span yarn_page_tail(struct span text, int64_t n);

#endif
