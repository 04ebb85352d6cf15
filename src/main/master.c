/* SPDX-License-Identifier: Apache-2.0 */
#include "master/master.h"
#include "base/fs.h"

int main(int argc, char **argv)
{
    fs_ignore_sigxfsz();
    return master_main(argc, argv);
}
