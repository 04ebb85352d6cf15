/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the store share: tcpstore.c (clients and commands), tcpstore_scan.c (where a
 * command ends), tcpstore_keys.c (the keys, and who waits for them). */
#ifndef TONY_RENDEZVOUS_TCPSTORE_INT_H
#define TONY_RENDEZVOUS_TCPSTORE_INT_H

#include <endian.h>
#include <string.h>
#include <sys/types.h>

#include "base/vec.h"
#include "rendezvous/tcpstore.h"

/* ---- commands ---- */

enum op {
    OP_NONE = 0,
    OP_VALIDATE,
    OP_SET,
    OP_COMPARE_SET,
    OP_GET,
    OP_ADD,
    OP_CHECK,
    OP_WAIT,
    OP_N_KEYS,
    OP_WATCH,
    OP_DELETE,
    OP_APPEND,
    OP_GET_ALL,
    OP_SET_ALL,
    OP_CANCEL_WAIT,
    OP_PING,
    OP_PUSH,
    OP_POP,
    OP_QUEUE_LEN,
    OP_LIST_KEYS,
    OP_BARRIER,
    OP_COUNT
};

enum dialect { DIALECT_UNKNOWN = 0, DIALECT_BARE, DIALECT_VALIDATED };

/* How far a command has been read: nothing of it is looked at twice. */
struct scan {
    enum op op;        /* OP_NONE: not begun */
    const char *field; /* next of the op's fields */
    bool counted;      /* the count in front of the fields was read */
    uint64_t left;     /* times that the fields still come */
    size_t at;         /* bytes of it that were looked at */
};

/* ---- keys ---- */

struct wait {
    struct key *key; /* NULL = over */
    struct tcpstore_client *client;
    struct wait *prev, *next; /* others at the key */
};

struct wait_list {
    struct wait *head, *tail;
};

struct item {
    struct item *next;
    size_t len;
    char bytes[];
};

/* In the table while it has a value or a queue, or somebody waits for it. */
struct key {
    struct key *next; /* of the same slot */
    uint64_t hash;
    bool present; /* has a value */
    char *value;
    size_t len, cap;
    struct wait_list waits, watches;
    struct item *queue, **queue_end;
    uint64_t n_queue;
    size_t name_len;
    char name[];
};

struct tcpstore {
    size_t max_bytes, used;
    uint64_t seed;
    struct key **slots;
    size_t n_slots, n_keys, n_present;
    struct tcpstore_client *clients, *ready, *ready_tail;
    size_t n_clients;
    bool watched, has_2_1; /* what was heard so far of which torch is there */
};

struct tcpstore_client {
    struct tcpstore *s;
    void *user;
    struct tcpstore_client *prev, *next;
    struct tcpstore_client *ready_prev, *ready_next;
    bool is_ready, broken;
    struct buf in, out;
    size_t out_at; /* bytes of out that were sent */
    enum dialect dialect;
    bool spoken;  /* has given a command */
    bool watcher; /* watching is all that it does */
    struct scan scan;
    struct wait *waits; /* of its last WAIT; NULL = it does not wait */
    size_t n_waits, n_awaited;
    VEC(struct wait *) watches;
};

/* ---- tcpstore_scan.c ---- */

/* The length of the command that p begins with; 0: there is more to come; -errno. Its op stands in
 * c->scan then. Give the same bytes and more the next time; scan_done() when it was carried out. */
ssize_t scan_command(struct tcpstore_client *c, const char *p, size_t n, bool more, struct err *e);
static inline void scan_done(struct tcpstore_client *c)
{
    c->scan = (struct scan){ 0 };
}

/* ---- tcpstore_keys.c ---- */

/* Room for so many more bytes. 0, or -ENOBUFS with a sentence. */
int store_room(struct tcpstore *s, size_t n, struct err *e);

struct key *key_find(const struct tcpstore *s, struct span name); /* NULL = not there */
struct key *key_get(struct tcpstore *s, struct span name,
                    struct err *e);               /* makes it; NULL with e */
void key_tidy(struct tcpstore *s, struct key *k); /* frees it when nothing needs it any more */
int key_set(struct tcpstore *s, struct key *k, struct span value, struct err *e);
int key_append(struct tcpstore *s, struct key *k, struct span value, struct err *e);
bool key_delete(struct tcpstore *s, struct span name);
int key_push(struct tcpstore *s, struct key *k, struct span value, struct err *e);
struct item *key_pop(struct tcpstore *s, struct key *k); /* the caller's; NULL = empty */
static inline bool key_ready(const struct key *k)
{
    return k && (k->present || k->queue);
}
void keys_done(struct tcpstore *s);

/* Wait for those of the n names that are not there: how many they are, or -errno. */
ssize_t wait_begin(struct tcpstore_client *c, const struct span *names, size_t n, struct err *e);
/* Wait for the next change of k, which has a value. */
int wait_change(struct tcpstore_client *c, struct key *k, struct err *e);
void wait_end(struct tcpstore_client *c); /* it waits no more; nobody is told */
void waiters_wake(struct tcpstore *s, struct key *k);
int watch_begin(struct tcpstore_client *c, struct key *k);
void watch_end(struct tcpstore_client *c);

/* ---- tcpstore.c: answers. Without room the client is marked, and goes ---- */

enum { WAIT_OVER = 0, WAIT_CANCELLED = 1 };
void answer_bytes(struct tcpstore_client *c, const void *p, size_t n);
void answer_u8(struct tcpstore_client *c, uint8_t v);
void answer_u64(struct tcpstore_client *c, uint64_t v);
void answer_span(struct tcpstore_client *c, struct span v); /* length, bytes */

static inline uint64_t load_u64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return le64toh(v);
}

#endif
