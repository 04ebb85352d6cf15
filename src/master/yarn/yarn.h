/* SPDX-License-Identifier: Apache-2.0 */
/* The files and settings that a master finds in its container on a YARN cluster. */
#ifndef TONY_MASTER_YARN_YARN_H
#define TONY_MASTER_YARN_YARN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/files.h"
#include "master/master.h"
#include "storage/jobkey.h"
#include "storage/paths.h"

struct err;
struct yarn_file;

struct master_home {
    char *application_id, *container_id;
    uint32_t epoch; /* number of the application attempt */
    struct job_key key;
    struct tls_key resize_key; /* len 0 = the job has none */
    struct buf secrets;        /* storage/secrets.h; empty = the job has none */
    struct yarn_file *yarn;
    struct paths paths;     /* all below the working directory of the container */
    bool history_is_shared; /* the site has set the history directory, so other users read there */
    char *node, *log_url;   /* of this container; NULL = not known */
};

/* Read the environment and the working directory, and make jobs/<id>/ there. The error says what is
 * missing. */
int master_home_open(struct master_home *h, struct err *e);
void master_home_done(struct master_home *h); /* after a failure, too */

extern const struct files_ops hdfs_files; /* fs: a struct webhdfs */

int master_yarn_main(void); /* tony-master --yarn; returns the exit code */

#endif
