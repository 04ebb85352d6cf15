/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launch context of a container: its command, files and environment. A client describes the
 * container of the master with it, and a master those of its executors. All parts are in an arena,
 * so that they are freed together after the message was sent.
 */
#ifndef TONY_HADOOP_LAUNCH_H
#define TONY_HADOOP_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"
#include "codec/arena.h"
#include "proto/hadoop_yarn.pb-c.h"

/* A container does not inherit PATH from the NodeManager. Without this, bash would set its own
 * default, which ends with ".". */
#define LAUNCH_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct launch_file { /* a file that the NodeManager fetches; all strings are borrowed */
    const char *name;
    const char *scheme, *host, *path; /* of its URL; host "" = none */
    int32_t port;
    int64_t size, mtime_ms;
    bool archive;
    Hadoop__LocalResourceVisibility visibility;
};

/* A new message, whose command is `command` (borrowed). NULL = no memory. */
Hadoop__ContainerLaunchContext *launch_new(struct arena *a, const char *command);
/* Set the files. The strings stay borrowed. 0 or -ENOMEM. */
int launch_set_files(struct arena *a, Hadoop__ContainerLaunchContext *ctx,
                     const struct launch_file *v, size_t n);
/* Set the environment from "NAME=VALUE"; the values are escaped for the script of the NodeManager.
 * 0 or -ENOMEM. */
int launch_set_env(struct arena *a, Hadoop__ContainerLaunchContext *ctx, const struct strv *env);
/* Set each variable of `from` in env, where a later value replaces an earlier one. from may be
 * NULL. 0 or -ENOMEM. */
int launch_add_variables(struct strv *env, const struct strv *from);

#endif
