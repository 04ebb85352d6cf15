#include "pool/pool.h"
#include "base/fs.h"

int main(int argc, char **argv)
{
    fd_open_standard();
    return pool_main(argc, argv);
}
