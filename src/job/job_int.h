/*
 * What the files of the core share. The parts, by what changes together:
 *
 *   job.c            life, dispatch of events
 *   view.c           what others may look at
 *   slot.c           the state table of a slot, the only function that changes a slot's state
 *   policy.c         whose turn it is, when a gang starts, what a task's end means, taking down
 *   depends.c        whose tasks have to wait for those of others, and who is stopped by whose end
 *   restart.c        which end is followed by another attempt, of whom, and when
 *   mend.c           what begins again, on its way there
 *   nodes.c          failures per node
 *   verdict.c        how an attempt went, which failure was first, the sentences
 *   known.c          what an end means to a person: a table of known causes (known.h)
 *   checkpoint.c     which checkpoints there are, and the newest that all share
 *   failures.c       what has failed so far, for `tony why`
 *   limits.c         deadlines: a heap of one entry per slot and per limit of the job
 *   recover.c        a new master: what is still there, what is wanted again
 *   journal_event.c  events to JSON and back
 *   status.c         the status document
 */
#ifndef TONY_JOB_INT_H
#define TONY_JOB_INT_H

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/conf.h"
#include "job/job.h"
#include "job/known.h"

enum {
    JOB_SUSPECT_BEATS = 3,
    JOB_MIN_DEAD_BEATS = 3, /* TonY: max(3, tony.task.max-missed-heartbeats) */
    JOB_RECONNECT_MS =
        3000, /* what executors get to find a new master, before their beats are counted */
    JOB_STOP_MARGIN_MS = 3000, /* over the grace: to kill, reap, report */
    JOB_LEFT_MS = 5000,        /* an executor that lives dials again within 2 s */
    JOB_STOP_TRIES = 5,        /* then the scheduler is not believed to confirm any more */
    JOB_TEXT_MAX = 1024,       /* of a text kept from an event */
    JOB_TAIL_MAX = 4096,
    JOB_SAME_FAILURE_MS = 1000, /* failures nearer to each other are taken for one */
    /* Who lost a peer may well be gone before that peer is, which still writes its traceback. */
    JOB_VICTIM_MS = 10000,
    JOB_WITNESS_MS = 1500,  /* while it ends, and could say how, nobody is told to stop */
    JOB_FAILURES_KEPT = 16, /* of attempts that were followed by another one */
    JOB_FAILURES_SHOWN = 16,
    JOB_NO_SLOT = -1,
    /* Two gangs that each hold half of a cluster would wait for each other for ever. One that gets
     * nothing more for so long gives back; by the jitter one does it before the other. */
    GANG_HOLD_MS = 30000,
    GANG_HOLD_JITTER_MS = 10000,
    GANG_PAUSE_MIN_MS = 5000, /* doubles each time */
    GANG_PAUSE_MAX_MS = 60000,
    GANG_PAUSE_JITTER_MS = 5000,
    RESTART_DISK_MS = 5000,          /* before the first try after a full disk */
    RESTART_BACKOFF_MS = 1000,       /* the second restart in a row waits at least so long */
    RESTART_PAUSE_MAX_MS = 60000,    /* unless the user's own delay is longer */
    RESTART_STEADY_MS = 600000,      /* who ran so long has not failed in a row */
    RESTART_FORGIVE_MS = 3600000,    /* who ran so long has all its budgets again */
    RESTART_NOTICE_MAX_MS = 3600000, /* that is believed of a notice */
    RESTART_QUICK_MS = 10000,        /* who failed so soon, on */
    RESTART_QUICK_NODES = 3,         /* so many nodes, is to blame itself */
    NODES_MAX = 10000,               /* that failures are counted for */
    NODES_OUT_PERCENT = 20,          /* of the nodes of a job, at most, are left out */
};

/* ---- slot.c ---- */

