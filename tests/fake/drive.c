/* SPDX-License-Identifier: Apache-2.0 */
#include "drive_int.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

/* ---- an event of any type ---- */

static uint64_t number_for(const struct field *f, const struct drive_values *v)
{
    if (f->kind == F_SLOT)
        return v->slot;
    if (f->kind == F_REASON)
        return v->reason;
    if (f->kind == F_LIMIT)
        return v->limit;
    return str_eq(f->name, "generation") ? v->generation
           : str_eq(f->name, "attempt")  ? v->attempt
                                         : v->number;
}

void drive_fill(struct job_event *ev, const struct drive_values *v)
{
    const struct event_info *info = job_event_info(ev->type);

    for (const struct field *f = info ? info->fields : NULL; f && f->name; f++) {
        char *at = (char *)ev + f->offset;
        uint64_t number = number_for(f, v);
        if (f->kind == F_TEXT || f->kind == F_LIST || f->kind == F_TAIL) {
            const char *text = str_eq(f->name, "container") ? v->container : v->text;
            memcpy(at, &text, sizeof text);
        } else if (f->kind == F_FLAG) {
            *(bool *)at = v->flag;
        } else { /* little endian: the low bytes of a number come first */
            memcpy(at, &number, f->kind == F_I64 || f->kind == F_U64 ? 8 : 4);
        }
    }
}

/* ---- answers to actions ---- */

void drive_init(struct drive *d, const char *job)
{
    const char *nodes = strstr(job, "nodes="), *no_grant = strstr(job, "nogrant=");
    *d = (struct drive){ .spec = drive_spec(job),
                         .gives_back = strstr(job, "gives=1") != NULL,
                         .no_grant =
                             no_grant ? (uint32_t)strtoul(no_grant + 8, NULL, 10) : UINT32_MAX,
                         .n_nodes = nodes ? (uint32_t)strtoul(nodes + 6, NULL, 10) : 0 };
    d->job = job_new(d->spec, NULL);
    assert(d->job);
    d->n_slots = job_n_slots(d->job);
    d->slots = calloc((size_t)d->n_slots + 1, sizeof *d->slots);
    d->next_beat = d->spec->heartbeat_ms;
}

void drive_done(struct drive *d)
{
    buf_done(&d->noted);
    job_free(d->job);
    drive_spec_free(d->spec);
    free(d->slots);
    free(d->acts.v);
    strv_done(&d->journal);
    *d = (struct drive){ 0 };
}

/* A resized job may have more slots. */
static void make_room(struct drive *d)
{
    uint32_t n = job_n_slots(d->job);
    if (n <= d->n_slots)
        return;
    d->slots = realloc(d->slots, ((size_t)n + 1) * sizeof *d->slots);
    assert(d->slots);
    memset(d->slots + d->n_slots, 0, (n - d->n_slots) * sizeof *d->slots);
    d->n_slots = n;
}

static void write_line(struct strv *journal, const struct job *j, const struct job_event *ev)
{
    AUTO(buf_done) struct buf line = { 0 };
    int rc = job_event_encode(ev, job_now(j), &line);
    assert(rc == 0);
    rc = strv_push(journal, buf_cstr(&line));
    assert(rc == 0);
}

void drive_write(struct strv *journal, const struct job *j, const struct job_event *ev)
{
    struct job_event decision;
    bool write = job_must_record(j, ev);
    for (size_t i = 0; job_decision(j, i, &decision); i++) {
        write = true;
        write_line(journal, j, &decision);
    }
    if (write)
        write_line(journal, j, ev);
}

static void feed_only(struct drive *d, const struct job_event *ev)
{
    d->rc = job_feed(d->job, ev, d->now, &d->acts, &d->e);
    assert(d->rc >= 0);
    make_room(d);
    if (d->rc == 0)
        drive_write(&d->journal, d->job, ev);
}

static uint32_t asked_as(const struct drive_slot *s, uint32_t slot)
{
    return s->asked ? s->asked : slot;
}

static void end_container(struct drive *d, uint32_t slot, enum end_reason reason)
{
    struct drive_slot *s = &d->slots[slot];
    char id[sizeof s->container];
    str_copy(id, sizeof id, s->container);
    bool known = *s->container;
    s->container[0] = 0;
    s->running = s->registered = false;
    if (known)
        feed_only(
            d, &(struct job_event){
                   .type = EV_COMPLETED,
                   .completed = { .slot = asked_as(s, slot), .container = id, .reason = reason } });
}

