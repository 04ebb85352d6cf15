/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A *box* is a container of YARN, as the back-end knows it from its grant to its end. This file
 * finds out why a container has ended, and reports that to the core.
 */
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

void box_forget(struct yarn *y, struct box *b)
{
    size_t kept = 0;
    for (size_t i = 0; i < y->reports.n; i++)
        if (y->reports.v[i].box == b)
            free(y->reports.v[i].text); /* it would report the end again */
        else
            y->reports.v[kept++] = y->reports.v[i];
    y->reports.n = kept;
    box_leave_node(b);
    yarn_unlink_slot(y, b);
    (void)map_remove(&y->boxes, b->id);
    box_free(b);
}

static void report_end(struct yarn *y, struct box *b, enum end_reason reason, int exit_code,
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

enum { EXIT_SIGNAL_BASE = 128, EXIT_TERMINATED = EXIT_SIGNAL_BASE + 15 };

/*
 * Explain the end of a container that a signal killed. An executor exits only after the master
 * knows how its task ended. So if no end of the task was reported, the signal killed the executor
 * itself. If the signal is SIGTERM, and the master did not stop the container, its node did. The
 * node normally reports why; a node that has restarted or is being removed has forgotten the
 * reason.
 */
static void explain_signal(int signo, struct yarn_end *end)
{
    if (signo == EXIT_TERMINATED - EXIT_SIGNAL_BASE) {
        end->reason = END_NODE_LOST;
        (void)str_copy(end->sentence, sizeof end->sentence,
                       "its node stopped the container, and reported no reason");
        return;
    }
    end->reason = END_UNKNOWN;
    (void)snprintf(end->sentence, sizeof end->sentence, "its executor was killed by signal %d (%s)",
                   signo, strsignal(signo));
}

/* Find the reason for YARN's exit status, and write a sentence to detail. The sentence names the
 * node if the node is to blame. false: a plain exit with code 0, which needs no sentence. */
static bool explain_end(const struct yarn *y, const struct box *b, int32_t exit_status,
                        const char *diagnostics, struct yarn_end *end, char *detail, size_t size)
{
    char key[160], node[400] = "";
    (void)snprintf(key, sizeof key, "tony.%s.memory",
                   b && b->role && *b->role ? b->role : "<role>");
    y->wire->end_of(exit_status, diagnostics, key, end);
    if (end->reason == END_EXITED && exit_status > EXIT_SIGNAL_BASE &&
        exit_status <= EXIT_SIGNAL_BASE + SIGRTMAX)
        explain_signal(exit_status - EXIT_SIGNAL_BASE, end);
    if (b && b->node && (end->reason == END_NODE_LOST || end->reason == END_DISK_FAILED))
        (void)snprintf(node, sizeof node, "; node '%.120s'%s%.250s", b->node->id,
                       b->node->health ? " reports: " : "", b->node->health ? b->node->health : "");
    (void)snprintf(detail, size, "%s%s%s%s", end->sentence, node, *end->hint ? "; " : "",
                   end->hint);
    return *detail && !(end->reason == END_EXITED && exit_status == 0);
}

void box_ended_before(struct yarn *y, const struct yarn_container *key,
                      const Hadoop__ContainerStatus *s, struct box_end_text *t,
                      struct sched_container *out)
{
    struct yarn_end end = { 0 };
    struct box *b = box_find(y, s->container_id);
    (void)yarn_container_text(key, t->id);
    bool has_sentence =
        explain_end(y, b, s->exit_status, s->diagnostics, &end, t->detail, sizeof t->detail);
    uint32_t slot = b ? b->slot : SCHED_NO_SLOT;
    if (b)
        box_forget(y, b);
    log_event(LOG_INFO, "container.ended_before", f_str("container", t->id),
              f_str("reason", end_reason_name(end.reason)), f_int("exit", end.exit_code));
    *out = (struct sched_container){ .id = t->id,
                                     .slot = slot,
                                     .gpus = "",
                                     .launched = true,
                                     .completed = true,
                                     .reason = end.reason,
                                     .exit_code = end.exit_code,
                                     .detail = has_sentence ? t->detail : NULL };
}

/* A container has ended. Both the ResourceManager and the node may report it; the first report
 * counts. */
void box_end(struct yarn *y, struct box *b, int32_t exit_status, const char *diagnostics)
{
    struct yarn_end end = { 0 };
    char detail[sizeof end.sentence + sizeof end.hint + 404];

    if (b->state == BOX_ENDED)
        return;
    /* The ResourceManager reports YARN_EXIT_ABORTED at once for a released container and for all
     * containers of a lost node. The container may still run on its node. */
    bool unconfirmed = exit_status == YARN_EXIT_ABORTED && b->state > BOX_TO_START;
    if (b->stop_wanted && !unconfirmed &&
        (exit_status == YARN_EXIT_ABORTED || exit_status == YARN_EXIT_KILLED_BY_MASTER ||
         exit_status == YARN_EXIT_KILLED_BY_RM || exit_status == EXIT_TERMINATED ||
         exit_status == 137)) {
        report_end(y, b, END_KILLED_BY_MASTER, exit_status > 0 ? exit_status : EXIT_TERMINATED,
                   NULL);
        return;
    }
    bool has_sentence = explain_end(y, b, exit_status, diagnostics, &end, detail, sizeof detail);
    report_end(y, b, end.reason, end.exit_code, has_sentence ? detail : NULL);
}

/*
 * The node reports that a container has ended. If YARN or the node itself stopped the container,
 * the node does not know the reason: preemption, or a lost or unhealthy node. The ResourceManager
 * reports the reason with its next answer, so wait up to YARN_CAUSE_MS for it.
 */
void box_end_at_node(struct yarn *y, struct box *b, int32_t exit_status, const char *diagnostics)
{
    bool by_cluster = exit_status == YARN_EXIT_KILLED_BY_RM || exit_status == YARN_EXIT_LOST ||
                      exit_status == EXIT_TERMINATED;
    if (b->state == BOX_ENDED || b->stop_wanted || !by_cluster) {
        box_end(y, b, exit_status, diagnostics);
        return;
    }
    b->poll_until = 0;
    if (b->cause_due_ms)
        return;
    b->cause_due_ms = clock_mono_ms() + yarn_pause(y, YARN_CAUSE_MS);
    b->node_exit_status = exit_status;
    y->beat_soon = true;
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
    report_end(y, b, b->stop_wanted ? END_KILLED_BY_MASTER : reason, -1, text);
}

int report_later(struct yarn *y, uint32_t slot, struct box *b, const char *text)
{
    struct report t = { .slot = slot, .box = b, .text = str_dup(text) };
    if (!t.text || vec_push(&y->reports, t) < 0) {
        free(t.text);
        return -ENOMEM;
    }
    loop_timer_set(y->report_timer, clock_mono_ms());
    return 0;
}

void report_all(void *arg)
{
    struct yarn *y = arg;
    while (y->reports.n && y->phase != YP_OVER) {
        struct report t = y->reports.v[0];
        for (size_t i = 1; i < y->reports.n; i++)
            y->reports.v[i - 1] = y->reports.v[i];
        y->reports.n--;
        if (t.box)
            report_end(y, t.box, END_KILLED_BY_MASTER, EXIT_TERMINATED, t.text);
        else if (!y->finishing)
            yarn_emit(y,
                      &(struct sched_event){ .type = SE_REFUSED, .slot = t.slot, .text = t.text });
        free(t.text);
    }
    if (y->finishing && y->phase == YP_OVER) /* finish() was called after the connection was lost */
        yarn_finished(y);
    yarn_step(y);
}