/* What happens to a slot, after fencing. Several events can mean the same to it. */
#define SLOT_INPUTS(X)                                                                             \
    X(IN_WANT, "want")         /* its role's turn has come */                                      \
    X(IN_GRANT, "grant")       /* a container was allocated */                                     \
    X(IN_REFUSE, "refuse")     /* it will never get one */                                         \
    X(IN_REGISTER, "register") /* its executor is there and knows of no current attempt */         \
    X(IN_READY, "ready")       /* its executor has made ready for another attempt */               \
    X(IN_START, "start")       /* policy: begin the attempt */                                     \
    X(IN_RETURN, "return")     /* its executor is back and knows the current attempt */            \
    X(IN_END, "end")           /* the attempt ended */                                             \
    X(IN_GONE, "gone")         /* the container ended, or is lost */                               \
    X(IN_STOP, "stop")         /* policy: not wanted any more */                                   \
    X(IN_SILENT, "silent")     /* not heard of for too long */                                     \
    X(IN_OVERDUE, "overdue")   /* should have ended, has not */                                    \
    X(IN_ABANDON, "abandon")   /* nobody can tell us any more how it ends, or nobody needs to */   \
    X(IN_YIELD, "yield")       /* policy: its gang is incomplete and gives back */                 \
    X(IN_RETRY, "retry")       /* like end, and another attempt follows in this container */       \
    X(IN_LOST, "lost")         /* like gone, and it gets another container */                      \
    X(IN_DROP, "drop")         /* its container is to end, and it gets another */                  \
    X(IN_AGAIN, "again")       /* policy: it has to begin again, with others */                    \
    X(IN_TAKE, "take")         /* it has got the container of a spare */                           \
    X(IN_LEND, "lend")         /* the spare that gave it */                                        \
    X(IN_REISSUE, "reissue")   /* a new master: say again what is wanted */

enum slot_input {
    IN_NONE = 0,
#define X(id, name) id,
    SLOT_INPUTS(X)
#undef X
        IN_COUNT,
};

enum slot_do {
    DO_NOTHING = 0,
    DO_ASK,
    DO_CANCEL,
    DO_LAUNCH,
    DO_START,
    DO_STOP_ATTEMPT,
    DO_FINISH_EXECUTOR,
    DO_STOP_CONTAINER,
    DO_RENEW,
    DO_COUNT,
};

struct slot_cell {
    enum slot_state to; /* SLOT_NONE: the input is refused */
    enum slot_do act;
};

extern const struct slot_cell slot_table[SLOT_STATE_COUNT][IN_COUNT];
const char *slot_input_name(enum slot_input in);
const char *slot_do_name(enum slot_do d);

/* The end of an attempt or a container, from whichever event told it. */
struct slot_end {
    enum end_reason reason;
    uint32_t rank; /* of those in the task: whose end it was */
    int exit_code, signal;
    int64_t at_us;         /* job time at which it happened */
    char **detail, **tail; /* owned strings that a slot which is settled by this takes out of their
                              place; may be NULL */
    const char *note;      /* instead of a detail: text that lives as long as the job */
};

/* Restarts that count together: those of a task, or of all that begin again with it. */
struct tally {
    uint32_t n;     /* charged to the user's limit */
    uint32_t row;   /* one soon after the other, whatever for */
    int64_t *times; /* of the last max_restarts; NULL = they are not forgotten */
};

struct slot {
    uint32_t role, index;
    enum slot_state state;
    enum slot_result result; /* RES_NONE until settled */
    enum end_reason reason;
    bool connected, suspect, seen;
    bool ready; /* this attempt; what ends stays so until it begins again */
    uint32_t stop_tries;
    uint32_t generation, attempt; /* current or last; 0 = none yet */
    uint32_t tb_port, pid;
    uint32_t rank; /* whose end decided */
    int exit_code, signal;
    int64_t since_ms; /* when it came into its state */
    int64_t beat_ms;  /* last sign of life, on the clock of beats (limits.c) */
    int64_t stop_us;  /* when it was told to stop; -1 = was not */
    int64_t started_ms, ended_ms;
    int64_t ended_us;                 /* the same, exactly, once settled */
    const struct known *known;        /* once settled: what its end means; NULL = no failure */
    uint64_t step, total, first_step; /* of this attempt; first_step: that it was heard of with */
    int64_t first_ms, step_ms;        /* and when; 0 = was not */
    struct checkpoints *saved;        /* NULL = it never told of one; outlives its attempts */
    char *container, *address, *gpus, *tensorboard, *detail, *tail;
    const char *note;

