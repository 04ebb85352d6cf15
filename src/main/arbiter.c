/* SPDX-License-Identifier: Apache-2.0 */
/* The program that `tony arbiter start` runs on a node of the cluster: `tony` itself, built so that
 * it needs no library of the node. */
#include "base/fs.h"
#include "client/client.h"

int main(int argc, char **argv)
{
    fd_open_standard();
    fs_ignore_sigxfsz();
    return client_main(argc, argv, TONY_VERSION);
}
