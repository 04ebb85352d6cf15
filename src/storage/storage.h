/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Level 3: the files of tony. The paths of all files, the framing of the journal, and the content
 * store. Including this header includes these three; job.conf, keys and trees have own headers.
 */
#ifndef TONY_STORAGE_STORAGE_H
#define TONY_STORAGE_STORAGE_H

#include "storage/journal.h"
#include "storage/paths.h"
#include "storage/store.h"

#endif
