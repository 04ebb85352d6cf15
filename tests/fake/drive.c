#include "drive.h"

#include <assert.h>
#include <stdio.h>

static _Noreturn void bad(const char *what, const char *text)
{
    (void)fprintf(stderr, "drive: no such %s: '%s'\n", what, text ? text : "");
    abort();
}

/* ---- a job from one line ---- */

static struct role_spec *role_named(struct job_spec *s, struct span name)
{
    for (size_t i = 0; i < s->n_roles; i++) {
        if (span_eqs(name, s->roles[i].name))
            return &s->roles[i];
    }
    return NULL;
}

static uint32_t role_at(struct job_spec *s, struct span name)
{
    struct role_spec *r = role_named(s, name);
    assert(r);
    return (uint32_t)(r - s->roles);
}

static int64_t number(struct span text)
{
    int64_t n = 0;
    int rc = str_i64(text, -1000000000, 1000000000, "number", &n, NULL);
    assert(rc == 0);
    return n;
}

static void add_number(uint32_t **list, size_t *n, uint32_t role)
{
    *list = realloc(*list, (*n + 1) * sizeof **list);
    (*list)[(*n)++] = role;
}

static void add_gate(struct job_spec *s, struct role_spec *r, uint32_t on, bool ready)
{
    r->gates = realloc(r->gates, (r->n_gates + 1) * sizeof *r->gates);
    r->gates[r->n_gates++] = (struct role_gate){ .role = on, .ready = ready };
    for (size_t i = 0; i < s->roles[on].n_waits_for; i++) /* as src/conf does */
        add_number(&r->waits_for, &r->n_waits_for, s->roles[on].waits_for[i]);
    if (ready && !s->roles[on].ready)
        s->roles[on].ready = str_dup("word");
}

static void add_waits(struct job_spec *s, struct role_spec *r, struct span list)
{
    struct span one, name;
    while (span_split(&list, ',', &one)) {
        (void)span_split(&one, ':', &name);
        uint32_t on = role_at(s, name);
        if (span_eqs(one, "started") || span_eqs(one, "ready")) {
            add_gate(s, r, on, span_eqs(one, "ready"));
            continue;
        }
        add_number(&r->waits_for, &r->n_waits_for, on);
        if (span_eqs(one, "succeeded"))
            add_number(&r->needs, &r->n_needs, on);
    }
}

static void add_codes(struct code_list *l, struct span text)
{
    struct span from;
    (void)span_split(&text, '-', &from);
    l->v = realloc(l->v, (l->n + 1) * sizeof *l->v);
    l->v[l->n++] = (struct code_range){ (int)number(from), (int)number(text.len ? text : from) };
}

static bool takes(struct span *text, const char *word)
{
    size_t len = strlen(word);
    if (text->len < len || memcmp(text->p, word, len) != 0)
        return false;
    *text = span_mem(text->p + len, text->len - len);
    return true;
}

static void restart_flag(struct role_spec *r, struct span part)
{
    if (span_eqs(part, "on"))
        r->restart = RESTART_ON_FAILURE;
    else if (span_eqs(part, "always"))
        r->restart = RESTART_ALWAYS;
    else if (span_eqs(part, "never"))
        r->restart = RESTART_NEVER;
    else if (span_eqs(part, "scope-task"))
        r->restart_scope = SCOPE_TASK;
    else if (span_eqs(part, "scope-role"))
        r->restart_scope = SCOPE_ROLE;
    else if (span_eqs(part, "scope-job"))
        r->restart_scope = SCOPE_JOB;
    else if (takes(&part, "max"))
        r->max_restarts = number(part);
    else if (takes(&part, "win"))
        r->restart_window_ms = (uint64_t)number(part);
    else if (takes(&part, "delay"))
        r->restart_delay_ms = (uint64_t)number(part);
    else if (takes(&part, "retry"))
        add_codes(&r->retry_on, part);
    else if (takes(&part, "noretry"))
        add_codes(&r->no_retry_on, part);
    else if (takes(&part, "spares"))
        r->spares = (uint32_t)number(part);
    else
        bad("a role's flag", NULL);
}

