/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the files that read site files.
 */
#ifndef TONY_HADOOP_SITE_INT_H
#define TONY_HADOOP_SITE_INT_H

#include <sys/types.h>

#include "base/map.h"
#include "base/vec.h"
#include "hadoop/site.h"

struct site_prop {
    char *value;    /* the value as written */
    char *expanded; /* the value with variables replaced; NULL until site_get() */
    char *origin;   /* "file:line" */
    bool final;
};

struct site {
    struct map props, defaults; /* struct site_prop *, char * */
    struct site_open { /* the files that are being read; the first one includes the others */
        dev_t dev;
        ino_t ino;
    } open[SITE_INCLUDE_DEPTH_MAX + 1];
    unsigned n_open;
    unsigned n_files;
};

/* Set the error "<origin>: <key> <sentence>". Returns -EINVAL. */
int site_bad(const struct site *s, const char *key, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
