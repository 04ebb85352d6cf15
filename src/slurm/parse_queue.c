/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what the commands of Slurm print about a partition: its nodes, and jobs with their nodes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "slurm/commands.h"
#include "slurm/parse_int.h"

enum { NAME_MAX_BYTES = 255, DEPTH_MAX = 4, NODES_MAX = 100000 };

/* ---- sinfo ---- */

/* "3/5/0/8": allocated, idle, other, all. */
static bool read_cpus(struct span text, struct slurm_amounts *capacity, struct slurm_amounts *used)
{
    int64_t n[4];
    struct span part;
    for (size_t i = 0; i < ARRAY_LEN(n); i++)
        if (!span_split(&text, '/', &part) || !slurm_read_number(part, &n[i]))
            return false;
    used->vcores = (uint32_t)MIN(n[0], (int64_t)SLURM_COUNT_MAX);
    capacity->vcores = (uint32_t)MIN(n[3], (int64_t)SLURM_COUNT_MAX);
    return true;
}

static bool read_use(struct span line, struct slurm_use *out)
{
    struct span f[7];
    int64_t memory, taken;
    for (size_t i = 0; i < ARRAY_LEN(f); i++) {
        if (!span_split(&line, '|', &f[i]))
            return false;
        f[i] = span_trim(f[i]);
    }
    *out = (struct slurm_use){ .usable = slurm_node_is_usable(f[6]) };
    if (!f[0].len || f[0].len > NAME_MAX_BYTES || !read_cpus(f[1], &out->capacity, &out->used) ||
        !slurm_read_number(f[2], &memory))
        return false;
    out->capacity.memory_mib = (uint64_t)memory;
    out->used.memory_mib = slurm_read_number(f[3], &taken) ? (uint64_t)taken : 0;
    out->capacity.gpus = slurm_count_gpus(f[4]);
    out->used.gpus = slurm_count_gpus(f[5]);
    return true;
}

void slurm_uses_done(slurm_uses *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->v[i].name);
    vec_done(v);
}

int slurm_parse_uses(struct span text, slurm_uses *out)
{
    struct span line, rest;
    while (text.len && span_split(&text, '\n', &line)) {
        struct slurm_use u;
        struct span name;
        if (out->n == NODES_MAX || !read_use(line, &u))
            continue;
        rest = line;
        (void)span_split(&rest, '|', &name);
        u.name = span_dup(span_trim(name));
        if (u.name)
            str_mask_controls(u.name);
        if (!u.name || vec_push(out, u) < 0) {
            free(u.name);
            return -ENOMEM;
        }
    }
    return 0;
}

/* ---- lists of nodes ---- */

struct expansion {
    struct strv *out;
    char name[NAME_MAX_BYTES + 1];
};

static int expand(struct expansion *x, size_t at, struct span rest, int depth);

