/* Between two attempts in one container, and what changes for the task meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/util.h"
#include "executor/executor_int.h"
#include "executor/ports.h"
#include "runtime/runtime.h"

/* Peers of an older generation may still know the port, and its connections linger: the next
 * generation meets elsewhere. Without another one it does with the old. */
static void change_port(struct executor *x, int *fd, uint16_t *port)
{
    struct err e = { 0 };
    uint16_t other;
    int new_fd = port_reserve(&other, &e);
    if (new_fd < 0) {
        executor_warn(x, "executor.port", &e);
        return;
    }
    close_p(fd); /* it may be let go already */
    *fd = new_fd;
    *port = other;
}

void executor_renew(struct executor *x, const Tony__Renew *r)
{
    if (attempt_alive(&x->a) || x->leaving || !x->role)
        return; /* the end of what runs is told first, and we are asked again */
    if (x->a.state == ATTEMPT_ENDED)
        attempt_forget(&x->a);
    x->cfg->record->ended = 0; /* how the container ends is not how that attempt did */
    if (r->fresh) {
        change_port(x, &x->port_fd, &x->port);
        change_port(x, &x->tb_fd, &x->tb_port);
        serve_renew(x);
    }
    Tony__Ready ready = TONY__READY__INIT;
    uint32_t ports[1] = { x->port };
    char host[80] = "127.0.0.1";
    if (x->cfg->remote)
        (void)link_host(&x->link, host, sizeof host); /* as in the hello */
    ready.generation = r->generation;
    ready.host = host;
    ready.ports = ports;
    ready.n_ports = 1;
    ready.tb_port = x->tb_port;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_READY;
    f.ready = &ready;
    (void)executor_send(x, &f); /* else the master asks again when we are back */
    if (x->cfg->remote)
        log_event(LOG_INFO, "executor.ready", f_int("generation", r->generation),
                  f_int("port", x->port));
}

struct rt_role *executor_roles(const Tony__ClusterSpec *spec, size_t *out_n)
{
    size_t n = spec ? spec->n_roles : 0;
    struct rt_role *roles = calloc(n + 1, sizeof *roles);
    for (size_t i = 0; roles && i < n; i++) {
        const Tony__SpecRole *r = spec->roles[i];
        roles[i] = (struct rt_role){
            .name = r->name, .list = r->addresses, .n = r->n, .kind = r->kind, .ranks = r->ranks
        };
    }
    *out_n = n;
    return roles;
}

/* Whoever reads the file finds the old or the new one whole. Tasks of one machine share it, so it
 * may be there already. */
void executor_peers(struct executor *x, const Tony__Peers *p)
{
    AUTO(buf_done) struct buf text = { 0 }, old = { 0 };
    struct err e = { 0 };
    size_t n;
    if (!x->spec_path || !attempt_alive(&x->a))
        return;
    AUTO(free_p) struct rt_role *roles = executor_roles(p->spec, &n);
    if (!roles || runtime_spec_json(roles, n, NULL, NULL, &text) < 0) {
        (void)err_set(&e, ENOMEM, "cannot write the cluster spec: %m");
        executor_warn(x, "task.peers", &e);
        return;
    }
    if (fs_read(AT_FDCWD, x->spec_path, &old, NULL) == 0 &&
        span_eq(buf_span(&old), buf_span(&text)))
        return;
    if (fs_write_atomic(AT_FDCWD, x->spec_path, buf_span(&text), 0400, false, &e) < 0)
        executor_warn(x, "task.peers", &e);
}

void executor_rename(struct executor *x, const Tony__Start *s)
{
    if (!s->renamed)
        return;
    x->role->index = s->index;
    x->role->chief = s->chief;
}
