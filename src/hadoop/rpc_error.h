/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a call of Hadoop RPC has failed. The kind tells the program what to do; the other fields are
 * for people.
 */
#ifndef TONY_HADOOP_RPC_ERROR_H
#define TONY_HADOOP_RPC_ERROR_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

enum rpc_fault {
    RPC_FAULT_NONE = 0,
    /* The service refused for a reason of its own: see class_name and line. */
    RPC_FAULT_APPLICATION,
    /* Authentication or authorisation failed; not retried, and no other server is tried. */
    RPC_FAULT_AUTH,
    RPC_FAULT_STANDBY,   /* this server is in standby: another one in the list is active */
    RPC_FAULT_RETRIABLE, /* retry on the same server a little later */
    /* NMNotYetReadyException: the NodeManager has just started; retry in 1 to 10 s. */
    RPC_FAULT_NOT_READY,
    /* The ResourceManager has restarted: register again and repeat everything. */
    RPC_FAULT_NOT_REGISTERED,
    RPC_FAULT_ATTEMPT_NOT_FOUND, /* the ResourceManager considers this attempt as ended */
    /* For a master: it is registered already, or the response id is wrong. */
    RPC_FAULT_INVALID_REQUEST,
    /* A container request or its label is refused, and with it the whole request. */
    RPC_FAULT_INVALID_RESOURCE,
    /* A release or a blacklist entry is refused, and with it the whole request. */
    RPC_FAULT_INVALID_RELEASE,
    /* A container of an earlier ResourceManager: give it up and request another one. */
    RPC_FAULT_INVALID_CONTAINER,
    RPC_FAULT_NOT_FOUND, /* the application, attempt or container is unknown or forgotten */
    /* Client and server do not match: another version, an unknown method, or invalid bytes. */
    RPC_FAULT_PROTOCOL,
    RPC_FAULT_UNREACHABLE, /* no connection: the request was not carried out */
    RPC_FAULT_BROKEN, /* the connection broke: the request may have been carried out (maybe_done) */
    RPC_FAULT_TIMEOUT, /* no answer in time: the request may have been carried out (maybe_done) */
    RPC_FAULT_LOCAL,   /* a failure on this side: no memory, or the request is too large */
    RPC_FAULT_COUNT,
};

const char *rpc_fault_name(enum rpc_fault f); /* "not_registered" */
/* Is it worth repeating the call later? The service is away or busy, or memory is short. */
bool rpc_fault_passes(enum rpc_fault f);

struct rpc_error {
    enum rpc_fault kind;
    bool maybe_done;      /* the server may have carried out the request */
    char class_name[200]; /* class name of the server's exception, or "" */
    char line[1200];      /* first line of its message, or "" */
    struct span detail;   /* the rest of the message (a stack trace); valid during the callback */
    struct err err;       /* the error as a sentence */
};

/* The kind for the class name of an exception; RPC_FAULT_APPLICATION if the table does not have it.
 * Use it also for errors inside of answers, such as those of startContainers. */
enum rpc_fault rpc_fault_of_class(struct span class_name);
/* The first line of a message. Some servers put the class name in front, which is removed. */
struct span rpc_first_line(struct span message, struct span class_name);

/* Set *out for a failure on this side. fmt: the sentence. Returns -num. */
int rpc_error_set(struct rpc_error *out, enum rpc_fault kind, int num, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
