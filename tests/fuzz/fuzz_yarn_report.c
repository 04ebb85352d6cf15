/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the report of a ResourceManager about an application. Tests all steps up to the text for
 * the user. */
#include <stdint.h>
#include <stdlib.h>

#include <jansson.h>

#include "base/base.h"
#include "cluster/yarn/yarn.h"
#include "hadoop/rpc.h"
#include "proto/hadoop_yarn.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ProtobufCMessage *m = rpc_unpack(&hadoop__application_report__descriptor, span_mem(data, size));
    struct yarn_report r;
    if (m && yarn_report_copy((const Hadoop__ApplicationReport *)m, &r) == 0) {
        char line[64];
        yarn_waiting_text(r.diagnostics, line, sizeof line);
        yarn_first_line(r.diagnostics, line, sizeof line);
        char user[] = "ada";
        const struct yarn y = { .user = user };
        struct cluster_report c;
        if (yarn_cluster_report(&y, &r, &c) < 0)
            abort();
        json_t *doc = report_json(&cluster_yarn, &c);
        cluster_report_done(&c);
        if (!doc)
            abort(); /* each application has a text */
        json_decref(doc);
        yarn_report_done(&r);
    }
    if (m)
        protobuf_c_message_free_unpacked(m, NULL);
    return 0;
}
