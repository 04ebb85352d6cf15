/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Level 0: every other directory uses these headers. This one includes all of them but banned.h,
 * which the build includes, and proctree.h, which only programs with child processes need.
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