static void add_role(struct job_spec *s, struct span text)
{
    struct span name, part, flags;
    bool more = span_split(&text, '*', &name);
    assert(more);
    s->roles = realloc(s->roles, (s->n_roles + 1) * sizeof *s->roles);
    struct role_spec *r = &s->roles[s->n_roles++];
    *r = (struct role_spec){ .name = span_dup(name),
                             .max_instances = -1,
                             .memory_mib = 512,
                             .vcores = 1,
                             .kind = ROLE_TRACKED,
                             .max_restarts = 3 };
    flags = text;
    (void)span_split(&text, '<', &flags);
    (void)span_split(&flags, '/', &part);
    r->instances = (uint32_t)number(part);
    s->n_tasks += r->instances;
    while (span_split(&flags, '/', &part)) {
        if (span_eqs(part, "untracked"))
            r->kind = ROLE_UNTRACKED;
        else if (span_eqs(part, "sidecar"))
            r->kind = ROLE_SIDECAR;
        else if (span_eqs(part, "stop"))
            r->stop_on_failure = true;
        else if (takes(&part, "stops-"))
            add_number(&r->stops, &r->n_stops, role_at(s, part));
        else
            restart_flag(r, part);
    }
    if (text.len)
        add_waits(s, r, text);
}

/* role/ms/member+member[/ignored] */
static void add_group(struct job_spec *s, struct span text)
{
    struct span part, member;
    s->group_timeouts =
        realloc(s->group_timeouts, (s->n_group_timeouts + 1) * sizeof *s->group_timeouts);
    struct group_timeout *g = &s->group_timeouts[s->n_group_timeouts++];
    *g = (struct group_timeout){ .group = str_dup("A") };
    (void)span_split(&text, '/', &part);
    g->role = role_at(s, part);
    (void)span_split(&text, '/', &part);
    g->timeout_ms = (uint64_t)number(part);
    (void)span_split(&text, '/', &part);
    g->members = calloc(8, sizeof *g->members);
    while (g->n_members < 8 && span_split(&part, '+', &member))
        g->members[g->n_members++] = role_at(s, member);
    g->ignored = span_eqs(text, "ignored");
}

static void set(struct job_spec *s, struct span key, struct span value)
{
    if (span_eqs(key, "limit")) {
        add_group(s, value);
        return;
    }
    if (span_eqs(key, "after")) {
        struct span role;
        (void)span_split(&value, '<', &role);
        add_waits(s, role_named(s, role), value);
        return;
    }
    int64_t v = number(value);
    if (span_eqs(key, "gives") || span_eqs(key, "nodes"))
        return; /* of the scheduler, not of the job: drive_init() */
    if (span_eqs(key, "gang"))
        s->gang = v;
    else if (span_eqs(key, "fail"))
        s->fail_on_worker_failure = v;
    else if (span_eqs(key, "app"))
        s->app_timeout_ms = (uint64_t)v;
    else if (span_eqs(key, "alloc"))
        s->allocation_timeout_ms = (uint64_t)v;
    else if (span_eqs(key, "reg"))
        s->registration_timeout_ms = (uint64_t)v;
    else if (span_eqs(key, "exec"))
        s->execution_timeout_ms = (uint64_t)v;
    else if (span_eqs(key, "beat"))
        s->heartbeat_ms = (uint32_t)v;
    else if (span_eqs(key, "missed"))
        s->max_missed_heartbeats = (uint32_t)v;
    else if (span_eqs(key, "grace"))
        s->kill_grace_ms = (uint32_t)v;
    else if (span_eqs(key, "away"))
        s->client_away_ms = v;
    else if (span_eqs(key, "retries"))
        s->am_retry_count = (uint32_t)v;
    else if (span_eqs(key, "lease"))
        s->master_away_ms = (uint32_t)v;
    else if (span_eqs(key, "lost"))
        s->restarts[END_NODE_LOST] = (uint32_t)v;
    else if (span_eqs(key, "pre"))
        s->restarts[END_PREEMPTED] = (uint32_t)v;
    else if (span_eqs(key, "disk"))
        s->restarts[END_DISK_FAILED] = (uint32_t)v;
    else if (span_eqs(key, "launch"))
        s->restarts[END_LAUNCH_FAILED] = (uint32_t)v;
    else if (span_eqs(key, "nodefail"))
        s->node_max_failures = (uint32_t)v;
    else if (span_eqs(key, "nodewin"))
        s->node_window_ms = (uint64_t)v;
    else if (span_eqs(key, "single"))
        s->single_node = v;
    else
        bad("a setting", NULL);
}

struct job_spec *drive_spec(const char *text)
{
    struct job_spec *s = calloc(1, sizeof *s);
    struct span rest = span_of(text), word, key;

