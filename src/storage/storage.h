/*
 * Files of the product: where everything lies, the journal's framing, the content store.
 */
#ifndef TONY_STORAGE_STORAGE_H
#define TONY_STORAGE_STORAGE_H

#include "storage/journal.h"
#include "storage/paths.h"
#include "storage/store.h"

#endif
