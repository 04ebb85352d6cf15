/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a mechanism of SASL is to sasl.c.
 */
#ifndef TONY_HADOOP_SASL_INT_H
#define TONY_HADOOP_SASL_INT_H

#include "hadoop/sasl.h"

struct sasl_mech {
    const char *name;
    /* Each object begins with a struct sasl; new gives one or NULL (no memory). */
    struct sasl *(*make)(const struct sasl_config *cfg);
    void (*free)(struct sasl *s);
    int (*step)(struct sasl *s, struct span challenge, struct buf *out, struct err *e);
    int (*finish)(struct sasl *s, struct span token, struct err *e);
    int (*wrap)(struct sasl *s, struct span plain, struct buf *out, struct err *e);
    int (*unwrap)(struct sasl *s, struct span packet, struct buf *out, struct err *e);
};

struct sasl {
    const struct sasl_mech *mech;
    enum sasl_qop qop; /* 0 until it is agreed */
    size_t slice_max;
    int done; /* finish() was happy */
};

extern const struct sasl_mech sasl_digest_md5;

/* Compares all bytes whatever they are. */
int sasl_same(const void *a, const void *b, size_t n); /* 1 = the same */

#endif
