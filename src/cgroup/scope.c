/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One method call on the private socket of systemd's manager, in the wire format of D-Bus. There is
 * no message bus in between, so neither a bus daemon nor a library is needed:
 *
 *   org.freedesktop.systemd1.Manager.StartTransientUnit(s name, s mode, a(sv) properties,
 *                                                       a(sa(sv)) other units) -> o job
 *
 * The answer comes when the job is queued. The process is in its scope a moment later.
 */
#include "cgroup/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/util.h"

enum {
    LIMIT_MS = 5000,        /* for all of scope_enter() */
    PAUSE_MS = 2,           /* between two looks whether this process is in its scope */
    HEADER = 16,            /* the fixed part of a message */
    MESSAGE_MAX = 64 << 10, /* bytes of a message from the manager */
    TYPE_CALL = 1,
    TYPE_RETURN = 2,
    TYPE_ERROR = 3,
    FIELD_PATH = 1,
    FIELD_INTERFACE = 2,
    FIELD_MEMBER = 3,
    FIELD_SIGNATURE = 8,
};

/* ---- where the manager is ---- */

static int socket_path(bool system, char *out, size_t size)
{
    const char *dir = getenv("XDG_RUNTIME_DIR");
    int n = system ? snprintf(out, size, "/run/systemd/private")
            : dir && dir[0] == '/'
                ? snprintf(out, size, "%s/systemd/private", dir)
                : snprintf(out, size, "/run/user/%u/systemd/private", (unsigned)geteuid());
    return n > 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

bool scope_has_manager(bool system)
{
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    struct stat st;
    return socket_path(system, path, sizeof path) == 0 && stat(path, &st) == 0 &&
           S_ISSOCK(st.st_mode) && (st.st_uid == geteuid() || st.st_uid == 0);
}

/* The name under which logind knows this user. getpwuid() would load modules of the name service,
 * which a static program cannot do. */
static char *login_name(void)
{
    char path[64];
    AUTO(buf_done) struct buf text = { 0 };
    struct span rest, line;
    (void)snprintf(path, sizeof path, "/run/systemd/users/%u", (unsigned)geteuid());
    if (fs_read(AT_FDCWD, path, &text, NULL) == 0)
        for (rest = buf_span(&text); rest.len && span_split(&rest, '\n', &line);)
            if (span_starts(line, "NAME="))
                return span_dup(span_mem(line.p + 5, line.len - 5));
    const char *name = getenv("USER");
    return name && name[0] ? str_dup(name) : NULL;
}

bool scope_user_lingers(void)
{
    AUTO(free_p) char *name = login_name();
    AUTO(free_p)
    char *path = name && !strchr(name, '/') ? str_printf("/var/lib/systemd/linger/%s", name) : NULL;
    return path && access(path, F_OK) == 0;
}

static int dial(bool system, struct err *e)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    struct ucred who = { 0 };
    socklen_t len = sizeof who;
    if (socket_path(system, to.sun_path, sizeof to.sun_path) < 0)
        return err_set(e, ENAMETOOLONG, "the path of systemd's socket is too long");
    AUTO(close_p) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1 || connect(fd, (const struct sockaddr *)&to, sizeof to) == -1)
        return err_set(e, errno, "cannot connect to systemd at '%s': %m", to.sun_path);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == -1 ||
        (who.uid != 0 && who.uid != geteuid()))
        return err_set(e, EPERM, "'%s' belongs to another user", to.sun_path);
    int out = fd;
    fd = -1;
    return out;
}

/* ---- bytes ---- */

static void align(struct buf *b, size_t n)
{
    while (b->len % n && buf_addc(b, '\0') == 0)
        ;
}

static void put_u32(struct buf *b, uint32_t v)
{
    align(b, 4);
    (void)buf_add(b, &v, sizeof v);
}

static void put_text(struct buf *b, const char *s)
{
    put_u32(b, (uint32_t)strlen(s));
    (void)buf_add(b, s, strlen(s) + 1);
}

static void put_signature(struct buf *b, const char *s)
{
    (void)buf_addc(b, (char)strlen(s));
    (void)buf_add(b, s, strlen(s) + 1);
}

/* Begin an array; array_end() writes its length. align_to: the alignment of its elements. */
static size_t array_begin(struct buf *b, size_t align_to)
{
    put_u32(b, 0);
    size_t at = b->len;
    align(b, align_to);
    return at;
}

static void array_end(struct buf *b, size_t at, size_t align_to)
{
    size_t from = (at + align_to - 1) / align_to * align_to;
    uint32_t n = (uint32_t)(b->len - from);
    if (!b->failed)
        memcpy(b->p + at - sizeof n, &n, sizeof n);
}

static void put_field(struct buf *b, char field, const char *type, const char *value)
{
    align(b, 8);
    (void)buf_addc(b, field);
    put_signature(b, type);
    if (type[0] == 'g')
        put_signature(b, value);
    else
        put_text(b, value);
}

static void put_property(struct buf *b, const char *name, const char *type)
{
    align(b, 8);
    put_text(b, name);
    put_signature(b, type); /* the value follows */
}

static void build_body(struct buf *b, const char *unit)
{
    put_text(b, unit);
    put_text(b, "fail"); /* if a unit of this name exists */
    size_t properties = array_begin(b, 8);
    put_property(b, "Description", "s");
    put_text(b, "jobs of tony");
    put_property(b, "PIDs", "au");
    size_t pids = array_begin(b, 4);
    put_u32(b, (uint32_t)getpid());
    array_end(b, pids, 4);
    put_property(b, "Delegate", "b");
    put_u32(b, 1);
    put_property(b, "CollectMode", "s"); /* also forget a scope that has failed */
    put_text(b, "inactive-or-failed");
    array_end(b, properties, 8);
    size_t others = array_begin(b, 8);
    array_end(b, others, 8);
}