static void end_attempt(struct drive *d, uint32_t slot, enum end_reason reason)
{
    struct drive_slot *s = &d->slots[slot];
    s->running = false;
    feed_only(d, &(struct job_event){ .type = EV_ATTEMPT_ENDED,
                                      .attempt_ended = { .slot = slot,
                                                         .generation = s->generation,
                                                         .attempt = s->attempt,
                                                         .reason = reason,
                                                         .signal = 15 } });
}

static void grant(struct drive *d, uint32_t slot)
{
    struct drive_slot *s = &d->slots[slot];
    (void)snprintf(s->container, sizeof s->container, "c%u.%u", slot, ++d->n_containers);
    s->launched = s->registered = s->started = false;
    s->asked = 0;
    char node[16];
    (void)snprintf(node, sizeof node, "n%u", d->n_nodes ? d->n_containers % d->n_nodes : 0);
    feed_only(d, &(struct job_event){ .type = EV_ALLOCATED,
                                      .allocated = { .slot = slot,
                                                     .container = s->container,
                                                     .node = d->n_nodes ? node : NULL } });
}

static void registers(struct drive *d, uint32_t slot, uint32_t generation)
{
    struct drive_slot *s = &d->slots[slot];
    char address[280];
    (void)snprintf(address, sizeof address, "%s:%u", d->host ? d->host : "127.0.0.1", 40000 + slot);
    s->registered = true;
    feed_only(d, &(struct job_event){ .type = EV_REGISTERED,
                                      .registered = { .slot = slot,
                                                      .container = s->container,
                                                      .address = address,
                                                      .generation = generation,
                                                      .tb_port = 6000 + slot,
                                                      .pid = 100 + slot } });
}

static bool has_slot(enum job_action_type t)
{
    return t < ACT_SHAPE;
}

static void answer(struct drive *d, const struct job_action *a, const char *container)
{
    uint32_t slot = has_slot(a->type) ? a->of_slot.slot : 0;
    struct drive_slot *s = &d->slots[slot];

    switch (a->type) {
    case ACT_ASK:
        if (s->deny)
            feed_only(d, &(struct job_event){
                             .type = EV_ALLOCATION_REFUSED,
                             .allocation_refused = { .slot = slot, .why = "too large" } });
        else if (!s->mute && !*s->container && slot < d->no_grant)
            grant(d, slot);
        break;
    case ACT_RELEASE:
        if (str_eq(container, s->container))
            s->container[0] = 0;
        break;
    case ACT_LAUNCH:
        if (!s->mute && !s->launched) {
            s->launched = true;
            registers(d, slot, 0);
        }
        break;
    case ACT_START:
        s->generation = a->start.generation;
        s->attempt = a->start.attempt;
        if (s->mute || s->running)
            break;
        s->running = s->started = true;
        feed_only(d, &(struct job_event){ .type = EV_ATTEMPT_STARTED,
                                          .attempt_started = { .slot = slot,
                                                               .generation = a->start.generation,
                                                               .attempt = a->start.attempt,
                                                               .pid = 200 + slot } });
        break;
    case ACT_STOP_ATTEMPT:
        if (!s->mute && s->running)
            end_attempt(d, slot, a->stop_attempt.reason);
        break;
    case ACT_ACK:
        (void)snprintf(d->last_ack, sizeof d->last_ack, "%u %u.%u", slot, a->ack.generation,
                       a->ack.attempt);
        if (!s->mute && a->ack.finish)
            end_container(d, slot, END_EXITED);
        break;
    case ACT_FINISH_EXECUTOR:
        if (!s->mute)
            end_container(d, slot, END_EXITED);
        break;
    case ACT_STOP_CONTAINER:
        if (!s->mute && str_eq(container, s->container))
            end_container(d, slot, END_KILLED_BY_MASTER);
        break;
    case ACT_RENEW:
        if (!s->mute && !s->running && s->registered)
            registers(d, slot, a->renew.generation);
        break;
    case ACT_TAKE:
        *s = (struct drive_slot){ .asked = a->take.from };
        {
            struct drive_slot *from = &d->slots[a->take.from];
            str_copy(s->container, sizeof s->container, from->container);
            s->launched = s->registered = true;
            s->mute = from->mute;
            *from = (struct drive_slot){ 0 };
        }
        break;
    case ACT_SHAPE:
        break;
    case ACT_PEERS:
        d->n_peers++;
        break;
    case ACT_AVOID: {
        size_t at = strlen(d->avoided);
        (void)snprintf(d->avoided + at, sizeof d->avoided - at, "%s%c%s", at ? " " : "",
                       a->avoid.on ? '+' : '-', container);
        break;
    }
    case ACT_NONE:
    case ACT_CANCEL: /* without an immediate answer there is none */
    case ACT_NOTIFY:
    case ACT_SYNC:
    case ACT_FINISH:
    case ACT_COUNT:
        break;
    }
}

