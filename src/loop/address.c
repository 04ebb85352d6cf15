/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"

/* Split off the host: "[v6]", or everything before the last colon. A text with two colons and no
 * brackets is an IPv6 address without a port. */
static bool cut(struct span text, struct span *host, struct span *port)
{
    *port = (struct span){ 0 };
    if (text.len > 0 && text.p[0] == '[') {
        const char *end = memchr(text.p, ']', text.len);
        if (!end)
            return false;
        *host = span_mem(text.p + 1, (size_t)(end - text.p) - 1);
        struct span rest = span_mem(end + 1, (size_t)(text.p + text.len - end) - 1);
        if (rest.len > 0 && rest.p[0] != ':')
            return false;
        if (rest.len > 0)
            *port = span_mem(rest.p + 1, rest.len - 1);
        return true;
    }
    *host = text;
    const char *colon = memchr(text.p, ':', text.len);
    if (!colon || memchr(colon + 1, ':', (size_t)(text.p + text.len - colon) - 1))
        return true;
    *host = span_mem(text.p, (size_t)(colon - text.p));
    *port = span_mem(colon + 1, (size_t)(text.p + text.len - colon) - 1);
    return true;
}

static bool host_valid(struct span host)
{
    for (size_t i = 0; i < host.len; i++) {
        char c = host.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              strchr("-._:%", c)) ||
            c == '\0')
            return false;
    }
    return host.len > 0 && host.len <= TCP_HOST_MAX;
}

int tcp_split(const char *text, uint16_t dflt_port, char *out_host, uint16_t *out_port,
              struct err *e)
{
    struct span host, port;
    int64_t n = dflt_port;
    if (!cut(span_of(text), &host, &port) || !host_valid(host))
        return err_set(e, EINVAL, "'%s' is not HOST:PORT", text);
    if (!port.p && dflt_port == 0)
        return err_set(e, EINVAL, "'%s' has no port", text);
    if (port.p && str_i64(port, 1, 65535, "port", &n, NULL) < 0)
        return err_set(e, EINVAL, "the port of '%s' is not a number from 1 to 65535", text);
    memcpy(out_host, host.p, host.len);
    out_host[host.len] = '\0';
    *out_port = (uint16_t)n;
    return 0;
}

bool tcp_numeric(const char *host, uint16_t port, struct tcp_address *out)
{
    struct tcp_address a = { 0 };
    if (str_eq(host, "localhost"))
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &a.in.sin_addr) == 1) {
        a.in.sin_family = AF_INET;
        a.in.sin_port = htons(port);
    } else if (inet_pton(AF_INET6, host, &a.in6.sin6_addr) == 1) {
        a.in6.sin6_family = AF_INET6;
        a.in6.sin6_port = htons(port);
    } else {
        return false;
    }
    *out = a;
    return true;
}

const char *tcp_text(const struct tcp_address *a, bool with_port, char *buf, size_t n)
{
    char host[INET6_ADDRSTRLEN] = "?";
    bool v6 = a->sa.sa_family == AF_INET6;
    /* Cannot fail: the family is one of these two, and the buffer is large enough. */
    (void)inet_ntop(a->sa.sa_family, v6 ? (const void *)&a->in6.sin6_addr : &a->in.sin_addr, host,
                    sizeof host);
    unsigned port = ntohs(v6 ? a->in6.sin6_port : a->in.sin_port);
    if (with_port)
        (void)snprintf(buf, n, v6 ? "[%s]:%u" : "%s:%u", host, port);
    else
        (void)str_copy(buf, n, host);
    return buf;
}

socklen_t tcp_address_len(const struct tcp_address *a)
{
    return a->sa.sa_family == AF_INET6 ? sizeof a->in6 : sizeof a->in;
}
