/* SPDX-License-Identifier: Apache-2.0 */
/* Wraps the text of generated pages at WRAP_WIDTH columns. */
#ifndef TONY_TOOLS_WRAP_H
#define TONY_TOOLS_WRAP_H

#include "base/base.h"

enum { WRAP_WIDTH = 110 };

/* Appends text as one item of a Markdown list: "- " after `indent` blanks. Further lines are
 * indented like the text of the first one. */
static inline int wrap_item(struct buf *out, unsigned indent, struct span text)
{
    struct span word;
    size_t column = indent + 1;
    int rc = buf_addf(out, "%*s-", (int)indent, "");

    while (rc == 0 && span_split(&text, ' ', &word)) {
        if (column > indent + 1 && column + 1 + word.len > WRAP_WIDTH) {
            rc = buf_addf(out, "\n%*s", (int)indent + 1, "");
            column = indent + 1;
        }
        if (rc == 0)
            rc = buf_addf(out, " %.*s", (int)word.len, word.p);
        column += 1 + word.len;
    }
    return rc < 0 ? rc : buf_addc(out, '\n');
}

#endif
