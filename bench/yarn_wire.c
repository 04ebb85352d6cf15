/* SPDX-License-Identifier: Apache-2.0 */
#include "yarn_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

_Noreturn void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "yarn-floor: ");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- bytes ---- */

void buf_put(struct buf *b, const void *data, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = 2 * (b->n + n) + 64;
        b->p = realloc(b->p, b->cap);
        if (!b->p)
            die("out of memory");
    }
    if (n > 0)
        memcpy(b->p + b->n, data, n);
    b->n += n;
}

static void put_varint(struct buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        buf_put(b, &(uint8_t){ (uint8_t)(v | 0x80) }, 1);
    buf_put(b, &(uint8_t){ (uint8_t)v }, 1);
}

static void put_be32(struct buf *b, uint32_t v)
{
    buf_put(b, &(uint32_t){ htonl(v) }, 4);
}

void pb_int(struct buf *b, unsigned field, int64_t value)
{
    put_varint(b, (uint64_t)field << 3);
    put_varint(b, (uint64_t)value);
}

void pb_put(struct buf *b, unsigned field, const void *data, size_t n)
{
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
    buf_put(b, data, n);
}

void pb_str(struct buf *b, unsigned field, const char *text)
{
    pb_put(b, field, text, strlen(text));
}

void pb_msg(struct buf *b, unsigned field, struct buf *m)
{
    pb_put(b, field, m->p, m->n);
    free(m->p);
    *m = (struct buf){ 0 };
}

static uint64_t get_varint(struct span *in)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (in->n == 0)
            die("a message ends too early");
        uint8_t c = *in->p;
        in->p++, in->n--;
        v |= (uint64_t)(c & 0x7f) << shift;
        if (c < 0x80)
            return v;
    }
    die("a number is too long");
}

static struct span get_span(struct span *in, size_t n)
{
    if (n > in->n)
        die("a message ends too early");
    struct span out = { in->p, n };
    in->p += n, in->n -= n;
    return out;
}

bool pb_next(struct span *in, unsigned *field, uint64_t *value, struct span *bytes)
{
    *value = 0, *bytes = (struct span){ 0 };
    if (in->n == 0)
        return false;
    uint64_t tag = get_varint(in);
    *field = (unsigned)(tag >> 3);
    switch (tag & 7) {
    case 0:
        *value = get_varint(in);
        break;
    case 1:
        get_span(in, 8);
        break;
    case 2:
        *bytes = get_span(in, get_varint(in));
        break;
    case 5:
        get_span(in, 4);
        break;
    default:
        die("a message is damaged");
    }
    return true;
}

uint64_t pb_get_int(struct span in, unsigned field)
{
    uint64_t out = 0, value;
    struct span bytes;
    for (unsigned f; pb_next(&in, &f, &value, &bytes);)
        if (f == field)
            out = value;
    return out;
}

struct span pb_get(struct span in, unsigned field)
{
    struct span out = { 0 }, bytes;
    uint64_t value;
    for (unsigned f; pb_next(&in, &f, &value, &bytes);)
        if (f == field)
            out = bytes;
    return out;
}

/* ---- sockets ---- */

static int dial(const char *address)
{
    char host[64];
    const char *colon = strrchr(address, ':');
    if (!colon || (size_t)(colon - address) >= sizeof host)
        die("'%s' is not host:port", address);
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = 0;
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10)) };
    if (inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, &to.sin_addr) != 1)
        die("'%s' is not a numeric address", host);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1 || connect(fd, (struct sockaddr *)&to, sizeof to) == -1)
        die("cannot connect to %s: %s", address, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
    return fd;
}

static void send_all(int fd, const void *data, size_t n)
{
    for (const uint8_t *p = data; n > 0;) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent == -1)
            die("cannot send: %s", strerror(errno));
        p += sent, n -= (size_t)sent;
    }
}

/* false: the stream has ended before the first byte. */
static bool recv_all(int fd, void *data, size_t n)
{
    for (uint8_t *p = data; n > 0;) {
        ssize_t got = recv(fd, p, n, 0);
        if (got == -1)
            die("cannot receive: %s", strerror(errno));
        if (got == 0)
            return false;
        p += got, n -= (size_t)got;
    }
    return true;
}

