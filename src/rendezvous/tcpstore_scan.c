/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the end of a command, and which command it is. */
#include <errno.h>

#include "base/err.h"
#include "base/util.h"
#include "rendezvous/tcpstore_int.h"

enum { MAGIC = 0x3c85f7ce, MAGIC_LEN = 5 /* with the number of the command in front */ };

/* The fields after the number of a command. k: a key, v: a value (each with its length in front); 4
 * and 8: a number of that many bytes; n: a count, after which the other fields are repeated that
 * often. */
static const char *const fields[OP_COUNT] = {
    [OP_NONE] = "",      [OP_VALIDATE] = "4",  [OP_SET] = "kv",       [OP_COMPARE_SET] = "kvv",
    [OP_GET] = "k",      [OP_ADD] = "k8",      [OP_CHECK] = "nk",     [OP_WAIT] = "nk",
    [OP_N_KEYS] = "",    [OP_WATCH] = "k",     [OP_DELETE] = "k",     [OP_APPEND] = "kv",
    [OP_GET_ALL] = "nk", [OP_SET_ALL] = "nkv", [OP_CANCEL_WAIT] = "", [OP_PING] = "4",
    [OP_PUSH] = "kv",    [OP_POP] = "k",       [OP_QUEUE_LEN] = "k",  [OP_LIST_KEYS] = "",
    [OP_BARRIER] = "k8",
};

/* In torch <= 2.0, number 7 is WATCH and 8 is DELETE. In torch 2.1, 7 is DELETE and 8 is
 * APPEND. */
enum { BARE_WATCH = 7, BARE_DELETE = 8 };
static const enum op bare[] = {
    OP_SET,    OP_COMPARE_SET, OP_GET,    OP_ADD,     OP_CHECK,   OP_WAIT,
    OP_N_KEYS, OP_DELETE,      OP_APPEND, OP_GET_ALL, OP_SET_ALL, OP_CANCEL_WAIT,
};

static const enum op validated[] = {
    OP_NONE,   OP_SET,    OP_COMPARE_SET, OP_GET,       OP_ADD,     OP_CHECK,       OP_WAIT,
    OP_N_KEYS, OP_DELETE, OP_APPEND,      OP_GET_ALL,   OP_SET_ALL, OP_CANCEL_WAIT, OP_PING,
    OP_PUSH,   OP_POP,    OP_QUEUE_LEN,   OP_LIST_KEYS, OP_BARRIER,
};

/* A connection of torch <= 2.0 that watches keys sends WATCH as its first command and no other
 * ones. */
static enum op bare_op(struct tcpstore_client *c, unsigned char number)
{
    struct tcpstore *s = c->s;
    if (number == BARE_WATCH && (c->watcher || (!c->has_sent_command && !s->has_2_1))) {
        c->watcher = s->watched = true;
        return OP_WATCH;
    }
    if (number > BARE_DELETE && number < ARRAY_LEN(bare))
        s->has_2_1 = true;
    if (number == BARE_DELETE && s->watched)
        return OP_DELETE;
    return number < ARRAY_LEN(bare) ? bare[number] : OP_NONE;
}

/* Find out the dialect of a client. 0: more bytes are needed. */
static int scan_greeting(struct tcpstore_client *c, const char *p, size_t n)
{
    uint32_t number;
    if (p[0] != 0) {
        c->dialect = DIALECT_BARE;
        return 1;
    }
    if (n < MAGIC_LEN)
        return 0;
    memcpy(&number, p + 1, sizeof number);
    c->dialect = le32toh(number) == MAGIC ? DIALECT_VALIDATED : DIALECT_BARE;
    if (c->dialect == DIALECT_VALIDATED)
        c->scan.op = OP_VALIDATE;
    return 1;
}

static int begin(struct tcpstore_client *c, const char *p, size_t n, struct err *e)
{
    unsigned char number = (unsigned char)p[0];
    if (c->dialect == DIALECT_UNKNOWN && scan_greeting(c, p, n) == 0)
        return 0;
    if (c->scan.op == OP_NONE)
        c->scan.op = c->dialect == DIALECT_BARE      ? bare_op(c, number)
                     : number < ARRAY_LEN(validated) ? validated[number]
                                                     : OP_NONE;
    if (c->scan.op == OP_NONE)
        return err_set(e, EPROTO, "a client of torch's store sent command %u, which is not known",
                       number);
    c->scan.field = fields[c->scan.op];
    c->scan.counted = *c->scan.field != 'n';
    c->scan.left = 1;
    c->scan.at = 1;
    return 1;
}

/* Skip the next field. 1: done; 0: more bytes are needed; or -errno. */
static int skip(struct scan *s, const char *p, size_t n, struct err *e)
{
    char type = *s->field;
    size_t head = type == '4' ? 4 : 8, len = 0;
    if (n - s->at < head)
        return 0;
    if (type == 'k' || type == 'v') {
        uint64_t max = type == 'k' ? TCPSTORE_KEY_MAX : TCPSTORE_VALUE_MAX;
        uint64_t says = load_u64(p + s->at);
        if (says > max)
            return err_set(e, EMSGSIZE,
                           "a client of torch's store sent a %s of %llu bytes, more than the "
                           "limit of %llu",
                           type == 'k' ? "key" : "value", (unsigned long long)says,
                           (unsigned long long)max);
        len = (size_t)says;
    }
    if (s->at + head + len > TCPSTORE_MESSAGE_MAX)
        return err_set(e, EMSGSIZE,
                       "a client of torch's store sent a command of more than %d bytes",
                       TCPSTORE_MESSAGE_MAX);
    if (n - s->at - head < len)
        return 0;
    s->at += head + len;
    return 1;
}

static int count(struct scan *s, const char *p, size_t n, struct err *e)
{
    if (n - s->at < 8)
        return 0;
    s->left = load_u64(p + s->at);
    if (s->left > TCPSTORE_KEYS_MAX)
        return err_set(e, EMSGSIZE,
                       "a client of torch's store sent a command with %llu keys, more than the "
                       "limit of %d",
                       (unsigned long long)s->left, TCPSTORE_KEYS_MAX);
    s->at += 8;
    s->counted = true;
    s->field++;
    return 1;
}

ssize_t scan_command(struct tcpstore_client *c, const char *p, size_t n, bool more, struct err *e)
{
    struct scan *s = &c->scan;
    int rc = s->at ? 1 : begin(c, p, n, e);
    if (rc == 1 && !s->counted)
        rc = count(s, p, n, e);
    while (rc == 1 && s->left > 0) {
        if (!*s->field) {
            s->left--;
            s->field = fields[s->op] + (*fields[s->op] == 'n');
            if (!*s->field)
                break;
            continue;
        }
        rc = skip(s, p, n, e);
        if (rc == 1)
            s->field++;
        /* A DELETE of torch <= 2.0 has the number of APPEND in torch 2.1, but no value. So if the
         * command ends after the key, and no client of torch 2.1 was seen, it is a DELETE. */
        if (rc == 1 && c->dialect == DIALECT_BARE && s->op == OP_APPEND && *s->field == 'v' &&
            s->at == n && !more && !c->s->has_2_1) {
            s->op = OP_DELETE;
            break;
        }
    }
    return rc == 1 ? (ssize_t)s->at : rc;
}
