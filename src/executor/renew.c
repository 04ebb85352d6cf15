/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares the executor for another attempt in the same container. */
#include <errno.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "executor/executor_int.h"
#include "executor/ports.h"

/* Reserve another port for the new generation: peers of the old one may still know the old port,
 * and may have connections to it. If no port can be reserved, keep the old one. */
static void change_port(struct executor *x, int *fd, uint16_t *port)
{
    struct err e = { 0 };
    uint16_t new_port;
    ports_look(); /* this process may be months old */
    int new_fd = port_reserve(&new_port, &e);
    if (new_fd < 0) {
        executor_warn(x, "executor.port", &e);
        return;
    }
    close_p(fd); /* it may be closed already */
    *fd = new_fd;
    *port = new_port;
}

void executor_renew(struct executor *x, const Tony__Renew *r)
{
    if (attempt_alive(&x->a) || x->leaving || !x->role)
        return; /* the end of the running attempt is reported first; then the master sends Renew
                   again */
    if (x->a.state == ATTEMPT_ENDED)
        attempt_forget(&x->a);
    x->cfg->record->ended = 0; /* the last attempt does not decide how the container ends */
    if (r->fresh) {
        change_port(x, &x->port_fd, &x->port);
        close_p(&x->tb_fd); /* the next attempt gets another port for TensorBoard */
        x->tb_port = 0;
        serve_renew(x);
    }
    Tony__Ready ready = TONY__READY__INIT;
    uint32_t ports[1] = { x->port };
    char host[80] = "127.0.0.1";
    if (x->cfg->remote)
        (void)link_host(&x->link, host, sizeof host); /* as in say_hello() */
    ready.generation = r->generation;
    ready.host = host;
    ready.ports = ports;
    ready.n_ports = 1;
    ready.tb_port = x->tb_port;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_READY;
    f.ready = &ready;
    (void)executor_send(x, &f); /* after a failure, the master sends Renew again */
    if (x->cfg->remote)
        log_event(LOG_INFO, "executor.ready", f_int("generation", r->generation),
                  f_int("port", x->port));
}

void executor_rename(struct executor *x, const Tony__Start *s)
{
    if (!s->renamed)
        return;
    x->role->index = s->index;
    x->role->chief = s->chief;
    executor_show_title(x);
}
