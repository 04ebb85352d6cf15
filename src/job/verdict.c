/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges how an attempt ended, finds the first failure, and writes the sentences about both.
 */
#include <signal.h>
#include <stdio.h>

#include "job/job_int.h"

/*
 * Did the attempt end because tony stopped it? Then its end is neither a success nor a failure. If
 * it ended before the stop, the way it ended counts, even if the report arrives after the stop.
 *
 * The core's clock has whole milliseconds. So a task that our own signal has killed can seem to
 * have ended up to 1 ms before the stop: that still counts as stopped.
 */
static bool stopped_by_us(const struct slot *s, const struct slot_end *end)
{
    if (end->reason == END_KILLED_BY_MASTER)
        return true;
    if (s->stop_us < 0)
        return false;
    bool our_signal = end->signal == SIGTERM || end->signal == SIGKILL;
    return end->at_us >= s->stop_us - (our_signal ? 1000 : 0);
}

enum slot_result verdict_result(const struct slot *s, const struct slot_end *end)
{
    if (stopped_by_us(s, end))
        return RES_FINISHED;
    if (end->reason == END_NODE_LOST || end->reason == END_PREEMPTED ||
        end->reason == END_DISK_FAILED)
        return RES_LOST;
    if (end->reason == END_EXITED && !end->exit_code && !end->signal && s->attempt)
        return RES_SUCCEEDED;
    return RES_FAILED;
}

bool verdict_is_failure(enum slot_result r)
{
    return r == RES_FAILED || r == RES_LOST;
}

/* Does this version know the name of the cause? */
static bool is_cause_name(const char *name)
{
    return cause_named(name) || str_eq(name, CAUSE_NO_FAILURE);
}

/*
 * The shell recognizes the cause of an end once, when the report arrives, and the event carries the
 * name of the cause. Only this function lets the core look for a cause itself, in these cases:
 *   - the event was recorded by version 0.1.0, which did not store causes
 *   - the event was recorded by a newer version, and this one does not know the name
 *   - the core itself declares the end, for example of a silent executor
 */
void verdict_set_cause(const struct job *j, struct slot *s, const struct slot_end *end)
{
    char line[CAUSE_LINE_MAX + 1];
    const char *name = end->cause;

    free(TAKE(s->cause_line));
    if (is_cause_name(name)) {
        s->cause_line = end->cause_line ? event_take(end->cause_line) : NULL;
    } else {
        name = cause_record(&(struct cause_end){ .reason = s->reason,
                                                 .exit_code = s->exit_code,
                                                 .signal = s->signal,
                                                 .detail = s->detail,
                                                 .tail = s->tail,
                                                 .alone = j->n_tasks == 1 },
                            line);
        s->cause_line = line[0] ? str_dup(line) : NULL; /* no memory: `tony why` lacks the line */
    }
    s->cause = cause_named(name);
    /* tony stopped this task. But it has exited without a signal, and its output shows why it
     * failed: it was failing already, and ended by itself. */
    if (s->reason == END_KILLED_BY_MASTER && s->cause && !s->signal)
        s->reason = END_EXITED;
    if (s->result == RES_SUCCEEDED)
        s->cause = NULL;
}

static bool is_within(int64_t apart_us, int64_t ms)
{
    return apart_us <= ms * 1000 && apart_us >= -ms * 1000;
}

/*
 * Is this failure rather the first one than j->failures.first? The earlier of the two is, with two
 * exceptions:
 *   - One of the tasks failed because it lost a peer (victim), and the other did not. Within
 *     JOB_VICTIM_MS the other failure is the first: losing a peer is an effect.
 *   - One of them has a vague cause, the other does not, and none has a general one (cause.h).
 *     Within JOB_SAME_FAILURE_MS the failure that is not vague is the first.
 */
static bool is_rather_first(const struct job *j, const struct cause *k, int64_t at_us)
{
    const struct cause *was = j->failures.first.cause;
    int64_t apart_us = at_us - j->failures.first.at_us;
    bool victim = k && k->victim, vague = k && k->vague;

    if (j->failures.first.slot < 0 || !was || !k)
        return j->failures.first.slot < 0 || apart_us < 0;
    if (victim != was->victim && is_within(apart_us, JOB_VICTIM_MS))
        return was->victim;
    if (vague != was->vague && is_within(apart_us, JOB_SAME_FAILURE_MS) && !k->general &&
        !was->general)
        return was->vague;
    return apart_us < 0;
}

