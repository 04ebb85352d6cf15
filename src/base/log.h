/*
 * The log: one line an event, a stable dotted name, then fields. The only global state of the
 * project.
 *
 *     log_event(LOG_INFO, "task.ended", f_str("task", id), f_int("exit", 137), f_int("ran_ms",
 * 81204)); 2026-01-31T12:00:00.123Z info  task.ended task=worker:3 exit=137 ran_ms=81204
 *
 * error: someone must act; warn: we carry on, and say how; info: the story of a job; debug: the
 * rest. A line is one write(). A name that is logged more than LOG_BURST times in a second is
 * counted, not printed, and the count is said once.
 */
#ifndef TONY_BASE_LOG_H
#define TONY_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG = 1, LOG_INFO, LOG_WARN, LOG_ERROR };
enum { LOG_BURST = 2000 };

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

/* fd is borrowed (2 at start); level is the least that is written; json chooses JSON lines. */
void log_setup(int fd, enum log_level level, bool json);
bool log_enabled(enum log_level level);
void log_fields(enum log_level level, const char *name, const struct log_field *f);

#define log_event(level, name, ...)                                                                \
    (log_enabled(level) ? log_fields((level), (name),                                              \
                                     (const struct log_field[]){                                   \
                                         __VA_ARGS__ __VA_OPT__(, ){ 0, LOG_F_END, 0, 0 } })       \
                        : (void)0)

struct err;
/* An event with the sentence and the hint of e. */
void log_err(enum log_level level, const char *name, const struct err *e);

#endif
