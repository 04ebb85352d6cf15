/*
 * yarn.json: all that is YARN's about a job, written by the client at submission and read by the
 * master (docs/decisions/0006-yarn.md). What the job itself is stands in job.conf; no secret is in
 * either.
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
 * job.conf and yarn.json reach the master's container as secrets of its token storage, named by
 * this and the file's name: a DataNode that closes a file often takes 0.4 s for it, and the job
 * would wait. Larger ones are staged: a ResourceManager keeps the storage with the application, in a
 * place for some 100 KiB.
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
const char *yarn_visibility_name(enum yarn_visibility v); /* "PUBLIC" */

/* A file or archive that NodeManagers link into the working directory of executors. */
struct yarn_resource {
    char *name; /* of the link: "tony-executor", ".tony-src", "venv" */
    char *role; /* "" = of all roles */
    char *scheme, *host,
        *file; /* hdfs, a NameNode or nameservice, an absolute path that is not percent-encoded */
    int port;  /* of the NameNode's RPC; -1 = none (a nameservice) */
    int64_t size, timestamp_ms; /* as HDFS has them: another time makes the start fail */
    bool archive;               /* unpacked into a directory of the link's name */
    enum yarn_visibility visibility;
};

/* What containers of one role are asked for with and started with beyond job.conf. An entry named
 * "" is for all roles: its types and variables are taken first, those of the role win. */
struct yarn_role {
    char *name;
    struct strv
        types;   /* "yarn.io/gpu=1": further resource types, whole numbers in the type's own unit */
    char *label; /* node label expression; NULL = none asked for */
    struct strv env; /* "K=V" */
};

struct yarn_file {
    char *user, *queue;
    struct strv rm, scheduler; /* "host:port", in the order in which they are tried */
    struct strv namenodes;     /* "host:port" of WebHDFS */
    char *default_fs;          /* "hdfs://nn:8020", "hdfs://nameservice" */
    char *protection; /* hadoop.rpc.protection, as it stands in core-site; "" = the default */
    char *staging, *history; /* absolute paths in HDFS; history: the directory of all jobs */
    int64_t am_expiry_ms;    /* yarn.am.liveness-monitor.expiry-interval-ms; 0 = the default */
    bool https;              /* NodeManagers serve their pages by https only */
    bool keep_containers;    /* submitted with containers that outlive the master */
    VEC(struct yarn_resource) resources;
    VEC(struct yarn_role) roles;
};

void yarn_file_free(struct yarn_file *f);
void yarn_file_freep(struct yarn_file **f);
void yarn_resource_done(struct yarn_resource *r);
void yarn_role_done(struct yarn_role *r);

/* Append as JSON. -EINVAL: what decode would refuse. */
int yarn_file_encode(const struct yarn_file *f, struct buf *out, struct err *e);
/* -EBADMSG: damaged, or another version's; the sentence names the member. */
int yarn_file_decode(struct span text, struct yarn_file **out, struct err *e);

/* The role's own entry, NULL when there is none; "" for that of all. */
const struct yarn_role *yarn_file_role(const struct yarn_file *f, const char *role);

#endif
