#include "master/master.h"
#include "base/fs.h"

int main(int argc, char **argv)
{
    fs_limit_fails();
    return master_main(argc, argv);
}
