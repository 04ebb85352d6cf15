/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a set of site files.
 */
#ifndef TONY_HADOOP_SITE_INT_H
#define TONY_HADOOP_SITE_INT_H

#include <sys/types.h>

#include "base/map.h"
#include "base/vec.h"
#include "hadoop/site.h"

struct site_prop {
    char *value;    /* as it is written */
    char *expanded; /* NULL until somebody asks */
    char *origin;   /* "file:line" */
    bool final;
};

struct site {
    struct map props, defaults; /* struct site_prop *, char * */
    struct site_open {          /* the files being read, from the outermost */
        dev_t dev;
        ino_t ino;
    } open[SITE_INCLUDE_DEPTH_MAX + 1];
    unsigned n_open;
    unsigned n_files;
};

/* "<origin>: <key> <sentence>"; -EINVAL */
int site_bad(const struct site *s, const char *key, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