    *s = (struct job_spec){
        .name = str_dup("test"),
        .gang = true,
        .heartbeat_ms = 1000,
        .max_missed_heartbeats = 25,
        .client_away_ms = 60000,
        .kill_grace_ms = 5000,
        .am = { .name = str_dup("am"), .instances = 1, .memory_mib = 2048, .kind = ROLE_TRACKED }
    };
    while (span_split(&rest, ' ', &word)) {
        if (!word.len)
            continue;
        if (memchr(word.p, '*', word.len)) {
            add_role(s, word);
        } else {
            (void)span_split(&word, '=', &key);
            set(s, key, word);
        }
    }
    return s;
}

void drive_spec_free(struct job_spec *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_roles; i++) {
        free(s->roles[i].name);
        free(s->roles[i].waits_for);
        free(s->roles[i].needs);
        free(s->roles[i].gates);
        free(s->roles[i].stops);
        free(s->roles[i].ready);
        free(s->roles[i].retry_on.v);
        free(s->roles[i].no_retry_on.v);
    }
    for (size_t i = 0; i < s->n_group_timeouts; i++) {
        free(s->group_timeouts[i].group);
        free(s->group_timeouts[i].members);
    }
    free(s->group_timeouts);
    free(s->roles);
    free(s->name);
    free(s->am.name);
    free(s);
}

/* ---- the answers ---- */

void drive_init(struct drive *d, const char *job)
{
    const char *nodes = strstr(job, "nodes=");
    *d = (struct drive){ .spec = drive_spec(job),
                         .gives_back = strstr(job, "gives=1") != NULL,
                         .n_nodes = nodes ? (uint32_t)strtoul(nodes + 6, NULL, 10) : 0 };
    d->job = job_new(d->spec, NULL);
    assert(d->job);
    d->slots = calloc((size_t)job_n_slots(d->job) + 1, sizeof *d->slots);
    d->next_beat = d->spec->heartbeat_ms;
}

void drive_done(struct drive *d)
{
    job_free(d->job);
    drive_spec_free(d->spec);
    free(d->slots);
    free(d->acts.v);
    strv_done(&d->journal);
    *d = (struct drive){ 0 };
}

static void feed_only(struct drive *d, const struct job_event *ev)
{
    d->rc = job_feed(d->job, ev, d->now, &d->acts, &d->e);
    assert(d->rc >= 0);
    if (d->rc == 0 && job_is_durable(ev->type)) {
        AUTO(buf_done) struct buf line = { 0 };
        int rc = job_event_encode(ev, job_now(d->job), &line);
        assert(rc == 0);
        rc = strv_push(&d->journal, buf_cstr(&line));
        assert(rc == 0);
    }
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
        feed_only(d, &(struct job_event){ .type = EV_COMPLETED,
                                          .slot = asked_as(s, slot),
                                          .container = id,
                                          .reason = reason });
}

static void end_attempt(struct drive *d, uint32_t slot, enum end_reason reason)
{
    struct drive_slot *s = &d->slots[slot];
    s->running = false;
    feed_only(d, &(struct job_event){ .type = EV_ATTEMPT_ENDED,
                                      .slot = slot,
                                      .generation = s->generation,
                                      .attempt = s->attempt,
                                      .reason = reason,
                                      .signal = 15 });
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
                                      .slot = slot,
                                      .container = s->container,
                                      .node = d->n_nodes ? node : NULL });
}

static void registers(struct drive *d, uint32_t slot, uint32_t generation)
{
    struct drive_slot *s = &d->slots[slot];
    char address[32];
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", 40000 + slot);
    s->registered = true;
    feed_only(d, &(struct job_event){ .type = EV_REGISTERED,
                                      .slot = slot,
                                      .container = s->container,
                                      .text = address,
                                      .generation = generation,
                                      .pid = 100 + slot });
}

