/* The cluster spec: as JSON, and the place of one rank in it. */
#include "runtime/runtime_int.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"

static bool present(const char *address)
{
    return address && address[0];
}

/* Names and addresses are plain by the rules of the job file; the escaping keeps the JSON whole if
 * they ever are not. */
static void add_escaped(struct buf *out, const char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == '"' || *s == '\\')
            buf_addf(out, "\\u%04x", (unsigned)(unsigned char)*s);
        else
            buf_addc(out, *s);
    }
}

static void add_string(struct buf *out, const char *s)
{
    size_t len = strlen(s);
    char *to = buf_reserve(out, len + 2);
    bool plain = true;
    if (!to)
        return; /* out says so */
    for (size_t i = 0; i < len; i++) {
        plain &= (unsigned char)s[i] >= 0x20 && s[i] != '"' && s[i] != '\\';
        to[i + 1] = s[i];
    }
    if (plain) {
        to[0] = to[len + 1] = '"';
        buf_commit(out, len + 2);
        return;
    }
    buf_addc(out, '"');
    add_escaped(out, s);
    buf_addc(out, '"');
}

/* The text of element `index` of a list of plain strings: one with an escape in it is no address.
 */
static struct span list_item(const char *list, uint32_t index)
{
    const char *at = list, *end = NULL;
    for (uint32_t i = 0; *at == '"'; i++) {
        if (!(end = strchr(at + 1, '"')))
            break;
        if (i == index)
            return span_mem(at + 1, (size_t)(end - at - 1));
        at = end[1] == ',' ? end + 2 : "";
    }
    return (struct span){ 0 };
}

bool runtime_address(const struct rt_role *r, uint32_t index, char *out, size_t n)
{
    if (index >= r->n)
        return false;
    struct span s = r->list ? list_item(r->list, index)
                            : span_of(r->addresses[index] ? r->addresses[index] : "");
    if (s.len == 0 || s.len >= n || memchr(s.p, '\\', s.len))
        return false;
    memcpy(out, s.p, s.len);
    out[s.len] = '\0';
    return true;
}

static bool any_present(const struct rt_role *r)
{
    if (r->list)
        return r->list[strspn(r->list, "\",")] != '\0';
    for (uint32_t i = 0; i < r->n; i++)
        if (present(r->addresses[i]))
            return true;
    return false;
}

static void add_list(struct buf *out, const struct rt_role *r)
{
    if (r->list) {
        buf_adds(out, r->list);
        return;
    }
    for (uint32_t k = 0; k < r->n; k++) {
        if (k)
            buf_addc(out, ',');
        add_string(out, r->addresses[k] ? r->addresses[k] : "");
    }
}

/* Of one of a thousand tasks' specs: said before, it is not copied as it grows. */
static size_t list_size(const struct rt_role *r)
{
    if (r->list)
        return strlen(r->list) + 3;
    size_t size = 3;
    for (uint32_t k = 0; k < r->n; k++)
        size += 3 + (r->addresses[k] ? strlen(r->addresses[k]) : 0);
    return size;
}

int runtime_spec_json(const struct rt_role *roles, size_t n, const char *skip_role_a,
                      const char *skip_role_b, struct buf *out)
{
    bool first = true;
    size_t size = 2;
    for (size_t i = 0; i < n; i++)
        size += list_size(&roles[i]) + strlen(roles[i].name) + 3;
    (void)buf_reserve(out, size);
    buf_addc(out, '{');
    for (size_t i = 0; i < n; i++) {
        const struct rt_role *r = &roles[i];
        /* a role of a later stage has nobody yet and is left out; within a role the index must stay
         * right */
        if ((skip_role_a && str_eq(r->name, skip_role_a)) ||
            (skip_role_b && str_eq(r->name, skip_role_b)) || !any_present(r))
            continue;
        if (!first)
            buf_addc(out, ',');
        first = false;
        add_string(out, r->name);
        buf_add(out, ":[", 2);
        add_list(out, r);
        buf_addc(out, ']');
    }
    buf_addc(out, '}');
    return out->failed ? -ENOMEM : 0;
}

static uint32_t ranks_of(const struct rt_role *r)
{
    return r->ranks ? r->ranks : 1;
}

/* Chief before the others, else the order of the file: pass 0 looks at "chief" only, pass 1 at the
 * rest. */
static bool in_pass(const struct rt_role *r, int pass)
{
    return r->kind == RT_TRACKED && str_eq(r->name, "chief") == (pass == 0);
}

