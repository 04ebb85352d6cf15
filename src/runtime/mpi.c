/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPI programs that are linked to MPICH or to a library derived from it, started without mpiexec.
 * They connect to the PMI-1 server beside rank 0 (src/rendezvous/pmi.c) and tell it their rank.
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
        return err_set(e, ENOTCONN, "there is no PMI server at which the ranks could meet");
    int rc = 0;
    rc |= strv_env_set(out, "PMI_PORT", at.master);
    rc |= rt_set_u32(out, "PMI_ID", at.rank);
    /* mpiexec sets these two as well, and scripts read them */
    rc |= rt_set_u32(out, "MPI_LOCALRANKID", in->local_rank);
    rc |= rt_set_u32(out, "MPI_LOCALNRANKS", at.local_size);
    return rc ? err_set(e, ENOMEM, "cannot build the environment for mpi: %m") : 0;
}

const struct runtime runtime_mpi = {
    .name = "mpi",
    .env = env,
    .addresses = RT_FIRST,
    .waits_for_spec = true,
    .needs_gang = true,
    .server = "pmi",
    .unnoticed = rt_every_role, /* the other ranks poll for the dead rank's messages for ever */
    .lives_with_new = rt_gang_restarts,
};