int http(const char *method, const char *url, struct span body, struct buf *out, char *location,
         size_t location_size)
{
    char address[64], header[2048];
    const char *start = url + (strncmp(url, "http://", 7) == 0 ? 7 : 0), *path = strchr(start, '/');
    if (start == url || !path || (size_t)(path - start) >= sizeof address)
        die("'%s' is no http address", url);
    memcpy(address, start, (size_t)(path - start));
    address[path - start] = 0;
    int n =
        snprintf(header, sizeof header,
                 "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                 method, path, address, body.n);
    if (n < 0 || (size_t)n >= sizeof header)
        die("'%s' is too long", url);
    int fd = dial(address);
    send_all(fd, header, (size_t)n);
    send_all(fd, body.p, body.n);
    out->n = 0;
    for (char chunk[4096];;) {
        ssize_t got = recv(fd, chunk, sizeof chunk, 0);
        if (got <= 0)
            break;
        buf_put(out, chunk, (size_t)got);
    }
    close(fd);
    buf_put(out, "", 1);
    char *text = (char *)out->p, *line = strcasestr(text, "\r\nLocation: ");
    /* A 100 Continue comes before the answer. */
    for (int status; sscanf(text, "HTTP/1.1 %d", &status) == 1 && status == 100;) {
        text = strstr(text, "\r\n\r\n");
        text = text ? text + 4 : (char *)out->p + out->n - 1;
    }
    snprintf(location, location_size, "%.*s", line ? (int)strcspn(line + 12, "\r\n") : 0,
             line ? line + 12 : "");
    int status = 0;
    if (sscanf(text, "HTTP/1.1 %d", &status) != 1)
        die("no answer from %s", address);
    char *end = strstr(text, "\r\n\r\n");
    size_t skip = end ? (size_t)(end + 4 - (char *)out->p) : out->n;
    memmove(out->p, out->p + skip, out->n - skip);
    out->n -= skip;
    return status;
}

/* ---- MD5 (RFC 1321) and the digest (RFC 2831) ---- */

static void md5_block(uint32_t s[4], const uint8_t *p)
{
    static const uint8_t rot[4][4] = {
        { 7, 12, 17, 22 }, { 5, 9, 14, 20 }, { 4, 11, 16, 23 }, { 6, 10, 15, 21 }
    };
    static const uint32_t k[64] = {
        0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613,
        0xfd469501, 0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193,
        0xa679438e, 0x49b40821, 0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d,
        0x02441453, 0xd8a1e681, 0xe7d3fbc8, 0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed,
        0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a, 0xfffa3942, 0x8771f681, 0x6d9d6122,
        0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70, 0x289b7ec6, 0xeaa127fa,
        0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665, 0xf4292244,
        0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
        0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb,
        0xeb86d391
    };
    uint32_t w[16], a = s[0], b = s[1], c = s[2], d = s[3];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] | (uint32_t)p[4 * i + 1] << 8 | (uint32_t)p[4 * i + 2] << 16 |
               (uint32_t)p[4 * i + 3] << 24;
    for (int i = 0; i < 64; i++) {
        uint32_t f, g;
        switch (i / 16) {
        case 0:
            f = (b & c) | (~b & d), g = (uint32_t)i;
            break;
        case 1:
            f = (d & b) | (~d & c), g = (uint32_t)(5 * i + 1) % 16;
            break;
        case 2:
            f = b ^ c ^ d, g = (uint32_t)(3 * i + 5) % 16;
            break;
        default:
            f = c ^ (b | ~d), g = (uint32_t)(7 * i) % 16;
        }
        f += a + k[i] + w[g];
        a = d, d = c, c = b;
        b += f << rot[i / 16][i % 4] | f >> (32 - rot[i / 16][i % 4]);
    }
    s[0] += a, s[1] += b, s[2] += c, s[3] += d;
}

static void md5(struct buf *in, uint8_t out[16])
{
    uint64_t bits = (uint64_t)in->n * 8;
    uint32_t s[4] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476 };
    buf_put(in, "\x80", 1);
    while (in->n % 64 != 56)
        buf_put(in, "", 1);
    for (int i = 0; i < 8; i++)
        buf_put(in, &(uint8_t){ (uint8_t)(bits >> 8 * i) }, 1);
    for (size_t i = 0; i < in->n; i += 64)
        md5_block(s, in->p + i);
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)(s[i / 4] >> 8 * (i % 4));
    in->n = 0;
}

static void put_text(struct buf *b, const char *text)
{
    buf_put(b, text, strlen(text));
}

static void put_hex(struct buf *b, const uint8_t digest[16])
{
    for (int i = 0; i < 16; i++)
        buf_put(b,
                (char[]){ "0123456789abcdef"[digest[i] >> 4], "0123456789abcdef"[digest[i] & 15] },
                2);
}

static void put_base64(struct buf *b, struct span in)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < in.n; i += 3) {
        uint32_t v = (uint32_t)in.p[i] << 16 | (i + 1 < in.n ? (uint32_t)in.p[i + 1] << 8 : 0) |
                     (i + 2 < in.n ? in.p[i + 2] : 0);
        buf_put(b,
                (char[]){ alphabet[v >> 18], alphabet[v >> 12 & 63],
                          i + 1 < in.n ? alphabet[v >> 6 & 63] : '=',
                          i + 2 < in.n ? alphabet[v & 63] : '=' },
                4);
    }
}