void verdict_candidate(struct job *j, uint32_t slot, int64_t at_us)
{
    const struct cause *k = j->slots[slot].cause;

    if (!is_rather_first(j, k, at_us))
        return;
    j->failures.first = (struct failure){ .slot = slot, .at_us = at_us, .cause = k };
    j->changed = true;
}

void verdict_stopped_ended(struct job *j, uint32_t slot, int64_t at_us)
{
    const struct slot *s = &j->slots[slot];
    const struct cause *k = s->cause, *was = j->failures.first.cause;
    bool by_itself = s->reason == END_EXITED || s->reason == END_KILLED_BY_MASTER;
    bool is_specific = by_itself && k && !k->vague && !k->general;

    bool may_be_first = k && was && !k->victim && (was->victim || (was->vague && is_specific));

    if (may_be_first && j->by_task)
        verdict_candidate(j, slot, at_us);
}

int verdict_exit_code(enum job_state s)
{
    return s == JOB_SUCCEEDED ? 0 : s == JOB_KILLED ? 3 : 1;
}

/* "SIGKILL"; NULL = the signal has no name. */
static const char *signal_name(int signal)
{
    static const char *const names[] = {
        [SIGHUP] = "SIGHUP",   [SIGINT] = "SIGINT",   [SIGQUIT] = "SIGQUIT", [SIGILL] = "SIGILL",
        [SIGTRAP] = "SIGTRAP", [SIGABRT] = "SIGABRT", [SIGBUS] = "SIGBUS",   [SIGFPE] = "SIGFPE",
        [SIGKILL] = "SIGKILL", [SIGUSR1] = "SIGUSR1", [SIGSEGV] = "SIGSEGV", [SIGUSR2] = "SIGUSR2",
        [SIGPIPE] = "SIGPIPE", [SIGALRM] = "SIGALRM", [SIGTERM] = "SIGTERM", [SIGXCPU] = "SIGXCPU",
        [SIGXFSZ] = "SIGXFSZ", [SIGSYS] = "SIGSYS",
    };
    return signal > 0 && (size_t)signal < ARRAY_LEN(names) ? names[signal] : NULL;
}

static void write_exit(const struct slot *s, char *out, size_t size)
{
    const char *name = signal_name(s->signal);

    if (!s->signal)
        (void)snprintf(out, size, "%s exit code %d",
                       s->attempt ? "failed with" : "ended before it started:", s->exit_code);
    else
        (void)snprintf(out, size, "was killed by signal %d%s%s%s%s", s->signal, name ? " (" : "",
                       name ? name : "", name ? ")" : "", s->attempt ? "" : " before it started");
}

/* The budget to which restarts after this end are charged, and the end of its key. END_NONE: it has
 * none. */
static enum end_reason budget_of(enum end_reason reason, const char **out_key)
{
    static const struct {
        enum end_reason reason, budget;
        const char *key;
    } budgets[] = {
        { END_NODE_LOST, END_NODE_LOST, "node-lost" },
        { END_UNKNOWN, END_NODE_LOST, "node-lost" },
        { END_PREEMPTED, END_PREEMPTED, "preempted" },
        { END_DISK_FAILED, END_DISK_FAILED, "disk-failed" },
        { END_LAUNCH_FAILED, END_LAUNCH_FAILED, "launch-failed" },
    };

    for (size_t i = 0; i < ARRAY_LEN(budgets); i++)
        if (budgets[i].reason == reason) {
            *out_key = budgets[i].key;
            return budgets[i].budget;
        }
    return END_NONE;
}

/* The rule that allowed the task no further attempt, although its end was not its own doing. "" =
 * it has not restarted for that reason, so nothing is used up. */
static void write_last_rule(const struct job *j, const struct slot *s, char *out, size_t size)
{
    const char *key = "";
    enum end_reason budget = budget_of(s->reason, &key);

    out[0] = '\0';
    if (budget == END_NONE)
        return;
    if (s->reason != END_PREEMPTED && s->quick[RESTART_QUICK_NODES - 1] >= 0)
        (void)snprintf(out, size,
                       "; it has ended so within %d s on %d nodes, so tony tries no other",
                       RESTART_QUICK_MS / 1000, RESTART_QUICK_NODES);
    else if (s->spent[budget] && s->spent[budget] >= j->spec->restarts[budget])
        (void)snprintf(out, size, "; tony.task.restarts.%s allows no more than %u restart%s", key,
                       j->spec->restarts[budget], j->spec->restarts[budget] == 1 ? "" : "s");
}

