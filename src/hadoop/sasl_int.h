/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface between sasl.c and the mechanisms.
 */
#ifndef TONY_HADOOP_SASL_INT_H
#define TONY_HADOOP_SASL_INT_H

#include "hadoop/sasl.h"

struct sasl_mech {
    const char *name;
    /* Makes an object that begins with a struct sasl. NULL = no memory. */
    struct sasl *(*make)(const struct sasl_config *cfg);
    void (*free)(struct sasl *s);
    int (*step)(struct sasl *s, struct span challenge, struct buf *out, struct err *e);
    int (*finish)(struct sasl *s, struct span token, struct err *e);
    int (*wrap)(struct sasl *s, struct span plain, struct buf *out, struct err *e);
    int (*unwrap)(struct sasl *s, struct span packet, struct buf *out, struct err *e);
};

struct sasl {
    const struct sasl_mech *mech;
    enum sasl_qop qop; /* 0 until both sides have agreed */
    size_t slice_max;
    int done; /* finish() has succeeded */
};

extern const struct sasl_mech sasl_digest_md5;

/* Compare n bytes in constant time. */
int sasl_same(const void *a, const void *b, size_t n); /* 1 = the same */

#endif
