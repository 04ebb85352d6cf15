/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a reason of squeue, such as "Priority", into words. */
#include <string.h>

#include "base/base.h"
#include "slurm/commands.h"

char *slurm_why(const struct slurm_state *s, bool *out_never)
{
    static const struct {
        const char *reason, *text;
        bool never;
    } words[] = {
        { "Priority", "other jobs have a higher priority", false },
        { "Resources", "it waits for free nodes", false },
        { "None", "Slurm has not looked at it yet", false },
        { "BeginTime", "its start time has not come; after a requeue Slurm waits two minutes",
          false },
        { "JobLaunchFailure", "its batch script was killed or could not start; it starts again",
          false },
        { "JobHoldMaxRequeue",
          "Slurm has started it too often, and holds it; scontrol release lets it go", false },
        { "job requeued in held state", "it is held; scontrol release lets it go", false },
        { "launch failed requeued held",
          "it could not start, and Slurm holds it; scontrol release lets it go", false },
        { "Dependency", "it waits for another job", false },
        { "JobHeldUser", "it is held; scontrol release lets it go", false },
        { "JobHeldAdmin", "an administrator holds it", false },
        { "Reservation", "it waits for its reservation", false },
        { "Licenses", "it waits for licences", false },
        { "ReqNodeNotAvail", "a node that it asks for is not available", false },
        { "PartitionDown", "the partition is down", false },
        { "PartitionInactive", "the partition is inactive", false },
        { "NodeDown", "a node that it needs is down", false },
        { "PartitionNodeLimit", "it asks for more nodes than the partition has or gives", true },
        { "PartitionTimeLimit", "its time limit is above that of the partition", true },
        { "PartitionConfig", "the partition does not allow what it asks for", true },
        { "BadConstraints", "no node satisfies what it asks for", true },
        { "DependencyNeverSatisfied", "the job that it waits for has failed", true },
        { "AccountNotAllowed", "its account may not use the partition", true },
        { "QOSNotAllowed", "the partition does not allow its QOS", true },
        { "InvalidAccount", "its account does not exist", true },
        { "InvalidQOS", "its QOS does not exist", true },
    };
    static const char components[] = "; Slurm starts its components together, in a backfill cycle";
    *out_never = false;
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        size_t n = strlen(words[i].reason);
        if (strncmp(s->reason, words[i].reason, n) != 0 || strchr(", (", s->reason[n]) == NULL)
            continue;
        *out_never = words[i].never;
        return str_printf("%s (%s)%s", words[i].text, s->reason,
                          s->components && !words[i].never ? components : "");
    }
    if (str_starts(s->reason, "Assoc") || str_starts(s->reason, "QOS"))
        return str_printf("a limit of its %s is reached (%s)",
                          s->reason[0] == 'A' ? "account or user" : "QOS", s->reason);
    return s->reason[0] ? str_dup(s->reason) : str_dup("it waits in the queue of Slurm");
}

bool slurm_is_trouble(const char *words)
{
    static const char *const trouble[] = { "Unable to contact", "Connection refused",
                                           "Socket timed",      "Zero Bytes",
                                           "temporarily",       "munge" };
    for (size_t i = 0; i < ARRAY_LEN(trouble); i++)
        if (strstr(words, trouble[i]))
            return true;
    return false;
}