/* After the task's name come the end, the detail if there is one, and the name of the reason in
 * parentheses. The reason is left out for a plain exit, and where the sentence names none. */
void verdict_sentence(const struct job *j, uint32_t slot, char *out, size_t size)
{
    const struct slot *s = &j->slots[slot];
    const char *detail = s->detail ? s->detail : slot_note_text(j, s->note), *what = NULL;
    char text[160], limit[32], rule[120];

    switch (s->reason) {
    case END_EXITED:
        write_exit(s, text, sizeof text);
        (void)snprintf(out, size, "task '" SLOT_NAME "' %s%s%s", SLOT_ARGS(j, slot), text,
                       detail ? ": " : "", detail ? detail : "");
        return;
    case END_OUT_OF_MEMORY: /* the detail has the figures */
        (void)snprintf(text, sizeof text, "may use %llu MiB",
                       (unsigned long long)job_slot_role(j, slot)->memory_mib);
        what = "ran out of memory";
        detail = detail ? detail : text;
        break;
    case END_TIMED_OUT:
        (void)snprintf(text, sizeof text, "ran longer than the %s that a task may",
                       limit_text((int64_t)j->spec->execution_timeout_ms, limit, sizeof limit));
        what = detail ? detail : text;
        detail = NULL;
        break;
    case END_PREEMPTED:
        what = "was preempted by the scheduler";
        break;
    case END_NODE_LOST:
        what = "was lost";
        break;
    case END_LAUNCH_FAILED:
        what = "could not be started";
        break;
    case END_DISK_FAILED:
        what = "was ended by a failed disk";
        break;
    case END_KILLED_BY_MASTER:
        what = s->cause ? "was failing when it was stopped" : "was stopped";
        break;
    case END_NONE:
    case END_UNKNOWN:
    case END_COUNT:
        what = detail ? "was lost" : "ended for an unknown reason";
        break;
    }
    bool unnamed = s->reason == END_UNKNOWN || s->reason == END_NONE; /* `what` says so already */
    write_last_rule(j, s, rule, sizeof rule);
    (void)snprintf(out, size, "task '" SLOT_NAME "' %s%s%s%s%s%s%s", SLOT_ARGS(j, slot), what,
                   detail ? ": " : "", detail ? detail : "", unnamed ? "" : " (",
                   unnamed ? "" : end_reason_name(s->reason), unnamed ? "" : ")", rule);
}

/*
 * The message names the first failure, since it may have caused the later ones. If the rules
 * tolerated that failure, and the job failed at least JOB_SAME_FAILURE_MS later because of another
 * one, the message names that one, too: the two may have nothing to do with each other.
 */
void verdict_compose(struct job *j)
{
    char first[300], fatal[300], text[32];
    int64_t later_ms = (j->failures.fatal.at_us - j->failures.first.at_us) / 1000;

    if (j->failures.first.slot < 0)
        return;
    verdict_sentence(j, (uint32_t)j->failures.first.slot, first, sizeof first);
    if (j->failures.fatal.slot < 0 || j->failures.fatal.slot == j->failures.first.slot ||
        later_ms < JOB_SAME_FAILURE_MS) {
        (void)snprintf(j->message, sizeof j->message, "%s", first);
        return;
    }
    verdict_sentence(j, (uint32_t)j->failures.fatal.slot, fatal, sizeof fatal);
    (void)snprintf(j->message, sizeof j->message, "%s; %s later %s", first,
                   limit_text(later_ms / 1000 * 1000, text, sizeof text), fatal);
}

void job_verdict(const struct job *j, struct job_verdict *out)
{
    bool named = j->decided == JOB_FAILED && j->by_task && j->failures.first.slot >= 0;

    *out = (struct job_verdict){
        .state = j->state,
        .exit_code = verdict_exit_code(j->decided ? j->decided : j->state),
        .message = j->message,
        .cause_slot = named ? (uint32_t)j->failures.first.slot : UINT32_MAX,
    };
}