static void note_act(struct drive *d, const struct job_action *a)
{
    static const char *const names[ACT_COUNT] = {
#define ACTION(type, name, text) [type] = #name,
        JOB_ACTIONS(ACTION)
#undef ACTION
    };
    struct slot_view v;

    if (!d->notes_acts || a->type == ACT_NOTIFY || a->type == ACT_ACK)
        return;
    (void)buf_addf(&d->noted, "%s%s", d->noted.len ? ", " : "", names[a->type]);
    if (has_slot(a->type)) {
        job_slot(d->job, a->of_slot.slot, &v);
        (void)buf_addf(&d->noted, " %s:%u", v.role, v.index);
    }
    if (a->type == ACT_STOP_ATTEMPT)
        (void)buf_addf(&d->noted, " save %u grace %u", a->stop_attempt.save_ms,
                       a->stop_attempt.grace_ms);
}

int drive_feed(struct drive *d, const struct job_event *ev)
{
    feed_only(d, ev);
    int rc = d->rc;
    while (d->acts.n) {
        struct job_action a = d->acts.v[0];
        char container[64] = "";
        const char **text = job_action_text(&a);
        str_copy(container, sizeof container, text && *text ? *text : "");
        memmove(d->acts.v, d->acts.v + 1, --d->acts.n * sizeof a);
        for (size_t i = 0; i < d->acts.n; i++) {
            text = job_action_text(&d->acts.v[i]);
            if (text && d->acts.v[i].type != ACT_AVOID)
                /* This text is only valid until the next feed; the containers here are found by
                 * slot. */
                *text = NULL;
        }
        d->n_acts[a.type]++;
        note_act(d, &a);
        answer(d, &a,
               *container || !has_slot(a.type) ? container : d->slots[a.of_slot.slot].container);
    }
    return rc;
}

/* ---- the script ---- */

static void pass(struct drive *d, int64_t ms)
{
    int64_t until = d->now + ms;
    struct job_event ev;

    for (;;) {
        int64_t due = job_deadline(d->job), next = MIN(MIN(due, d->next_beat), until);
        d->now = MAX(d->now, next);
        if (d->now >= d->next_beat) {
            for (uint32_t i = 0; i < job_n_slots(d->job); i++) {
                if (!d->slots[i].mute && d->slots[i].registered)
                    drive_feed(d, &(struct job_event){ .type = EV_BEAT, .beat = { .slot = i } });
            }
            d->next_beat += d->spec->heartbeat_ms;
        }
        while (job_due(d->job, d->now, &ev))
            drive_feed(d, &ev);
        if (d->now >= until)
            return;
    }
}

uint32_t drive_slot(const struct drive *d, const char *task)
{
    for (uint32_t i = 0; i < job_n_slots(d->job); i++) {
        struct slot_view v;
        char name[80];
        job_slot(d->job, i, &v);
        (void)snprintf(name, sizeof name, "%s:%u", v.role, v.index);
        if (str_eq(name, task))
            return i;
    }
    drive_fail("task", task);
}

static enum end_reason reason_named(const char *s)
{
    static const struct {
        const char *name;
        enum end_reason reason;
    } names[] = { { "oom", END_OUT_OF_MEMORY },       { "lost", END_NODE_LOST },
                  { "timeout", END_TIMED_OUT },       { "launch", END_LAUNCH_FAILED },
                  { "disk", END_DISK_FAILED },        { "preempt", END_PREEMPTED },
                  { "killed", END_KILLED_BY_MASTER }, { "unknown", END_UNKNOWN } };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (str_eq(names[i].name, s))
            return names[i].reason;
    }
    return END_NONE;
}

