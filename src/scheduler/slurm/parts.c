/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The components of a heterogeneous job. The client has chosen them (cluster/slurm/parts.c), and
 * the batch script says in TONY_SLURM_COMPONENTS of each component the number of its nodes and its
 * roles: "1:ps:chief 2:worker". Slurm numbers the nodes through all components. A container goes to
 * a node of the component of its role.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "scheduler/slurm/slurm_int.h"

enum { NODES_MAX = 1 << 20 };

int parts_read(struct slurm *s, const char *text, struct err *e)
{
    struct span rest = span_of(text), part, name;
    uint32_t n_nodes = 0;
    while (rest.len && span_split(&rest, ' ', &part)) {
        int64_t nodes;
        if (!span_split(&part, ':', &name) ||
            str_i64(name, 1, NODES_MAX, "TONY_SLURM_COMPONENTS", &nodes, e) < 0)
            return err_set(e, EINVAL, "TONY_SLURM_COMPONENTS of the batch script is damaged");
        uint32_t index = s->n_parts;
        while (part.len && span_split(&part, ':', &name)) {
            struct part_role role = { .part = index, .name = span_dup(name) };
            if (!role.name || vec_push(&s->part_roles, role) < 0) {
                free(role.name);
                return err_set(e, ENOMEM, "no memory to start the master");
            }
        }
        n_nodes += (uint32_t)nodes;
        if (s->n_parts == ARRAY_LEN(s->part_end))
            return err_set(e, EINVAL, "TONY_SLURM_COMPONENTS has too many components");
        s->part_end[s->n_parts++] = n_nodes;
    }
    if (n_nodes)
        s->n_nodes = n_nodes;
    return 0;
}

void parts_done(struct slurm *s)
{
    for (size_t i = 0; i < s->part_roles.n; i++)
        free(s->part_roles.v[i].name);
    vec_done(&s->part_roles);
}

uint32_t part_of_role(const struct slurm *s, const char *role)
{
    for (size_t i = 0; i < s->part_roles.n; i++)
        if (str_eq(s->part_roles.v[i].name, role))
            return s->part_roles.v[i].part;
    return 0;
}

uint32_t part_of_node(const struct slurm *s, uint32_t index)
{
    for (uint32_t i = 0; i < s->n_parts; i++)
        if (index < s->part_end[i])
            return i;
    return 0;
}
