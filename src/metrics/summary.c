/* SPDX-License-Identifier: Apache-2.0 */
/* The eight metrics of the original TonY: the largest value and the mean over the time of a task.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "base/vec.h"
#include "metrics/metrics_int.h"

/* Pairs of the largest value and the mean: memory, and three of the GPUs. */
enum what { OF_MEMORY, OF_GPU_PERCENT, OF_GPU_MEMORY, OF_GPU_BAR1, OF_COUNT };

struct metrics_mean { /* the largest value and the mean of one metric */
    enum what what;
    unsigned gpu;
    bool live;
    double value, most, area;
    int64_t from_ms, weight;
};

void metrics_summary_done(struct metrics_summary *s)
{
    free(s->v);
    *s = (struct metrics_summary){ 0 };
}

static bool what_of(struct span name, enum what *out, unsigned *out_gpu)
{
    enum metric_gpu which;
    *out_gpu = 0;
    if (span_eqs(name, metric_built_in[METRIC_MEMORY].name)) {
        *out = OF_MEMORY;
        return true;
    }
    if (!metric_is_gpu(name, out_gpu, &which))
        return false;
    *out = which == METRIC_GPU_PERCENT          ? OF_GPU_PERCENT
           : which == METRIC_GPU_MEMORY_PERCENT ? OF_GPU_MEMORY
           : which == METRIC_GPU_BAR1_PERCENT   ? OF_GPU_BAR1
                                                : OF_COUNT;
    return *out != OF_COUNT;
}

static void count(struct metrics_mean *x, int64_t t_ms)
{
    if (x->live && t_ms > x->from_ms) {
        x->area += x->value * (double)(t_ms - x->from_ms);
        x->weight += t_ms - x->from_ms;
    }
    x->from_ms = t_ms;
}

int metrics_summary_add(struct metrics_summary *s, struct span name, int64_t t_ms, double value)
{
    enum what what;
    unsigned gpu;
    struct metrics_mean *x = NULL;
    if (span_eqs(name, metric_built_in[METRIC_MEMORY_PEAK].name)) {
        for (size_t i = 0; i < s->n; i++)
            if (s->v[i].what == OF_MEMORY)
                s->v[i].most = MAX(s->v[i].most, value);
        return 0;
    }
    if (!what_of(name, &what, &gpu))
        return 0;
    for (size_t i = 0; i < s->n && !x; i++)
        if (s->v[i].what == what && s->v[i].gpu == gpu)
            x = &s->v[i];
    if (!x) {
        struct metrics_mean fresh = { .what = what, .gpu = gpu, .most = value, .from_ms = t_ms };
        if (vec_push(s, fresh) < 0)
            return -ENOMEM;
        x = &s->v[s->n - 1];
    }
    count(x, t_ms);
    x->value = value;
    x->live = true;
    x->most = MAX(x->most, value);
    return 0;
}

void metrics_summary_pause(struct metrics_summary *s, int64_t t_ms)
{
    for (size_t i = 0; i < s->n; i++) {
        count(&s->v[i], t_ms);
        s->v[i].live = false;
    }
}

void metrics_summary_get(const struct metrics_summary *s, int64_t t_ms,
                         double out[METRICS_SUMMARY_COUNT])
{
    for (int i = 0; i < METRICS_SUMMARY_COUNT; i++)
        out[i] = -1;
    unsigned n[OF_COUNT] = { 0 };
    double sum[OF_COUNT] = { 0 };
    for (size_t i = 0; i < s->n; i++) {
        struct metrics_mean x = s->v[i];
        count(&x, t_ms);
        double *most = &out[2 * x.what];
        *most = MAX(*most, x.most);
        sum[x.what] += x.weight ? x.area / (double)x.weight : x.value;
        n[x.what]++;
    }
    for (int i = 0; i < OF_COUNT; i++)
        if (n[i])
            out[2 * i + 1] = sum[i] / n[i];
}