static void container_ends(struct drive *d, uint32_t slot, struct ev_attempt_ended end)
{
    struct drive_slot *s = &d->slots[slot];
    char id[sizeof s->container];
    str_copy(id, sizeof id, s->container);
    s->container[0] = 0;
    s->registered = false;
    drive_feed(d, &(struct job_event){
                      .type = EV_COMPLETED,
                      .completed = { .slot = asked_as(s, slot),
                                     .container = id,
                                     .exit_code = end.signal ? 128 + end.signal : end.exit_code,
                                     .reason = end.reason,
                                     .age_us = end.age_us } });
}

/* worker:1=3@40 or worker:1!137 */
static void task_ends(struct drive *d, char *word)
{
    char *how = strpbrk(word, "=!"), *age = strchr(word, '@');
    bool container = *how == '!';
    struct ev_attempt_ended end = { .reason = END_EXITED };

    *how++ = 0;
    if (age) {
        *age++ = 0;
        end.age_us = (uint64_t)drive_number(span_of(age)) * 1000;
    }
    end.slot = drive_slot(d, word);
    struct drive_slot *s = &d->slots[end.slot];
    if (reason_named(how)) {
        end.reason = reason_named(how);
        end.signal = end.reason == END_OUT_OF_MEMORY && !container ? 9 : 0;
    } else {
        int64_t n = drive_number(span_of(how));
        end.exit_code = n < 0 ? 0 : (int)n;
        end.signal = n < 0 ? (int)-n : 0;
    }
    s->running = false;
    if (container) {
        container_ends(d, end.slot, end);
        return;
    }
    end.tail = "last words\n";
    end.generation = s->generation;
    end.attempt = s->attempt;
    drive_feed(d, &(struct job_event){ .type = EV_ATTEMPT_ENDED, .attempt_ended = end });
}

static void new_master(struct drive *d)
{
    drive_feed(d, &(struct job_event){
                      .type = EV_MASTER_STARTED,
                      .master_started = { .epoch = ++d->epoch, .gives_back = d->gives_back } });
    for (uint32_t i = 0; i < job_n_slots(d->job); i++) {
        struct drive_slot *s = &d->slots[i];
        if (s->lost)
            s->container[0] = 0;
        if (s->reported)
            end_container(d, i, s->reported);
        if (*s->container)
            drive_feed(d, &(struct job_event){ .type = EV_CONTAINER_SEEN,
                                               .container_seen = { .slot = asked_as(s, i),
                                                                   .container = s->container,
                                                                   .launched = s->launched } });
    }
    drive_feed(d, &(struct job_event){ .type = EV_RESYNCED });
    for (uint32_t i = 0; i < job_n_slots(d->job); i++) {
        struct drive_slot *s = &d->slots[i];
        if (*s->container && s->registered && !s->mute)
            drive_feed(d, &(struct job_event){
                              .type = EV_EXECUTOR_BACK,
                              .executor_back = { .slot = i,
                                                 .container = s->container,
                                                 .generation = s->started ? s->generation : 0,
                                                 .attempt = s->started ? s->attempt : 0,
                                                 .running = s->running } });
    }
}

static void slot_word(struct drive *d, const char *verb, uint32_t slot)
{
    struct drive_slot *s = &d->slots[slot];

    if (str_eq(verb, "mute"))
        s->mute = true;
    else if (str_eq(verb, "heal"))
        s->mute = false;
    else if (str_eq(verb, "deny"))
        s->deny = true;
    else if (str_eq(verb, "refuse"))
        feed_only(
            d, &(struct job_event){ .type = EV_ALLOCATION_REFUSED,
                                    .allocation_refused = { .slot = slot, .why = "too large" } });
    else if (str_eq(verb, "lose"))
        s->lost = true;
    else if (str_eq(verb, "lostby"))
        s->reported = END_NODE_LOST;
    else if (str_eq(verb, "diedby"))
        s->reported = END_UNKNOWN;
    else if (str_eq(verb, "grant"))
        grant(d, slot);
    else if (str_eq(verb, "reg"))
        registers(d, slot, 0);
    else if (str_eq(verb, "ready"))
        feed_only(d, &(struct job_event){ .type = EV_TASK_READY,
                                          .task_ready = { .slot = slot,
                                                          .generation = s->generation,
                                                          .attempt = s->attempt } });
    else if (str_eq(verb, "save"))
        feed_only(d, &(struct job_event){ .type = EV_CHECKPOINT,
                                          .checkpoint = { .slot = slot,
                                                          .generation = s->generation,
                                                          .attempt = s->attempt,
                                                          .step = ++d->step,
                                                          .parts = 1,
                                                          .path = "/data/newest" } });
    else if (str_eq(verb, "take"))
        feed_only(d, &(struct job_event){ .type = EV_PREEMPTING,
                                          .preempting = { .slot = asked_as(s, slot),
                                                          .container = s->container,
                                                          .within_ms = 16000 } });
    else if (str_eq(verb, "beat"))
        feed_only(d, &(struct job_event){ .type = EV_BEAT, .beat = { .slot = slot } });
    else if (str_eq(verb, "gone")) {
        struct slot_view v;
        job_slot(d->job, slot, &v);
        feed_only(
            d, &(struct job_event){ .type = EV_EXECUTOR_GONE,
                                    .executor_gone = { .slot = slot, .container = v.container } });
    } else if (str_eq(verb, "back"))
        feed_only(d, &(struct job_event){ .type = EV_EXECUTOR_BACK,
                                          .executor_back = { .slot = slot,
                                                             .container = s->container,
                                                             .generation = s->generation,
                                                             .attempt = s->attempt,
                                                             .running = true } });
    else
        drive_fail("a word about a slot", NULL);
    drive_feed(d, &(struct job_event){
                      /* Feeds the rest of the answers; a stall of 0 ms has no other effect. */
                      .type = EV_STALLED });
}