static int build_call(struct buf *out, const char *unit)
{
    AUTO(buf_done) struct buf body = { 0 };
    build_body(&body, unit);
    const uint32_t one = 1;
    const char order = *(const char *)&one ? 'l' : 'B';
    const char fixed[4] = { order, TYPE_CALL, 0, 1 };
    (void)buf_add(out, fixed, sizeof fixed);
    put_u32(out, (uint32_t)body.len);
    put_u32(out, 1); /* serial number */
    size_t fields = array_begin(out, 8);
    put_field(out, FIELD_PATH, "o", "/org/freedesktop/systemd1");
    put_field(out, FIELD_INTERFACE, "s", "org.freedesktop.systemd1.Manager");
    put_field(out, FIELD_MEMBER, "s", "StartTransientUnit");
    put_field(out, FIELD_SIGNATURE, "g", "ssa(sv)a(sa(sv))");
    array_end(out, fields, 8);
    align(out, 8);
    (void)buf_add(out, body.p, body.len);
    return body.failed || out->failed ? -ENOMEM : 0;
}

/* ---- the conversation ---- */

static int read_exactly(int fd, char *out, size_t n, int64_t until_ms)
{
    for (size_t at = 0; at < n;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int64_t left = until_ms - clock_mono_ms();
        int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (ready == 0)
            return -ETIMEDOUT;
        if (ready == -1 && errno == EINTR)
            continue;
        ssize_t got = read(fd, out + at, n - at);
        if (got == 0)
            return -EPIPE;
        if (got == -1 && errno != EINTR)
            return -errno;
        at += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* SASL: the manager reads our user id from the socket, and compares it with the one given here. */
static int authenticate(int fd, int64_t until_ms)
{
    char id[16], line[64], byte;
    int n = snprintf(id, sizeof id, "%u", (unsigned)geteuid());
    size_t at = (size_t)snprintf(line, sizeof line, "%cAUTH EXTERNAL ", 0);
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(line + at, sizeof line - at, "%02x", (unsigned char)id[i]);
    at += (size_t)snprintf(line + at, sizeof line - at, "\r\n");
    int rc = fs_write_all(fd, line, at);
    char answer[128] = "";
    for (size_t got = 0; rc == 0; got++) {
        if (got == sizeof answer - 1)
            return -EBADMSG;
        rc = read_exactly(fd, &byte, 1, until_ms);
        answer[got] = byte;
        if (byte == '\n')
            break;
    }
    if (rc == 0 && !str_starts(answer, "OK "))
        rc = -EACCES;
    return rc < 0 ? rc : fs_write_all(fd, "BEGIN\r\n", 7);
}

static uint32_t u32_at(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Read messages up to the answer. An error's body begins with its text. */
static int read_answer(int fd, int64_t until_ms, struct err *e)
{
    for (;;) {
        char head[HEADER];
        int rc = read_exactly(fd, head, sizeof head, until_ms);
        if (rc < 0)
            return err_set(e, -rc, "systemd does not answer: %m");
        uint32_t body = u32_at(head + 4), fields = u32_at(head + 12);
        if (body > MESSAGE_MAX || fields > MESSAGE_MAX)
            return err_set(e, EBADMSG, "systemd sent a message that is too long");
        size_t skipped = (fields + 7) / 8 * 8, n = skipped + body;
        AUTO(free_p) char *rest = malloc(n + 1);
        if (!rest)
            return err_set(e, ENOMEM, "cannot read the answer of systemd: %m");
        rc = read_exactly(fd, rest, n, until_ms);
        if (rc < 0)
            return err_set(e, -rc, "systemd does not answer: %m");
        rest[n] = '\0';
        if (head[1] == TYPE_RETURN)
            return 0;
        if (head[1] == TYPE_ERROR)
            return err_set(e, EACCES, "systemd refuses a scope: %s",
                           body > 4 ? rest + skipped + 4 : "no reason given");
    }
}

/* Is this process in a group of that name, or below it? */
static bool is_inside(const char *unit)
{
    AUTO(buf_done) struct buf text = { 0 };
    return fs_read(AT_FDCWD, "/proc/self/cgroup", &text, NULL) == 0 &&
           span_has(buf_span(&text), unit);
}

int scope_enter(bool system, struct err *e)
{
    char unit[64];
    int64_t until_ms = clock_mono_ms() + LIMIT_MS;
    (void)snprintf(unit, sizeof unit, "tony-%ld-%lld.scope", (long)getpid(),
                   (long long)clock_wall_ms());
    AUTO(buf_done) struct buf call = { 0 };
    AUTO(close_p) int fd = dial(system, e);
    if (fd < 0)
        return fd;
    if (build_call(&call, unit) < 0)
        return err_set(e, ENOMEM, "cannot ask systemd for a scope: %m");
    int rc = authenticate(fd, until_ms);
    if (rc == 0)
        rc = fs_write_all(fd, call.p, call.len);
    if (rc < 0)
        return err_set(e, -rc, "cannot ask systemd for a scope: %m");
    rc = read_answer(fd, until_ms, e);
    while (rc == 0 && !is_inside(unit)) {
        if (clock_mono_ms() > until_ms)
            return err_set(e, ETIMEDOUT, "systemd has not moved this process into a scope");
        (void)poll(NULL, 0, PAUSE_MS);
    }
    return rc;
}
