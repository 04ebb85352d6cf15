/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the frames between a master and a keeper, for the back-ends that talk to keepers. */
#ifndef TONY_SCHEDULER_KEEPER_FRAMES_H
#define TONY_SCHEDULER_KEEPER_FRAMES_H

#include <stdint.h>

#include "base/vec.h"
#include "proto/tony.pb-c.h"
#include "scheduler/scheduler.h"

struct conn;

/* Send the first frame of a master to the keeper that started it. 0 or -errno, see conn_send(). */
int keeper_send_register(struct conn *c, uint32_t epoch);

/* Convert a container of a frame to one of the interface. `texts` owns the text of to->gpus; the
 * other strings are those of the frame. 0 or -ENOMEM. */
int keeper_container_read(const Tony__Container *from, struct sched_container *to,
                          struct strv *texts);
/* The frame's strings are gone when it has been handled: make `texts` own them. 0 or -ENOMEM. */
int keeper_container_copy_texts(struct sched_container *c, struct strv *texts);

/* A list of asks for a message to the keeper. */
struct asks_message {
    Tony__Ask *v;
    Tony__Ask **list;
};
int asks_message_fill(struct asks_message *w, const struct sched_ask *asks, size_t n,
                      struct err *e);
void asks_message_done(struct asks_message *w);

#endif
