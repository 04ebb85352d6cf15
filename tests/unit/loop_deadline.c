/* SPDX-License-Identifier: Apache-2.0 */
#include "loop_deadline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "loop/loop.h"

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
