/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/log_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

enum { NUMBER = 1 }; /* the number of the watch: a connection has only one */

bool cluster_log_wants(const struct cluster_log_choice *v, size_t n, const char *role,
                       int64_t index)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(role) == v[i].role_len && memcmp(role, v[i].role, v[i].role_len) == 0 &&
            (v[i].index < 0 || v[i].index == index))
            return true;
    return n == 0;
}

static Tony__WatchLogs__Which which_of(enum cluster_output o)
{
    switch (o) {
    case CLUSTER_OUTPUT_NONE:
        break;
    case CLUSTER_OUTPUT_AUTO:
        return TONY__WATCH_LOGS__WHICH__AUTO;
    case CLUSTER_OUTPUT_CHIEF:
        return TONY__WATCH_LOGS__WHICH__CHIEF;
    case CLUSTER_OUTPUT_ALL:
        return TONY__WATCH_LOGS__WHICH__ALL;
    case CLUSTER_OUTPUT_CHOSEN:
        return TONY__WATCH_LOGS__WHICH__CHOSEN;
    }
    return TONY__WATCH_LOGS__WHICH__NONE;
}

/* The lists of one request. */
struct lists {
    Tony__LogChoice *choices, **choice_list;
    Tony__LogPlace *places, **place_list;
    struct strv roles;
};

static void lists_done(struct lists *l)
{
    free(l->choices);
    free(l->choice_list);
    free(l->places);
    free(l->place_list);
    strv_done(&l->roles);
}

static int lists_make(const struct log_watch_wish *w, const struct log_places *places,
                      struct lists *l)
{
    l->choices = calloc(w->n_chosen + 1, sizeof *l->choices);
    l->choice_list = calloc(w->n_chosen + 1, sizeof *l->choice_list);
    l->places = calloc(places->v.n + 1, sizeof *l->places);
    l->place_list = calloc(places->v.n + 1, sizeof *l->place_list);
    if (!l->choices || !l->choice_list || !l->places || !l->place_list)
        return -ENOMEM;
    for (size_t i = 0; i < w->n_chosen; i++) {
        const struct cluster_log_choice *c = &w->chosen[i];
        if (strv_take(&l->roles, span_dup(span_mem(c->role, c->role_len))) < 0)
            return -ENOMEM;
        tony__log_choice__init(&l->choices[i]);
        l->choices[i].role = l->roles.v[i];
        l->choices[i].one = c->index >= 0;
        l->choices[i].index = c->index >= 0 ? (uint32_t)c->index : 0;
        l->choice_list[i] = &l->choices[i];
    }
    for (size_t i = 0; i < places->v.n; i++) {
        const struct log_place *p = &places->v.v[i];
        tony__log_place__init(&l->places[i]);
        l->places[i].slot = p->slot;
        l->places[i].attempt = p->attempt;
        l->places[i].rank = p->rank;
        l->places[i].is_stderr = p->is_stderr;
        l->places[i].offset = p->offset;
        l->places[i].file = p->file;
        l->place_list[i] = &l->places[i];
    }
    return 0;
}

int log_watch_send(struct conn *master, const struct log_watch_wish *w,
                   const struct log_places *places)
{
    struct lists l = { 0 };
    int rc = lists_make(w, places, &l);
    if (rc == 0) {
        Tony__WatchLogs a = TONY__WATCH_LOGS__INIT;
        a.number = NUMBER;
        a.which = which_of(w->which);
        a.chosen = l.choice_list;
        a.n_chosen = w->n_chosen;
        a.want_stdout = w->want_stdout;
        a.want_stderr = w->want_stderr;
        a.lossy = w->lossy;
        a.one_rank = w->rank >= 0;
        a.rank = w->rank >= 0 ? (uint32_t)w->rank : 0;
        a.has_lines = w->lines >= 0;
        a.lines = w->lines >= 0 ? (uint64_t)w->lines : 0;
        a.since_ms = w->since_ms;
        a.places = l.place_list;
        a.n_places = places->v.n;
        Tony__Frame f = TONY__FRAME__INIT;
        f.body_case = TONY__FRAME__BODY_WATCH_LOGS;
        f.watch_logs = &a;
        rc = conn_send(master, &f);
    }
    lists_done(&l);
    return rc;
}

/* Find the place of this piece's log: the position up to which that log was read. If there is none,
 * add it. Remove the places of earlier attempts of the task. NULL: no memory, or the piece belongs
 * to an earlier attempt. */
static struct log_place *place_of(struct log_places *places, const Tony__LogPiece *p)
{
    struct log_place *found = NULL;
    for (size_t i = places->v.n; i-- > 0;) {
        const struct log_place *x = &places->v.v[i];
        if (x->slot == p->slot && x->attempt > p->attempt)
            return NULL;
        if (x->slot == p->slot && x->attempt < p->attempt)
            vec_remove_fast(&places->v, i);
    }
    for (size_t i = 0; i < places->v.n; i++) {
        struct log_place *x = &places->v.v[i];
        if (x->slot == p->slot && x->rank == p->rank && x->is_stderr == (bool)p->is_stderr)
            found = x;
    }
    struct log_place new = { p->slot, p->attempt, p->rank, p->is_stderr, 0, p->file };
    if (!found && vec_push(&places->v, new) == 0)
        found = &places->v.v[places->v.n - 1];
    return found;
}

bool log_watch_take(struct log_places *places, const Tony__LogPiece *p,
                    struct cluster_log_text *out)
{
    size_t skip = 0;
    if (p->end && p->task) {
        *out = (struct cluster_log_text){ .task = p->task,
                                          .stream = "stdout",
                                          .attempt = p->attempt,
                                          .end = true,
                                          .offset = -1,
                                          .left_bytes = p->left_out_bytes,
                                          .left_lines = p->left_out_lines };
        return true;
    }
    struct log_place *place = p->offset >= 0 && p->task ? place_of(places, p) : NULL;
    if (!place || p->file < place->file)
        return false;
    if (p->file > place->file) {
        place->file = p->file;
        place->offset = 0;
    }
    /* offset 0 is no repetition: masters of tony 0.1 do not count files */
    if (p->offset < place->offset && p->offset > 0) {
        if (p->offset + (int64_t)p->data.len <= place->offset)
            return false;
        skip = (size_t)(place->offset - p->offset);
    }
    place->offset = p->offset + (int64_t)p->data.len;
    *out = (struct cluster_log_text){ .task = p->task,
                                      .stream = p->is_stderr ? "stderr" : "stdout",
                                      .rank = p->rank,
                                      .attempt = p->attempt,
                                      .offset = p->offset + (int64_t)skip,
                                      .text = span_mem(p->data.data + skip, p->data.len - skip),
                                      .left_bytes = p->left_out_bytes,
                                      .left_lines = p->left_out_lines,
                                      .more_lines = p->more_lines };
    return out->text.len || out->left_bytes;
}
