#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "loop/loop.h"
#include "scheduler/yarn/yarn_int.h"

struct box *box_find(struct yarn *y, const Hadoop__ContainerId *id)
{
    struct yarn_container key;
    char text[YARN_ID_TEXT_MAX];
    return yarn_container_get(id, &key) ? map_get(&y->boxes, yarn_container_text(&key, text))
                                        : NULL;
}

void box_view(const struct box *b, struct sched_container *out)
{
    *out = (struct sched_container){
        .id = b->id,
        .slot = b->slot,
        .gpus = "",
        .launched = b->state > BOX_GRANTED,
        .completed = b->state == BOX_ENDED,
        .node = b->node ? b->node->id : NULL,
        .log_url = b->log_url,
    };
}

void box_leave_node(struct box *b)
{
    for (size_t i = 0; b->node && i < b->node->boxes.n; i++)
        if (b->node->boxes.v[i] == b) {
            vec_remove_fast(&b->node->boxes, i);
            break;
        }
}

void box_free(void *p)
{
    struct box *b = p;
    token_done(&b->token);
    free(b->log_url);
    free(b->role);
    free(b);
}

static void tell_end(struct yarn *y, struct box *b, enum end_reason reason, int exit_code,
                     const char *detail)
{
    struct sched_container c;
    if (b->state == BOX_ENDED)
        return;
    b->state = BOX_ENDED;
    box_leave_node(b);
    token_done(&b->token);
    log_event(LOG_INFO, "container.ended", f_str("container", b->id), f_int("slot", b->slot),
              f_str("reason", end_reason_name(reason)), f_int("exit", exit_code),
              f_str("why", detail ? detail : ""));
    box_view(b, &c);
    c.reason = reason;
    c.exit_code = exit_code;
    c.detail = detail;
    if (!y->finishing)
        yarn_emit(y, &(struct sched_event){ .type = SE_COMPLETED, .containers = &c, .n = 1 });
}

enum { EXIT_SIGNALLED = 128, EXIT_TERMINATED = EXIT_SIGNALLED + 15 };

/*
 * The end of a container of whose task no end was told. An executor goes only when the master has
 * heard how its task ended, so a signal was its own death, not the task's. Only terminated, and not
 * by us, it was stopped by its node: it leaves it to that one to say why, and a node that was
 * started again, or is just being given up, forgets it.
 */
static void of_signal(int signo, struct yarn_end *end)
{
    if (signo == EXIT_TERMINATED - EXIT_SIGNALLED) {
        end->reason = END_NODE_LOST;
        (void)str_copy(end->sentence, sizeof end->sentence,
                       "its node stopped the container, and did not say why");
        return;
    }
    end->reason = END_UNKNOWN;
    (void)snprintf(end->sentence, sizeof end->sentence, "its executor was killed by signal %d (%s)",
                   signo, strsignal(signo));
}

/* What YARN's number means; false: it needs no words. Where the node is to blame, it is named. */
static bool words(const struct yarn *y, const struct box *b, int32_t exit_status,
                  const char *diagnostics, struct yarn_end *end, char *detail, size_t size)
{
    char key[160], node[400] = "";
    (void)snprintf(key, sizeof key, "tony.%s.memory",
                   b && b->role && *b->role ? b->role : "<role>");
    y->wire->end_of(exit_status, diagnostics, key, end);
    if (end->reason == END_EXITED && exit_status > EXIT_SIGNALLED &&
        exit_status <= EXIT_SIGNALLED + SIGRTMAX)
        of_signal(exit_status - EXIT_SIGNALLED, end);
    if (b && b->node && (end->reason == END_NODE_LOST || end->reason == END_DISK_FAILED))
        (void)snprintf(node, sizeof node, "; node '%.120s'%s%.250s", b->node->id,
                       b->node->health ? " reports: " : "", b->node->health ? b->node->health : "");
    (void)snprintf(detail, size, "%s%s%s%s", end->sentence, node, *end->hint ? "; " : "",
                   end->hint);
    /* a plain exit: the code says it */
    return *detail && !(end->reason == END_EXITED && exit_status == 0);
}

