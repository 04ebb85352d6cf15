/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop for tests, which fails the test if the test does not end it in time, and a frame to send.
 */
#ifndef TONY_TESTS_UNIT_LOOP_DEADLINE_H
#define TONY_TESTS_UNIT_LOOP_DEADLINE_H

#include <stddef.h>
#include <stdint.h>

struct conn;
struct loop;

enum { DEADLINE_MS = 60000 };

struct loop *new_loop(void); /* fails the test if it cannot be made; free with loop_free() */
/* Send a frame with the number `step`, made larger by `filler` bytes. Returns what conn_send()
 * does. */
int send_step(struct conn *c, uint64_t step, size_t filler);

#endif
