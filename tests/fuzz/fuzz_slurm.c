/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the output of the commands of Slurm. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "slurm/commands.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *s, size_t size)
{
    size_t n = strnlen(s, size);
    if (n == size)
        abort();
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20)
            abort(); /* people read it on a terminal */
}

static void check_partition(struct span text)
{
    slurm_uses uses = { 0 };
    slurm_helds helds = { 0 };
    struct strv names = { 0 };
    if (slurm_parse_uses(text, &uses) == 0)
        for (size_t i = 0; i < uses.n; i++) {
            check_text(uses.v[i].name, strlen(uses.v[i].name) + 1);
            if (uses.v[i].capacity.gpus > 1 << 20 || uses.v[i].used.vcores > 1 << 20)
                abort();
        }
    if (slurm_parse_helds(text, &helds) == 0)
        for (size_t i = 0; i < helds.n; i++) {
            check_text(helds.v[i].state, sizeof helds.v[i].state);
            check_text(helds.v[i].name, sizeof helds.v[i].name);
        }
    slurm_wanteds wanteds = { 0 };
    if (slurm_parse_wanteds(text, &wanteds) == 0)
        for (size_t i = 0; i < wanteds.n; i++) {
            check_text(wanteds.v[i].name, sizeof wanteds.v[i].name);
            if (wanteds.v[i].nodes == 0 || wanteds.v[i].each.gpus > 1 << 20 ||
                wanteds.v[i].each.vcores > 1 << 20)
                abort();
        }
    vec_done(&wanteds);
    (void)slurm_expand_nodes(text, &names);
    for (size_t i = 0; i < names.n; i++)
        check_text(names.v[i], strlen(names.v[i]) + 1);
    slurm_uses_done(&uses);
    slurm_helds_done(&helds);
    strv_done(&names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span text = span_mem(data, size);
    slurm_nodes nodes = { 0 };
    struct slurm_state state;
    struct slurm_job job;
    char number[32];
    const struct slurm_choice which = { size & 1, size & 2, size & 4 ? "n[1-3],m" : NULL };
    if (slurm_parse_nodes(text, &which, &nodes) == 0)
        for (size_t i = 0; i < nodes.n; i++)
            if (nodes.v[i].n == 0 || nodes.v[i].gpus > 1 << 20 || nodes.v[i].vcores > 1 << 20)
                abort();
    vec_done(&nodes);
    check_partition(text);
    slurm_parse_state(text, &state);
    check_text(state.state, sizeof state.state);
    check_text(state.reason, sizeof state.reason);
    if (slurm_parse_number(text, number) == 0 && strspn(number, "0123456789") != strlen(number))
        abort();
    if (slurm_parse_job(text, &job) == 0 &&
        (!job.is.state[0] || slurm_meaning_of(&job, 0) == SLURM_UNKNOWN))
        abort();
    check_text(job.is.state, sizeof job.is.state);
    check_text(job.is.reason, sizeof job.is.reason);
    return 0;
}
