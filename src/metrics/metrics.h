/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics of tasks: their names, the latest value of each, and the series of values as bytes
 * (docs/metrics.md). Pure: no I/O and no clock. storage/metrics_file.h keeps the bytes in a file.
 *
 * A task is a label ("worker:0"), a metric is a name ("memory_bytes"). Tasks and names have numbers
 * from 0 in the order of their first use. A value is a finite double. A series stores whole numbers
 * below 2^53 exactly, memory in pages of 4 KiB, and other numbers with six digits.
 *
 *   struct metrics         the latest values, and the writer of a series
 *   struct metrics_reader  reads a series
 *   metrics_thin()         makes an older series smaller
 *   struct metrics_summary the eight metrics that the original TonY reports at the end of a task
 *   metrics_text_...()     text for Prometheus
 */
#ifndef TONY_METRICS_METRICS_H
#define TONY_METRICS_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct err;

enum {
    METRIC_NAME_MAX = 64,      /* bytes of a name */
    METRICS_OWN_MAX = 256,     /* names that the program of one task may report */
    METRICS_LABEL_MAX = 200,   /* bytes of a label: a role of at most 64 bytes and an index */
    METRICS_NAMES_MAX = 65536, /* different names in one series */
    METRICS_TASKS_MAX = 1 << 20,
    METRICS_CELLS_MAX = 4 << 20, /* pairs of task and name in one series */
    METRICS_GPUS_MAX = 64,       /* gpu0_... to gpu63_... */
};

/* ---- names ---- */

/* GAUGE: a value that goes up and down. COUNTER: one that only grows while the attempt runs. PAGES:
 * a gauge in bytes that is kept in pages of 4 KiB. PEAK: the largest such value so far. Thinning
 * keeps the mean of GAUGE and PAGES, and the last value of COUNTER and PEAK. */
enum metric_kind { METRIC_NONE = 0, METRIC_GAUGE, METRIC_COUNTER, METRIC_PAGES, METRIC_PEAK };

/* The metrics that tony measures itself. The number of a metric is also its id in the message Beat
 * (proto/tony.proto). */
#define METRICS_BUILT_IN(X)                                                                        \
    X(MEMORY, "memory_bytes", METRIC_PAGES, "resident memory of all processes")                    \
    X(MEMORY_PEAK, "memory_peak_bytes", METRIC_PEAK, "the largest memory_bytes so far")            \
    X(CPU, "cpu_ms", METRIC_COUNTER, "CPU time of all processes, also of those that have ended")   \
    X(READ, "read_bytes", METRIC_COUNTER, "bytes read from disks and network file systems")        \
    X(WRITTEN, "written_bytes", METRIC_COUNTER, "bytes written there")                             \
    X(THREADS, "threads", METRIC_GAUGE, "threads of all processes")                                \
    X(STEP, "step", METRIC_COUNTER, "the last step that the task has reported")
enum metric_id {
#define X(id, name, kind, help) METRIC_##id,
    METRICS_BUILT_IN(X)
#undef X
        METRIC_BUILT_IN_COUNT,
};

/* The metrics of each GPU. Their names are gpu<N>_<name>; N is the number of the device on its
 * machine. */
#define METRICS_GPU(X)                                                                             \
    X(PERCENT, "percent", METRIC_GAUGE, "share of the time in which a kernel ran")                 \
    X(MEMORY, "memory_bytes", METRIC_PAGES, "memory in use")                                       \
    X(MEMORY_PERCENT, "memory_percent", METRIC_GAUGE, "memory in use, of all of its memory")       \
    X(BAR1_PERCENT, "bar1_percent", METRIC_GAUGE, "BAR1 memory in use, of all of it")              \
    X(POWER, "power_watts", METRIC_GAUGE, "electric power")                                        \
    X(TEMPERATURE, "temperature_celsius", METRIC_GAUGE, "temperature of the chip")
enum metric_gpu {
#define X(id, name, kind, help) METRIC_GPU_##id,
    METRICS_GPU(X)
#undef X
        METRIC_GPU_COUNT,
};

struct metric_row {
    const char *name, *help;
    enum metric_kind kind;
};
extern const struct metric_row metric_built_in[METRIC_BUILT_IN_COUNT];
extern const struct metric_row metric_of_gpu[METRIC_GPU_COUNT];