    struct tally tally;
    uint32_t spent[END_COUNT];          /* of the budgets, by reason */
    int64_t due_ms;                     /* not to be started before */
    int32_t node;                       /* index of its container's; -1 = this machine */
    int32_t quick[RESTART_QUICK_NODES]; /* nodes on which it failed at once; -1 = none */
    uint32_t lent_to;                   /* of a spare: who has its container */
    bool moved;                         /* has that of a spare */
    uint32_t elsewhere;                 /* attempts that it had in other containers */
    /* Of one that is replaced or stopped: the scheduler has given up its container's node, which
     * need not have ended what runs there. */
    bool given_up;
    int64_t left_ms; /* when its executor hung up; 0 = it has not, or was back since */
    /* Of one that is halted because of a notice: when the container that it is about is taken, its
     * own or another's; 0 = there is none. */
    int64_t taken_ms;
    bool leaves; /* halted, and its own is */
};

struct role {
    uint32_t first, n; /* its slots are first .. first + n - 1 */
    uint32_t of;       /* the role itself; of a role of spares, theirs */
    bool forming;      /* its tasks begin again together, in the same generation */
    struct tally tally;
    uint32_t n_unmet;    /* roles that it waits for and that are not over */
    bool awaited;        /* the job waits for it */
    bool stopped;        /* by the end of another role */
    enum role_kind kind; /* as the spec says, until a group limit makes it untracked */
    uint32_t n_state[SLOT_STATE_COUNT], n_result[RES_LOST + 1], n_settled;
};

struct group {
    bool armed, over;
    int64_t due_ms;
};

/* A machine of the cluster that this job has had a container on. */
struct node {
    char *name;
    uint32_t n;       /* failures */
    int64_t *times;   /* of the last node_max_failures */
    int64_t until_ms; /* left out until then; -1 = it is not */
};

/* A min-heap of deadlines with an entry per id; INT64_MAX = not in it. */
struct deadlines {
    uint32_t *heap; /* ids */
    uint32_t *pos;  /* id -> place in heap + 1; 0 = not in it */
    int64_t *due;
    uint32_t n, n_ids;
};

/* A failure: which slot's, and when by its own time. */
struct failure {
    int64_t slot; /* JOB_NO_SLOT */
    int64_t at_us;
    const struct known *known;
};

/* A failed attempt that was followed by another one, or a view of one that was not. */
struct past_failure {
    uint32_t slot, generation, attempt;
    enum end_reason reason;
    int exit_code, signal;
    int64_t at_us;
    uint64_t step;
    char *detail, *tail;     /* may be NULL */
    int32_t node;            /* as in struct slot */
    const char *note, *done; /* live as long as the job; done: what was done about it, or NULL */
    const struct known *known;
};

struct job {
    const struct job_spec *spec;
    struct slot *slots;
    struct role *roles; /* n_roles of the job file's, then those of spares */
    uint32_t n_slots, n_tasks, n_roles, n_all_roles;
    uint32_t *ready; /* roles whose turn has come and that were not requested yet: a stack */
    uint32_t n_ready;
    struct group *groups;
    struct deadlines dl;

    enum job_state state;
    uint32_t epoch, generation;
    int64_t now_ms;
    uint32_t n_state[SLOT_STATE_COUNT];
    uint32_t n_waited;  /* not settled and waited for */
    uint32_t n_awaited; /* waited for, settled or not */
    int64_t chief;      /* role index of "chief"; else the slot is chief_slot */
    int64_t chief_slot;

