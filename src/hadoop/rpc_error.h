/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a call of Hadoop RPC has failed: the kind says what to do, the rest is for people.
 */
#ifndef TONY_HADOOP_RPC_ERROR_H
#define TONY_HADOOP_RPC_ERROR_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

enum rpc_fault {
    RPC_FAULT_NONE = 0,
    RPC_FAULT_APPLICATION, /* the service refused, for a reason of its own: see class and line */
    RPC_FAULT_AUTH,    /* authentication or authorisation, at any stage: never retried, never failed
                          over */
    RPC_FAULT_STANDBY, /* another server of the list is the active one */
    RPC_FAULT_RETRIABLE, /* the same server, a little later */
    RPC_FAULT_NOT_READY, /* NMNotYetReadyException: the node manager has just started; in 1 to 10 s
                          */
    RPC_FAULT_NOT_REGISTERED,    /* the resource manager has restarted: register again, repeat
                                    everything */
    RPC_FAULT_ATTEMPT_NOT_FOUND, /* this attempt is over for the resource manager */
    RPC_FAULT_INVALID_REQUEST,   /* of a master: registered already, or a wrong response id */
    RPC_FAULT_INVALID_RESOURCE,  /* an ask (or its label) is refused, and with it the whole request
                                  */
    RPC_FAULT_INVALID_RELEASE,   /* a release or a blacklist entry is refused, and with it the whole
                                    request */
    RPC_FAULT_INVALID_CONTAINER, /* of an earlier resource manager: give it up, ask again */
    RPC_FAULT_NOT_FOUND,         /* application, attempt or container is unknown, or forgotten */
    RPC_FAULT_PROTOCOL,          /* we do not understand each other: version, method, bytes */
    RPC_FAULT_UNREACHABLE,       /* no connection: nothing was carried out */
    RPC_FAULT_BROKEN,            /* the connection ended: may have been carried out (maybe_done) */
    RPC_FAULT_TIMEOUT,           /* no answer in time: may have been carried out (maybe_done) */
    RPC_FAULT_LOCAL,             /* on our side: no memory, a request too large */
    RPC_FAULT_COUNT,
};

const char *rpc_fault_name(enum rpc_fault f); /* "not_registered" */

struct rpc_error {
    enum rpc_fault kind;
    bool maybe_done;      /* the request may have been carried out */
    char class_name[200]; /* the server's exception class, or "" */
    char line[1200];      /* the first line of its message, or "" */
    struct span detail;   /* the rest of it (a stack trace), valid during the callback */
    struct err err;       /* the sentence */
};

/* What a class name asks for; RPC_FAULT_APPLICATION when it is not in the table. Also for the
 * RemoteErrors inside answers (startContainers and its kin). */
enum rpc_fault rpc_fault_of_class(struct span class_name);
/* A message without the class name that some servers put in front of it, and without what follows
 * its first line. */
struct span rpc_first_line(struct span message, struct span class_name);

/* Fill *out for what happened on our side; returns e->num negated. fmt is the sentence. */
int rpc_error_set(struct rpc_error *out, enum rpc_fault kind, int num, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
