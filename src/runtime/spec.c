/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster spec as JSON, and the numbers and addresses of one rank in it. */
#include "runtime/runtime_int.h"

#include <errno.h>
#include <string.h>

#include "base/json_text.h"
#include "base/str.h"

static bool is_registered(const char *address)
{
    return address && address[0];
}

/* On failure out->failed is set. */
static void add_string(struct buf *out, const char *s)
{
    (void)json_add_str(out, span_of(s));
}

/* ---- lists of addresses: "a:1","b:2" ---- */

/* The quote that ends a string in JSON; NULL = there is none. A quote after a backslash is part of
 * the string. */
static const char *string_end(struct span s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.p[i] == '"')
            return s.p + i;
        i += s.p[i] == '\\';
    }
    return NULL;
}

/* Cut the first string off the list. Its p is NULL if the list is empty or ends inside a string. */
static struct span take_string(struct span *list)
{
    struct span none = { 0 };
    if (!list->len || list->p[0] != '"')
        return none;
    const char *end = string_end(span_mem(list->p + 1, list->len - 1));
    if (!end)
        return none;
    struct span item = span_mem(list->p + 1, (size_t)(end - list->p - 1));
    size_t used = item.len + 2;
    used += used < list->len && list->p[used] == ',';
    *list = span_mem(list->p + used, list->len - used);
    return item;
}

static struct span list_item(struct span list, uint32_t index)
{
    struct span item = take_string(&list);
    for (uint32_t i = 0; i < index && item.p; i++)
        item = take_string(&list);
    return item;
}

/* false: s is empty, too long, or has an escape, which no address has. */
static bool copy_address(struct span s, char *out, size_t n)
{
    if (s.len == 0 || s.len >= n || memchr(s.p, '\\', s.len))
        return false;
    memcpy(out, s.p, s.len);
    out[s.len] = '\0';
    return true;
}

bool runtime_address(const struct rt_role *r, uint32_t index, char *out, size_t n)
{
    if (index >= r->n)
        return false;
    return copy_address(r->list.p ? list_item(r->list, index)
                                  : span_of(r->addresses ? r->addresses[index] : NULL),
                        out, n);
}

static bool any_registered(const struct rt_role *r)
{
    for (size_t i = 0; i < r->list.len; i++)
        if (r->list.p[i] != '"' && r->list.p[i] != ',')
            return true;
    for (uint32_t i = 0; !r->list.p && i < r->n; i++)
        if (is_registered(r->addresses[i]))
            return true;
    return false;
}

static void add_list(struct buf *out, const struct rt_role *r)
{
    if (r->list.p) {
        buf_add(out, r->list.p, r->list.len);
        return;
    }
    for (uint32_t k = 0; k < r->n; k++) {
        if (k)
            buf_addc(out, ',');
        add_string(out, r->addresses[k] ? r->addresses[k] : "");
    }
}

/* An upper bound for the bytes that add_list() and the brackets around it take. */
static size_t list_size(const struct rt_role *r)
{
    if (r->list.p)
        return r->list.len + 3;
    size_t size = 3;
    for (uint32_t k = 0; k < r->n; k++)
        size += 3 + (r->addresses[k] ? strlen(r->addresses[k]) : 0);
    return size;
}

/* Leaves out a role of a later stage, none of whose tasks has registered yet. Within a role each
 * task must keep its index, so a task that has not registered is an empty string. */
