/*
 * Level 0: what every other part stands on. Including this header includes all of base.
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
