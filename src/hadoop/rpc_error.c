/* SPDX-License-Identifier: Apache-2.0 */
#include "hadoop/rpc_error.h"

#include <stdarg.h>

#include "base/util.h"

static const char *const fault_names[RPC_FAULT_COUNT] = {
    [RPC_FAULT_NONE] = "none",
    [RPC_FAULT_APPLICATION] = "application",
    [RPC_FAULT_AUTH] = "auth",
    [RPC_FAULT_STANDBY] = "standby",
    [RPC_FAULT_RETRIABLE] = "retriable",
    [RPC_FAULT_NOT_READY] = "not_ready",
    [RPC_FAULT_NOT_REGISTERED] = "not_registered",
    [RPC_FAULT_ATTEMPT_NOT_FOUND] = "attempt_not_found",
    [RPC_FAULT_INVALID_REQUEST] = "invalid_request",
    [RPC_FAULT_INVALID_RESOURCE] = "invalid_resource",
    [RPC_FAULT_INVALID_RELEASE] = "invalid_release",
    [RPC_FAULT_INVALID_CONTAINER] = "invalid_container",
    [RPC_FAULT_NOT_FOUND] = "not_found",
    [RPC_FAULT_PROTOCOL] = "protocol",
    [RPC_FAULT_UNREACHABLE] = "unreachable",
    [RPC_FAULT_BROKEN] = "broken",
    [RPC_FAULT_TIMEOUT] = "timeout",
    [RPC_FAULT_LOCAL] = "local",
};

const char *rpc_fault_name(enum rpc_fault f)
{
    return f > RPC_FAULT_NONE && f < RPC_FAULT_COUNT ? fault_names[f] : "none";
}

#define YARN "org.apache.hadoop.yarn.exceptions."
#define HADOOP "org.apache.hadoop."

enum rpc_fault rpc_fault_of_class(struct span class_name)
{
    static const struct {
        const char *name;
        enum rpc_fault fault;
    } classes[] = {
        { YARN "ApplicationMasterNotRegisteredException", RPC_FAULT_NOT_REGISTERED },
        { YARN "ApplicationAttemptNotFoundException", RPC_FAULT_ATTEMPT_NOT_FOUND },
        { YARN "InvalidApplicationMasterRequestException", RPC_FAULT_INVALID_REQUEST },
        { YARN "InvalidResourceRequestException", RPC_FAULT_INVALID_RESOURCE },
        { YARN "InvalidLabelResourceRequestException", RPC_FAULT_INVALID_RESOURCE },
        { YARN "InvalidContainerReleaseException", RPC_FAULT_INVALID_RELEASE },
        { YARN "InvalidResourceBlacklistRequestException", RPC_FAULT_INVALID_RELEASE },
        { YARN "ApplicationNotFoundException", RPC_FAULT_NOT_FOUND },
        { YARN "ContainerNotFoundException", RPC_FAULT_NOT_FOUND },
        { YARN "NMNotYetReadyException", RPC_FAULT_NOT_READY },
        { YARN "InvalidContainerException", RPC_FAULT_INVALID_CONTAINER },
        { HADOOP "ipc.StandbyException", RPC_FAULT_STANDBY },
        { HADOOP "ipc.RetriableException", RPC_FAULT_RETRIABLE },
        { HADOOP "ipc.RPC$VersionMismatch", RPC_FAULT_PROTOCOL },
        { HADOOP "ipc.RpcNoSuchMethodException", RPC_FAULT_PROTOCOL },
        { HADOOP "ipc.RpcNoSuchProtocolException", RPC_FAULT_PROTOCOL },
        { HADOOP "security.token.SecretManager$InvalidToken", RPC_FAULT_AUTH },
        { HADOOP "security.AccessControlException", RPC_FAULT_AUTH },
        { HADOOP "security.authorize.AuthorizationException", RPC_FAULT_AUTH },
        { "javax.security.sasl.SaslException", RPC_FAULT_AUTH },
    };
    for (size_t i = 0; i < ARRAY_LEN(classes); i++)
        if (span_eqs(class_name, classes[i].name))
            return classes[i].fault;
    return RPC_FAULT_APPLICATION;
}

bool rpc_fault_passes(enum rpc_fault f)
{
    return f == RPC_FAULT_UNREACHABLE || f == RPC_FAULT_BROKEN || f == RPC_FAULT_TIMEOUT ||
           f == RPC_FAULT_STANDBY || f == RPC_FAULT_RETRIABLE || f == RPC_FAULT_LOCAL;
}

struct span rpc_first_line(struct span message, struct span class_name)
{
    if (!message.p)
        return SPAN("");
    if (class_name.len > 0 && message.len > class_name.len + 1 &&
        memcmp(message.p, class_name.p, class_name.len) == 0 && message.p[class_name.len] == ':') {
        message.p += class_name.len + 1;
        message.len -= class_name.len + 1;
    }
    message = span_trim(message);
    const char *end = message.len > 0 ? memchr(message.p, '\n', message.len) : NULL;
    if (end)
        message.len = (size_t)(end - message.p);
    return span_trim(message);
}

int rpc_error_set(struct rpc_error *out, enum rpc_fault kind, int num, const char *fmt, ...)
{
    va_list ap;
    *out = (struct rpc_error){ .kind = kind };
    va_start(ap, fmt);
    int rc = err_vset(&out->err, num, fmt, ap);
    va_end(ap);
    return rc;
}
