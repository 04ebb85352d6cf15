/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the files of the store: tcpstore.c (clients and commands), tcpstore_scan.c (finds the
 * end of a command), tcpstore_keys.c (the keys, and the clients that wait for them). */
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

/* How far a command was scanned. No byte is scanned twice. */
struct scan {
    enum op op;        /* OP_NONE: not started */
    const char *field; /* the next field of this operation */
    bool counted;      /* the number of repetitions was read */
    uint64_t left;     /* how often the fields still follow */
    size_t at;         /* number of scanned bytes */
};

/* ---- keys ---- */

struct wait {
    struct key *key; /* NULL = this wait is over */
    struct tcpstore_client *client;
    struct wait *prev, *next; /* other waits for this key */
};

struct wait_list {
    struct wait *head, *tail;
};

struct item {
    struct item *next;
    size_t len;
    char bytes[];
};

/* A key is in the table as long as it has a value, a queue, or a waiting client. */
struct key {
    struct key *next; /* next key in the same slot */
    uint64_t hash;
    bool present; /* the key has a value */
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
    /* a client has sent WATCH (torch <= 2.0), or a command as torch 2.1 sends it: see
     * tcpstore_scan.c */
    bool watched, has_2_1;
};

struct tcpstore_client {
    struct tcpstore *s;
    void *user;
    struct tcpstore_client *prev, *next;
    struct tcpstore_client *ready_prev, *ready_next;
    bool is_ready, broken;
    struct buf in, out;
    size_t out_at; /* bytes of `out` that were sent */
    enum dialect dialect;
    bool has_sent_command; /* the client has sent a command */
    bool watcher;          /* the client only watches keys */
    struct scan scan;
    struct wait *waits; /* the keys of its last WAIT; NULL = it does not wait */
    size_t n_waits, n_awaited;
    VEC(struct wait *) watches;
};

/* ---- tcpstore_scan.c ---- */

/* The length of the command at the start of p; 0: it is incomplete; or -errno. c->scan has its
 * operation. After 0, call it again with the same bytes and more of them. Call scan_done() when the
 * command was carried out. */
ssize_t scan_command(struct tcpstore_client *c, const char *p, size_t n, bool more, struct err *e);
static inline void scan_done(struct tcpstore_client *c)
{
    c->scan = (struct scan){ 0 };
}

/* ---- tcpstore_keys.c ---- */

/* Is there memory for n more bytes? 0, or -ENOBUFS with a sentence. */
int store_room(struct tcpstore *s, size_t n, struct err *e);

struct key *key_find(const struct tcpstore *s, struct span name); /* NULL = there is no such key */
/* Creates the key if necessary; NULL: e is set. */
struct key *key_get(struct tcpstore *s, struct span name, struct err *e);
void key_tidy(struct tcpstore *s, struct key *k); /* frees the key if nothing needs it */
int key_set(struct tcpstore *s, struct key *k, struct span value, struct err *e);
int key_append(struct tcpstore *s, struct key *k, struct span value, struct err *e);
bool key_delete(struct tcpstore *s, struct span name);
int key_push(struct tcpstore *s, struct key *k, struct span value, struct err *e);
/* The caller frees it; NULL = the queue is empty. */
struct item *key_pop(struct tcpstore *s, struct key *k);
static inline bool key_ready(const struct key *k)
{
    return k && (k->present || k->queue);
}
void keys_done(struct tcpstore *s);

/* Wait for those of the n keys that do not exist. Returns their number, or -errno. */
ssize_t wait_begin(struct tcpstore_client *c, const struct span *names, size_t n, struct err *e);
/* Wait for the next change of k, which has a value. */
int wait_change(struct tcpstore_client *c, struct key *k, struct err *e);
void wait_end(struct tcpstore_client *c); /* end the wait without an answer */
int watch_begin(struct tcpstore_client *c, struct key *k);
void watch_end(struct tcpstore_client *c);

/* ---- tcpstore.c: answers; if there is no memory, they mark the client as broken ---- */

enum { WAIT_OVER = 0, WAIT_CANCELLED = 1 };
void answer_u8(struct tcpstore_client *c, uint8_t v);
void answer_span(struct tcpstore_client *c, struct span v); /* the length, then the bytes */

static inline uint64_t load_u64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return le64toh(v);
}

#endif
