#include "pool/pool.h"

int main(int argc, char **argv)
{
    return pool_main(argc, argv);
}
