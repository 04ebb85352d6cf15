/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YARN's three protocols as typed calls with rpc_client.h. Requests and answers are the messages of
 * proto/hadoop_yarn.proto. docs/decisions/0006-yarn.md has the rules for their values.
 *
 *     Hadoop__GetApplicationReportRequest rq = HADOOP__GET_APPLICATION_REPORT_REQUEST__INIT;
 *     struct yarn_id_msg id;
 *     rq.application_id = yarn_app_msg(&id, &app);
 *     yarn_get_application_report(client, &rq, 0, on_report, self);
 *
 *     static void on_report(const Hadoop__GetApplicationReportResponse *r,
 *                           const struct rpc_error *e, void *arg)
 *
 * Exactly one of r and e is not NULL; both are valid during the callback only. The request is
 * borrowed during the call.
 */
#ifndef TONY_HADOOP_YARN_H
#define TONY_HADOOP_YARN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/reason.h"
#include "hadoop/ids.h"
#include "hadoop/rpc_client.h"
#include "proto/hadoop_yarn.pb-c.h"

#define YARN_CLIENT_PROTOCOL "org.apache.hadoop.yarn.api.ApplicationClientProtocolPB"
#define YARN_MASTER_PROTOCOL "org.apache.hadoop.yarn.api.ApplicationMasterProtocolPB"
#define YARN_NODE_PROTOCOL "org.apache.hadoop.yarn.api.ContainerManagementProtocolPB"

/* For each method: function, name on the wire, messages (as type, and as part of function names),
 * and whether it is idempotent.
 *
 * - submit_application: safe because of its application id; it is accepted only when a report says
 *   so
 * - kill_application: repeat until is_kill_completed
 * - register_master: a second one is RPC_FAULT_INVALID_REQUEST ("already registered"). This may be
 *   tony's own first request, if its answer was lost.
 * - allocate: repeating the same response_id returns the lost answer, and drops the new asks
 * - finish_master: repeat until is_unregistered
 * - start_containers: not atomic; after an error with maybe_done, ask for the statuses first */
#define YARN_CALLS(X)                                                                              \
    /* YARN_CLIENT_PROTOCOL */                                                                     \
    X(get_new_application, "getNewApplication", GetNewApplication, get_new_application, true)      \
    X(submit_application, "submitApplication", SubmitApplication, submit_application, true)        \
    X(get_application_report, "getApplicationReport", GetApplicationReport,                        \
      get_application_report, true)                                                                \
    X(get_applications, "getApplications", GetApplications, get_applications, true)                \
    X(kill_application, "forceKillApplication", KillApplication, kill_application, true)           \
    X(get_cluster_metrics, "getClusterMetrics", GetClusterMetrics, get_cluster_metrics, true)      \
    X(get_cluster_nodes, "getClusterNodes", GetClusterNodes, get_cluster_nodes, true)              \
    X(get_cluster_node_labels, "getClusterNodeLabels", GetClusterNodeLabels,                       \
      get_cluster_node_labels, true)                                                               \
    X(get_queue_info, "getQueueInfo", GetQueueInfo, get_queue_info, true)                          \
    X(get_resource_types, "getResourceTypeInfo", GetAllResourceTypeInfo,                           \
      get_all_resource_type_info, true)                                                            \
    X(update_timeouts, "updateApplicationTimeouts", UpdateApplicationTimeouts,                     \
      update_application_timeouts, true)                                                           \
    /* YARN_MASTER_PROTOCOL */                                                                     \
    X(register_master, "registerApplicationMaster", RegisterApplicationMaster,                     \
      register_application_master, true)                                                           \
    X(allocate, "allocate", Allocate, allocate, true)                                              \
    X(finish_master, "finishApplicationMaster", FinishApplicationMaster,                           \
      finish_application_master, true)                                                             \
    /* YARN_NODE_PROTOCOL */                                                                       \
    X(start_containers, "startContainers", StartContainers, start_containers, false)               \
    X(stop_containers, "stopContainers", StopContainers, stop_containers, true)                    \
    X(get_container_statuses, "getContainerStatuses", GetContainerStatuses,                        \
      get_container_statuses, true)

/* For deadline_ms and the returned handle see rpc_client_call(). */
#define YARN_DECLARE(fn, method, M, m, again)                                                      \
    struct rpc_call *yarn_##fn(                                                                    \
        struct rpc_client *c, const Hadoop__##M##Request *rq, int64_t deadline_ms,                 \
        void (*done)(const Hadoop__##M##Response *r, const struct rpc_error *e, void *arg),        \
        void *arg);
YARN_CALLS(YARN_DECLARE)
#undef YARN_DECLARE

/* ---- how a container ended ---- */

/* YARN's own exit statuses; all others are those of the process. */
enum {
    YARN_EXIT_INVALID = -1000, /* in the status of a completed container: it never ran */
    YARN_EXIT_NOT_STARTED = -1,
    YARN_EXIT_ABORTED = -100,
    YARN_EXIT_DISKS_FAILED = -101,
    YARN_EXIT_PREEMPTED = -102,
    YARN_EXIT_VIRTUAL_MEMORY = -103,
    YARN_EXIT_PHYSICAL_MEMORY = -104,
    YARN_EXIT_KILLED_BY_MASTER = -105,
    YARN_EXIT_KILLED_BY_RM = -106,
    YARN_EXIT_KILLED_AFTER_APP = -107,
    YARN_EXIT_KILLED_BY_SCHEDULER = -108,
    YARN_EXIT_EXCESS_LOGS = -109,
    YARN_EXIT_LOST = 154,
};

struct yarn_end {
    enum end_reason reason;
    int exit_code;      /* of the command (128 + signal); -1 = unknown */
    char sentence[480]; /* what happened, for people, with the figures; and the first line of the
                           diagnostics if it says more */
    char hint[240];     /* what the user can do; "" = nothing is known */
};

/* diagnostics may be NULL. memory_key: the setting to raise after a kill because of memory
 * ("tony.worker.memory"); NULL = none. */
void yarn_end_of(int32_t exit_status, const char *diagnostics, const char *memory_key,
                 struct yarn_end *out);

/* ---- the launch context of a container ---- */

/* Escape the value of a variable for a ContainerLaunchContext: the NodeManager writes it unchanged
 * into the line  export NAME="VALUE"  of a shell script. '$' is not escaped: the script expands
 * variables of the node, such as $HADOOP_YARN_HOME. The caller frees it; NULL = no memory. */
char *yarn_env_escape(const char *value);

/* ---- names for people ---- */

/* "ACCEPTED", "RUNNING" and so on; "UNKNOWN" for a state that tony does not know. */
const char *yarn_app_state_name(Hadoop__YarnApplicationState s);
bool yarn_app_state_is_final(Hadoop__YarnApplicationState s);

/* The amount of a resource ("memory-mb", "vcores", "yarn.io/gpu") in r; 0 = r does not have it. r
 * may be NULL. */
int64_t yarn_resource_value(const Hadoop__Resource *r, const char *name);

#endif