static void answer(struct drive *d, const struct job_action *a, const char *container)
{
    struct drive_slot *s = &d->slots[a->slot];

    switch (a->type) {
    case ACT_ASK:
        if (s->deny)
            feed_only(d, &(struct job_event){
                             .type = EV_ALLOCATION_REFUSED, .slot = a->slot, .text = "too large" });
        else if (!s->mute && !*s->container)
            grant(d, a->slot);
        break;
    case ACT_RELEASE:
        if (str_eq(container, s->container))
            s->container[0] = 0;
        break;
    case ACT_LAUNCH:
        if (!s->mute && !s->launched) {
            s->launched = true;
            registers(d, a->slot, 0);
        }
        break;
    case ACT_START:
        s->generation = a->generation;
        s->attempt = a->attempt;
        if (s->mute || s->running)
            break;
        s->running = s->started = true;
        feed_only(d, &(struct job_event){ .type = EV_ATTEMPT_STARTED,
                                          .slot = a->slot,
                                          .generation = a->generation,
                                          .attempt = a->attempt,
                                          .pid = 200 + a->slot });
        break;
    case ACT_STOP_ATTEMPT:
        if (!s->mute && s->running)
            end_attempt(d, a->slot, a->reason);
        break;
    case ACT_ACK:
        (void)snprintf(d->last_ack, sizeof d->last_ack, "%u %u.%u", a->slot, a->generation,
                       a->attempt);
        if (!s->mute && a->finish)
            end_container(d, a->slot, END_EXITED);
        break;
    case ACT_FINISH_EXECUTOR:
        if (!s->mute)
            end_container(d, a->slot, END_EXITED);
        break;
    case ACT_STOP_CONTAINER:
        if (!s->mute && str_eq(container, s->container))
            end_container(d, a->slot, END_KILLED_BY_MASTER);
        break;
    case ACT_RENEW:
        if (!s->mute && !s->running && s->registered)
            registers(d, a->slot, a->generation);
        break;
    case ACT_TAKE:
        *s = (struct drive_slot){ .asked = a->from };
        {
            struct drive_slot *from = &d->slots[a->from];
            str_copy(s->container, sizeof s->container, from->container);
            s->launched = s->registered = true;
            s->mute = from->mute;
            *from = (struct drive_slot){ 0 };
        }
        break;
    case ACT_PEERS:
        d->n_peers++;
        break;
    case ACT_AVOID: {
        size_t at = strlen(d->avoided);
        (void)snprintf(d->avoided + at, sizeof d->avoided - at, "%s%c%s", at ? " " : "",
                       a->on ? '+' : '-', container);
        break;
    }
    case ACT_NONE:
    case ACT_CANCEL: /* what is not answered at once is not answered by itself */
    case ACT_NOTIFY:
    case ACT_SYNC:
    case ACT_FINISH:
    case ACT_COUNT:
        break;
    }
}

