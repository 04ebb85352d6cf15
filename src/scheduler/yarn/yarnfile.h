/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yarn.json: the part of a job that only concerns YARN (docs/decisions/0006-yarn.md). The client
 * writes it at submission, and the master reads it. The job itself is described by job.conf.
 * Neither file contains a secret.
 *
 *   {"format":1,"user":"alice","rm":["rm1:8032"],"scheduler":["rm1:8030"],"namenodes":["nn:9870"],"default_fs":"hdfs://nn:8020",
 *    "protection":"authentication","staging":"/user/alice/.tony/application_1_0001","history":"/user/alice/.tony/history",
 *    "queue":"default","am_expiry_ms":900000,"https":false,"keep_containers":false,
 *    "resources":[{"name":"tony-executor","role":"","scheme":"hdfs","host":"nn","port":8020,"file":"/user/alice/.tony/cache/...",
 *                  "size":1,"timestamp_ms":1,"type":"FILE","visibility":"PRIVATE"}],
 *    "roles":[{"name":"worker","types":{"yarn.io/gpu":1},"label":"gpu","env":{"YARN_CONTAINER_RUNTIME_TYPE":"docker"}}]}
 */
#ifndef TONY_SCHEDULER_YARN_YARNFILE_H
#define TONY_SCHEDULER_YARN_YARNFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/vec.h"

struct err;

/*
 * job.conf and yarn.json reach the master's container as secrets in its token storage. The name of
 * each secret is this prefix and the file's name. Storing them in HDFS would take longer: a
 * DataNode often needs 0.4 s to close a file. If both files together are larger than
 * YARN_CARRIED_MAX, they are staged in HDFS nevertheless: the ResourceManager stores the token
 * storage with the application, and accepts about 100 KiB. Files with a password are staged, too:
 * the ResourceManager may keep what it stores for a long time.
 */
#define YARN_CARRIED_PREFIX "tony.file."
enum { YARN_CARRIED_MAX = 64 << 10 }; /* of both files together */

enum yarn_visibility {
    YARN_VISIBILITY_NONE = 0,
    YARN_PUBLIC,
    YARN_PRIVATE,
    YARN_APPLICATION,
    YARN_VISIBILITY_COUNT
};

/* A file or archive that NodeManagers link into the working directory of executors. */
struct yarn_resource {
    char *name;                 /* of the link: "tony-executor", ".tony-src", "venv" */
    char *role;                 /* the role whose containers get it; "" = all roles */
    char *scheme;               /* "hdfs" */
    char *host;                 /* a NameNode or a nameservice */
    char *file;                 /* an absolute path, not percent-encoded */
    int port;                   /* of the NameNode's RPC; -1 = none (a nameservice) */
    int64_t size, timestamp_ms; /* as in HDFS: if the time differs, containers do not start */
    bool archive;               /* it is unpacked into a directory with the link's name */
    enum yarn_visibility visibility;
};

/* The needs of a role's containers in addition to job.conf. The entry with the name "" is for all
 * roles; the entry of a role itself overrides it. */
struct yarn_role {
    char *name;
    struct strv types; /* "yarn.io/gpu=1": resource types, with amounts in the type's own unit */
    char *label;       /* node label expression; NULL = none */
    struct strv env;   /* "K=V" */
};

struct yarn_file {
    char *user, *queue;
    struct strv rm, scheduler; /* "host:port", in the order in which they are tried */
    struct strv namenodes;     /* "host:port" of WebHDFS */
    char *default_fs;          /* "hdfs://nn:8020", "hdfs://nameservice" */
    char *protection;          /* hadoop.rpc.protection of core-site.xml; "" = the default */
    char *staging, *history;   /* absolute paths in HDFS; history: the directory of all jobs */
    int64_t am_expiry_ms;      /* yarn.am.liveness-monitor.expiry-interval-ms; 0 = the default */
    bool https;                /* NodeManagers serve their pages by https only */
    bool keep_containers;      /* containers stay alive if the master dies */
    VEC(struct yarn_resource) resources;
    VEC(struct yarn_role) roles;
};

void yarn_file_free(struct yarn_file *f);
void yarn_file_freep(struct yarn_file **f);
void yarn_resource_done(struct yarn_resource *r);
void yarn_role_done(struct yarn_role *r);

/* Append the JSON. -EINVAL: yarn_file_decode() would refuse the text. */
int yarn_file_encode(const struct yarn_file *f, struct buf *out, struct err *e);
/* -EBADMSG: damaged, or written by another version; the sentence names the member. */
int yarn_file_decode(struct span text, struct yarn_file **out, struct err *e);

/* The entry with this name ("" = that of all roles); NULL: there is none. */
const struct yarn_role *yarn_file_role(const struct yarn_file *f, const char *role);

#endif
