/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hadoop's site files: core-site.xml, hdfs-site.xml and yarn-site.xml of a configuration directory.
 *
 * tony reads them as Hadoop does:
 *
 * - A later property wins, but not over one that is marked final. Values are trimmed.
 * - Variables in a value are replaced when it is read, at most 20 in a value: ${key}, ${env.NAME},
 *   ${env.NAME:-default} (if unset or empty) and ${env.NAME-default} (if unset). Unknown variables
 *   stay as they are written.
 * - <xi:include href="..."/> includes a file, relative to the including one. <xi:fallback> is used
 *   if that file does not exist. A file that includes itself is refused, and so are document types.
 *
 * Hadoop's own defaults are not here: callers give them. Errors are sentences that name file and
 * line.
 */
#ifndef TONY_HADOOP_SITE_H
#define TONY_HADOOP_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"

struct buf;
struct err;
struct site;

enum {
    SITE_FILE_MAX = 4 << 20,    /* the largest in use are below 200 KiB */
    SITE_INCLUDE_DEPTH_MAX = 8, /* a real site nests one or two */
    SITE_FILES_MAX = 64,        /* all files together, included ones, too */
    SITE_VALUE_MAX = 1 << 20,   /* bytes of a value after replacement */
    /* Hadoop's own limit; further variables stay as they are written. */
    SITE_SUBSTITUTIONS_MAX = 20,
};

struct site *site_new(struct err *e);
/* Add those of the three files that exist in the directory. -ENOENT if none exists (the hint names
 * HADOOP_CONF_DIR). */
int site_add_dir(struct site *s, const char *dir, struct err *e);
int site_add_file(struct site *s, const char *path, struct err *e);
/* Set a variable such as user.name for ${user.name}. A property of a file wins over it. */
int site_set_default(struct site *s, const char *key, const char *value);
void site_free(struct site *s);
void site_freep(struct site **s);

/* The value with its variables replaced. NULL: it is not set, or empty. Borrowed from the site. */
const char *site_get(struct site *s, const char *key);
/* Append all properties, with their variables replaced, as one site file in Hadoop's XML. 0 or
 * -ENOMEM. */
int site_write(struct site *s, struct buf *out);
const char *site_origin(const struct site *s, const char *key); /* "file:line", or NULL; borrowed */
/* Get a value; dflt if the key is not set. -EINVAL with a sentence that names file and line if the
 * value is not valid. */
int site_bool(struct site *s, const char *key, bool dflt, bool *out, struct err *e);
/* Get a time such as "30s", "500ms", "2m", "1h" or "1d". A number without unit is in units of
 * bare_ms. */
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
/* "a:1,b:2"; the caller frees it; NULL = no memory. */
char *site_addresses_text(const struct site_addresses *a);

enum site_service {
    SITE_RM_CLIENT = 1, /* yarn.resourcemanager.address, 8032 */
    SITE_RM_SCHEDULER,  /* yarn.resourcemanager.scheduler.address, 8030 */
    SITE_RM_ADMIN,      /* yarn.resourcemanager.admin.address, 8033 */
    SITE_RM_WEB,        /* yarn.resourcemanager.webapp.address, 8088 */
    SITE_SERVICE_COUNT,
};

/*
 * Append the addresses of the ResourceManager, in the order in which to try them. If
 * yarn.resourcemanager.ha.enabled is true, these are the ones of yarn.resourcemanager.ha.rm-ids;
 * otherwise there is one. An address comes from the key of the service, else from
 * yarn.resourcemanager.hostname and the default port. -EINVAL if there is none, or if it is
 * 0.0.0.0, to which no client can connect; the error names the key and the file to set it in.
 */
int site_rm(struct site *s, enum site_service service, struct site_addresses *out, struct err *e);

struct site_hdfs {
    char *fs;          /* "hdfs://nn:8020" or "hdfs://nameservice", without a path */
    char *host;        /* "nn" or "nameservice" */
    int32_t port;      /* for the URL of a local resource; -1 = none (a nameservice); never 0 */
    char *nameservice; /* NULL = none */
    struct site_addresses http; /* addresses of WebHDFS, in the order in which to try them */
    bool https;                 /* dfs.http.policy is HTTPS_ONLY: `http` has the https addresses */
};

/* -EINVAL, with a hint: fs.defaultFS is not set or not hdfs, or a nameservice has no addresses. */
int site_hdfs(struct site *s, struct site_hdfs *out, struct err *e);
void site_hdfs_done(struct site_hdfs *h);

/* Does hadoop.security.authentication demand Kerberos? -EINVAL: it is neither kerberos nor
 * simple. */
int site_secure(struct site *s, bool *out, struct err *e);

#endif
