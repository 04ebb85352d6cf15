/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fs.h"
#include "client/client.h"

int main(int argc, char **argv)
{
    fd_open_standard();
    fs_ignore_sigxfsz();
    return client_main(argc, argv, TONY_VERSION);
}
