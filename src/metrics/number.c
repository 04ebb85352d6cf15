/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metrics/metrics_int.h"

enum { EXACT_POWER = 22 }; /* 10^22 is the largest power of ten that a double holds exactly */

static int64_t whole(double v)
{
    double limit = (double)NUMBER_MAX;
    if (v >= limit)
        return NUMBER_MAX;
    if (v <= -limit)
        return -NUMBER_MAX;
    return (int64_t)(v < 0 ? v - 0.5 : v + 0.5);
}

void number_of(double v, enum metric_kind kind, int64_t *out_m, int *out_e)
{
    *out_e = 0;
    if (in_pages(kind)) {
        *out_m = whole(v / PAGE_BYTES);
        return;
    }
    if (v >= (double)-NUMBER_MAX && v <= (double)NUMBER_MAX && (double)(int64_t)v == v) {
        *out_m = (int64_t)v;
        return;
    }
    /* six digits: "-d.ddddde-XX" */
    char text[32];
    (void)snprintf(text, sizeof text, "%.5e", v);
    char *end;
    bool negative = text[0] == '-';
    const char *p = text + negative;
    int64_t m = 0;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9')
            m = m * 10 + (*p - '0');
    long e = *p == 'e' ? strtol(p + 1, &end, 10) : 0;
    *out_m = negative ? -m : m;
    *out_e = (int)e - 5;
}

static double power(int n)
{
    double p = 1;
    for (int i = 0; i < n; i++)
        p *= 10;
    return p;
}

double number_value(int64_t m, int e, enum metric_kind kind)
{
    char text[48];
    if (in_pages(kind))
        return (double)m * PAGE_BYTES;
    if (e == 0)
        return (double)m;
    if (e > 0 && e <= EXACT_POWER)
        return (double)m * power(e);
    if (e < 0 && -e <= EXACT_POWER)
        return (double)m / power(-e); /* the double that is nearest to the decimal number */
    (void)snprintf(text, sizeof text, "%llde%d", (long long)m, e);
    double v = strtod(text, NULL);
    return v > -HUGE_VAL && v < HUGE_VAL ? v : 0;
}

size_t name_at(const void *v, size_t n, size_t size, uint32_t name)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        uint32_t at;
        memcpy(&at, (const char *)v + mid * size, sizeof at);
        if (at < name)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

int put_varint(struct buf *b, uint64_t v)
{
    unsigned char bytes[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        bytes[n++] = (unsigned char)(v | 0x80);
    bytes[n++] = (unsigned char)v;
    return buf_add(b, bytes, n);
}

bool get_varint(struct span *in, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < in->len && i < 10; i++) {
        unsigned char c = (unsigned char)in->p[i];
        if (i == 9 && c > 1)
            return false; /* more than 64 bits */
        v |= (uint64_t)(c & 0x7f) << (7 * i);
        if (c & 0x80)
            continue;
        in->p += i + 1;
        in->len -= i + 1;
        *out = v;
        return true;
    }
    return false;
}
