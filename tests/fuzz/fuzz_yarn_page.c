/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the page of a node or a log server, and the address from which it is requested. */
#include <stdint.h>
#include <stdlib.h>

#include "base/base.h"
#include "cluster/remote.h"
#include "cluster/yarn/pages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_inside(struct span part, struct span whole)
{
    if (part.len && (part.p < whole.p || part.p + part.len > whole.p + whole.len))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span page = span_mem(data, size), text = yarn_page_text(page);
    check_inside(text, page);
    for (int64_t n = -1; n < 4; n++) {
        struct span tail = text_tail(text, n);
        check_inside(tail, page);
        if (n < 0 && tail.len != text.len)
            abort();
    }
    AUTO(free_p) char *s = span_dup(page);
    AUTO(free_p) char *node = s ? yarn_page_of_node(s, "stdout") : NULL;
    AUTO(free_p) char *server = s ? yarn_page_of_server(s, "container_1", "stdout") : NULL;
    return 0;
}
