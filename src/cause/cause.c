/* SPDX-License-Identifier: Apache-2.0 */
/* From an end to its cause: first by the reason, then by exit code and signal, then by what the
 * program printed. */
#include "cause/cause.h"

#include <signal.h>
#include <string.h>

#include "cause/cause_int.h"

enum {
    /* If more lines than this follow an error, the program continued after it: the error is not
     * the cause. */
    STOP_LINES_AFTER_MAX = 6,
    SHELL_SIGNAL = 128, /* a shell exits with this and the signal that killed its command */
    SIGNALS = 32,
    CODE_NOT_EXECUTABLE = 126, /* of a shell */
    CODE_NOT_FOUND = 127,
};

static enum cause_id of_signal(int signal)
{
    switch (signal) {
    case SIGSEGV:
        return CAUSE_SEGFAULT;
    case SIGBUS:
        return CAUSE_BUS_ERROR;
    case SIGABRT:
        return CAUSE_ABORTED;
    case SIGFPE:
        return CAUSE_ARITHMETIC;
    case SIGILL:
        return CAUSE_CPU_TYPE;
    case SIGKILL:
        return CAUSE_KILLED;
    case SIGTERM:
        return CAUSE_TERMINATED;
    case SIGINT:
        return CAUSE_INTERRUPTED;
    case SIGXCPU:
    case SIGXFSZ:
        return CAUSE_RESOURCE_LIMIT;
    default:
        return CAUSE_SIGNAL;
    }
}

/* With these exit codes a shell says that it could not run the command. `shown` is the cause that
 * stderr shows; it is used if it is more exact. */
static enum cause_id of_code(int code, enum cause_id shown)
{
    if (code == CODE_NOT_FOUND && (!shown || shown == CAUSE_WRONG_PATH || shown == CAUSE_EXCEPTION))
        return CAUSE_COMMAND_NOT_FOUND;
    if (code == CODE_NOT_EXECUTABLE &&
        (!shown || shown == CAUSE_PERMISSION || shown == CAUSE_WRONG_PATH))
        return CAUSE_NOT_EXECUTABLE;
    return shown ? shown : CAUSE_EXIT_CODE;
}

static enum cause_id of_exit(const struct cause_end *end, struct found *shown)
{
    bool by_shell =
        !end->signal && end->exit_code > SHELL_SIGNAL && end->exit_code < SHELL_SIGNAL + SIGNALS;
    int signal = by_shell ? end->exit_code - SHELL_SIGNAL : end->signal;

    *shown = read_last_lines(end->tail, end->exit_code);
    if (!signal)
        return of_code(end->exit_code, shown->id);
    /* The program sends SIGABRT to itself, so what it printed before is the reason. If no rule
     * knows that text (a failed assertion, for example), "aborted" says more than "exception". */
    if (signal == SIGABRT && shown->id)
        return shown->id == CAUSE_EXCEPTION && !line_is_exception(shown->line) ? CAUSE_ABORTED
                                                                               : shown->id;
    if (signal == SIGBUS && (shown->id == CAUSE_SHARED_MEMORY || shown->id == CAUSE_DISK_FULL))
        return shown->id;
    /* Other signals come without a message from the program: what it printed before need not be the
     * reason. */
    enum cause_id id = of_signal(signal);
    if (shown->id != id)
        shown->line = span_mem("", 0);
    return id;
}

/* The cause of a program that was never started; the executor's sentence says why. */
static enum cause_id of_launch(const struct cause_end *end, struct found *shown)
{
    *shown = read_last_lines(end->detail, 0);
    if (shown->id == CAUSE_WRONG_PATH)
        return CAUSE_COMMAND_NOT_FOUND;
    if (shown->id == CAUSE_PERMISSION)
        return CAUSE_NOT_EXECUTABLE;
    bool exact = shown->id && !cause_table[shown->id].victim && shown->id != CAUSE_EXCEPTION;
    return exact ? shown->id : CAUSE_LAUNCH_FAILED;
}

