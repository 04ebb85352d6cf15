/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line that ps(1) shows for a process. A process that was forked without an exec shows
 * that of its parent, until it calls title_set().
 */
#ifndef TONY_BASE_TITLE_H
#define TONY_BASE_TITLE_H

/* For main(): remember where the kernel finds the command line, and point argv at copies of its
 * strings, so that title_set() does not change them. The copies are never freed. argv must be that
 * of main(). Without memory, title_set() has no effect. */
void title_init(int argc, char **argv);
/* Replace the command line of this process. A text longer than the old command line is cut off.
 * Without title_init(): no effect. */
void title_set(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Replace it by these arguments, each with a zero behind it. */
void title_set_args(char *const *argv);

#endif