    bool resyncing; /* between EV_MASTER_STARTED and EV_RESYNCED */
    bool changed;   /* something that followers see: one ACT_NOTIFY at the end of the feed */
    bool check_groups;
    bool check_depends; /* a task has ended: somebody may be stopped by that, or wait in vain */
    bool has_gates;     /* some role's tasks begin after those of another */
    bool gates_moved;   /* one has begun: others may have to begin, too */
    bool owned;
    int64_t submitted_wall_ms, submitted_ms, master_ms /* start of this master */, started_ms,
        ended_ms;
    int64_t stalled_ms;   /* sum of the master's own stalls */
    int64_t beats_from;   /* on the clock of beats: silence is counted from here at the earliest */
    int64_t asked_ms;     /* since when the gang waits for containers; -1 = it does not */
    bool gives_back;      /* the scheduler grants gangs in parts */
    uint32_t round;       /* how often the gang gave back since the last one that started */
    int64_t granted_ms;   /* the last grant */
    int64_t pause_due_ms; /* when the gang asks again; INT64_MAX = it does not pause */
    struct {              /* for people: the last time it gave back */
        uint32_t had, wanted;
        int64_t after_ms;
    } gave;
    /* restarts */
    bool mending;        /* something is to begin again, and has not */
    bool hopeless;       /* no whole restart helps against what was decided */
    bool retry;          /* a whole restart is on */
    uint32_t retries;    /* whole restarts */
    uint32_t n_restarts; /* in all, one for each time that something began again */
    struct {             /* the last of them, for people */
        uint32_t slot, attempt;
        struct slot_end end; /* without its texts */
        const struct known *known;
        const char *done;
        uint64_t step;
    } last_restart;
    int64_t restart_due_ms; /* the next pause's end; INT64_MAX = none */
    int64_t paused_ms;      /* pauses up to here are over, as a timer said */
    VEC(struct node) nodes;
    uint32_t n_out; /* nodes left out */
    int64_t client_due_ms;
    char *application_id, *user, *tensorboard;
    char *stray; /* id of a container nobody wants, for the action about it */
    char silence_note[64], registration_note[96];

    /* what was decided, and when it is final: state is SUCCEEDED, FAILED or KILLED */
    enum job_state decided; /* JOB_NONE until then */
    bool by_task;           /* FAILED because of a task: the first failure is named */
    bool own_words;         /* but the message says more than that */
    struct failure cause;   /* the first */
    struct failure fatal;   /* the one that decided, by the rules */
    bool has_checkpoint;
    uint64_t checkpoint_step; /* that all share */
    int64_t checkpoint_ms;    /* when it became so, and was newer than all before */
    uint32_t n_savers;        /* slots that ever told of one */
    uint32_t wait_ms;         /* before tasks are stopped: one of them may be ending already */
    uint32_t save_ms;         /* what tasks get to save one, now that the job is stopped */
    struct past_failure past[JOB_FAILURES_KEPT]; /* a ring */
    uint32_t n_past;                             /* ever */
    char message[640];

    struct job_actions *out; /* during a feed */
};

#define SLOT_NAME "%s:%u" /* with SLOT_ARGS(j, slot) */
#define SLOT_ARGS(j, i) job_role_name((j), (j)->slots[i].role), (j)->slots[i].index

/* Feeds one input to a slot: looks the cell up, changes state and counters, emits the action.
 * 0, or 1 refused with e set. `end` with IN_END, IN_GONE, IN_REFUSE, IN_SILENT, IN_ABANDON: how it
 * ended, settles the slot. */
int slot_step(struct job *j, uint32_t slot, enum slot_input in, const struct slot_end *end,
              struct err *e);
/* How it ended, kept in the slot until the next attempt. */
void slot_keep_end(struct job *j, struct slot *s, const struct slot_end *end);
/* What an attempt may use of the time until a container is taken: half of it to save a checkpoint,
 * a quarter to end, and the rest is spare. */
void slot_allow(const struct job *j, int64_t taken_ms, struct job_action *a);
bool slot_settled(const struct slot *s);
bool slot_has_container(enum slot_state s); /* granted and not known to be gone */
void slot_done(struct slot *s);

/* ---- job.c ---- */

/* Copies of an event's strings, made before anything changes, so that an event is applied whole or
 * not at all. Who keeps one takes it out; the rest is freed after the event. */
struct kept {
    char *container, *text, *who, *tail;
    struct node node; /* that the job does not know yet; name NULL = none */
};

