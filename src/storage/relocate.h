/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Relocation of a Python environment (venv, conda): it is used in another directory than the one in
 * which it was made. There the interpreter still finds its libraries. But the scripts in bin/ start
 * the interpreter by its old path, or as `python`, which may be another one in PATH.
 */
#ifndef TONY_STORAGE_RELOCATE_H
#define TONY_STORAGE_RELOCATE_H

struct err;

/* Change the scripts in bin/ and in <any directory>/bin/ so that each starts the interpreter in its
 * own directory, wherever that is.
 *
 * dirfd    the root of a copy of the environment; its files are changed
 * source   the environment's name in error sentences
 * Returns the number of changed scripts, or -errno */
int python_relocate(int dirfd, const char *source, struct err *e);

#endif