uint32_t runtime_world_size(const struct rt_role *roles, size_t n)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += roles[i].kind == RT_TRACKED ? roles[i].n * ranks_of(&roles[i]) : 0;
    return sum;
}

void rt_place(const struct rt_input *in, struct rt_place *out)
{
    *out = (struct rt_place){ .local_size = 1 };
    for (size_t i = 0; i < in->n_roles; i++) {
        const struct rt_role *r = &in->roles[i];
        if (!str_eq(r->name, in->role))
            continue;
        out->local_size = ranks_of(r);
        if (runtime_address(r, in->index, out->mine_text, sizeof out->mine_text))
            out->mine = out->mine_text;
    }
    bool first = true;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < in->n_roles; i++) {
            const struct rt_role *r = &in->roles[i];
            if (!in_pass(r, pass) || r->n == 0)
                continue;
            if (first && runtime_address(r, 0, out->master_text, sizeof out->master_text))
                out->master = out->master_text;
            first = false;
            if (str_eq(r->name, in->role)) {
                out->ranked = true;
                out->role_rank = in->index * ranks_of(r) + in->local_rank;
                out->role_size = r->n * ranks_of(r);
                out->rank = out->world_size + out->role_rank;
                out->group_rank = out->n_groups + in->index;
            }
            out->world_size += r->n * ranks_of(r);
            out->n_groups += r->n;
        }
}

/* The next element of a list as list_item() reads it, from *at on; *at goes behind it. */
static struct span next_item(const char **at)
{
    struct span s = list_item(*at, 0);
    if (!s.p) {
        *at = "";
        return s;
    }
    *at = s.p + s.len + 1;
    *at += **at == ',';
    return s;
}

static void walk_address(struct rt_walk *w, const struct rt_role *r, struct rt_task *out)
{
    struct span s = { 0 };
    if (r->list) {
        if (!w->at)
            w->at = r->list;
        s = next_item(&w->at);
    } else if (r->addresses && r->addresses[out->index]) {
        s = span_of(r->addresses[out->index]);
    }
    out->address[0] = '\0';
    if (!s.p || s.len >= sizeof out->address || memchr(s.p, '\\', s.len))
        return;
    memcpy(out->address, s.p, s.len);
    out->address[s.len] = '\0';
}

bool runtime_walk(struct rt_walk *w, struct rt_task *out)
{
    for (; w->pass < 2; w->pass++, w->role = 0)
        for (; w->role < w->n; w->role++, w->index = 0, w->at = NULL) {
            const struct rt_role *r = &w->roles[w->role];
            if (!in_pass(r, w->pass) || w->index >= r->n)
                continue;
            out->role = r->name;
            out->role_index = (uint32_t)w->role;
            out->index = w->index++;
            out->rank = w->rank;
            out->ranks = ranks_of(r);
            w->rank += out->ranks;
            walk_address(w, r, out);
            return true;
        }
    return false;
}

const struct rt_role *rt_role_named(const struct rt_role *roles, size_t n, const char *role)
{
    for (size_t i = 0; i < n; i++)
        if (roles[i].n && str_eq(roles[i].name, role))
            return &roles[i];
    return NULL;
}

bool rt_address_at(const char *address, struct rt_at *out)
{
    const char *port;
    return rt_split_address(address, out->host, sizeof out->host, &port) &&
           str_copy(out->port, sizeof out->port, port);
}

bool rt_task_at(const struct rt_input *in, const char *role, uint32_t index, struct rt_at *out)
{
    char address[RT_ADDRESS_MAX];
    const struct rt_role *r = rt_role_named(in->roles, in->n_roles, role);
    return r && runtime_address(r, index, address, sizeof address) && rt_address_at(address, out);
}

bool runtime_host(const char *address, char *out, size_t n)
{
    const char *port;
    return rt_split_address(address, out, n, &port);
}

bool rt_split_address(const char *address, char *host, size_t n_host, const char **out_port)
{
    const char *colon = address ? strrchr(address, ':') : NULL;
    if (!colon || colon == address || !colon[1])
        return false;
    size_t len = (size_t)(colon - address);
    if (address[0] == '[' && len > 2 && address[len - 1] == ']') {
        address++;
        len -= 2;
    }
    if (len + 1 > n_host)
        return false;
    memcpy(host, address, len);
    host[len] = '\0';
    *out_port = colon + 1;
    return true;
}
