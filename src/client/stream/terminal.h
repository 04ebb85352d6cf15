/* SPDX-License-Identifier: Apache-2.0 */
/* The user's terminal in raw mode: each key goes to the command as it is typed. The old mode is
 * restored on every way out of this process that can be caught, also after a crash. */
#ifndef TONY_CLIENT_STREAM_TERMINAL_H
#define TONY_CLIENT_STREAM_TERMINAL_H

#include <stdbool.h>
#include <termios.h>

struct terminal {
    int fd;
    bool is_terminal, raw;
    struct termios before;
};

void terminal_init(struct terminal *t, int fd);
void terminal_raw(struct terminal *t); /* does nothing if fd is no terminal */
void terminal_restore(struct terminal *t);

#endif
