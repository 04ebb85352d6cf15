/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YARN's ids and their text form, as in environment variables, logs and pages:
 *
 *     application_<cluster timestamp>_<number, 4 digits>
 *     appattempt_<timestamp>_<number>_<attempt, 6 digits>
 *     container_[e<epoch, 2 digits>_]<timestamp>_<number>_<attempt, 2 digits>_<sequence, 6 digits>
 *
 * The number of a container is epoch << 40 | sequence. The epoch counts the restarts of the
 * ResourceManager; after each restart the sequence starts at 1. The numbers of digits are minimum
 * widths. Errors: -EINVAL, with the text in the sentence.
 */
#ifndef TONY_HADOOP_IDS_H
#define TONY_HADOOP_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "proto/hadoop_yarn.pb-c.h"

struct err;

enum { YARN_ID_TEXT_MAX = 96, YARN_EPOCH_SHIFT = 40 };

struct yarn_app {
    int64_t cluster; /* ms since 1970 when the ResourceManager was started for the first time */
    int32_t id;
};

struct yarn_attempt {
    struct yarn_app app;
    int32_t attempt; /* -1 = no attempt was started yet */
};

struct yarn_container {
    struct yarn_attempt attempt; /* the attempt to which the container was granted */
    int64_t id;
};

int yarn_app_parse(struct span s, struct yarn_app *out, struct err *e);
int yarn_container_parse(struct span s, struct yarn_container *out, struct err *e);

/* Write the text to buf, which has at least YARN_ID_TEXT_MAX bytes, and return buf. */
const char *yarn_app_text(const struct yarn_app *a, char *buf);
const char *yarn_container_text(const struct yarn_container *c, char *buf);

bool yarn_app_eq(const struct yarn_app *a, const struct yarn_app *b);
bool yarn_container_eq(const struct yarn_container *a, const struct yarn_container *b);

/* Read an id from a message. false: the message or a part of it is missing. */
bool yarn_app_get(const Hadoop__ApplicationId *m, struct yarn_app *out);
bool yarn_attempt_get(const Hadoop__ApplicationAttemptId *m, struct yarn_attempt *out);
bool yarn_container_get(const Hadoop__ContainerId *m, struct yarn_container *out);

/* Messages that a request can point to: struct yarn_id_msg id; rq.application_id =
 * yarn_app_msg(&id, &app); The struct contains pointers into itself: do not copy or move it after
 * it was filled. */
struct yarn_id_msg {
    Hadoop__ApplicationId app;
    Hadoop__ApplicationAttemptId attempt;
    Hadoop__ContainerId container;
};

Hadoop__ApplicationId *yarn_app_msg(struct yarn_id_msg *m, const struct yarn_app *a);
Hadoop__ApplicationAttemptId *yarn_attempt_msg(struct yarn_id_msg *m, const struct yarn_attempt *a);
Hadoop__ContainerId *yarn_container_msg(struct yarn_id_msg *m, const struct yarn_container *c);

#endif