int runtime_spec_json(const struct rt_role *roles, size_t n, const char *skip_role_a,
                      const char *skip_role_b, struct buf *out)
{
    bool first = true;
    size_t size = 2;
    for (size_t i = 0; i < n; i++)
        size += list_size(&roles[i]) + strlen(roles[i].name) + 3;
    (void)buf_reserve(out, size); /* so that a long text is not copied while it grows */
    buf_addc(out, '{');
    for (size_t i = 0; i < n; i++) {
        const struct rt_role *r = &roles[i];
        if ((skip_role_a && str_eq(r->name, skip_role_a)) ||
            (skip_role_b && str_eq(r->name, skip_role_b)) || !any_registered(r))
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

/* ---- reading the JSON ---- */

static bool take_text(struct span *rest, const char *text)
{
    size_t len = strlen(text);
    if (!span_starts(*rest, text))
        return false;
    *rest = span_mem(rest->p + len, rest->len - len);
    return true;
}

/* Cut one "name":["a:1",...] off rest; *out_list has no brackets. */
static bool take_role(struct span *rest, struct span *out_name, struct span *out_list)
{
    *out_name = take_string(rest);
    if (!out_name->p || !take_text(rest, ":["))
        return false;
    const char *from = rest->p;
    while (take_string(rest).p)
        ;
    *out_list = span_mem(from, (size_t)(rest->p - from));
    return take_text(rest, "]");
}

int runtime_spec_lists(struct span json, struct rt_role *roles, size_t n)
{
    size_t at = 0; /* the text has its roles in the same order as the array */
    for (size_t i = 0; i < n; i++)
        roles[i].list = SPAN("");
    if (!take_text(&json, "{"))
        return -EINVAL;
    while (json.len && json.p[0] == '"') {
        struct span name, list;
        if (!take_role(&json, &name, &list))
            return -EINVAL;
        while (at < n && !span_eqs(name, roles[at].name))
            at++;
        if (at == n)
            return -EINVAL;
        roles[at++].list = list;
        (void)take_text(&json, ",");
    }
    return span_eqs(json, "}") ? 0 : -EINVAL;
}

/* ---- ranks ---- */

static uint32_t ranks_of(const struct rt_role *r)
{
    return r->ranks ? r->ranks : 1;
}

/* Ranks are numbered in two passes over the tracked roles: pass 0 numbers the chief, pass 1 all
 * others. Is this role numbered in this pass? */
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

static void set_own_address(const struct rt_input *in, const struct rt_role *r,
                            struct rt_place *out)
{
    out->local_size = ranks_of(r);
    if (in->address
            ? str_copy(out->task_address_text, sizeof out->task_address_text, in->address)
            : runtime_address(r, in->index, out->task_address_text, sizeof out->task_address_text))
        out->task_address = out->task_address_text;
}

void rt_place(const struct rt_input *in, struct rt_place *out)
{
    *out = (struct rt_place){ .local_size = 1 };
    for (size_t i = 0; i < in->n_roles; i++)
        if (str_eq(in->roles[i].name, in->role))
            set_own_address(in, &in->roles[i], out);
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

static void set_walk_address(struct rt_walk *w, const struct rt_role *r, struct rt_task *out)
{
    struct span s = { 0 };
    if (r->list.p) {
        if (out->index == 0)
            w->rest = r->list;
        s = take_string(&w->rest);
    } else if (r->addresses) {
        s = span_of(r->addresses[out->index]);
    }
    if (!copy_address(s, out->address, sizeof out->address))
        out->address[0] = '\0';
}

bool runtime_walk(struct rt_walk *w, struct rt_task *out)
{
    for (; w->pass < 2; w->pass++, w->role = 0)
        for (; w->role < w->n; w->role++, w->index = 0) {
            const struct rt_role *r = &w->roles[w->role];
            if (!in_pass(r, w->pass) || w->index >= r->n)
                continue;
            out->role = r->name;
            out->role_index = (uint32_t)w->role;
            out->index = w->index++;
            out->rank = w->rank;
            out->ranks = ranks_of(r);
            w->rank += out->ranks;
            set_walk_address(w, r, out);
            return true;
        }
    return false;
}

/* ---- looking up ---- */

const struct rt_role *rt_role_named(const struct rt_role *roles, size_t n, const char *role)
{
    for (size_t i = 0; i < n; i++)
        if (roles[i].n && str_eq(roles[i].name, role))
            return &roles[i];
    return NULL;
}

bool rt_parse_address(const char *address, struct rt_host_port *out)
{
    const char *port;
    return rt_split_address(address, out->host, sizeof out->host, &port) &&
           str_copy(out->port, sizeof out->port, port);
}

bool rt_task_address(const struct rt_input *in, const char *role, uint32_t index,
                     struct rt_host_port *out)
{
    char address[RT_ADDRESS_MAX];
    const struct rt_role *r = rt_role_named(in->roles, in->n_roles, role);
    return r && runtime_address(r, index, address, sizeof address) &&
           rt_parse_address(address, out);
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