/* The value of name="..." in a challenge. */
static struct span quoted(struct span challenge, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i + n + 2 <= challenge.n; i++) {
        if (memcmp(challenge.p + i, name, n) == 0 && challenge.p[i + n] == '=' &&
            challenge.p[i + n + 1] == '"') {
            const uint8_t *start = challenge.p + i + n + 2,
                          *end = memchr(start, '"', challenge.n - i - n - 2);
            if (end)
                return (struct span){ start, (size_t)(end - start) };
        }
    }
    die("no %s in the challenge '%.*s'", name, (int)challenge.n, (const char *)challenge.p);
}

static void digest_response(struct buf *out, struct span challenge, const struct token *token)
{
    static const char cnonce[] = "VGhlRmxvb3JPZllhcm4=", uri[] = "/default";
    struct span realm = quoted(challenge, "realm"), nonce = quoted(challenge, "nonce");
    struct buf user = { 0 }, b = { 0 };
    uint8_t x[16], ha1[16], ha2[16], response[16];
    put_base64(&user, token->id);

    buf_put(&b, user.p, user.n), put_text(&b, ":"), buf_put(&b, realm.p, realm.n),
        put_text(&b, ":"), put_base64(&b, token->password);
    md5(&b, x);
    buf_put(&b, x, 16), put_text(&b, ":"), buf_put(&b, nonce.p, nonce.n), put_text(&b, ":"),
        put_text(&b, cnonce);
    md5(&b, ha1);
    put_text(&b, "AUTHENTICATE:"), put_text(&b, uri);
    md5(&b, ha2);
    put_hex(&b, ha1), put_text(&b, ":"), buf_put(&b, nonce.p, nonce.n), put_text(&b, ":00000001:"),
        put_text(&b, cnonce);
    put_text(&b, ":auth:"), put_hex(&b, ha2);
    md5(&b, response);

    put_text(out, "charset=utf-8,username=\""), buf_put(out, user.p, user.n),
        put_text(out, "\",realm=\""), buf_put(out, realm.p, realm.n);
    put_text(out, "\",nonce=\""), buf_put(out, nonce.p, nonce.n),
        put_text(out, "\",nc=00000001,cnonce=\""), put_text(out, cnonce);
    put_text(out, "\",digest-uri=\""), put_text(out, uri),
        put_text(out, "\",maxbuf=65536,response="), put_hex(out, response);
    put_text(out, ",qop=auth");
    free(user.p), free(b.p);
}

/* ---- RPC ---- */

static void send_frame(struct rpc *r, int call, const struct buf *body, const char *preamble)
{
    struct buf head = { 0 }, all = { 0 }, frame = { 0 };
    pb_int(&head, 1, 2), pb_int(&head, 2, 0),
        pb_int(&head, 3, (int64_t)((uint32_t)call << 1 ^ (uint32_t)(call >> 31)));
    pb_put(&head, 4, r->client_id, call == -33 ? 0 : 16), pb_int(&head, 5, call < 0 ? 1 : 0);
    put_varint(&all, head.n), buf_put(&all, head.p, head.n), buf_put(&all, body->p, body->n);
    buf_put(&frame, preamble ? preamble : "", preamble ? 7 : 0);
    put_be32(&frame, (uint32_t)all.n), buf_put(&frame, all.p, all.n);
    send_all(r->fd, frame.p, frame.n);
    free(head.p), free(all.p), free(frame.p);
}

/* Receive the next answer, which must be to `call`. Returns what follows its header. */
static struct span receive(struct rpc *r, int call, const char *what)
{
    uint32_t n;
    if (!recv_all(r->fd, &n, 4))
        die("%s: the server has closed the connection", what);
    n = ntohl(n);
    r->in.n = 0;
    if (n > r->in.cap) {
        free(r->in.p);
        r->in = (struct buf){ .p = malloc(n), .cap = n };
        if (!r->in.p)
            die("out of memory");
    }
    if (!recv_all(r->fd, r->in.p, n))
        die("%s: the server has closed the connection", what);
    struct span in = { r->in.p, n }, head = get_span(&in, get_varint(&in));
    if (pb_get_int(head, 2) != 0) {
        struct span class = pb_get(head, 4), text = pb_get(head, 5);
        die("%s: %.*s: %.*s", what, (int)class.n, (const char *)class.p,
            (int)(text.n > 400 ? 400 : text.n), (const char *)text.p);
    }
    if ((int)(uint32_t)pb_get_int(head, 1) != call)
        die("%s: an answer to another call", what);
    return in.n > 0 ? get_span(&in, get_varint(&in)) : in;
}

