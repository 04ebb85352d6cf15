/*
 * What the files of the YARN back-end share: yarn.c (the table, registration, the end), allocate.c
 * (the heartbeat: asks, releases, grants), boxes.c (containers and how they end), nodes.c
 * (starting, stopping, asking at the NodeManagers), launch.c (what a container is started with).
 *
 * One call at a time goes to the ResourceManager, and at each node one of a kind; nothing that a
 * node does or does not do holds up the heartbeat.
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

/* ---- the seam to src/hadoop, which tests replace ---- */

#define YARN_WIRE(X)                                                                               \
    X(get_cluster_nodes, GetClusterNodes)                                                          \
    X(get_application_report, GetApplicationReport)                                                \
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
    uint32_t hurry; /* pauses are divided by it; 0 = 1. For tests */
};

extern const struct yarn_wire yarn_wire_real;

enum {
    YARN_CALL_MS = 30000,    /* one call to the ResourceManager, with rpc_client's own retries */
    YARN_EXPIRY_MS = 900000, /* when yarn.json does not say: the default of YARN */
    YARN_BEAT_MS = 1000,     /* between two allocates when nothing is waited for */
    YARN_BEAT_FAST_MS = 20,  /* when asks are open, and for the first seconds of them */
    YARN_BEAT_WAIT_MS = 50,  /* when they are open for longer */
    YARN_BEAT_LONG_MS = 250, /* and when they are open for very long */
    YARN_STORE_MS = 10,      /* between two looks whether the ends are stored */
    YARN_RETRY_MS = 1000,    /* after a failed call */
    YARN_FATE_MS = 15,       /* between two questions whether the application is over */
    YARN_FINISH_MS = 20,     /* between two finish calls */
    YARN_FINISH_WAIT_MS = 60000, /* for a ResourceManager that is down at the end */
    YARN_START_MS = 180000,      /* one start call; the start of a node that does not answer */
    YARN_NODE_MS = 10000,        /* stop and status calls */
    YARN_NODE_RETRY_MS = 1000,   /* NMNotYetReady, token refused */
    YARN_TOKEN_WAIT_MS = 20000,  /* for another NMToken after one was refused */
    YARN_LOOK_MS = 30,           /* between two looks at a container whose end is expected */
    YARN_WHY_MS = 5000,          /* for the ResourceManager to say why it had a container ended */
    YARN_LOOK_FOR_MS = 10000,    /* so long; a stopped one is given to the ResourceManager then */
    YARN_BATCH_MAX = 64,         /* containers of one start call */
    YARN_STARTS_MAX = 200,       /* start calls at once; those that take longer do not count */
    YARN_SLOW_MS = 2000,
    YARN_ASK_ENTRIES_MAX = 4000, /* rack entries are left out beyond */
    YARN_PRIORITY = 1,
    /* From the notice to the end: the default of
     * yarn.resourcemanager.monitor.capacity.preemption.max_wait_before_kill, which nobody tells us.
     */
    YARN_PREEMPT_MS = 15000,
};

/* ---- asks ---- */

struct ask {
    bool open;     /* wanted, and not granted */
    bool dirty;    /* the ResourceManager must be told */
    bool inflight; /* it is being told */
    uint64_t memory_mib;
    uint32_t vcores, gpus;
    char *role;
};

struct release {
    struct yarn_container id;
    bool inflight;
};

/* ---- containers ---- */

enum box_state {
    BOX_NONE = 0,
    BOX_GRANTED,  /* not launched */
    BOX_TO_START, /* waits for its node's next start call */
    BOX_STARTING, /* in one */
    BOX_DOUBT,    /* its start call failed and may have started it: its node is asked */
    BOX_STARTED,
    BOX_ENDED,
};

struct box {
    char id[YARN_ID_TEXT_MAX];
    struct yarn_container key;
    uint32_t slot;
    enum box_state state;
    struct node *node;
    struct token token; /* until it is started */
    char *log_url, *role;
    uint64_t memory_mib;
    bool preempting;             /* was told */
    bool stop_wanted, stop_told; /* told: its node has been, or is being */
    bool released;
    int64_t look_until; /* its end is expected: the node is asked; 0 = not */
    int64_t why_by;     /* it has ended, and the ResourceManager has until then to say of what */
    int32_t ended_as;   /* what its node said meanwhile */
    int64_t born_ms, token_by_ms;
};

/* ---- nodes ---- */

struct node {
    struct yarn *y;
    char *id, *host, *http; /* id "host:port" */
    char *health;           /* what its report says is wrong; NULL = nothing */
    uint16_t port;
    struct token token;
    bool has_token, one_by_one, counted;
    struct rpc_client *client;
    struct rpc_call *start, *stop, *status;
    VEC(struct box *) boxes; /* that have not ended */
    int64_t start_at;        /* not before */
    int64_t look_at;
    int64_t sent_ms; /* the start call that is under way */
    struct loop_timer *timer;
};

/* ---- the whole ---- */

enum yarn_phase {
    YP_NONE = 0,
    YP_MEETING,     /* own address and racks, by getClusterNodes */
    YP_REGISTERING, /* first time, or after a restart of the ResourceManager */
    YP_READY,
    YP_OVER, /* finished, or broken: nothing is sent any more */
};