int drive_feed(struct drive *d, const struct job_event *ev)
{
    feed_only(d, ev);
    int rc = d->rc;
    while (d->acts.n) {
        struct job_action a = d->acts.v[0];
        char container[64] = "";
        str_copy(container, sizeof container, a.container ? a.container : "");
        memmove(d->acts.v, d->acts.v + 1, --d->acts.n * sizeof a);
        for (size_t i = 0; i < d->acts.n; i++) {
            if (d->acts.v[i].type !=
                ACT_AVOID)                     /* valid until the next feed only; ours are looked */
                d->acts.v[i].container = NULL; /* up by slot */
        }
        d->n_acts[a.type]++;
        answer(d, &a, *container ? container : d->slots[a.slot].container);
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
                    drive_feed(d, &(struct job_event){ .type = EV_BEAT, .slot = i });
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
    bad("task", task);
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

/* worker:1=3@40 or worker:1!137 */
static void task_ends(struct drive *d, char *word)
{
    char *how = strpbrk(word, "=!"), *age = strchr(word, '@');
    bool container = *how == '!';
    struct job_event ev = { .type = container ? EV_COMPLETED : EV_ATTEMPT_ENDED,
                            .reason = END_EXITED };

    *how++ = 0;
    if (age) {
        *age++ = 0;
        ev.age_us = (uint64_t)number(span_of(age)) * 1000;
    }
    ev.slot = drive_slot(d, word);
    struct drive_slot *s = &d->slots[ev.slot];
    if (reason_named(how)) {
        ev.reason = reason_named(how);
        ev.signal = ev.reason == END_OUT_OF_MEMORY ? 9 : 0;
    } else {
        int64_t n = number(span_of(how));
        ev.exit_code = n < 0 ? 0 : (int)n;
        ev.signal = n < 0 ? (int)-n : 0;
    }
    ev.tail = container ? NULL : "last words\n";
    ev.generation = s->generation;
    ev.attempt = s->attempt;
    char id[sizeof s->container];
    str_copy(id, sizeof id, s->container);
    s->running = false;
    if (container) {
        ev.slot = asked_as(s, ev.slot);
        ev.container = id;
        s->container[0] = 0;
        s->registered = false;
    }
    drive_feed(d, &ev);
}

static void new_master(struct drive *d)
{
    drive_feed(d, &(struct job_event){
                      .type = EV_MASTER_STARTED, .epoch = ++d->epoch, .running = d->gives_back });
    for (uint32_t i = 0; i < job_n_slots(d->job); i++) {
        struct drive_slot *s = &d->slots[i];
        if (s->lost)
            s->container[0] = 0;
        if (*s->container)
            drive_feed(d, &(struct job_event){ .type = EV_CONTAINER_SEEN,
                                               .slot = asked_as(s, i),
                                               .container = s->container,
                                               .launched = s->launched });
    }
    drive_feed(d, &(struct job_event){ .type = EV_RESYNCED });
    for (uint32_t i = 0; i < job_n_slots(d->job); i++) {
        struct drive_slot *s = &d->slots[i];
        if (*s->container && s->registered && !s->mute)
            drive_feed(d, &(struct job_event){ .type = EV_EXECUTOR_BACK,
                                               .slot = i,
                                               .container = s->container,
                                               .generation = s->started ? s->generation : 0,
                                               .attempt = s->started ? s->attempt : 0,
                                               .running = s->running });
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
    else if (str_eq(verb, "lose"))
        s->lost = true;
    else if (str_eq(verb, "grant"))
        grant(d, slot);
    else if (str_eq(verb, "reg"))
        registers(d, slot, 0);
    else if (str_eq(verb, "ready"))
        feed_only(d, &(struct job_event){ .type = EV_TASK_READY,
                                          .slot = slot,
                                          .generation = s->generation,
                                          .attempt = s->attempt });
    else if (str_eq(verb, "save"))
        feed_only(d, &(struct job_event){ .type = EV_CHECKPOINT,
                                          .slot = slot,
                                          .generation = s->generation,
                                          .attempt = s->attempt,
                                          .step = ++d->step,
                                          .group = 1,
                                          .text = "/data/newest" });
    else if (str_eq(verb, "take"))
        feed_only(d, &(struct job_event){ .type = EV_PREEMPTING,
                                          .slot = asked_as(s, slot),
                                          .container = s->container,
                                          .value_ms = 16000 });
    else if (str_eq(verb, "beat"))
        feed_only(d, &(struct job_event){ .type = EV_BEAT, .slot = slot });
    else if (str_eq(verb, "gone"))
        feed_only(d, &(struct job_event){
                         .type = EV_EXECUTOR_GONE, .slot = slot, .container = s->container });
    else if (str_eq(verb, "back"))
        feed_only(d, &(struct job_event){ .type = EV_EXECUTOR_BACK,
                                          .slot = slot,
                                          .container = s->container,
                                          .generation = s->generation,
                                          .attempt = s->attempt,
                                          .running = true });
    else
        bad("a word about a slot", NULL);
    drive_feed(d, &(struct job_event){
                      .type = EV_STALLED }); /* answers what is left; a stall of 0 ms is none */
}

static void one_word(struct drive *d, char *word)
{
    static const struct {
        const char *word;
        struct job_event ev;
    } words[] = {
        { "stop", { .type = EV_STOP, .who = "ann@host 7" } },
        { "owns", { .type = EV_CLIENT_OWNS } },
        { "away", { .type = EV_CLIENT_AWAY } },
        { "abort", { .type = EV_LAUNCH_FAILED_JOB, .text = "no such program" } },
        { "submit",
          { .type = EV_SUBMITTED,
            .text = "application_1_0001",
            .who = "ann",
            .wall_ms = 1000000 } },
        { "owned",
          { .type = EV_SUBMITTED, .text = "application_1_0001", .who = "ann", .running = true } },
    };
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (str_eq(words[i].word, word)) {
            drive_feed(d, &words[i].ev);
            return;
        }
    }
    if (str_eq(word, "go")) {
        one_word(d, (char[]){ "submit" });
        new_master(d);
    } else if (str_eq(word, "master")) {
        new_master(d);
    } else if (word[0] == '+') {
        pass(d, number(span_of(word + 1)));
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
    for (size_t i = 0; i < n; i++) {
        struct job_event ev;
        int64_t t;
        void *holder;
        int rc = drive_record(d->journal.v[i], &ev, &t, &holder);
        assert(rc == 0);
        ignored.n = 0;
        rc = job_feed(j, &ev, t, &ignored, NULL);
        assert(rc == 0);
        job_event_release(holder);
    }
    free(ignored.v);
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
        s->running = v.state == SLOT_RUNNING || v.state == SLOT_STOPPING || v.state == SLOT_HALTING;
        for (uint32_t k = job_n_tasks(j); v.moved && k < job_n_slots(j); k++)
            s->asked = job_slot_now(j, k) == i ? k : s->asked;
    }
    if (job_state(j) == JOB_NEW)
        drive_run(d, "submit");
    new_master(d);
}