/* Do at most STOP_LINES_AFTER_MAX lines of text follow this line, which is a part of text? */
static bool is_near_end(const char *text, struct span line)
{
    int after = 0;

    for (const char *p = line.p + line.len; *p && p >= text; p++)
        after += *p == '\n' && p[1];
    return after <= STOP_LINES_AFTER_MAX;
}

/* The cause of a program that tony stopped. It has one only if the program was failing already: its
 * last lines must show an error that the stop did not cause. */
static enum cause_id of_stopped(const struct cause_end *end, struct found *shown)
{
    if ((!end->signal && !end->exit_code) || end->exit_code > SHELL_SIGNAL)
        return CAUSE_NONE;
    *shown = read_last_lines(end->tail, 0);
    if (!shown->id || !is_near_end(end->tail, shown->line))
        return CAUSE_NONE;
    bool by_the_stop = span_has(shown->line, "Interrupt") || span_has(shown->line, "SystemExit") ||
                       span_has(shown->line, "ignal") || span_has(shown->line, "SIGTERM");
    return by_the_stop ? CAUSE_NONE : shown->id;
}

static enum cause_id of_end(const struct cause_end *end, struct found *shown)
{
    switch (end->reason) {
    case END_OUT_OF_MEMORY:
        return CAUSE_OUT_OF_MEMORY;
    case END_TIMED_OUT:
        return CAUSE_TIMED_OUT;
    case END_PREEMPTED:
        return CAUSE_PREEMPTED;
    case END_NODE_LOST:
        return end->detail && strcmp(end->detail, CAUSE_KEEPER_ENDED) == 0 ? CAUSE_KEEPER_LOST
                                                                           : CAUSE_NODE_LOST;
    case END_DISK_FAILED:
        return CAUSE_DISK_FAILED;
    case END_LAUNCH_FAILED:
        return of_launch(end, shown);
    case END_KILLED_BY_MASTER:
        return of_stopped(end, shown);
    case END_EXITED:
        return end->exit_code || end->signal ? of_exit(end, shown) : CAUSE_NONE;
    case END_UNKNOWN:
        if (end->detail && strstr(end->detail, "executor was killed"))
            return CAUSE_EXECUTOR_LOST;
        break;
    case END_NONE:
    case END_COUNT:
        break;
    }
    *shown = read_last_lines(end->tail, 0);
    return shown->id ? shown->id : CAUSE_UNKNOWN;
}

const struct cause *cause_find(const struct cause_end *end, struct span *out_line)
{
    struct found shown = { .line = span_mem("", 0) };
    enum cause_id id = of_end(end, &shown);

    if (cause_table[id].victim && end->alone)
        id = CAUSE_NETWORK;
    if (out_line)
        *out_line = shown.line.p ? shown.line : span_mem("", 0);
    return id ? &cause_table[id] : NULL;
}

const struct cause *cause_named(const char *name)
{
    for (int id = CAUSE_NONE + 1; name && id < CAUSE_COUNT; id++)
        if (strcmp(cause_table[id].name, name) == 0)
            return &cause_table[id];
    return NULL;
}

const char *cause_record(const struct cause_end *end, char line[CAUSE_LINE_MAX + 1])
{
    struct span shows;
    const struct cause *cause = cause_find(end, &shows);

    if (shows.len > CAUSE_LINE_MAX) {
        shows.len = CAUSE_LINE_MAX;
        /* Cut between two characters: at most 3 bytes of a cut character precede the cut. */
        for (int i = 0; i < 3 && ((unsigned char)shows.p[shows.len] & 0xc0) == 0x80; i++)
            shows.len--;
    }
    memcpy(line, shows.p, shows.len);
    line[shows.len] = 0;
    return cause ? cause->name : CAUSE_NO_FAILURE;
}

int cause_remedy(const struct cause *cause, const char *role, struct buf *out)
{
    static const char mark[] = "<role>";
    const char *at = strstr(cause->remedy, mark);

    if (!at)
        return buf_adds(out, cause->remedy);
    return buf_addf(out, "%.*s%s%s", (int)(at - cause->remedy), cause->remedy, role,
                    at + sizeof mark - 1);
}
