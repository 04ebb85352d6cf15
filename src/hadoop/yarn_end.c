/* SPDX-License-Identifier: Apache-2.0 */
/* Explains how a container ended: turns the exit statuses of NodeManager and ResourceManager into
 * sentences. */
#include "hadoop/yarn.h"

#include <signal.h>

#include "base/base.h"

static const struct {
    int32_t status;
    enum end_reason reason;
    const char *sentence;
} ends[] = {
    { YARN_EXIT_INVALID, END_LAUNCH_FAILED,
      "it never ran: its files could not be brought to the node" },
    { YARN_EXIT_NOT_STARTED, END_LAUNCH_FAILED, "the node manager could not start it" },
    { YARN_EXIT_ABORTED, END_NODE_LOST, "YARN gave it up: its node was lost, or it was released" },
    { YARN_EXIT_DISKS_FAILED, END_DISK_FAILED, "the disks of its node failed or are full" },
    { YARN_EXIT_PREEMPTED, END_PREEMPTED, "YARN preempted it for another queue or user" },
    { YARN_EXIT_VIRTUAL_MEMORY, END_OUT_OF_MEMORY, "killed for using too much virtual memory" },
    { YARN_EXIT_PHYSICAL_MEMORY, END_OUT_OF_MEMORY, "killed for using too much memory" },
    { YARN_EXIT_KILLED_BY_MASTER, END_KILLED_BY_MASTER, "stopped by the job's master" },
    { YARN_EXIT_KILLED_BY_RM, END_NODE_LOST, "killed by the resource manager" },
    { YARN_EXIT_KILLED_AFTER_APP, END_KILLED_BY_MASTER, "killed because the application was over" },
    { YARN_EXIT_KILLED_BY_SCHEDULER, END_PREEMPTED, "the node manager dropped it from its queue" },
    { YARN_EXIT_EXCESS_LOGS, END_EXITED, "killed for writing too much into its logs" },
    { YARN_EXIT_LOST, END_NODE_LOST, "the node manager restarted and lost its exit code" },
};

/* Find the figures in "Current usage: 150.3 MB of 128 MB physical memory used; 1.2 GB of 268.8 MB
 * virtual memory used". */
static struct span memory_figures(struct span text, bool is_virtual)
{
    const char *kind = is_virtual ? " virtual memory used" : " physical memory used";
    const char *end = text.len > 0 ? memmem(text.p, text.len, kind, strlen(kind)) : NULL;
    if (!end)
        return (struct span){ 0 };
    const char *start = end;
    while (start > text.p && start[-1] != ';' && start[-1] != ':' && end - start < 60)
        start--;
    return span_trim(span_mem(start, (size_t)(end - start)));
}

/* The first line that is not empty and not "N/A". */
static struct span first_line(struct span text)
{
    struct span rest = text, line;
    while (rest.p && span_split(&rest, '\n', &line)) {
        line = span_trim(line);
        if (line.len > 0 && !span_eqs(line, "N/A"))
            return line;
    }
    return SPAN("");
}

static void set_sentence(struct yarn_end *out, const char *sentence, struct span more)
{
    int len = (int)MIN(more.len, (size_t)300);
    (void)snprintf(out->sentence, sizeof out->sentence, "%s%s%.*s", sentence, len > 0 ? ": " : "",
                   len, more.p ? more.p : "");
}

static void exited(int32_t status, struct yarn_end *out)
{
    out->reason = END_EXITED;
    out->exit_code = status;
    if (status == 0)
        (void)str_copy(out->sentence, sizeof out->sentence, "ended well");
    else if (status > 128 && status <= 128 + 64)
        (void)snprintf(out->sentence, sizeof out->sentence, "ended by signal %d (%s)", status - 128,
                       strsignal(status - 128));
    else if (status == 127 || status == 126)
        (void)snprintf(out->sentence, sizeof out->sentence, "exited with code %d: the command %s",
                       status, status == 127 ? "was not found" : "could not be executed");
    else
        (void)snprintf(out->sentence, sizeof out->sentence, "exited with code %d", status);
}

static void of_memory(int32_t status, struct span diagnostics, const char *memory_key,
                      struct yarn_end *out)
{
    bool is_virtual = status == YARN_EXIT_VIRTUAL_MEMORY;
    struct span figures = memory_figures(diagnostics, is_virtual);
    set_sentence(out,
                 is_virtual ? "killed for using too much virtual memory"
                            : "killed for using too much memory",
                 figures);
    if (is_virtual)
        (void)snprintf(out->hint, sizeof out->hint,
                       "raise %s, or ask for yarn.nodemanager.vmem-check-enabled=false on the "
                       "cluster: large sparse mappings count in full",
                       memory_key ? memory_key : "the memory of the role");
    else
        (void)snprintf(out->hint, sizeof out->hint, "raise %s",
                       memory_key ? memory_key : "the memory of the role");
}

void yarn_end_of(int32_t exit_status, const char *diagnostics, const char *memory_key,
                 struct yarn_end *out)
{
    struct span text = span_of(diagnostics);
    *out = (struct yarn_end){ .reason = END_UNKNOWN, .exit_code = -1 };
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        if (ends[i].status != exit_status)
            continue;
        out->reason = ends[i].reason;
        if (out->reason == END_OUT_OF_MEMORY)
            of_memory(exit_status, text, memory_key, out);
        else
            set_sentence(out, ends[i].sentence, first_line(text));
        return;
    }
    if (exit_status >= 0 && exit_status <= 255) {
        exited(exit_status, out);
        return;
    }
    char unknown[64];
    (void)snprintf(unknown, sizeof unknown, "YARN reports the exit status %d", exit_status);
    set_sentence(out, unknown, first_line(text));
}
