/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests on a loop: one that fails the test when nothing has ended it for a while.
 */
#ifndef TONY_TESTS_UNIT_LOOP_DEADLINE_H
#define TONY_TESTS_UNIT_LOOP_DEADLINE_H

struct loop;

enum { DEADLINE_MS = 60000 };

struct loop *new_loop(void); /* fails the test if it cannot be made; free with loop_free() */

#endif
