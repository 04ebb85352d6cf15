/*
 * MPI programs linked to MPICH or one of its kin, started without mpiexec: they dial the server of
 * PMI-1 beside rank 0 (src/rendezvous/pmi.c) and say which of the ranks they are.
 */
#include "runtime/runtime_int.h"

#include <errno.h>

#include "base/err.h"

static int env(const struct rt_input *in, struct strv *out, struct err *e)
{
    struct rt_place at;
    rt_place(in, &at);
    if (in->single_node || !at.ranked)
        return 0;
    if (!in->server || !at.master)
        return err_set(e, ENOTCONN, "there is no PMI server by which the ranks could meet");
    int rc = 0;
    rc |= strv_env_set(out, "PMI_PORT", at.master);
    rc |= rt_set_u32(out, "PMI_ID", at.rank);
    /* what mpiexec says besides, which scripts read */
    rc |= rt_set_u32(out, "MPI_LOCALRANKID", in->local_rank);
    rc |= rt_set_u32(out, "MPI_LOCALNRANKS", at.local_size);
    return rc ? err_set(e, ENOMEM, "cannot build the environment for mpi: %m") : 0;
}

const struct runtime runtime_mpi = {
    .name = "mpi",
    .env = env,
    .waits_for_spec = true,
    .needs_gang = true,
    .server = "pmi",
    .unnoticed = rt_any, /* the others poll for ever for what it would have sent */
    .lives_with_new = rt_begins_whole,
};
