/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PMI-1 as MPICH's processes speak it to a process manager (the "simple" wire protocol, port mode),
 * without sockets. Lines of "cmd=NAME key=value ..."; each rank keeps one connection from its first
 * line to MPI_Finalize. The ranks put what others need to reach them, meet at a barrier, and get
 * it.
 */
#ifndef TONY_RENDEZVOUS_PMI_H
#define TONY_RENDEZVOUS_PMI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/map.h"

enum {
    PMI_KEY_MAX = 64, /* what we tell them, as MPICH's own manager does */
    PMI_VALUE_MAX = 1024,
    PMI_NAME_MAX = 256,
    PMI_LINE_MAX = 4096,
    PMI_KEYS_PER_RANK = 64,
    PMI_KEYS_SHARED = 1024, /* besides */
};

struct pmi_rank {   /* one connection */
    int64_t rank;   /* -1: it has not said */
    bool ready;     /* after init */
    bool waiting;   /* in a barrier */
    bool finalized; /* it goes in order */
    struct buf in;
};

struct pmi {
    uint32_t n_ranks, n_waiting;
    struct pmi_rank **ranks; /* by rank; NULL = not connected */
    struct map keys;         /* values are strings */
    char *mapping;           /* PMI_process_mapping */
    char name[PMI_NAME_MAX];
};

/* hosts: by rank; NULL = all on one. */
int pmi_init(struct pmi *p, const char *name, uint32_t n_ranks, const char *const *hosts);
void pmi_done(struct pmi *p);

enum pmi_what {
    PMI_MORE = 0, /* nothing, but the answer that out may hold now */
    PMI_BARRIER,  /* all are there: every rank that waits is to be sent PMI_BARRIER_OUT */
    PMI_ABORT,    /* the job is to end with *out_code */
    PMI_BAD,      /* it does not speak PMI-1, or not in order: drop it */
};
#define PMI_BARRIER_OUT "cmd=barrier_out\n"

void pmi_rank_init(struct pmi_rank *r);
void pmi_rank_done(struct pmi *p, struct pmi_rank *r); /* its connection is gone */
/* Bytes of one connection. Stops after a line that is more than PMI_MORE; feed nothing to go on.
 * -ENOMEM is PMI_BAD, too. */
enum pmi_what pmi_feed(struct pmi *p, struct pmi_rank *r, struct span bytes, struct buf *out,
                       int *out_code);

#endif
