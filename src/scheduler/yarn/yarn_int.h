/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of the YARN back-end share:
 *
 *   yarn.c       the table of functions, registration, and the end of the application
 *   allocate.c   the heartbeat to the ResourceManager: requests, releases, grants
 *   asks.c       the requests of containers in a heartbeat
 *   boxes.c      containers, and how they end
 *   nodes.c      calls to the NodeManagers: start, stop and status of containers
 *   launch.c     the contents of a start call
 *   fate.c       asks the ResourceManager whether the application has ended
 *   lifetime.c   tells the ResourceManager when the application has to end
 *   yarnfile.c   the file yarn.json (yarnfile.h)
 *   resizefile.c the resize that a client left for the first master (resizefile.h)
 *   wire.c       the functions of src/hadoop that the back-end calls
 *
 * A box is this back-end's record of one container.
 *
 * The ResourceManager gets one call at a time. Each NodeManager gets at most one start, one stop
 * and one status call at a time. A slow NodeManager never delays the heartbeat.
 */
#ifndef TONY_SCHEDULER_YARN_INT_H
#define TONY_SCHEDULER_YARN_INT_H

#include "base/err.h"
#include "base/map.h"
#include "base/util.h"
#include "base/vec.h"
#include "hadoop/ids.h"
#include "hadoop/rpc_client.h"
#include "hadoop/site.h"
#include "hadoop/token.h"
#include "hadoop/yarn.h"
#include "scheduler/scheduler.h"
#include "scheduler/yarn/yarnfile.h"
#include "storage/jobkey.h"

struct loop_timer;

/* ---- the functions of src/hadoop that the back-end calls; tests replace them ---- */

#define YARN_WIRE(X)                                                                               \
    X(get_cluster_nodes, GetClusterNodes)                                                          \
    X(get_application_report, GetApplicationReport)                                                \
    X(update_timeouts, UpdateApplicationTimeouts)                                                  \
    X(register_master, RegisterApplicationMaster)                                                  \
    X(allocate, Allocate)                                                                          \
    X(finish_master, FinishApplicationMaster)                                                      \
    X(start_containers, StartContainers)                                                           \
    X(stop_containers, StopContainers)                                                             \
    X(get_container_statuses, GetContainerStatuses)

