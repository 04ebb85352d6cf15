/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "metrics/metrics.h"

const struct metric_row metric_built_in[METRIC_BUILT_IN_COUNT] = {
#define X(id, name, kind, help) [METRIC_##id] = { name, help, kind },
    METRICS_BUILT_IN(X)
#undef X
};

const struct metric_row metric_of_gpu[METRIC_GPU_COUNT] = {
#define X(id, name, kind, help) [METRIC_GPU_##id] = { name, help, kind },
    METRICS_GPU(X)
#undef X
};

const char *const metrics_summary_names[METRICS_SUMMARY_COUNT] = {
#define X(id) [SUMMARY_##id] = #id,
    METRICS_SUMMARY(X)
#undef X
};

void metric_gpu_name(unsigned gpu, enum metric_gpu which, char out[METRIC_NAME_MAX + 1])
{
    (void)snprintf(out, METRIC_NAME_MAX + 1, "gpu%u_%s", gpu, metric_of_gpu[which].name);
}

bool metric_is_gpu(struct span name, unsigned *out_gpu, enum metric_gpu *out_which)
{
    const char *under = span_starts(name, "gpu") ? memchr(name.p, '_', name.len) : NULL;
    int64_t gpu;
    if (!under || str_i64(span_mem(name.p + 3, (size_t)(under - name.p - 3)), 0,
                          METRICS_GPUS_MAX - 1, "gpu", &gpu, NULL) < 0)
        return false;
    struct span rest = span_mem(under + 1, (size_t)(name.p + name.len - under - 1));
    for (int i = 0; i < METRIC_GPU_COUNT; i++) {
        if (!span_eqs(rest, metric_of_gpu[i].name))
            continue;
        *out_gpu = (unsigned)gpu;
        *out_which = (enum metric_gpu)i;
        return true;
    }
    return false;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool metric_name_ok(struct span name)
{
    if (name.len == 0 || name.len > METRIC_NAME_MAX || !is_letter(name.p[0]))
        return false;
    for (size_t i = 1; i < name.len; i++) {
        char c = name.p[i];
        if (!is_letter(c) && !(c >= '0' && c <= '9') && c != '.' && c != ':' && c != '/' &&
            c != '-')
            return false;
    }
    return true;
}

static bool is_built_in(struct span name)
{
    for (int i = 0; i < METRIC_BUILT_IN_COUNT; i++)
        if (span_eqs(name, metric_built_in[i].name))
            return true;
    for (int i = 0; i < METRICS_SUMMARY_COUNT; i++)
        if (span_eqs(name, metrics_summary_names[i]))
            return true;
    return false;
}

int metric_name_check(struct span name, struct err *e)
{
    unsigned gpu;
    enum metric_gpu which;
    if (!metric_name_ok(name))
        return err_set(e, EINVAL,
                       "the name of a metric has 1 to %d letters, digits and _ . : / -, and "
                       "begins with a letter or _",
                       METRIC_NAME_MAX);
    if (is_built_in(name) || metric_is_gpu(name, &gpu, &which))
        return err_set(e, EINVAL, "tony itself measures '%.*s': choose another name", (int)name.len,
                       name.p);
    return 0;
}

enum metric_kind metric_kind_of(struct span name)
{
    unsigned gpu;
    enum metric_gpu which;
    for (int i = 0; i < METRIC_BUILT_IN_COUNT; i++)
        if (span_eqs(name, metric_built_in[i].name))
            return metric_built_in[i].kind;
    return metric_is_gpu(name, &gpu, &which) ? metric_of_gpu[which].kind : METRIC_GAUGE;
}
