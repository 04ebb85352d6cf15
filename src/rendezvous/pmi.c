/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/pmi.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"
#include "base/util.h"

/* ---- the job ---- */

struct block { /* nodes first .. first + n - 1; each has the same number of ranks */
    uintptr_t first, n;
    uint32_t ranks;
};

static int block_add(struct buf *text, const struct block *b)
{
    return b->n ? buf_addf(text, ",(%lu,%lu,%u)", (unsigned long)b->first, (unsigned long)b->n,
                           b->ranks)
                : 0;
}

/* Describe which ranks share a node: "(vector,(0,2,4),(2,1,2))" means four ranks on each of nodes 0
 * and 1, then two on node 2. It must be right: ranks of one node communicate through shared
 * memory. */
static char *mapping_new(uint32_t n, const char *const *hosts)
{
    AUTO(buf_done) struct buf text = { 0 };
    struct map nodes = { 0 };
    struct block b = { 0 };
    uintptr_t known = 0;
    int rc = buf_adds(&text, "(vector");
    for (uint32_t i = 0, run; i < n && rc == 0; i += run) {
        const char *host = hosts && hosts[i] ? hosts[i] : "";
        for (run = 1; i + run < n; run++)
            if (!str_eq(hosts && hosts[i + run] ? hosts[i + run] : "", host))
                break;
        uintptr_t node = (uintptr_t)map_get(&nodes, host); /* the number of the node + 1 */
        if (!node) {
            node = ++known;
            rc = map_set(&nodes, host, (void *)node, NULL);
        }
        if (b.n && b.first + b.n == node - 1 && b.ranks == run) {
            b.n++;
            continue;
        }
        if (rc == 0)
            rc = block_add(&text, &b);
        b = (struct block){ node - 1, 1, run };
    }
    map_done(&nodes, NULL);
    return rc == 0 && block_add(&text, &b) == 0 && buf_addc(&text, ')') == 0 ? buf_steal(&text)
                                                                             : NULL;
}

int pmi_init(struct pmi *p, const char *name, uint32_t n_ranks, const char *const *hosts)
{
    *p = (struct pmi){ .n_ranks = n_ranks, .bytes_max = SIZE_MAX };
    (void)snprintf(p->name, sizeof p->name, "kvs_%.200s", name);
    p->ranks = calloc(n_ranks ? n_ranks : 1, sizeof(struct pmi_rank *));
    p->mapping = mapping_new(n_ranks, hosts);
    if (p->ranks && p->mapping)
        return 0;
    pmi_done(p);
    return -ENOMEM;
}

void pmi_done(struct pmi *p)
{
    free(TAKE(p->ranks));
    free(TAKE(p->mapping));
    map_done(&p->keys, free);
}

void pmi_rank_init(struct pmi_rank *r)
{
    *r = (struct pmi_rank){ .rank = -1, .in.max = 4 * PMI_LINE_MAX };
}

void pmi_rank_done(struct pmi *p, struct pmi_rank *r)
{
    if (p->ranks && r->rank >= 0 && p->ranks[r->rank] == r)
        p->ranks[r->rank] = NULL;
    if (r->waiting)
        p->n_waiting--;
    r->waiting = false;
    buf_done(&r->in);
}

/* ---- a line from a rank ---- */

/* The value of `name`. "value" is the last field and may contain blanks, so it extends to the end
 * of the line. */
static bool field(struct span line, const char *name, struct span *out)
{
    struct span word;
    size_t len = strlen(name);
    bool to_end = str_eq(name, "value");
    while (span_split(&line, ' ', &word)) {
        if (word.len <= len || memcmp(word.p, name, len) != 0 || word.p[len] != '=')
            continue;
        size_t n = word.len - len - 1;
        if (to_end && line.p)
            n += 1 + line.len;
        *out = span_mem(word.p + len + 1, n);
        return true;
    }
    return false;
}

static bool number(struct span line, const char *name, int64_t min, int64_t max, int64_t *out)
{
    struct span v;
    return field(line, name, &v) && str_i64(v, min, max, name, out, NULL) == 0;
}

static enum pmi_what on_initack(struct pmi *p, struct pmi_rank *r, struct span line,
                                struct buf *out)
{
    int64_t rank;
    /* Another connection has this rank. */
    if (r->rank >= 0 || !number(line, "pmiid", 0, (int64_t)p->n_ranks - 1, &rank) || p->ranks[rank])
        return PMI_BAD;
    r->rank = rank;
    p->ranks[rank] = r;
    buf_addf(out, "cmd=initack rc=0\ncmd=set size=%u\ncmd=set rank=%u\ncmd=set debug=0\n",
             p->n_ranks, (unsigned)rank);
    return PMI_MORE;
}