/* The name of a metric of a GPU, in a buffer of METRIC_NAME_MAX + 1 bytes. */
void metric_gpu_name(unsigned gpu, enum metric_gpu which, char out[METRIC_NAME_MAX + 1]);
/* Is this a metric of a GPU? Then *out_gpu and *out_which say which. */
bool metric_is_gpu(struct span name, unsigned *out_gpu, enum metric_gpu *out_which);
/* A letter or '_', then letters, digits and any of _ . : / - ; at most METRIC_NAME_MAX bytes. */
bool metric_name_ok(struct span name);
/* Check a name that a program reports. -EINVAL, with a sentence for the author of the program: the
 * name is not well-formed, or tony or the original TonY uses it itself. */
int metric_name_check(struct span name, struct err *e);
enum metric_kind metric_kind_of(struct span name); /* GAUGE for a name of a program */

/* ---- the latest values, and the writer ---- */

struct metrics;
struct metrics *metrics_new(void); /* NULL = no memory */
void metrics_free(struct metrics *m);
/* Get the number of a task or of a name. A new one is added. -ENOMEM; -ENOSPC: too many. */
int metrics_task(struct metrics *m, struct span label, uint32_t *out);
int metrics_name(struct metrics *m, struct span name, uint32_t *out);
uint32_t metrics_n_tasks(const struct metrics *m);
uint32_t metrics_n_names(const struct metrics *m);
const char *metrics_task_label(const struct metrics *m, uint32_t task);
const char *metrics_name_text(const struct metrics *m, uint32_t name);
enum metric_kind metrics_name_kind(const struct metrics *m, uint32_t name);

/* Set the value of a metric of a task. -EINVAL: it is NaN or infinite. -ENOMEM, -ENOSPC. */
int metrics_set(struct metrics *m, uint32_t task, uint32_t name, double value);
/* The task has ended, so its series end. Its latest values can still be read. */
void metrics_gone(struct metrics *m, uint32_t task);
/* The next attempt of the task begins: mark the values of ended series as past.
 */
void metrics_forget(struct metrics *m, uint32_t task);

/* The latest values of a task, by ascending name; *out_n of them. Borrowed until metrics_set(). */
struct metrics_cell {
    uint32_t name;
    bool live;  /* the series has not ended */
    bool dirty; /* not written since it was set */
    bool past;  /* metrics_forget(): the value is of an earlier attempt */
    double value;
    /* the last number that was written in this block is m * 10^e; d is its difference to the number
     * before it */
    int64_t m, d;
    int e;
};
const struct metrics_cell *metrics_cells(const struct metrics *m, uint32_t task, size_t *out_n);
/* NULL = the task has no such value. */
const struct metrics_cell *metrics_find(const struct metrics *m, uint32_t task, const char *name);

/* Gets each record of a series, at most METRICS_RECORD_MAX bytes. A result below 0 is an error. */
typedef int metrics_put_fn(void *arg, struct span record);
enum { METRICS_RECORD_MAX = 128 << 10 };

bool metrics_is_dirty(const struct metrics *m);
/* Pass records with all changes since the last call to put(). Their time is t_ms (wall time).
 * Without a change, put() is not called. After an error (-ENOMEM, or the result of put()) the next
 * call writes all values again. */
int metrics_encode(struct metrics *m, int64_t t_ms, metrics_put_fn *put, void *arg);
/* The next record begins a block: it can be read without the records before it, and repeats all
 * values. gap: for a new writer that continues a series after its values were restored with
 * metrics_set(). Then all series count as ended at the last record, and the restored values are not
 * written again. */
void metrics_begin_block(struct metrics *m, bool gap);

/* ---- the reader ---- */

struct metrics_sink {
    /* name and task are numbers of the reader (metrics_reader_label(), ..._name()). */
    int (*value)(void *arg, uint32_t task, uint32_t name, int64_t t_ms, double value);
    int (*gone)(void *arg, uint32_t task, int64_t t_ms);
    /* all tasks have ended; the next records name those that still run */
    int (*gap)(void *arg, int64_t t_ms);
    void *arg;
}; /* each function may be NULL; a result below 0 ends the reading */

struct metrics_reader;
struct metrics_reader *metrics_reader_new(void);
void metrics_reader_free(struct metrics_reader *r);
/* Read one record. -EBADMSG: it is damaged; a part of it was given to the sink. -ENOMEM. */
int metrics_read(struct metrics_reader *r, struct span record, const struct metrics_sink *sink,
                 struct err *e);
uint32_t metrics_reader_n_tasks(const struct metrics_reader *r);
uint32_t metrics_reader_n_names(const struct metrics_reader *r);
const char *metrics_reader_label(const struct metrics_reader *r, uint32_t task);
const char *metrics_reader_name(const struct metrics_reader *r, uint32_t name);
enum metric_kind metrics_reader_kind(const struct metrics_reader *r, uint32_t name);
int64_t metrics_reader_time(const struct metrics_reader *r); /* of the last record; 0 = none yet */

