/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PMI-1, the protocol between MPICH's processes and their process manager (the "simple" wire
 * protocol in port mode), without sockets. It has lines of "cmd=NAME key=value ...". Each rank
 * keeps one connection from its first line to MPI_Finalize. The ranks put their addresses, wait for
 * each other at a barrier, and get the addresses of the others.
 */
#ifndef TONY_RENDEZVOUS_PMI_H
#define TONY_RENDEZVOUS_PMI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/map.h"

enum {
    /* The limits that the server reports; they are those of MPICH's own manager. */
    PMI_KEY_MAX = 64,
    PMI_VALUE_MAX = 1024,
    PMI_NAME_MAX = 256,
    PMI_LINE_MAX = 4096,
    PMI_KEYS_PER_RANK = 64,
    PMI_KEYS_SHARED = 1024, /* keys of the whole job, in addition */
    PMI_KEY_COST = 128,     /* bytes that are counted for each key besides its name and value */
};

struct pmi_rank {   /* one connection */
    int64_t rank;   /* -1: the peer has not said its rank yet */
    bool ready;     /* the command init was received */
    bool waiting;   /* the rank waits in a barrier */
    bool finalized; /* the rank has called MPI_Finalize */
    struct buf in;
};

struct pmi {
    uint32_t n_ranks, n_waiting;
    struct pmi_rank **ranks; /* by rank; NULL = not connected */
    struct map keys;         /* values: char * */
    size_t bytes, bytes_max; /* of all keys and values, and their limit */
    char *mapping;           /* PMI_process_mapping */
    char name[PMI_NAME_MAX];
};

/* hosts: by rank; NULL = all ranks are on one host. */
int pmi_init(struct pmi *p, const char *name, uint32_t n_ranks, const char *const *hosts);
void pmi_done(struct pmi *p);

enum pmi_what {
    PMI_MORE = 0, /* nothing to do, except to send the answer in out */
    PMI_BARRIER,  /* all ranks have reached the barrier: send PMI_BARRIER_OUT to each rank */
    PMI_ABORT,    /* end the job with *out_code */
    PMI_BAD,      /* a violation of the protocol, or no memory: close the connection */
};
#define PMI_BARRIER_OUT "cmd=barrier_out\n"

void pmi_rank_init(struct pmi_rank *r);
void pmi_rank_done(struct pmi *p, struct pmi_rank *r); /* call it when the connection is closed */
/* Handle received bytes. It stops after a line whose result is not PMI_MORE: to continue with the
 * next line, call it again without bytes. */
enum pmi_what pmi_feed(struct pmi *p, struct pmi_rank *r, struct span bytes, struct buf *out,
                       int *out_code);

#endif