/* resize:worker=4,ps=2 shrink:3 grow:8 shrink-saved:3 grow-saved:8 shrink-leave:3=1,2 (slots);
 * false: another word */
static bool resize_word(struct drive *d, const char *word)
{
    struct job_event ev = { .type = EV_RESIZE, .resize = { .who = "ann", .targets = word + 7 } };

    if (str_starts(word, "shrink:"))
        ev = (struct job_event){ .type = EV_SHRINK,
                                 .shrink = { (uint32_t)drive_number(span_of(word + 7)), 16000,
                                             "room" } };
    else if (str_starts(word, "shrink-saved:"))
        ev = (struct job_event){ .type = EV_SHRINK,
                                 .shrink = { (uint32_t)drive_number(span_of(word + 13)), 16000,
                                             "room", true } };
    else if (str_starts(word, "shrink-leave:")) {
        const char *list = strchr(word, '=');
        struct span n = { word + 13, list ? (size_t)(list - word) - 13 : 0 };
        ev = (struct job_event){ .type = EV_SHRINK,
                                 .shrink = { .n_containers = (uint32_t)drive_number(n),
                                             .within_ms = 16000,
                                             .why = "room",
                                             .leave = list ? list + 1 : NULL } };
    } else if (str_starts(word, "grow-saved:"))
        ev = (struct job_event){ .type = EV_GROW,
                                 .grow = { (uint32_t)drive_number(span_of(word + 11)), 16000,
                                           "idle", true } };
    else if (str_starts(word, "grow:"))
        ev = (struct job_event){ .type = EV_GROW,
                                 .grow = { (uint32_t)drive_number(span_of(word + 5)), 0, "idle" } };
    else if (!str_starts(word, "resize:"))
        return false;
    drive_feed(d, &ev);
    return true;
}

static void one_word(struct drive *d, char *word)
{
    static const struct {
        const char *word;
        struct job_event ev;
    } words[] = {
        { "stop", { .type = EV_STOP, .stop = { .who = "ann@host 7" } } },
        { "owns", { .type = EV_CLIENT_OWNS } },
        { "away", { .type = EV_CLIENT_AWAY } },
        { "abort",
          { .type = EV_LAUNCH_FAILED_JOB, .launch_failed_job = { .why = "no such program" } } },
        { "submit",
          { .type = EV_SUBMITTED,
            .submitted = { .application_id = "application_1_0001",
                           .user = "ann",
                           .wall_ms = 1000000 } } },
        { "owned",
          { .type = EV_SUBMITTED,
            .submitted = { .application_id = "application_1_0001",
                           .user = "ann",
                           .owned = true } } },
    };
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (str_eq(words[i].word, word)) {
            drive_feed(d, &words[i].ev);
            return;
        }
    }
    if (resize_word(d, word))
        return;
    if (str_eq(word, "go")) {
        one_word(d, (char[]){ "submit" });
        new_master(d);
    } else if (str_eq(word, "master")) {
        new_master(d);
    } else if (word[0] == '+') {
        pass(d, drive_number(span_of(word + 1)));
    } else if (strpbrk(word, "=!")) {
        task_ends(d, word);
    } else {
        char *task = strchr(word, ':');
        assert(task);
        *task++ = 0;
        slot_word(d, word, drive_slot(d, task));
    }
}

