/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the page of a node or a log server, and the address from which it is requested. */
#include <stdint.h>
#include <stdlib.h>

#include "base/base.h"
#include "cluster/remote.h"
#include "cluster/yarn/pages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int add_text(struct span text, void *arg)
{
    return buf_add(arg, text.p, text.len);
}

/* Read the page in pieces of this size. */
static void read_page(struct span page, size_t step, struct buf *out)
{
    struct yarn_page g = { .fn = add_text, .arg = out };
    for (size_t at = 0; at < page.len; at += step)
        (void)yarn_page_feed(&g, page.p + at, MIN(step, page.len - at));
    (void)yarn_page_end(&g);
    if (yarn_page_size(&g) < (int64_t)out->len)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span page = span_mem(data, size);
    AUTO(buf_done) struct buf whole = { 0 };
    AUTO(buf_done) struct buf pieces = { 0 };
    read_page(page, size + 1, &whole);
    read_page(page, size ? data[0] % 16 + 1 : 1, &pieces);
    /* They may differ only where a header ends after HEAD_MAX. */
    if (size < 16 << 10 && !span_eq(buf_span(&whole), buf_span(&pieces)))
        abort();
    for (int64_t n = -1; n < 4; n++) {
        struct span text = buf_span(&whole), tail = text_tail(text, n);
        if (tail.len && (tail.p < text.p || tail.p + tail.len > text.p + text.len))
            abort();
        if (n < 0 && tail.len != text.len)
            abort();
    }
    AUTO(free_p) char *s = span_dup(page);
    AUTO(free_p) char *node = s ? yarn_page_of_node(s, "stdout") : NULL;
    AUTO(free_p) char *server = s ? yarn_page_of_server(s, "container_1", "stdout") : NULL;
    return 0;
}
