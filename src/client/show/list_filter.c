/* SPDX-License-Identifier: Apache-2.0 */
#include "client/show/list_filter.h"

#include <errno.h>
#include <fnmatch.h>
#include <strings.h>

#include "base/base.h"
#include "client/client_int.h"

enum { WORD_MAX = 32 };

static const char *const states[] = { "WAITING",   "STARTING", "RUNNING", "SUSPENDED", "STOPPING",
                                      "SUCCEEDED", "FAILED",   "KILLED",  "DAMAGED",   "NEWER" };

/* Copy one word of a list "A,B". */
static bool next_word(struct span *rest, char out[WORD_MAX])
{
    struct span one;
    if (!span_split(rest, ',', &one))
        return false;
    one = span_trim(one);
    (void)snprintf(out, WORD_MAX, "%.*s", (int)MIN(one.len, (size_t)WORD_MAX - 1), one.p);
    return true;
}

static int check_states(const char *list, struct err *e)
{
    struct span rest = span_of(list);
    char word[WORD_MAX];
    while (list && next_word(&rest, word)) {
        bool known = false;
        for (size_t i = 0; i < ARRAY_LEN(states) && !known; i++)
            known = strcasecmp(states[i], word) == 0;
        if (known)
            continue;
        (void)err_set(e, EINVAL, "'%s' is not a state of jobs", word);
        const char *near = str_nearest(word, states, ARRAY_LEN(states));
        return near ? err_hint(e, "did you mean %s?", near)
                    : err_hint(e,
                               "states are WAITING, RUNNING, SUCCEEDED, FAILED, KILLED and others "
                               "of docs/job-states.md");
    }
    return 0;
}

int list_filter_open(const struct client *c, struct list_filter *out, struct err *e)
{
    const char *since = options_get(&c->o, OPT_SINCE);
    int64_t ago = 0;
    *out = (struct list_filter){ .states = options_get(&c->o, OPT_STATE),
                                 .name = options_get(&c->o, OPT_NAME),
                                 .user = options_get(&c->o, OPT_USER) };
    int rc = check_states(out->states, e);
    if (rc == 0 && since)
        rc = str_ms(span_of(since), 1, INT64_C(315360000000), "--since", &ago, e);
    if (rc == 0 && since)
        out->since_ms = clock_wall_ms() - ago;
    out->any = out->states || out->name || out->user || since;
    return rc;
}

static bool has_state(const char *list, const char *state)
{
    struct span rest = span_of(list);
    char word[WORD_MAX];
    while (next_word(&rest, word))
        if (strcasecmp(word, state) == 0)
            return true;
    return false;
}

static bool is_wanted(const struct list_filter *f, const json_t *row)
{
    return (!f->states || has_state(f->states, doc_str(row, "state"))) &&
           (!f->name || fnmatch(f->name, doc_str(row, "name"), 0) == 0) &&
           (!f->user || str_eq(f->user, doc_str(row, "user"))) &&
           doc_int(row, "submitted_ms", 0) >= f->since_ms;
}

void list_filter_apply(const struct list_filter *f, json_t *rows)
{
    for (size_t i = json_array_size(rows); f->any && i-- > 0;)
        if (!is_wanted(f, json_array_get(rows, i)))
            (void)json_array_remove(rows, i);
}
