/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the sockets of the job again if the system has removed them.
 *
 * The runtime directory disappears at the end of the user's last session, and programs that clean
 * /tmp remove old sockets. Connections that are open stay open, so the job notices nothing. A
 * client or a pool that cannot connect sends SIGHUP to the keeper (storage/alive.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "executor/keeper_int.h"

static int renew(struct keeper *k, struct err *e)
{
    int changed = paths_renew_runtime(&k->paths, e);
    if (changed < 0)
        return changed;
    if (changed) {
        AUTO(free_p) char *own = paths_socket(&k->paths, k->app_id, "k");
        AUTO(free_p) char *master = paths_socket(&k->paths, k->app_id, "m");
        if (!own || !master)
            return err_set(e, ENOMEM, "cannot name the sockets: %m");
        free(k->socket);
        free(k->master_socket);
        k->socket = TAKE(own);
        k->master_socket = TAKE(master);
    }
    if (access(k->socket, F_OK) == 0)
        return 0;
    int fd = link_listen(k->socket, e);
    if (fd < 0)
        return fd;
    close_p(&k->listen_fd);
    k->listen_fd = fd;
    return 1;
}

void sockets_tell_master(struct keeper *k, struct peer *p)
{
    Tony__SocketsRenewed m = TONY__SOCKETS_RENEWED__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    f.body_case = TONY__FRAME__BODY_SOCKETS_RENEWED;
    f.sockets_renewed = &m;
    if (k->sockets_renewed && p)
        keeper_send(k, p, &f);
}

void sockets_renew(struct keeper *k)
{
    struct err e = { 0 };
    if (k->listen_fd < 0)
        return; /* the job is over */
    int rc = renew(k, &e);
    if (rc < 0)
        log_err(LOG_ERROR, "keeper.sockets", &e); /* the next request tries again */
    if (rc > 0)
        log_event(LOG_WARN, "keeper.sockets_renewed", f_str("dir", k->paths.runtime));
    /* The socket of the master may be missing even if that of the keeper is not. */
    k->sockets_renewed = true;
    sockets_tell_master(k, keeper_peer(k, PEER_MASTER));
}

void sockets_check(struct keeper *k)
{
    if (access(k->socket, F_OK) == -1)
        sockets_renew(k);
}
