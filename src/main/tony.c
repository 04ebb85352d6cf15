/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "client/client.h"

int main(int argc, char **argv)
{
    fd_open_standard();
    fs_ignore_sigxfsz();
    int code = client_main(argc, argv, TONY_VERSION);
#ifdef TONY_QUICK_EXIT
    /* exit() would wait until libuv's thread has ended. `tony run` has no exit handlers, so leave
     * without them. */
    if (argc > 1 && strcmp(argv[1], "run") == 0) {
        (void)fflush(NULL);
        _exit(code);
    }
#endif
    return code;
}
