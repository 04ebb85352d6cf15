/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers of level 0 that nearly every file needs. The others (files.h, lockfile.h, proctree.h,
 * ...) are included where they are used. The build includes banned.h into each file.
 */
#ifndef TONY_BASE_H
#define TONY_BASE_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/map.h"
#include "base/reason.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"

#endif