struct job_action *job_act(struct job *j, enum job_action_type type, uint32_t slot);
/* A container that is not wanted: given back, or stopped when its executor was started. Takes
 * kept->container. */
void job_discard(struct job *j, uint32_t slot, bool launched, struct kept *kept);
/* The slot gets the container in kept; the one that it may have given back is forgotten. */
void job_place(struct job *j, struct slot *s, const struct job_event *ev, struct kept *kept);

/* ---- view.c ---- */

bool job_over(const struct job *j); /* the verdict is final */
bool job_is_spare(const struct job *j, uint32_t slot);
struct role *job_role_of(const struct job *j, uint32_t slot);
const struct role_spec *job_role_spec(const struct job *j, uint32_t role);
const char *job_role_name(const struct job *j, uint32_t role);
bool job_is_chief(const struct job *j, uint32_t slot);
bool job_is_sidecar(const struct job *j, uint32_t role);       /* nobody waits for it */
bool job_is_wanted(const struct job *j, const struct slot *s); /* its stage has come, or had */

/* ---- policy.c ---- */

void policy_init(struct job *j);
void policy_recount(struct job *j); /* who is waited for, after results were taken back */
void policy_stages(struct job *j);  /* all stages begin from the first */
void policy_registered(struct job *j, uint32_t slot);
void policy_stop_now(struct job *j); /* what is given time to save a checkpoint has it no more */
void policy_abandon(
    struct job *j); /* nobody watches over the containers any more: the job ends now */
void policy_role_over(
    struct job *j, uint32_t role); /* the last of its slots has ended: others may have their turn */
void policy_settled(struct job *j, uint32_t slot, enum slot_state from,
                    int64_t at_us); /* a result stands: what the rules say */
void policy_group_due(struct job *j, uint32_t group);
void policy_give_back(struct job *j); /* LIMIT_GANG */
void policy_ask_again(struct job *j); /* LIMIT_PAUSE */
void policy_announce(struct job *j);  /* the verdict, to whom it concerns; can be repeated */
void policy_run(struct job *j); /* after each event: requests, starts, the final evaluation, taking
                                   down, the end */
