/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hadoop's site files: core-site.xml, hdfs-site.xml and yarn-site.xml of a configuration directory.
 *
 * As Hadoop reads them: what comes later wins, but not over a property marked final; values are
 * trimmed, and ${key},
 * ${env.NAME}, ${env.NAME:-default} (unset or empty) and ${env.NAME-default} (unset) in them are
 * replaced when they are read, up to 20 in a value; a name that is not known stays as it is
 * written. <xi:include href="..."/> is followed, relative to the file it stands in, with its
 * <xi:fallback>. A file that includes itself is refused, and so are document types. Hadoop's own
 * defaults are not here; callers name them.
 *
 * Errors are sentences that name file and line.
 */
#ifndef TONY_HADOOP_SITE_H
#define TONY_HADOOP_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"

struct err;
struct site;

enum {
    SITE_FILE_MAX = 4 << 20,     /* the largest in use are below 200 KiB */
    SITE_INCLUDE_DEPTH_MAX = 8,  /* one or two are in use */
    SITE_FILES_MAX = 64,         /* includes and all */
    SITE_VALUE_MAX = 1 << 20,    /* after replacement */
    SITE_SUBSTITUTIONS_MAX = 20, /* Hadoop's own limit; what is left stays as it is written */
};

struct site *site_new(struct err *e);
/* The three files of a directory, each if it is there. -ENOENT when none of them is (hint:
 * HADOOP_CONF_DIR). */
int site_add_dir(struct site *s, const char *dir, struct err *e);
int site_add_file(struct site *s, const char *path, struct err *e);
/* What is known otherwise, such as user.name for ${user.name}: wins over nothing that a file says.
 */
int site_set_default(struct site *s, const char *key, const char *value);
void site_free(struct site *s);
void site_freep(struct site **s);

/* The value with its variables replaced, or NULL when it is not set or empty. Borrowed from the
 * site. */
const char *site_get(struct site *s, const char *key);
const char *site_origin(const struct site *s, const char *key); /* "file:line", or NULL; borrowed */
/* dflt when the key is not set; -EINVAL and a sentence with file and line when its value cannot be.
 */
int site_i64(struct site *s, const char *key, int64_t min, int64_t max, int64_t dflt, int64_t *out,
             struct err *e);
int site_bool(struct site *s, const char *key, bool dflt, bool *out, struct err *e);
/* "30s", "500ms", "2m", "1h", "1d"; a bare number is in units of bare_ms. */
int site_ms(struct site *s, const char *key, int64_t bare_ms, int64_t dflt_ms, int64_t *out,
            struct err *e);

struct site_address {
    char *host; /* a name or a numeric address, without brackets */
    uint16_t port;
};

struct site_addresses {
    struct site_address *v;
    size_t n, cap;
};

int site_addresses_add(struct site_addresses *a, const char *host,
                       uint16_t port); /* copies; 0, -ENOMEM */
int site_addresses_parse(struct site_addresses *a, const char *text, uint16_t default_port,
                         struct err *e); /* "host:port,host:port"; appends */
int site_addresses_copy(const struct site_addresses *from, struct site_addresses *out);
void site_addresses_done(struct site_addresses *a);
char *
site_addresses_text(const struct site_addresses *a); /* "a:1,b:2"; the caller's; NULL = no memory */

enum site_service {
    SITE_RM_CLIENT = 1, /* yarn.resourcemanager.address, 8032 */
    SITE_RM_SCHEDULER,  /* yarn.resourcemanager.scheduler.address, 8030 */
    SITE_RM_ADMIN,      /* yarn.resourcemanager.admin.address, 8033 */
    SITE_RM_WEB,        /* yarn.resourcemanager.webapp.address, 8088 */
    SITE_SERVICE_COUNT,
};

/*
 * The addresses of the resource manager, in the order to try them: those of
 * yarn.resourcemanager.ha.rm-ids where yarn.resourcemanager.ha.enabled, else one; from the key of
 * the service, else yarn.resourcemanager.hostname and the default port. Appends to out. -EINVAL,
 * with the key and the file to set it in, when there is none, or it is 0.0.0.0, which is no address
 * to call.
 */
int site_rm(struct site *s, enum site_service service, struct site_addresses *out, struct err *e);

struct site_hdfs {
    char *fs;          /* "hdfs://nn:8020" or "hdfs://nameservice", without a path */
    char *host;        /* "nn" or "nameservice" */
    int32_t port;      /* of the URL of a local resource: -1 for none (a nameservice), never 0 */
    char *nameservice; /* or NULL */
    struct site_addresses http; /* of WebHDFS, in the order to try them */
    bool https;                 /* dfs.http.policy is HTTPS_ONLY: http holds the https addresses */
};

/* -EINVAL when fs.defaultFS is not set or not hdfs (sentence and remedy), or a name service has no
 * addresses. */
int site_hdfs(struct site *s, struct site_hdfs *out, struct err *e);
void site_hdfs_done(struct site_hdfs *h);

/* hadoop.security.authentication is kerberos; -EINVAL when it is something else but simple. */
int site_secure(struct site *s, bool *out, struct err *e);

#endif
