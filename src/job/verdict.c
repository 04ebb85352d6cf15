/*
 * How an attempt went, which failure was the first, and how to say it.
 */
#include <signal.h>
#include <stdio.h>

#include "job/job_int.h"

/*
 * What ended after we told it to end went neither well nor wrong. What ended before, by its own
 * time, is judged by how it ended, whenever we hear of it. Times are cut to milliseconds when they
 * are fed, which a death by our own signal must not profit from.
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

/* What we stopped is no failure, and yet it may have been failing, with a word on why: then it
 * ended by itself. */
const struct known *verdict_known(const struct job *j, struct slot *s)
{
    const struct known *k = known_find(&(struct known_end){ .reason = s->reason,
                                                            .exit_code = s->exit_code,
                                                            .signal = s->signal,
                                                            .detail = s->detail,
                                                            .tail = s->tail,
                                                            .alone = j->n_tasks == 1 },
                                       NULL);
    if (s->reason == END_KILLED_BY_MASTER && k && !s->signal)
        s->reason = END_EXITED;
    return s->result != RES_SUCCEEDED ? k : NULL; /* none yet: it begins again */
}

static bool is_within(int64_t apart_us, int64_t ms)
{
    return apart_us <= ms * 1000 && apart_us >= -ms * 1000;
}

/* Is this failure rather the first than the one that was taken for it? By time; but who lost a peer
 * is not the cause of what the peer died of, and may have said nothing, while that peer did. */
static bool is_rather_first(const struct job *j, const struct known *k, int64_t at_us)
{
    const struct known *was = j->cause.known;
    int64_t apart_us = at_us - j->cause.at_us;
    bool victim = k && k->victim, vague = k && k->vague;

    if (j->cause.slot < 0 || !was || !k)
        return j->cause.slot < 0 || apart_us < 0;
    if (victim != was->victim && is_within(apart_us, JOB_VICTIM_MS))
        return was->victim;
    if (vague != was->vague && is_within(apart_us, JOB_SAME_FAILURE_MS) && !k->general &&
        !was->general)
        return was->vague;
    return apart_us < 0;
}

void verdict_candidate(struct job *j, uint32_t slot, int64_t at_us)
{
    const struct known *k = j->slots[slot].known;

    if (!is_rather_first(j, k, at_us))
        return;
    j->cause = (struct failure){ .slot = slot, .at_us = at_us, .known = k };
    j->changed = true;
}

void verdict_witness(struct job *j, uint32_t slot, int64_t at_us)
{
    const struct slot *s = &j->slots[slot];
    const struct known *k = s->known, *was = j->cause.known;
    bool by_itself = s->reason == END_EXITED || s->reason == END_KILLED_BY_MASTER;
    bool tells = by_itself && k && !k->vague && !k->general;

    bool may = k && was && !k->victim && (was->victim || (was->vague && tells));

    if (may && j->by_task)
        verdict_candidate(j, slot, at_us);
}

int verdict_exit_code(enum job_state s)
{
    return s == JOB_SUCCEEDED ? 0 : s == JOB_KILLED ? 3 : 1;
}

const char *signal_name(int signal)
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

static void say_exit(const struct slot *s, char *out, size_t size)
{
    const char *name = signal_name(s->signal);

    if (!s->signal)
        (void)snprintf(out, size, "%s exit code %d",
                       s->attempt ? "failed with" : "ended before it started:", s->exit_code);
    else
        (void)snprintf(out, size, "was killed by signal %d%s%s%s%s", s->signal, name ? " (" : "",
                       name ? name : "", name ? ")" : "", s->attempt ? "" : " before it started");
}

/* "task 'worker:1' ..." with what is known; the class of reason in brackets where it is not a plain
 * exit. */
void verdict_sentence(const struct job *j, uint32_t slot, char *out, size_t size)
{
    const struct slot *s = &j->slots[slot];
    const char *detail = s->detail ? s->detail : s->note, *what = NULL;
    char text[160], limit[32];

    switch (s->reason) {
    case END_EXITED:
        say_exit(s, text, sizeof text);
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
        what = s->known ? "was failing when it was stopped" : "was stopped";
        break;
    case END_NONE:
    case END_UNKNOWN:
    case END_COUNT:
        what = detail ? "was lost" : "ended for an unknown reason";
        break;
    }
    bool said = s->reason == END_UNKNOWN || s->reason == END_NONE; /* in `what`; once is enough */
    (void)snprintf(out, size, "task '" SLOT_NAME "' %s%s%s%s%s%s", SLOT_ARGS(j, slot), what,
                   detail ? ": " : "", detail ? detail : "", said ? "" : " (",
                   said ? "" : end_reason_name(s->reason), said ? "" : ")");
}

/*
 * The first failure is the cause: what failed later may well have failed of it. Where the
 * rules tolerated it for a while, the one that they did not tolerate is named, too, since the two
 * may have nothing to do with each other.
 */
void verdict_compose(struct job *j)
{
    char first[300], fatal[300], text[32];
    int64_t later_ms = (j->fatal.at_us - j->cause.at_us) / 1000;

    if (j->cause.slot < 0)
        return;
    verdict_sentence(j, (uint32_t)j->cause.slot, first, sizeof first);
    if (j->fatal.slot < 0 || j->fatal.slot == j->cause.slot || later_ms < JOB_SAME_FAILURE_MS) {
        (void)snprintf(j->message, sizeof j->message, "%s", first);
        return;
    }
    verdict_sentence(j, (uint32_t)j->fatal.slot, fatal, sizeof fatal);
    (void)snprintf(j->message, sizeof j->message, "%s; %s later %s", first,
                   limit_text(later_ms / 1000 * 1000, text, sizeof text), fatal);
}

void job_verdict(const struct job *j, struct job_verdict *out)
{
    bool named = j->decided == JOB_FAILED && j->by_task && j->cause.slot >= 0;

    *out = (struct job_verdict){
        .state = j->state,
        .exit_code = verdict_exit_code(j->decided ? j->decided : j->state),
        .message = j->message,
        .cause_slot = named ? (uint32_t)j->cause.slot : UINT32_MAX,
    };
}
