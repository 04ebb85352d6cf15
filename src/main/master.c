#include "master/master.h"

int main(int argc, char **argv)
{
    return master_main(argc, argv);
}