static int put_key(struct pmi *p, struct span line)
{
    struct span key, value;
    if (!field(line, "key", &key) || !field(line, "value", &value) || key.len > PMI_KEY_MAX ||
        value.len > PMI_VALUE_MAX ||
        p->keys.n >= (size_t)p->n_ranks * PMI_KEYS_PER_RANK + PMI_KEYS_SHARED ||
        p->bytes + key.len + value.len + PMI_KEY_COST > p->bytes_max)
        return -EINVAL;
    AUTO(free_p) char *k = span_dup(key);
    AUTO(free_p) char *v = span_dup(value);
    void *old = NULL;
    int rc = k && v ? map_set(&p->keys, k, v, &old) : -ENOMEM;
    if (rc == 0) {
        (void)TAKE(v);
        /* If the key had a value, the key's own bytes and PMI_KEY_COST are counted already. */
        p->bytes += value.len + (old ? 0 : key.len + PMI_KEY_COST);
        p->bytes -= old ? strlen(old) : 0;
        free(old);
    }
    return rc;
}

static enum pmi_what on_get(const struct pmi *p, struct span line, struct buf *out)
{
    struct span key;
    if (!field(line, "key", &key) || key.len > PMI_KEY_MAX)
        return PMI_BAD;
    AUTO(free_p) char *k = span_dup(key);
    const char *v = k ? map_get(&p->keys, k) : NULL;
    if (!v && span_eqs(key, "PMI_process_mapping") && strlen(p->mapping) <= PMI_VALUE_MAX)
        /* If it is too long to be sent, each rank assumes that it is alone on its node. */
        v = p->mapping;
    if (v)
        buf_addf(out, "cmd=get_result rc=0 msg=success value=%s\n", v);
    else
        buf_addf(out, "cmd=get_result rc=-1 msg=key_%.*s_not_found value=unknown\n", (int)key.len,
                 key.p);
    return PMI_MORE;
}

static enum pmi_what on_barrier(struct pmi *p, struct pmi_rank *r)
{
    if (r->waiting)
        return PMI_BAD;
    r->waiting = true;
    if (++p->n_waiting < p->n_ranks)
        return PMI_MORE;
    p->n_waiting = 0;
    for (uint32_t i = 0; i < p->n_ranks; i++)
        if (p->ranks[i])
            p->ranks[i]->waiting = false;
    return PMI_BARRIER;
}

/* Answer commands that change nothing. false: another command. */
static bool answer(const struct pmi *p, struct span cmd, struct buf *out)
{
    if (span_eqs(cmd, "get_maxes"))
        buf_addf(out, "cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d\n", PMI_NAME_MAX,
                 PMI_KEY_MAX, PMI_VALUE_MAX);
    else if (span_eqs(cmd, "get_appnum"))
        buf_adds(out, "cmd=appnum appnum=0\n");
    else if (span_eqs(cmd, "get_my_kvsname"))
        buf_addf(out, "cmd=my_kvsname kvsname=%s\n", p->name);
    else if (span_eqs(cmd, "get_universe_size"))
        buf_addf(out, "cmd=universe_size size=%u\n", p->n_ranks);
    else
        return false;
    return true;
}

static enum pmi_what on_line(struct pmi *p, struct pmi_rank *r, struct span line, struct buf *out,
                             int *out_code)
{
    struct span cmd;
    int64_t code;
    if (!field(line, "cmd", &cmd) || memchr(line.p, '\0', line.len))
        return PMI_BAD; /* also for "mcmd=spawn": a job cannot get more processes */
    if (span_eqs(cmd, "initack"))
        return on_initack(p, r, line, out);
    if (r->rank < 0)
        return PMI_BAD;
    if (span_eqs(cmd, "init")) {
        buf_adds(out, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
        r->ready = true;
        return PMI_MORE;
    }
    if (span_eqs(cmd, "abort")) {
        *out_code = number(line, "exitcode", INT32_MIN, INT32_MAX, &code) ? (int)code : 1;
        return PMI_ABORT;
    }
    if (!r->ready || r->finalized)
        return PMI_BAD;
    if (answer(p, cmd, out))
        return PMI_MORE;
    if (span_eqs(cmd, "put")) {
        int rc = put_key(p, line);
        buf_adds(out, rc == 0 ? "cmd=put_result rc=0 msg=success\n"
                              : "cmd=put_result rc=-1 msg=refused\n");
        return PMI_MORE;
    }
    if (span_eqs(cmd, "get"))
        return on_get(p, line, out);
    if (span_eqs(cmd, "barrier_in"))
        return on_barrier(p, r);
    if (!span_eqs(cmd, "finalize"))
        return PMI_BAD;
    r->finalized = true;
    buf_adds(out, "cmd=finalize_ack\n");
    return PMI_MORE;
}

enum pmi_what pmi_feed(struct pmi *p, struct pmi_rank *r, struct span bytes, struct buf *out,
                       int *out_code)
{
    enum pmi_what what = PMI_MORE;
    size_t done = 0;
    if (bytes.len && buf_add(&r->in, bytes.p, bytes.len) < 0)
        return PMI_BAD; /* more bytes than a line may have, or no memory */
    while (what == PMI_MORE && done < r->in.len) {
        const char *at = r->in.p + done, *end = memchr(at, '\n', r->in.len - done);
        if (!end && r->in.len - done > PMI_LINE_MAX)
            return PMI_BAD;
        if (!end)
            break;
        what = on_line(p, r, span_mem(at, (size_t)(end - at)), out, out_code);
        done += (size_t)(end - at) + 1;
    }
    buf_consume(&r->in, done);
    return out->failed ? PMI_BAD : what;
}
