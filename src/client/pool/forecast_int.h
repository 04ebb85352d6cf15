/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that forecast.c and forecast_text.c share. */
#ifndef TONY_CLIENT_POOL_FORECAST_INT_H
#define TONY_CLIENT_POOL_FORECAST_INT_H

#include <stddef.h>

#include "client/pool/forecast.h"
#include "conf/conf.h"
#include "history/history.h"
#include "partition/estimate.h"

enum forecast_basis { BASIS_UNKNOWN, BASIS_PROGRESS, BASIS_HISTORY, BASIS_LIMIT, BASIS_COUNT };

struct forecast {
    const struct paths *paths;
    json_t *doc;              /* the pool's answer to QUEUE */
    struct history_rows rows; /* finished jobs of this TONY_HOME */
    const struct part_policy *policy;
    struct part_options options;
    double levels[CONF_LEVELS_MAX]; /* options.n_levels of them */
    double interval_s; /* the least time between two decisions of the policy */
    struct part_amount node;
    struct part_cluster cluster; /* one node: the machine */
    /* The jobs: those that run, then the queue in its order. */
    json_t **docs;
    struct part_job *jobs;
    struct part_place *places;
    struct part_range *left;
    enum forecast_basis *basis;
    struct part_start *starts;
    const json_t **holders; /* of each waiting job: the running job that it waits for; NULL: none */
    size_t n;
};

json_t *forecast_seconds(double s); /* a JSON number in ms; null = unknown */
json_t *forecast_at(const struct forecast *f, size_t i);

#endif