struct yarn {
    const struct sched_ops *ops; /* first: struct sched is this */
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
    bool registered; /* SE_REGISTERED was told */
    bool ask_soon;   /* it has something to say that we know of from elsewhere */
    bool ends_told;  /* by the last answer: it must be stored that we know before we ask again */
    bool finishing;
    struct rpc_call *call;
    int32_t last_id;
    bool doubtful, call_doubtful; /* the answer may be that of the request before */
    bool one_ask, one_release;    /* one of several was refused: which? */
    unsigned n_odd;               /* errors in a row that nobody can explain */
    int64_t failing_since;        /* 0 = the last call went well */
    int64_t next_ms;              /* not before */
    int64_t sent_ms;

    int64_t max_memory; /* of one container; 0 = not known */
    int32_t max_vcores;
    struct strv max_types; /* "yarn.io/gpu=4" */

    VEC(struct ask) asks; /* by slot */
    uint32_t n_open;
    int64_t open_since;
    VEC(struct release) releases;
    VEC(struct avoided {
        char *host; /* as the scheduler names nodes */
        bool avoid;
        bool dirty;    /* the ResourceManager must be told */
        bool inflight; /* it is being told */
    })
    avoided;
    struct map boxes, nodes;
    uint32_t n_starting;
    VEC(struct told {
        uint32_t slot;
        struct box *box; /* NULL: a refusal */
        char *text;
    })
    tolds; /* to be told when the present call has returned */

    struct loop_timer *timer, *soon;
    struct {
        struct rpc_client *client;
        struct rpc_call *call;
        struct loop_timer *timer;
        int64_t by_ms;
        void (*done)(bool over, const char *who, const char *text, void *arg);
        void *arg;
    } fate;
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
void yarn_step(struct yarn *y);     /* do the next call to the ResourceManager, if it is time */
void yarn_wake(struct yarn *y);     /* there is something to tell it: not within this call */
void yarn_finished(struct yarn *y); /* tells it; once */
/* SE_REGISTERED: what is there, and how those ended (v, n) that have while there was no master. */
void yarn_tell_registered(struct yarn *y, Hadoop__ContainerStatus *const *v, size_t n);
void yarn_broken(struct yarn *y, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int yarn_new_token(struct yarn *y, const Hadoop__Token *m); /* the rolled AMRMToken */
/* A call to the ResourceManager failed; decides what follows. */
void yarn_failed(struct yarn *y, const struct rpc_error *e, const char *what);

/* ---- allocate.c ---- */
void yarn_heartbeat(struct yarn *y);
int64_t yarn_beat_ms(const struct yarn *y); /* until the next one */
bool yarn_has_news(const struct yarn *y);   /* for the ResourceManager */
void yarn_replay(struct yarn *y);           /* it has forgotten all that we asked for */
int yarn_ask(struct yarn *y, const struct sched_ask *a);
void yarn_release(struct yarn *y, const struct yarn_container *id);
int yarn_learn_max(struct yarn *y, const Hadoop__Resource *max);
int yarn_take_tokens(struct yarn *y, Hadoop__NmToken **v, size_t n);
struct box *yarn_adopt(struct yarn *y, const Hadoop__Container *c, bool launched);
uint64_t yarn_amount(const struct yarn *y, const struct ask *a, const char *type);
const char *yarn_slot_role(const struct yarn *y, uint32_t slot);

int yarn_avoid(struct yarn *y, const char *node, bool avoid);

/* ---- fate.c ---- */
int yarn_fate(struct sched *s, int64_t within_ms,
              void (*done)(bool over, const char *who, const char *text, void *arg), void *arg);
void yarn_fate_close(struct yarn *y);

/* ---- boxes.c ---- */
struct box *box_find(struct yarn *y, const Hadoop__ContainerId *id);
void box_view(const struct box *b, struct sched_container *out);
/* How a container of a master before us ended; the words live in t. */
struct box_end_text {
    char id[YARN_ID_TEXT_MAX], detail[1024];
};
void box_ended_before(struct yarn *y, const struct yarn_container *key,
                      const Hadoop__ContainerStatus *s, struct box_end_text *t,
                      struct sched_container *out);
void box_end(struct yarn *y, struct box *b, int32_t exit_status, const char *diagnostics);
void box_end_at_node(struct yarn *y, struct box *b, int32_t exit_status, const char *diagnostics);
/* Our own word on it: not from YARN. */
void box_fail(struct yarn *y, struct box *b, enum end_reason reason, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void box_free(void *b);
void box_leave_node(struct box *b);
int told_later(struct yarn *y, uint32_t slot, struct box *b, const char *text);
void told_all(void *arg); /* the timer y->soon */

/* ---- nodes.c ---- */
struct node *node_get(struct yarn *y, const Hadoop__NodeId *id,
                      const char *http); /* NULL: memory */
int node_token(struct node *n, const Hadoop__Token *t);
void node_pump(struct node *n); /* does what is to be done there */
void node_free(void *n);

/* ---- launch.c ---- */
/* The call that starts n containers; what it sends is built, packed and wiped. NULL with e set. */
struct rpc_call *
launch_send(struct node *n, struct box *const *v, size_t count, int64_t deadline_ms,
            void (*done)(const Hadoop__StartContainersResponse *, const struct rpc_error *, void *),
            struct err *e);

#endif
