#include "loop_int.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"

enum { ACCEPT_BATCH = 256 }; /* then the connections that are there get their turn */

struct listener {
    struct object object;
    uv_poll_t poll;
    int fd;
    char *path;
    struct loop_timer *pause; /* made when it was needed once */
    void (*on_accept)(struct conn *c, void *arg);
    void *arg;
};

static void listener_destroy(struct object *o)
{
    struct listener *s = CONTAINER_OF(o, struct listener, object);
    if (s->fd != -1) /* loop_free() closed it */
        (void)close(s->fd);
    free(s->path);
    free(s);
}

void listener_close(struct listener *s)
{
    if (!s || uv_is_closing((uv_handle_t *)&s->poll))
        return;
    (void)unlink(s->path); /* gone already is as good */
    object_close((uv_handle_t *)&s->poll);
    loop_timer_free(TAKE(s->pause));
    (void)close(s->fd); /* nobody can dial it any more */
    s->fd = -1;
}

static bool peer_welcome(int fd)
{
    struct ucred cred;
    socklen_t len = sizeof cred;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 &&
           (cred.uid == geteuid() || cred.uid == 0);
}

static void on_connection(uv_poll_t *h, int status, int events);

static void on_pause_over(void *arg)
{
    struct listener *s = arg;
    (void)uv_poll_start(&s->poll, UV_READABLE, on_connection); /* it could be started before */
}

/* Out of descriptors or memory: polling on would spin, for the dialler stays in the queue. */
static void listener_pause(struct listener *s, int num)
{
    struct err e = { 0 };
    (void)err_set(&e, num, "cannot accept a connection on '%s': %m", s->path);
    (void)err_hint(&e, "raise the limit of open files (ulimit -n)");
    log_err(LOG_WARN, "listener.paused", &e);
    if (!s->pause)
        s->pause = loop_timer_new(s->object.loop, on_pause_over, s);
    if (!s->pause)
        return;
    (void)uv_poll_stop(&s->poll);
    loop_timer_set(s->pause, clock_mono_ms() + ACCEPT_PAUSE_MS);
}

static void on_connection(uv_poll_t *h, int status, int events)
{
    struct listener *s = CONTAINER_OF(h, struct listener, poll);
    (void)status; /* accept4() tells more */
    (void)events;
    for (int i = 0; i < ACCEPT_BATCH && s->fd != -1; i++) {
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd == -1) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN)
                listener_pause(s, errno);
            return;
        }
        if (!peer_welcome(fd)) {
            log_event(LOG_WARN, "listener.stranger", f_str("socket", s->path));
            (void)close(fd); /* a stranger gets no word */
            continue;
        }
        struct err e = { 0 };
        struct conn *c = conn_adopt(s->object.loop, fd, &e);
        if (!c) {
            listener_pause(s, e.num);
            return;
        }
        s->on_accept(c, s->arg);
        if (!conn_has_owner(c))
            conn_close(c);
    }
}

static int bind_private(int fd, const char *path, struct err *e)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    size_t len = strlen(path);
    if (len >= sizeof sa.sun_path)
        return err_set(e, ENAMETOOLONG, "cannot listen on socket '%s': %m", path);
    memcpy(sa.sun_path, path, len + 1);
    if (unlink(path) == -1 && errno != ENOENT)
        return err_set(e, errno, "cannot remove old socket '%s': %m", path);
    /* The socket's own mode is the ceiling of the file's: it is never open to others, not even
     * between bind() and a chmod(). */
    if (fchmod(fd, 0600) == -1 || bind(fd, (const struct sockaddr *)&sa, sizeof sa) == -1 ||
        listen(fd, BACKLOG) == -1)
        return err_set(e, errno, "cannot listen on socket '%s': %m", path);
    return 0;
}

int listener_open_unix(struct loop *l, const char *path,
                       void (*on_accept)(struct conn *c, void *arg), void *arg,
                       struct listener **out, struct err *e)
{
    AUTO(close_p) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return err_set(e, errno, "cannot make a socket: %m");
    int rc = bind_private(fd, path, e);
    if (rc < 0)
        return rc;

    struct listener *s = calloc(1, sizeof *s);
    if (!s || !(s->path = str_dup(path))) {
        free(s);
        return err_set(e, ENOMEM, "cannot listen on socket '%s': %m", path);
    }
    s->on_accept = on_accept;
    s->arg = arg;
    s->fd = fd;
    rc = uv_poll_init(&l->uv, &s->poll, fd);
    if (rc < 0) {
        free(s->path);
        free(s);
        return err_set(e, -rc, "cannot watch socket '%s': %m", path);
    }
    object_init(&s->object, l, (uv_handle_t *)&s->poll, listener_destroy);
    fd = -1; /* the listener's */
    rc = uv_poll_start(&s->poll, UV_READABLE, on_connection);
    if (rc < 0) {
        listener_close(s);
        return err_set(e, -rc, "cannot watch socket '%s': %m", path);
    }
    *out = s;
    return 0;
}