struct yarn_wire {
    int (*client_new)(const struct rpc_client_options *o, struct rpc_client **out, struct err *e);
    void (*client_free)(struct rpc_client *c);
    void (*client_retire)(struct rpc_client *c);
    const char *(*client_local)(const struct rpc_client *c);
    void (*call_cancel)(struct rpc_call *call);
    void (*end_of)(int32_t exit_status, const char *diagnostics, const char *memory_key,
                   struct yarn_end *out);
#define X(fn, M)                                                                                   \
    struct rpc_call *(*fn)(                                                                        \
        struct rpc_client *, const Hadoop__##M##Request *, int64_t,                                \
        void (*)(const Hadoop__##M##Response *, const struct rpc_error *, void *), void *);
    YARN_WIRE(X)
#undef X
    uint32_t hurry; /* for tests: all pauses are divided by it; 0 means 1 */
};

extern const struct yarn_wire yarn_wire_real;

enum {
    YARN_CALL_MS = 30000,    /* timeout of a call to the ResourceManager, retries included */
    YARN_EXPIRY_MS = 900000, /* YARN's default; used if yarn.json has no am_expiry_ms */
    /* Pauses between two heartbeats (allocate calls): */
    YARN_BEAT_MS = 1000,      /* while no ask is open; YARN's own masters use the same interval */
    YARN_BEAT_FAST_MS = 20,   /* while an ask has been open for less than YARN_BEAT_SOON_MS */
    YARN_BEAT_SOON_MS = 2000, /* afterwards the pause is a tenth of the time that the ask has been
                                 open, at most YARN_BEAT_MS: reached after 10 s */
    YARN_BEAT_SHARE = 10,
    /* Other pauses: */
    YARN_STORE_MS = 10,            /* between two checks whether the journal has stored the ends */
    YARN_RETRY_MS = 1000,          /* after a failed call to the ResourceManager */
    YARN_FATE_MS = 15,             /* between two questions whether the application has ended */
    YARN_FINISH_MS = 20,           /* between two finish calls */
    YARN_NODE_RETRY_MS = 1000,     /* after a NodeManager was not ready, or refused its token */
    YARN_POLL_MS = 30,             /* between two status calls for containers that are polled */
    YARN_LIFETIME_RETRY_MS = 5000, /* after a failed call that sets the application's LIFETIME */
    /* Timeouts: */
    YARN_FINISH_WAIT_MS = 60000, /* for a ResourceManager that is down at the end of the job */
    YARN_START_MS = 180000,      /* of a start call, also to a node that does not answer */
    YARN_NODE_MS = 10000,        /* of a stop or status call */
    YARN_TOKEN_WAIT_MS = 20000,  /* for a new NMToken after a node has refused the old one */
    YARN_POLL_FOR_MS = 10000,    /* polling of one container; if it was stopped and has not ended
                                    then, it is released to the ResourceManager */
    YARN_CAUSE_MS = 5000, /* for the ResourceManager's reason, after a node reported an end */
    YARN_SLOW_MS = 2000,  /* a start call that takes longer does not count as a start */
    YARN_LIFETIME_MORE_MS = 120000, /* the LIFETIME is longer than the job's own limit, so that the
                                       master acts first */
    /* Limits: */
    YARN_BATCH_MAX = 64,         /* containers in one start call */
    YARN_STARTS_MAX = 200,       /* start calls at the same time, without slow ones */
    YARN_ASK_ENTRIES_MAX = 4000, /* entries for racks in one allocate call */
    YARN_PRIORITY = 1,           /* of all requests */
    /* The time from the notice of preemption until the container is taken. YARN does not report it;
     * this is the default of
     * yarn.resourcemanager.monitor.capacity.preemption.max_wait_before_kill. */
    YARN_PREEMPT_MS = 15000,
};

/* ---- asks: requests for one container each ---- */

struct ask {
    uint32_t slot; /* must be the first member: scheduler/slots.h */
    bool open;     /* a container is wanted, and none has been granted */
    bool dirty;    /* the next allocate call must contain the ask */
    bool inflight; /* the allocate call under way contains it */
    uint64_t memory_mib;
    uint32_t vcores, gpus;
    char *role;
    char *node;        /* the preferred node, "host:port"; NULL = any node */
    char *old_node;    /* the ResourceManager may still have this preference of an earlier ask */
    struct box *boxes; /* the containers of the slot, chained by next_of_slot */
};

struct release {
    struct yarn_container id;
    bool inflight;
};

/* ---- containers ---- */

enum box_state {
    BOX_NONE = 0,
    BOX_GRANTED,  /* the master has not launched it */
    BOX_TO_START, /* waits for the next start call to its node */
    BOX_STARTING, /* the start call under way contains it */
    BOX_DOUBT,    /* the start call failed, but may have started the container: its node is asked */
    BOX_STARTED,
    BOX_ENDED,
};

struct box {
    char id[YARN_ID_TEXT_MAX];
    struct yarn_container key;
    uint32_t slot;
    enum box_state state;
    struct node *node;
    struct token token; /* of the container; freed when it has started */
    struct box *next_of_slot;
    char *log_url, *role;
    bool preempting;          /* SE_PREEMPTING was reported */
    bool stop_wanted;         /* the master wants its end */
    bool stop_sent;           /* a stop call to its node contains it, or contained it */
    bool released;            /* it was released to the ResourceManager */
    int64_t poll_until;       /* its end is expected: poll the node until then; 0 = do not */
    int64_t cause_due_ms;     /* its node reported its end: wait until then for the reason of the
                                 ResourceManager; 0 = no */
    int32_t node_exit_status; /* the exit status that the node reported */
    int64_t token_due_ms;     /* its node refused the token: fail at this time; 0 = not refused */
};

/* ---- nodes ---- */

struct node {
    struct yarn *y;
    char *id, *host, *http; /* id "host:port" */
    char *health;           /* its report of what is wrong with the node; NULL = it is healthy */
    uint16_t port;
    struct token token;
    bool has_token;
    bool start_singly;       /* start one container in each call: a call with several failed */
    bool counts_as_starting; /* its start call is counted in yarn.n_starting */
    struct rpc_client *client;
    struct rpc_call *start, *stop, *status; /* the calls under way */
    VEC(struct box *) boxes;                /* those that have not ended */
    int64_t start_at;                       /* send no start call before this time */
    int64_t poll_at;                        /* send no status call before this time */
    int64_t sent_ms;                        /* when the start call under way was sent */
    struct loop_timer *timer;
};

/* ---- the back-end ---- */

enum yarn_phase {
    YP_NONE = 0,
    YP_MEETING,     /* getClusterNodes: finds this machine's address, and the racks */
    YP_REGISTERING, /* for the first time, or after a restart of the ResourceManager */
    YP_READY,
    YP_OVER, /* finished or broken: nothing is sent any more */
};

struct yarn {
    const struct sched_ops *ops; /* must be the first member: every struct sched begins with it */
    const struct yarn_wire *wire;
    struct sched_config cfg;
    struct job_key key;
    struct yarn_file *file;
    struct site_addresses rm_at, scheduler_at;
    struct token token;
    struct rpc_client *client, *rm;
    char host[64];
    struct strv racks;

    enum yarn_phase phase;
    bool registered; /* SE_REGISTERED was reported */
    bool beat_soon;  /* a node's report shows that the ResourceManager has news: ask it soon */
    /* The last answer reported ends. The next heartbeat acknowledges them, so it must wait until
     * the journal has stored them (sched_config.stored). */
    bool answer_had_ends;
    bool finishing; /* finish() was called; from now on only that is reported */
    struct rpc_call *call; /* the call to the ResourceManager that is under way */
    int32_t last_id;       /* response id of the last answer */
    /* A call failed after it may have been processed. So the next answer may be the answer to that
     * call, not to the repeated one. call_doubtful: the same for the call under way. */
    bool doubtful, call_doubtful;
    /* The ResourceManager refused a request because of one of its asks or releases: send them one
     * at a time to find out which. */
    bool single_ask, single_release;
    unsigned n_unexpected; /* unexpected errors in a row */
    int64_t failing_since; /* 0 = the last call succeeded */
    int64_t next_ms;       /* make no call before this time */
    int64_t sent_ms;       /* when the last heartbeat was sent */

    int64_t max_memory; /* the largest possible container, in MiB; 0 = unknown */
    int32_t max_vcores;
    struct strv max_types; /* "yarn.io/gpu=4" */

    VEC(struct ask) asks; /* all asks of this master, sorted by slot */
    uint32_t n_open;      /* open asks */
    int64_t open_since;   /* when an ask was last opened, or answered */
    VEC(struct release) releases;
    VEC(struct avoided {
        char *host; /* as the ResourceManager names the node */
        bool avoid;
        bool dirty;    /* the next allocate call must contain it */
        bool inflight; /* the allocate call under way contains it */
    })
    avoided;
    struct map boxes; /* without those whose end the ResourceManager has reported */
    struct map nodes;
    uint32_t n_starting; /* nodes whose start call is under way, without slow ones */
    VEC(struct report {
        uint32_t slot;
        struct box *box; /* the box whose end to report; NULL = report a refusal of the slot */
        char *text;
    })
    reports; /* events to report when the present call of a sched_ops function has returned */

    struct loop_timer *timer, *report_timer;
    struct {
        struct rpc_client *client;
        struct rpc_call *call;
        struct loop_timer *timer;
        int64_t due_ms;
        void (*done)(bool over, const char *who, const char *text, void *arg);
        void *arg;
    } fate;
    struct {
        struct rpc_client *client;
        struct rpc_call *call;
        struct loop_timer *timer; /* NULL = the job has no limit */
        int64_t ends_wall_ms;
    } lifetime;
    void (*finish_done)(void *arg);
    int64_t finish_by;
    Hadoop__FinalApplicationStatus finish_status;
    char *diagnostics;
};

static inline int64_t yarn_pause(const struct yarn *y, int64_t ms)
{
    return y->wire->hurry ? ms / y->wire->hurry : ms;
}

/* ---- yarn.c ---- */
int yarn_open_with(const struct yarn_wire *wire, const struct sched_config *cfg, struct sched **out,
                   struct err *e);
void yarn_emit(struct yarn *y, const struct sched_event *ev);
void yarn_step(struct yarn *y);     /* make the next call to the ResourceManager, if it is due */
void yarn_wake(struct yarn *y);     /* let yarn_step() run soon, but not within this call */
void yarn_finished(struct yarn *y); /* call the `done` of finish(); only the first time */
/* Report SE_REGISTERED with all existing containers, and with the n containers of v, which ended
 * while no master was running. */
void yarn_tell_registered(struct yarn *y, Hadoop__ContainerStatus *const *v, size_t n);
void yarn_broken(struct yarn *y, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int yarn_new_token(struct yarn *y, const Hadoop__Token *m); /* YARN has replaced the AMRMToken */
/* A call to the ResourceManager failed: register again, retry, or give up. */
void yarn_failed(struct yarn *y, const struct rpc_error *e, const char *what);

/* ---- allocate.c ---- */
void yarn_heartbeat(struct yarn *y);
int64_t yarn_beat_ms(const struct yarn *y); /* the pause before the next heartbeat */
bool yarn_has_news(const struct yarn *y);   /* has the next heartbeat something to send? */
void yarn_replay(struct yarn *y); /* the ResourceManager has lost all requests: send them again */
int yarn_ask(struct yarn *y, const struct sched_ask *a);
struct ask *yarn_find_ask(const struct yarn *y, uint32_t slot); /* NULL = never requested */
/* Store the role of each slot of a resized job: an earlier master may have requested some of the
 * slots.
 */
int yarn_learn_roles(struct yarn *y, const struct sched_ask *whole, size_t n);
void yarn_release(struct yarn *y, const struct yarn_container *id);
int yarn_learn_max(struct yarn *y, const Hadoop__Resource *max);
int yarn_take_tokens(struct yarn *y, Hadoop__NmToken **v, size_t n);
struct box *yarn_adopt(struct yarn *y, const Hadoop__Container *c, bool launched);
const char *yarn_slot_role(const struct yarn *y, uint32_t slot);
void yarn_unlink_slot(struct yarn *y, struct box *b); /* remove b from its slot's chain */

int yarn_avoid(struct yarn *y, const char *node, bool avoid);
/* Call fn once for each resource type, other than memory and vcores, that the ask needs. */
int yarn_each_type(const struct yarn *y, const struct ask *a,
                   int (*fn)(const char *type, uint64_t amount, void *arg), void *arg);

/* ---- asks.c ---- */
/* Add each changed ask to the request: one entry for "*" (any node), one for each rack, and those
 * of its preferred node. Without the rack entries, a scheduler that grants during node heartbeats
 * would grant only one container in each. priority: borrowed until the request is packed. 0 or
 * -ENOMEM. */
struct arena;
int yarn_add_asks(struct yarn *y, struct arena *a, Hadoop__AllocateRequest *rq,
                  Hadoop__Priority *priority);

/* ---- fate.c ---- */
int yarn_fate(struct sched *s, int64_t within_ms,
              void (*done)(bool over, const char *who, const char *text, void *arg), void *arg);
void yarn_fate_close(struct yarn *y);

/* ---- lifetime.c ---- */
void yarn_lifetime_arm(struct yarn *y); /* only the first call has an effect */
void yarn_lifetime_close(struct yarn *y);

/* ---- boxes.c ---- */
struct box *box_find(struct yarn *y, const Hadoop__ContainerId *id);
void box_view(const struct box *b, struct sched_container *out);
/* How a container of an earlier master ended. The strings of *out point into t. */
struct box_end_text {
    char id[YARN_ID_TEXT_MAX], detail[1024];
};
void box_ended_before(struct yarn *y, const struct yarn_container *key,
                      const Hadoop__ContainerStatus *s, struct box_end_text *t,
                      struct sched_container *out);
void box_end(struct yarn *y, struct box *b, int32_t exit_status, const char *diagnostics);
void box_end_at_node(struct yarn *y, struct box *b, int32_t exit_status, const char *diagnostics);
/* The back-end itself ends the container, for a reason that does not come from YARN. */
void box_fail(struct yarn *y, struct box *b, enum end_reason reason, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void box_free(void *b);
/* The ResourceManager has reported the end of b, so no later message is about it: free it. Without
 * this a job that runs for months would keep a record of each container that it ever had. */
void box_forget(struct yarn *y, struct box *b);
void box_leave_node(struct box *b);
/* Report the end of b, or (b is NULL) a refusal of the slot, when the present call has returned. */
int report_later(struct yarn *y, uint32_t slot, struct box *b, const char *text);
void report_all(void *arg); /* callback of y->report_timer */

/* ---- nodes.c ---- */
struct node *node_get(struct yarn *y, const Hadoop__NodeId *id,
                      const char *http); /* NULL: memory */
int node_token(struct node *n, const Hadoop__Token *t);
void node_pump(struct node *n); /* make all calls to the node that are due */
void node_free(void *n);

/* ---- launch.c ---- */
/* Send the call that starts `count` containers; secrets are wiped from memory afterwards. NULL with
 * e set: no memory. */
struct rpc_call *
launch_send(struct node *n, struct box *const *v, size_t count, int64_t deadline_ms,
            void (*done)(const Hadoop__StartContainersResponse *, const struct rpc_error *, void *),
            struct err *e);

#endif