void policy_decide(struct job *j, enum job_state verdict, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- depends.c ---- */

/* May tasks of the role begin? All that its gates are about have started, or are ready. */
bool depends_open(const struct job *j, uint32_t role);
/* After ends: stops the roles that those of others stop; decides that the job has failed when a
 * role waits for what can never be. */
void depends_check(struct job *j);
/* What a role waits for whose tasks have not begun: a sentence's rest ("'ps' to be ready"), false =
 * for nothing of this kind. */
bool depends_text(const struct job *j, uint32_t role, struct buf *out);

/* ---- restart.c ---- */

int restart_init(struct job *j); /* -ENOMEM */
void restart_done(struct job *j);
/* An attempt or a container has ended, or must: `plain` (IN_END, IN_GONE, IN_SILENT) is given to
 * the slot, or what stands for it when another attempt follows; and to others what they have to do.
 */
int restart_ended(struct job *j, uint32_t slot, enum slot_input plain, const struct slot_end *end,
                  struct err *e);
/* The scheduler will take its container within_ms from now: what will have to begin again then does
 * so now, while there is time to save a checkpoint. */
int restart_preempting(struct job *j, uint32_t slot, int64_t within_ms, struct err *e);
/* A container is gone that the scheduler does not know. Where no attempt had begun in it nothing is
 * charged: a cluster forgets what it had not heard to run. */
void restart_unseen(struct job *j, uint32_t slot, const struct slot_end *lost);
/* A job that was decided FAILED begins again as a whole, if it may. */
bool restart_whole(struct job *j);
bool restart_wants_executor(const struct job *j, uint32_t slot); /* there will be other attempts */

/* ---- mend.c ---- */

/* What is to begin again asks, takes, starts. After each event, while j->mending. */
void mend_run(struct job *j);
int mend_fired(struct job *j, struct err *e); /* LIMIT_RESTART */
void mend_spares(struct job *j);              /* asks for them when the tasks have theirs */

/* ---- nodes.c ---- */

/* Room for the node of an event, if it is new: 0 or -ENOMEM. */
int nodes_keep(struct job *j, const struct job_event *ev, struct node *out);
void node_done(struct node *n);
int32_t nodes_enter(struct job *j, const char *name, struct node *kept); /* -1: none */
void nodes_failed(struct job *j, int32_t node);
bool nodes_is_out(const struct job *j, int32_t node);
int nodes_fired(struct job *j, struct err *e); /* LIMIT_NODE */
int64_t nodes_due(const struct job *j);
void nodes_announce(struct job *j);                      /* to a new master's scheduler */
void nodes_status(const struct job *j, struct buf *out); /* of the document: those left out */
void nodes_free(struct job *j);

/* ---- verdict.c ---- */

enum slot_result verdict_result(const struct slot *s, const struct slot_end *end);
bool verdict_is_failure(enum slot_result r);
void verdict_candidate(struct job *j, uint32_t slot,
                       int64_t at_us); /* a failure: perhaps the first */
/* One that was stopped: perhaps it was the first, and those that lost it were quicker to end. */
void verdict_witness(struct job *j, uint32_t slot, int64_t at_us);
/* Of a slot that is being settled. */
const struct known *verdict_known(const struct job *j, struct slot *s);
void verdict_sentence(const struct job *j, uint32_t slot, char *out, size_t size);
void verdict_compose(struct job *j); /* writes j->message from what was decided */
const char *signal_name(int signal); /* "SIGKILL"; NULL when it has none */
int verdict_exit_code(enum job_state s);

/* ---- checkpoint.c ---- */

int checkpoint_saved(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e);
const char *checkpoint_newest(const struct slot *s, uint64_t *out_step); /* of one slot; NULL */
void checkpoint_done(struct slot *s);

/* ---- failures.c ---- */

/* Before what is known of a slot's ended attempt gives way to its next one: keeps it, for people.
 * done: what is being done about it ("started again"), a text that lives as long as the job. */
void failures_keep(struct job *j, uint32_t slot, const char *done);
void failures_done(struct job *j);
/* What has just begun again, because of whom. */
void failures_note_restart(struct job *j, uint32_t slot, const char *done);
void failures_restart_json(const struct job *j, struct buf *out); /* ,"last_restart":{...} */
/* How much of what the tasks themselves have written. */
enum failure_words { WORDS_NONE = 0, WORDS_LINE, WORDS_TAIL };
/* ,"bad_nodes":[...]: those where something failed; nothing when there are none. */
void nodes_json(const struct job *j, struct buf *out);
void status_text(struct buf *out, const char *key, const char *s); /* ,"key":"s", or null */
/* ,"failures":[...] in the order of their time; nothing when there was none. */
void failures_json(const struct job *j, enum failure_words words, struct buf *out);

/* ---- limits.c ---- */

int limits_init(struct job *j);
void limits_done(struct job *j);
const char *limit_text(int64_t ms, char *buf, size_t size); /* "25 s", "1500 ms"; returns buf */
int64_t beat_clock(const struct job *j);        /* job time less the master's own stalls */
void limits_slot(struct job *j, uint32_t slot); /* after a change of the slot's state */
void limits_asked(
    struct job *j); /* after a change of the number of slots that wait for a container */
void limits_gang(struct job *j);            /* after a change of what the gang has and lacks */
int64_t gang_pause_ms(const struct job *j); /* before it asks again, by application and round */
/* 0 .. max, by application, kind and number: the same in a replay, another for another job. */
int64_t jitter_ms(const struct job *j, char which, uint32_t number, uint32_t max);
void limits_job(struct job *j); /* after a change of what else the job waits for */
int limits_fired(struct job *j, const struct job_event *ev, struct err *e);
int limits_suspect(struct job *j, uint32_t slot, struct err *e);

/* ---- recover.c ---- */

int recover_master_started(struct job *j, const struct job_event *ev, struct err *e);
int recover_seen(struct job *j, const struct job_event *ev, struct kept *kept, struct err *e);
int recover_resynced(struct job *j, struct err *e);

#endif