void drive_run(struct drive *d, const char *script)
{
    struct span rest = span_of(script), one;

    while (span_split(&rest, ' ', &one)) {
        AUTO(free_p) char *word = span_dup(one);
        if (*word)
            one_word(d, word);
    }
}

void drive_results(const struct drive *d, struct buf *out)
{
    static const char letters[] = "-SFXL";
    struct slot_view v;

    for (uint32_t i = 0; i < job_n_slots(d->job); i++) {
        job_slot(d->job, i, &v);
        (void)buf_addf(out, "%s%s:%u=", i ? " " : "", v.role, v.index);
        if (v.result)
            (void)buf_addc(out, letters[v.result]);
        else
            (void)buf_adds(out, slot_state_name(v.state));
    }
}

int drive_record(const char *record, struct job_event *ev, int64_t *t, void **holder)
{
    return job_event_decode(span_of(record), ev, t, holder, NULL);
}

struct job *drive_replay(const struct drive *d, size_t n)
{
    struct job *j = job_new(d->spec, NULL);
    struct job_actions ignored = { 0 };

    assert(j);
    job_replaying(j, true);
    for (size_t i = 0; i < n; i++) {
        struct job_event ev;
        int64_t t;
        void *holder;
        int rc = drive_record(d->journal.v[i], &ev, &t, &holder);
        assert(rc == 0);
        ignored.n = 0;
        struct err e = { 0 };
        rc = job_feed(j, &ev, t, &ignored, &e);
        if (rc != 0)
            (void)fprintf(stderr, "drive: record %zu of %zu is refused: %s\n  %s\n", i + 1, n,
                          d->journal.v[i], e.msg);
        assert(rc == 0);
        job_event_release(holder);
    }
    free(ignored.v);
    job_replaying(j, false);
    return j;
}

void drive_resume(struct drive *d, size_t n, bool seen)
{
    struct job *j = drive_replay(d, n);

    job_free(d->job);
    d->job = j;
    d->acts.n = 0;
    d->now = job_now(j);
    d->epoch = job_epoch(j);
    make_room(d);
    for (uint32_t i = 0; i < job_n_slots(j); i++) {
        struct slot_view v;
        struct drive_slot *s = &d->slots[i];
        job_slot(j, i, &v);
        *s = (struct drive_slot){ .generation = v.generation,
                                  .attempt = v.attempt,
                                  .started = v.attempt > 0 };
        bool there = v.state >= SLOT_PLACED && v.state <= SLOT_DRAINING;
        if (!there || !seen)
            continue;
        str_copy(s->container, sizeof s->container, v.container);
        s->launched = v.state != SLOT_PLACED;
        s->registered = s->launched;
        s->running = v.state == SLOT_RUNNING || v.state == SLOT_STOPPING ||
                     v.state == SLOT_HALTING || v.state == SLOT_LEAVING;
        for (uint32_t k = 0; v.moved && k < job_n_slots(j); k++)
            s->asked = job_slot_now(j, k) == i ? k : s->asked;
    }
    if (job_state(j) == JOB_NEW)
        drive_run(d, "submit");
    new_master(d);
}

struct job *drive_restored(const struct job_spec *spec, const struct job *j)
{
    AUTO(buf_done) struct buf lines = { 0 }, again = { 0 };
    struct err e = { 0 };
    struct job *copy = job_new(spec, NULL);
    int rc = copy ? job_snapshot(j, &lines) : -ENOMEM;
    struct span rest = buf_span(&lines), line;

    while (rc == 0 && span_split(&rest, '\n', &line))
        rc = line.len ? job_restore(copy, line, &e) : 0;
    if (rc == 0) {
        assert(job_restored(copy, NULL) == 0);
        rc = job_snapshot(copy, &again);
    }
    if (rc < 0 || !str_eq(buf_cstr(&lines), buf_cstr(&again))) {
        (void)fprintf(stderr, "a snapshot is not restored: %d '%s'\n%s\n-- again:\n%s\n", rc, e.msg,
                      buf_cstr(&lines), again.len ? buf_cstr(&again) : "");
        abort();
    }
    return copy;
}