/* ---- thinning ---- */

/* The level says how many values are kept. Level 0 keeps the most. Each higher level needs about
 * half of the bytes of the level before it. */
enum { METRICS_LEVEL_MAX = 24 };
/* Values of this age are averaged over this interval; 0 = every value is kept. */
int64_t metrics_interval(int level, int64_t age_ms);

struct metrics_thin;
/* Pass the records of a series to metrics_thin_add(), in their order. put() gets the records of the
 * thinner series. now_ms: the time at which a value has age 0. NULL = no memory. */
struct metrics_thin *metrics_thin_new(int level, int64_t now_ms, metrics_put_fn *put, void *arg);
int metrics_thin_add(struct metrics_thin *t, struct span record, struct err *e);
int metrics_thin_end(struct metrics_thin *t, struct err *e); /* puts the last records */
void metrics_thin_free(struct metrics_thin *t);

/* ---- the summary ---- */

#define METRICS_SUMMARY(X)                                                                         \
    X(MAX_MEMORY_BYTES)                                                                            \
    X(AVG_MEMORY_BYTES)                                                                            \
    X(MAX_GPU_UTILIZATION)                                                                         \
    X(AVG_GPU_UTILIZATION)                                                                         \
    X(MAX_GPU_FB_MEMORY_USAGE)                                                                     \
    X(AVG_GPU_FB_MEMORY_USAGE)                                                                     \
    X(MAX_GPU_MAIN_MEMORY_USAGE)                                                                   \
    X(AVG_GPU_MAIN_MEMORY_USAGE)
enum metrics_summary_id {
#define X(id) SUMMARY_##id,
    METRICS_SUMMARY(X)
#undef X
        METRICS_SUMMARY_COUNT,
};
extern const char *const metrics_summary_names[METRICS_SUMMARY_COUNT];

/* The summary of one task. If all bytes are 0, it has no values yet. */
struct metrics_summary {
    struct metrics_mean *v;
    size_t n, cap;
};
void metrics_summary_done(struct metrics_summary *s);
/* Values that are not in the summary are ignored. -ENOMEM. */
int metrics_summary_add(struct metrics_summary *s, struct span name, int64_t t_ms, double value);
/* The task has ended, or starts again later: the time until then does not count. */
void metrics_summary_pause(struct metrics_summary *s, int64_t t_ms);
/* Get the summary at the time t_ms. -1 = unknown, as in the original TonY. */
void metrics_summary_get(const struct metrics_summary *s, int64_t t_ms,
                         double out[METRICS_SUMMARY_COUNT]);

/* ---- text for Prometheus ----
 *
 * Prometheus asks for OpenMetrics 1.0.0. A client that does not name it in its header Accept gets
 * the older text format, which promtool reads. They differ in the name of a counter's family, and
 * in the last line.
 */

/* The most names of metrics that programs report themselves, on one page: labels must be bounded.
 */
enum { METRICS_TEXT_NAMES_MAX = 64 };

bool metrics_text_is_open(struct span accept); /* accept: the header; is OpenMetrics wanted? */
const char *metrics_text_type(bool open);      /* the header Content-Type of the answer */
/* Append the lines that come before the samples of a family. The samples of a counter are named
 * <name>_total. type: "gauge" or "counter". */
int metrics_text_family(struct buf *out, bool open, const char *name, const char *type,
                        const char *help);
int metrics_text_end(struct buf *out, bool open); /* the last line, if there is one */

/* Merges the metrics texts of several jobs into one text. OpenMetrics wants all samples of a family
 * in one place, so the texts cannot just follow each other. */
struct metrics_merge;
struct metrics_merge *metrics_merge_new(void); /* NULL = no memory */
void metrics_merge_free(struct metrics_merge *m);
/* Add an OpenMetrics text of the form that the functions above make. Once METRICS_TEXT_VALUE has
 * samples of METRICS_TEXT_NAMES_MAX names, samples with other names are left out. -EBADMSG: it has
 * another form; -EFBIG: all texts would have more than METRICS_MERGE_MAX bytes; no sample of it is
 * added then. -ENOMEM. */
int metrics_merge_add(struct metrics_merge *m, struct span text, struct err *e);
enum { METRICS_MERGE_MAX = 64 << 20, METRICS_FAMILIES_MAX = 64 };
/* The family of the metrics that programs report themselves. */
#define METRICS_TEXT_VALUE "tony_task_value"
int metrics_merge_text(const struct metrics_merge *m, bool open, struct buf *out);

#endif
