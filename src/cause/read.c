/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the last lines of a program for the one that shows why it ended.
 *
 * A line can match a rule that is sure or one that is doubtful (cause_int.h). A line that matches a
 * sure rule wins, wherever it stands. Among the lines that match doubtful rules the earliest wins:
 * in a chain of exceptions the first one is the root, and the messages of a program that is being
 * torn down come after it. But if a program continued its work after an error, that error does not
 * count.
 */
#include <ctype.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "cause/cause_int.h"

enum {
    WORKED_ON_MIN = 3,     /* ordinary lines after an error that show that the program continued */
    LINES_AFTER_MAX = 6,   /* a doubtful error was survived if more ordinary lines follow it */
    WARNING_MARK_MAX = 60, /* the mark of a warning stands within the first 60 bytes of a line */
    PREFIX_MAX = 64,       /* a launcher's prefix has at most 64 bytes */
    PAIR_BITS = 1024,      /* bits of struct pairs */
};

/* ---- what kind of line is it? ---- */

static bool has_any(struct span line, const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (span_has(line, texts[i]))
            return true;
    return false;
}

static bool starts_with_any(struct span line, const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (span_starts(line, texts[i]))
            return true;
    return false;
}

/* Does the line say that a result is NaN, as in "loss is nan"? "banana" and a variable that is
 * called nan do not count: NaN must be a word, and the line must be about a result. */
static bool is_nan(struct span line)
{
    static const char *const about[] = { "loss", "Loss", "grad", "Error", "value", "diverge" };

    if (!has_any(line, about, ARRAY_LEN(about)))
        return false;
    for (size_t i = 0; i + 3 <= line.len; i++) {
        bool before = i == 0 || !isalnum((unsigned char)line.p[i - 1]);
        bool after = i + 3 == line.len || !isalnum((unsigned char)line.p[i + 3]);
        if (before && after && strncasecmp(line.p + i, "nan", 3) == 0)
            return true;
    }
    return false;
}

/* Python ends a traceback with "package.SomeError: text". */
static bool is_python_exception(struct span line)
{
    static const char *const ends[] = { "Error", "Exception", "Failure", "Exit", "Interrupt" };
    size_t n = 0, dot = 0;

    while (n < line.len &&
           (isalnum((unsigned char)line.p[n]) || line.p[n] == '_' || line.p[n] == '.')) {
        dot = line.p[n] == '.' ? n : dot;
        n++;
    }
    if (!n || (n < line.len && line.p[n] != ':'))
        return false;
    if (dot && dot + 1 < n && isupper((unsigned char)line.p[dot + 1])) /* module.Name: text */
        return true;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        size_t len = strlen(ends[i]);
        if (n > len && memcmp(line.p + n - len, ends[i], len) == 0)
            return true;
    }
    return false;
}

bool line_is_exception(struct span line)
{
    static const char *const others[] = { "terminate called after throwing",
                                          "panic: ",
                                          "Exception in thread ",
                                          "Traceback of ",
                                          "ERROR: LoadError",
                                          "Error in " };

    return starts_with_any(line, others, ARRAY_LEN(others)) || is_python_exception(line);
}

/* A program continues after a warning: for example, a client warns that it cannot connect, and
 * retries until its server has started. */
static bool is_warning(struct span line)
{
    static const char *const starts[] = { "[W", "[I", "W0", "W1", "I0", "I1" };
    static const char *const marks[] = { ": W ", ": I ", "warning: ", "INFO", "DEBUG" };
    struct span start = span_mem(line.p, MIN(line.len, (size_t)WARNING_MARK_MAX));

    return starts_with_any(line, starts, ARRAY_LEN(starts)) ||
           has_any(start, marks, ARRAY_LEN(marks)) ||
           (span_has(start, "WARN") && !span_has(start, "NCCL WARN")) ||
           span_has(line, "Warning: ");
}

/* Lines that programs print while they are torn down. They do not show that the program
 * continued. */
static bool is_noise(struct span line)
{
    static const char *const starts[] = { "[",           "frame #", "terminate called",
                                          "Exception ",  "***",     "---",
                                          "===",         "Aborted", "Traceback",
                                          "Fatal Python" };

    return !line.len || isspace((unsigned char)*line.p) ||
           starts_with_any(line, starts, ARRAY_LEN(starts));
}

