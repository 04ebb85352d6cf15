/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: one line for each event. A line has the time, the level, the event's name, which is
 * stable and dotted, and then fields. The logger is the only global state of the project.
 *
 *     log_event(LOG_INFO, "task.ended", f_str("task", id), f_int("exit", 137));
 *
 * writes
 *
 *     2026-01-31T12:00:00.123Z info  task.ended task=worker:3 exit=137
 *
 * Levels: error: a person must act; warn: tony continues, and the line says how; info: the steps of
 * a job; debug: everything else.
 *
 * A line is one write(), cut at 8 KiB. If an event with the same name is logged more than LOG_BURST
 * times within one second, the logger only counts the rest of that second; then it logs the count
 * once, as `log.hidden`. Any thread may log; log_setup() belongs at the start of main().
 */
#ifndef TONY_BASE_LOG_H
#define TONY_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG = 1, LOG_INFO, LOG_WARN, LOG_ERROR };
enum { LOG_BURST = 2000 }; /* lines per second and name */

struct log_field {
    const char *key;
    enum { LOG_F_STR = 1, LOG_F_INT, LOG_F_END } type;
    const char *str;
    int64_t num;
};

static inline struct log_field f_str(const char *key, const char *v)
{
    return (struct log_field){ key, LOG_F_STR, v, 0 };
}
static inline struct log_field f_int(const char *key, int64_t v)
{
    return (struct log_field){ key, LOG_F_INT, 0, v };
}

/* fd is borrowed; without this call it is 2, standard error. Events below `level` are not written.
 * json: each line is a JSON object. */
void log_setup(int fd, enum log_level level, bool json);
bool log_enabled(enum log_level level);
/* f ends with an element of type LOG_F_END. Leaves errno unchanged. Use log_event(). */
void log_fields(enum log_level level, const char *name, const struct log_field *f);

#define log_event(level, name, ...)                                                                \
    (log_enabled(level) ? log_fields((level), (name),                                              \
                                     (const struct log_field[]){                                   \
                                         __VA_ARGS__ __VA_OPT__(, ){ 0, LOG_F_END, 0, 0 } })       \
                        : (void)0)

struct err;
/* Log an event with the fields `error`, the sentence of e, and `hint`, if e has one. */
void log_err(enum log_level level, const char *name, const struct err *e);

#endif