/* "[1-3,07]" was split off; the text goes on with `rest`. */
static int expand_ranges(struct expansion *x, size_t at, struct span ranges, struct span rest,
                         int depth)
{
    struct span range, low, high;
    while (ranges.len && span_split(&ranges, ',', &range)) {
        int64_t from, to;
        high = range;
        (void)span_split(&high, '-', &low);
        if (!high.len)
            high = low;
        if (!low.len || low.len > 9 || str_i64(low, 0, INT32_MAX, "node", &from, NULL) < 0 ||
            str_i64(high, 0, INT32_MAX, "node", &to, NULL) < 0 || to - from >= NODES_MAX)
            return -EBADMSG;
        for (int64_t i = from; i <= to; i++) {
            int n =
                snprintf(x->name + at, sizeof x->name - at, "%0*lld", (int)low.len, (long long)i);
            if (n < 0 || (size_t)n >= sizeof x->name - at)
                return -EBADMSG;
            int rc = expand(x, at + (size_t)n, rest, depth + 1);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

/* Add the names that begin with the first `at` bytes of x->name. */
static int expand(struct expansion *x, size_t at, struct span rest, int depth)
{
    const char *open = rest.len ? memchr(rest.p, '[', rest.len) : NULL;
    size_t n = open ? (size_t)(open - rest.p) : rest.len;
    if (depth > DEPTH_MAX || at + n >= sizeof x->name)
        return -EBADMSG;
    if (n)
        memcpy(x->name + at, rest.p, n);
    at += n;
    if (!open) {
        x->name[at] = '\0';
        str_mask_controls(x->name);
        if (x->out->n >= NODES_MAX || at == 0)
            return -EBADMSG;
        return strv_push(x->out, x->name);
    }
    const char *close = memchr(open, ']', rest.len - n);
    if (!close)
        return -EBADMSG;
    struct span ranges = span_mem(open + 1, (size_t)(close - open - 1));
    struct span after = span_mem(close + 1, rest.len - (size_t)(close + 1 - rest.p));
    return expand_ranges(x, at, ranges, after, depth);
}

/* Split at the first comma outside of brackets. */
static bool split_item(struct span *rest, struct span *item)
{
    bool inside = false;
    size_t i = 0;
    if (!rest->len)
        return false;
    for (; i < rest->len && (inside || rest->p[i] != ','); i++)
        inside = rest->p[i] == '[' || (inside && rest->p[i] != ']');
    *item = span_mem(rest->p, i);
    *rest = i < rest->len ? span_mem(rest->p + i + 1, rest->len - i - 1) : span_mem(rest->p + i, 0);
    return true;
}

int slurm_expand_nodes(struct span list, struct strv *out)
{
    struct expansion x = { .out = out };
    struct span item;
    int rc = 0;
    while (rc == 0 && split_item(&list, &item))
        if ((item = span_trim(item)).len)
            rc = expand(&x, 0, item, 0);
    return rc;
}

/* ---- squeue ---- */

static bool read_held(struct span line, struct slurm_held *out, struct span *nodes)
{
    struct span id, state;
    if (!span_split(&line, '|', &id) || !span_split(&line, '|', &state) ||
        !span_split(&line, '|', nodes) || slurm_parse_number(id, out->number) < 0)
        return false;
    slurm_copy(span_trim(state), out->state, sizeof out->state);
    slurm_copy(span_trim(line), out->name, sizeof out->name); /* a name may contain '|' */
    return true;
}

void slurm_helds_done(slurm_helds *v)
{
    for (size_t i = 0; i < v->n; i++)
        strv_done(&v->v[i].nodes);
    vec_done(v);
}

int slurm_parse_helds(struct span text, slurm_helds *out)
{
    struct span line;
    while (text.len && span_split(&text, '\n', &line)) {
        struct slurm_held h = { .number = "" };
        struct span nodes;
        if (!read_held(line, &h, &nodes))
            continue; /* also a component of a heterogeneous job: "12+0" */
        int rc = slurm_expand_nodes(span_trim(nodes), &h.nodes);
        if (rc == 0)
            rc = vec_push(out, h);
        if (rc < 0)
            strv_done(&h.nodes);
        if (rc == -ENOMEM)
            return rc;
    }
    return 0;
}

/* "7500M", "1.95G": in MiB, rounded up. */
static bool read_memory(struct span text, uint64_t *out)
{
    static const char units[] = "KMGTP";
    char copied[32], *end;
    slurm_copy(text, copied, sizeof copied);
    double n = strtod(copied, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (end == copied || !(n >= 0) || (*end && (!unit || end[1])))
        return false;
    for (long i = unit ? unit - units : 1; i > 1; i--)
        n *= 1024;
    if (unit == units)
        n /= 1024;
    n = MIN(n, 1e12);
    *out = (uint64_t)n + ((double)(uint64_t)n < n);
    return true;
}

/* tres: "cpu=6,mem=7500M,node=3,billing=6", of the whole job. Not each site counts GPUs there. */
static bool read_tres(struct span tres, struct slurm_wanted *out)
{
    struct span item, name;
    int64_t cpus = 0, nodes = 0, gpus = 0;
    uint64_t memory = 0;
    while (tres.len && span_split(&tres, ',', &item)) {
        if (!item.len || !memchr(item.p, '=', item.len) || !span_split(&item, '=', &name))
            continue;
        if (span_eqs(name, "cpu"))
            (void)slurm_read_number(item, &cpus);
        else if (span_eqs(name, "node"))
            (void)slurm_read_number(item, &nodes);
        else if (span_eqs(name, "gres/gpu"))
            (void)slurm_read_number(item, &gpus);
        else if (span_eqs(name, "mem"))
            (void)read_memory(item, &memory);
    }
    if (nodes < 1 || nodes > NODES_MAX)
        return false;
    out->nodes = (uint32_t)nodes;
    out->each.memory_mib = (memory + (uint64_t)nodes - 1) / (uint64_t)nodes;
    out->each.vcores = (uint32_t)MIN((cpus + nodes - 1) / nodes, (int64_t)SLURM_COUNT_MAX);
    out->each.gpus = (uint32_t)MIN((gpus + nodes - 1) / nodes, (int64_t)SLURM_COUNT_MAX);
    return true;
}

static bool waits_for_nodes(struct span reason)
{
    static const char *const reasons[] = { "None", "Resources", "Priority" };
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        if (span_eqs(reason, reasons[i]))
            return true;
    return false;
}

/* gres: "gres:gpu:a100:2" or "gres/gpu:2" of each node, or "N/A". */
static bool read_wanted(struct span line, struct slurm_wanted *out)
{
    struct span id, reason, tres, gres, prefix;
    *out = (struct slurm_wanted){ .nodes = 0 };
    if (!span_split(&line, '|', &id) || !span_split(&line, '|', &reason) ||
        !span_split(&line, '|', &tres) || !span_split(&line, '|', &gres) ||
        !waits_for_nodes(span_trim(reason)) || slurm_parse_number(id, out->number) < 0 ||
        !read_tres(span_trim(tres), out))
        return false;
    gres = span_trim(gres);
    if (span_starts(gres, "gres:") || span_starts(gres, "gres/"))
        (void)span_split(&gres, gres.p[4], &prefix);
    out->each.gpus = MAX(out->each.gpus, slurm_count_gpus(gres));
    line = span_trim(line); /* a name may contain '|', and another '|' follows it */
    line.len -= line.len > 0 && line.p[line.len - 1] == '|';
    slurm_copy(span_trim(line), out->name, sizeof out->name);
    return true;
}

int slurm_parse_wanteds(struct span text, slurm_wanteds *out)
{
    struct span line;
    while (text.len && span_split(&text, '\n', &line)) {
        struct slurm_wanted w;
        if (read_wanted(line, &w) && vec_push(out, w) < 0)
            return -ENOMEM;
    }
    return 0;
}

bool slurm_find_script(struct span text, const char *tail, char number[static 32])
{
    struct span line, id, first;
    size_t n = strlen(tail);
    while (text.len && span_split(&text, '\n', &line)) {
        (void)span_split(&line, '|', &id);
        (void)span_split(&id, '+', &first); /* a component of a heterogeneous job is "12+0" */
        line = span_trim(line);
        if (line.len >= n && memcmp(line.p + line.len - n, tail, n) == 0 &&
            slurm_parse_number(first, number) == 0)
            return true;
    }
    number[0] = '\0';
    return false;
}