/* The line that Python prints between two exceptions: the second is a consequence of the first.
 * (Java prints the consequence first, and then "Caused by: " and the cause. So there the later line
 * counts, as without any mark.) */
static bool is_chain_mark(struct span line)
{
    return span_starts(line, "During handling of the above exception") ||
           span_starts(line, "The above exception was the direct cause");
}

/* A parent process reports the end of its child. The child's own lines say more. */
static bool is_about_child(struct span line)
{
    static const char *const words[] = {
        "Child", "ProcessExited", "ProcessRaised", "CalledProcessError", "BrokenProcessPool",
        "orker", "ubprocess"
    };

    return has_any(line, words, ARRAY_LEN(words));
}

/* Does the line contain the word by itself, not as a part of a name, a path or a setting? */
static bool has_word(struct span line, const char *word)
{
    size_t len = strlen(word);

    for (size_t i = 0; i + len <= line.len; i++) {
        if (line.p[i] != word[0] || memcmp(line.p + i, word, len) != 0)
            continue;
        char before = i ? line.p[i - 1] : ' ', after = i + len < line.len ? line.p[i + len] : ' ';
        char next = i + len + 1 < line.len ? line.p[i + len + 1] : ' ';
        bool part = isalnum((unsigned char)before) || strchr("_/.-", before) ||
                    isalnum((unsigned char)after) || strchr("_=/-", after) ||
                    (after == '.' && isalnum((unsigned char)next));
        if (!part)
            return true;
    }
    return false;
}

/* Does the line report an error that no rule knows? */
static bool looks_like_error(struct span line)
{
    static const char *const words[] = { "error",    "Error",  "ERROR",    "fatal",    "Fatal",
                                         "FATAL",    "failed", "Failed",   "FAILED",   "Cannot",
                                         "CRITICAL", "cannot", "panicked", "Assertion" };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (has_word(line, words[i]))
            return true;
    return span_has(line, "not found");
}

/* Launchers put in front of a line which process printed it: "[rank0]: text", "[1,0]<stderr>:text",
 * "(Worker pid=7) text". Returns the line without that prefix. */
static struct span without_prefix(struct span line)
{
    const char *end = line.len ? memchr(line.p, *line.p == '(' ? ')' : ']', line.len) : NULL;
    size_t n = end ? (size_t)(end - line.p) + 1 : 0;
    struct span prefix = span_mem(line.p, n);

    if (n > PREFIX_MAX || n < 3)
        return line;
    bool rank = *line.p == '[' && (isdigit((unsigned char)line.p[1]) ||
                                   span_starts(prefix, "[rank") || span_starts(prefix, "[default"));
    if (!rank && !(*line.p == '(' && span_has(prefix, "pid=")))
        return line;
    if (line.len - n >= 8 && memcmp(line.p + n, "<stderr>", 8) == 0)
        n += 8;
    if (n < line.len && line.p[n] == ':')
        n++;
    if (n < line.len && line.p[n] == ' ')
        n++;
    return span_mem(line.p + n, line.len - n);
}

/* ---- which cause does it show? ---- */

/*
 * The set of all pairs of adjacent bytes in a line, as bits by a hash of the pair. If a text has a
 * pair that the line lacks, the text is not in the line. So most of the 400 rules need no search
 * through the line; these searches took 95 percent of the time.
 */
struct pairs {
    uint64_t bits[PAIR_BITS / 64];
};

static unsigned pair_hash(const char *p)
{
    return ((unsigned char)p[0] * 37u + (unsigned char)p[1]) % PAIR_BITS;
}

static void pairs_of(struct span line, struct pairs *out)
{
    *out = (struct pairs){ 0 };
    for (size_t i = 1; i < line.len; i++) {
        unsigned h = pair_hash(line.p + i - 1);
        out->bits[h / 64] |= UINT64_C(1) << h % 64;
    }
}

static bool pairs_allow(const struct pairs *pairs, const char *text)
{
    for (const char *p = text; p[0] && p[1]; p++) {
        unsigned h = pair_hash(p);
        if (!(pairs->bits[h / 64] >> h % 64 & 1))
            return false;
    }
    return true;
}

