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

static bool any_present(const struct rt_role *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (present(r->addresses[i]))
            return true;
    return false;
}

int runtime_spec_json(const struct rt_role *roles, size_t n, const char *skip_role_a,
                      const char *skip_role_b, struct buf *out)
{
    bool first = true;
    size_t size =
        0; /* of one of a thousand tasks' specs: said before, it is not copied as it grows */
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < roles[i].n; k++)
            size += 3 + (roles[i].addresses[k] ? strlen(roles[i].addresses[k]) : 0);
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
        for (uint32_t k = 0; k < r->n; k++) {
            if (k)
                buf_addc(out, ',');
            add_string(out, r->addresses[k] ? r->addresses[k] : "");
        }
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

void rt_place(const struct rt_input *in, struct rt_place *out)
{
    *out = (struct rt_place){ .local_size = 1 };
    for (size_t i = 0; i < in->n_roles; i++) {
        const struct rt_role *r = &in->roles[i];
        if (!str_eq(r->name, in->role))
            continue;
        out->local_size = ranks_of(r);
        if (in->index < r->n && present(r->addresses[in->index]))
            out->mine = r->addresses[in->index];
    }
    bool first = true;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < in->n_roles; i++) {
            const struct rt_role *r = &in->roles[i];
            if (!in_pass(r, pass) || r->n == 0)
                continue;
            if (first && present(r->addresses[0]))
                out->master = r->addresses[0];
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
