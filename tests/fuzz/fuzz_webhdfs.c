/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the answer of a NameNode, for each kind of request. */
#include <stdint.h>

#include "base/base.h"
#include "hadoop/webhdfs_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span body = span_mem(data, size);
    struct webhdfs_stats s = { 0 };
    int64_t left;
    bool yes;
    AUTO(free_p) char *path = NULL;
    struct err e = { 0 };
    (void)webhdfs_read_stat(body, &s, &e); /* the result does not matter */
    (void)webhdfs_read_list(body, &s, &left, &e);
    (void)webhdfs_read_bool(body, &yes, &e);
    (void)webhdfs_read_path(body, &path, &e);
    err_clear(&e);
    (void)webhdfs_refusal(403, body, "/x", "me", &e);
    if (!e.num)
        abort(); /* each refusal has a message */
    webhdfs_stats_done(&s);
    return 0;
}
