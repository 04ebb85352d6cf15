/* SPDX-License-Identifier: Apache-2.0 */
#include "loop_deadline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "loop/loop.h"
#include "proto/tony.pb-c.h"

static void give_up(void *arg)
{
    (void)arg;
    fail_msg("nothing happened for %d ms", DEADLINE_MS);
}

struct loop *new_loop(void)
{
    struct err e = { 0 };
    struct loop *l = loop_new(&e);
    assert_non_null(l);
    struct loop_timer *t = loop_timer_new(l, give_up, NULL);
    assert_non_null(t);
    loop_timer_set(t, clock_mono_ms() + DEADLINE_MS);
    return l;
}

int send_step(struct conn *c, uint64_t step, size_t filler)
{
    Tony__TaskWord w = TONY__TASK_WORD__INIT;
    Tony__Frame f = TONY__FRAME__INIT;
    AUTO(free_p) char *text = calloc(1, filler + 1);
    assert_non_null(text);
    memset(text, 'x', filler);
    w.step = step;
    w.checkpoint = text;
    f.body_case = TONY__FRAME__BODY_TASK_WORD;
    f.task_word = &w;
    return conn_send(c, &f);
}
