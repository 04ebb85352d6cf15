/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop for tests. It fails the test if the test does not end it in time.
 */
#ifndef TONY_TESTS_UNIT_LOOP_DEADLINE_H
#define TONY_TESTS_UNIT_LOOP_DEADLINE_H

struct loop;

enum { DEADLINE_MS = 60000 };

struct loop *new_loop(void); /* fails the test if it cannot be made; free with loop_free() */

#endif