void box_ended_before(struct yarn *y, const struct yarn_container *key,
                      const Hadoop__ContainerStatus *s, struct box_end_text *t,
                      struct sched_container *out)
{
    struct yarn_end end = { 0 };
    struct box *b = box_find(y, s->container_id);
    (void)yarn_container_text(key, t->id);
    bool said = words(y, b, s->exit_status, s->diagnostics, &end, t->detail, sizeof t->detail);
    if (b) {
        b->state = BOX_ENDED;
        box_leave_node(b);
    }
    log_event(LOG_INFO, "container.ended_before", f_str("container", t->id),
              f_str("reason", end_reason_name(end.reason)), f_int("exit", end.exit_code));
    *out = (struct sched_container){ .id = t->id,
                                     .slot = b ? b->slot : SCHED_NO_SLOT,
                                     .gpus = "",
                                     .launched = true,
                                     .completed = true,
                                     .reason = end.reason,
                                     .exit_code = end.exit_code,
                                     .detail = said ? t->detail : NULL };
}

/* By whichever way it came: the ResourceManager says it at least once, its node when asked. */
void box_end(struct yarn *y, struct box *b, int32_t exit_status, const char *diagnostics)
{
    struct yarn_end end = { 0 };
    char detail[sizeof end.sentence + sizeof end.hint + 404];

    if (b->state == BOX_ENDED)
        return;
    if (b->stop_wanted &&
        (exit_status == YARN_EXIT_ABORTED || exit_status == YARN_EXIT_KILLED_BY_MASTER ||
         exit_status == YARN_EXIT_KILLED_BY_RM || exit_status == EXIT_TERMINATED ||
         exit_status == 137)) {
        tell_end(y, b, END_KILLED_BY_MASTER, exit_status > 0 ? exit_status : EXIT_TERMINATED, NULL);
        return;
    }
    bool said = words(y, b, exit_status, diagnostics, &end, detail, sizeof detail);
    tell_end(y, b, end.reason, end.exit_code, said ? detail : NULL);
}

/*
 * Of a container that others had it end a node knows no more than that, or, started again, not even
 * that: preempted, lost, or ill, the ResourceManager says with its next answer.
 */
void box_end_at_node(struct yarn *y, struct box *b, int32_t exit_status, const char *diagnostics)
{
    bool of_others = exit_status == YARN_EXIT_KILLED_BY_RM || exit_status == YARN_EXIT_LOST ||
                     exit_status == EXIT_TERMINATED;
    if (b->state == BOX_ENDED || b->stop_wanted || !of_others) {
        box_end(y, b, exit_status, diagnostics);
        return;
    }
    b->look_until = 0;
    if (b->why_by)
        return;
    b->why_by = clock_mono_ms() + yarn_pause(y, YARN_WHY_MS);
    b->ended_as = exit_status;
    y->ask_soon = true;
    yarn_wake(y);
}

void box_fail(struct yarn *y, struct box *b, enum end_reason reason, const char *fmt, ...)
{
    char text[700];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (b->state == BOX_ENDED)
        return;
    yarn_release(y, &b->key);
    b->released = true;
    tell_end(y, b, b->stop_wanted ? END_KILLED_BY_MASTER : reason, -1, text);
}

int told_later(struct yarn *y, uint32_t slot, struct box *b, const char *text)
{
    struct told t = { .slot = slot, .box = b, .text = str_dup(text) };
    if (!t.text || vec_push(&y->tolds, t) < 0) {
        free(t.text);
        return -ENOMEM;
    }
    loop_timer_set(y->soon, clock_mono_ms());
    return 0;
}

void told_all(void *arg)
{
    struct yarn *y = arg;
    while (y->tolds.n && y->phase != YP_OVER) {
        struct told t = y->tolds.v[0];
        for (size_t i = 1; i < y->tolds.n; i++)
            y->tolds.v[i - 1] = y->tolds.v[i];
        y->tolds.n--;
        if (t.box)
            tell_end(y, t.box, END_KILLED_BY_MASTER, EXIT_TERMINATED, t.text);
        else if (!y->finishing)
            yarn_emit(y,
                      &(struct sched_event){ .type = SE_REFUSED, .slot = t.slot, .text = t.text });
        free(t.text);
    }
    if (y->finishing && y->phase == YP_OVER) /* it was over before */
        yarn_finished(y);
    yarn_step(y);
}
