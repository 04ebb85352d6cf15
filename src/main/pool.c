/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool.h"
#include "base/fs.h"

int main(int argc, char **argv)
{
    fd_open_standard();
    fs_ignore_sigxfsz();
    return pool_main(argc, argv);
}
