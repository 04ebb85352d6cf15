#include "pool/pool.h"
#include "base/fs.h"

int main(int argc, char **argv)
{
    fd_open_standard();
    fs_limit_fails();
    return pool_main(argc, argv);
}