static void sasl(struct rpc *r, const struct token *token)
{
    struct buf m = { 0 }, body = { 0 };
    pb_int(&m, 2, 1); /* NEGOTIATE */
    put_varint(&body, m.n), buf_put(&body, m.p, m.n);
    send_frame(r, -33, &body, "hrpc\x09\x00\xdf");

    struct span in = receive(r, -33, "SASL"), auth = { 0 }, bytes, challenge;
    uint64_t value;
    for (unsigned field; pb_next(&in, &field, &value, &bytes);)
        if (field == 4 && pb_get(bytes, 1).n == 5 && memcmp(pb_get(bytes, 1).p, "TOKEN", 5) == 0)
            auth = bytes;
    challenge = pb_get(auth, 5);
    struct buf response = { 0 }, chosen = { 0 };
    digest_response(&response, challenge, token);
    for (unsigned field = 1; field <= 4; field++) /* as received, without the challenge */
        pb_put(&chosen, field, pb_get(auth, field).p, pb_get(auth, field).n);
    m.n = body.n = 0;
    pb_int(&m, 2, 2); /* INITIATE */
    pb_msg(&m, 3, &response), pb_msg(&m, 4, &chosen);
    put_varint(&body, m.n), buf_put(&body, m.p, m.n);
    send_frame(r, -33, &body, NULL);
    if (pb_get_int(receive(r, -33, "SASL"), 2) != 0)
        die("SASL: the server wants more than one step");
    free(m.p), free(body.p);
}

void rpc_open(struct rpc *r, const char *address, const char *protocol, const char *user,
              const struct token *token)
{
    char name[128];
    snprintf(name, sizeof name, "org.apache.hadoop.yarn.api.%sPB", protocol);
    *r = (struct rpc){ .fd = dial(address), .protocol = strdup(name) };
    if (getrandom(r->client_id, sizeof r->client_id, 0) != sizeof r->client_id)
        die("no random bytes");
    if (token)
        sasl(r, token);
    struct buf m = { 0 }, who = { 0 }, body = { 0 };
    if (!token)
        pb_str(&who, 1, user);
    pb_msg(&m, 2, &who), pb_str(&m, 3, r->protocol);
    put_varint(&body, m.n), buf_put(&body, m.p, m.n);
    send_frame(r, -3, &body, token ? NULL : "hrpc\x09\x00\x00");
    free(m.p), free(body.p);
}

struct span rpc_call(struct rpc *r, const char *method, struct buf *request)
{
    struct buf head = { 0 }, body = { 0 };
    pb_str(&head, 1, method), pb_str(&head, 2, r->protocol), pb_int(&head, 3, 1);
    put_varint(&body, head.n), buf_put(&body, head.p, head.n);
    put_varint(&body, request->n), buf_put(&body, request->p, request->n);
    send_frame(r, r->next_call, &body, NULL);
    free(head.p), free(body.p), free(request->p);
    *request = (struct buf){ 0 };
    return receive(r, r->next_call++, method);
}

/* ---- tokens ---- */

/* Hadoop's own variable-length number; only values that are not negative. */
static size_t get_vint(struct span *in)
{
    int8_t first = (int8_t)get_span(in, 1).p[0];
    if (first >= 0)
        return (size_t)first;
    size_t v = 0;
    for (int n = -112 - first; n > 0; n--)
        v = v << 8 | get_span(in, 1).p[0];
    return v;
}

bool token_from_file(const char *path, const char *kind, struct token *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        die("cannot open '%s': %s", path, strerror(errno));
    struct buf file = { 0 }; /* the token points into it, so it is not freed */
    for (char chunk[4096];;) {
        ssize_t got = read(fd, chunk, sizeof chunk);
        if (got <= 0)
            break;
        buf_put(&file, chunk, (size_t)got);
    }
    close(fd);
    struct span in = { file.p, file.n };
    if (memcmp(get_span(&in, 5).p, "HDTS\0", 5) != 0)
        die("'%s' is no token storage of version 0", path);
    for (size_t n = get_vint(&in); n > 0; n--) {
        get_span(&in, get_vint(&in)); /* alias */
        struct token t = { .id = get_span(&in, get_vint(&in)) };
        t.password = get_span(&in, get_vint(&in));
        struct span its = get_span(&in, get_vint(&in));
        get_span(&in, get_vint(&in)); /* service */
        if (its.n == strlen(kind) && memcmp(its.p, kind, its.n) == 0) {
            *out = t;
            return true;
        }
    }
    return false;
}