/* The first rule that the line matches; NULL = none. */
static const struct rule *rule_of(struct span line)
{
    static const struct rule nan = { CAUSE_NAN, true, "", NULL };
    static const struct rule exception = { CAUSE_EXCEPTION, true, "", NULL };
    static const struct rule peer = { CAUSE_LOST_PEER, true, "", NULL };

    struct pairs pairs;

    pairs_of(line, &pairs);
    for (size_t i = 0; i < cause_n_rules; i++)
        if (pairs_allow(&pairs, cause_rules[i].text) && span_has(line, cause_rules[i].text) &&
            (!cause_rules[i].and_text || span_has(line, cause_rules[i].and_text)))
            return &cause_rules[i];
    /* EOFError without a text: the process at the other end of a pipe or socket has ended. */
    if (span_eqs(line, "EOFError"))
        return &peer;
    return is_nan(line) ? &nan : line_is_exception(line) ? &exception : NULL;
}

/* ---- from line to line ---- */

struct reader {
    struct found best;         /* the cause so far */
    struct found last_warning; /* the last warning that matched a rule: used if `best` is none */
    /* the last line that looks like an error: used if there is neither of the two above */
    struct found last_error;
    unsigned n_ordinary; /* lines since `best` that report no error */
    bool chained;        /* a chain mark followed `best`: later errors are its consequences */
    bool in_source;      /* the next line of a traceback quotes the program's source text */
    bool usage;          /* the program printed how it is called */
};

/* The line matches the rule. Does it become the new `best`? */
static void read_match(struct reader *r, const struct rule *rule, struct span line)
{
    bool sure = !rule->doubtful, victim = cause_table[rule->id].victim;
    const struct found *best = &r->best;

    if (is_warning(line)) {
        r->n_ordinary++;
        if (!victim)
            r->last_warning = (struct found){ rule->id, false, span_trim(line) };
        return;
    }
    bool best_was_survived = r->n_ordinary >= WORKED_ON_MIN && !r->chained &&
                             line_is_exception(line) && !is_about_child(line);
    bool more_exact = best->id == CAUSE_EXCEPTION && rule->id != CAUSE_EXCEPTION && !victim;
    bool surer = sure && !(best->sure && r->chained);
    if (!best->id || best_was_survived || surer || (!best->sure && more_exact)) {
        r->best = (struct found){ rule->id, sure, span_trim(line) };
        r->n_ordinary = 0;
        r->chained = false;
    }
}

static void read_line(struct reader *r, struct span line)
{
    bool after_file_line = r->in_source;

    line = without_prefix(line);
    r->in_source = span_starts(line, "  File \"");
    if (r->in_source || (after_file_line && line.len && isspace((unsigned char)*line.p)))
        return; /* source text names errors that did not happen */
    if (is_chain_mark(line))
        r->chained = true;
    const struct rule *rule = rule_of(line);
    if (rule && rule->id) { /* a rule for CAUSE_NONE says that the line shows no cause */
        read_match(r, rule, line);
        return;
    }
    if (rule || is_noise(line))
        return;
    r->n_ordinary++;
    if (span_starts(line, "usage: ") || span_starts(line, "Usage: ") || span_has(line, "--help"))
        r->usage = true;
    if (looks_like_error(line) && !is_warning(line))
        r->last_error = (struct found){ CAUSE_EXCEPTION, false, span_trim(line) };
}

struct found read_last_lines(const char *text, int exit_code)
{
    struct span rest = span_of(text ? text : ""), line;
    struct reader r = { .n_ordinary = 0 };

    while (rest.p && span_split(&rest, '\n', &line))
        read_line(&r, line);
    bool survived =
        !r.best.sure && !cause_table[r.best.id].victim && r.n_ordinary > LINES_AFTER_MAX;
    if (r.best.id && !survived)
        return r.best;
    if (r.usage && (exit_code == 2 || exit_code == 64))
        return (struct found){ CAUSE_ARGUMENTS, false, r.last_error.line };
    return r.last_warning.id ? r.last_warning : r.last_error;
}
