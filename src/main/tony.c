#include "base/fs.h"
#include "client/client.h"

int main(int argc, char **argv)
{
    fd_open_standard();
    fs_limit_fails();
    return client_main(argc, argv, TONY_VERSION);
}
