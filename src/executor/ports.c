#include "executor/ports.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"

int port_reserve(uint16_t *out_port, struct err *e)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1)
        return err_set(e, errno, "cannot reserve a port: %m");
    int on = 1;
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_ANY) } };
    socklen_t len = sizeof at;
    /* both options: a task may set either; a number is chosen that no other socket has, whatever
     * its options */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == -1 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == -1 ||
        bind(fd, (const struct sockaddr *)&at, sizeof at) == -1 ||
        getsockname(fd, (struct sockaddr *)&at, &len) == -1) {
        int rc = err_set(e, errno, "cannot reserve a port: %m");
        close(fd);
        return rc;
    }
    *out_port = ntohs(at.sin_port);
    return fd;
}
