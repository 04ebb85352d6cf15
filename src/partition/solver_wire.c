/* SPDX-License-Identifier: Apache-2.0 */
#include "partition/solver_wire.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/util.h"

enum { MAGIC = 0x746e7870 };

/* The doubles follow, then the ints, then the flags, in the order of struct part_program. */
struct head {
    uint32_t magic, guess;
    int32_t n_cols, n_rows, n_entries, unused;
};

struct answer_head {
    uint32_t magic, solved;
    double bound;
};

int program_encode(const struct part_program *p, struct buf *out)
{
    size_t cols = (size_t)p->n_cols, rows = (size_t)p->n_rows, n = (size_t)p->start[cols];
    struct head head = { MAGIC, p->guess != NULL, p->n_cols, p->n_rows, p->start[cols], 0 };
    const struct {
        const void *p;
        size_t len;
    } parts[] = {
        { &head, sizeof head },
        { p->lo, cols * sizeof *p->lo },
        { p->hi, cols * sizeof *p->hi },
        { p->cost, cols * sizeof *p->cost },
        { p->row_lo, rows * sizeof *p->row_lo },
        { p->row_hi, rows * sizeof *p->row_hi },
        { p->value, n * sizeof *p->value },
        { p->guess, p->guess ? cols * sizeof *p->guess : 0 },
        { p->start, (cols + 1) * sizeof *p->start },
        { p->row, n * sizeof *p->row },
        { p->whole, cols * sizeof *p->whole },
    };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (parts[i].len > 0 && buf_add(out, parts[i].p, parts[i].len) < 0)
            return -ENOMEM;
    return 0;
}

/* The next `len` bytes; NULL: there are fewer. */
static const void *take(struct span *rest, size_t len)
{
    const char *p = rest->p;
    if (len > rest->len)
        return NULL;
    rest->p += len;
    rest->len -= len;
    return p;
}

/* Do the columns have their entries one after the other, in rows that exist? */
static bool entries_fit(const struct part_program *p, int n_entries)
{
    if (p->start[0] != 0 || p->start[p->n_cols] != n_entries)
        return false;
    for (int c = 0; c < p->n_cols; c++)
        if (p->start[c] > p->start[c + 1])
            return false;
    for (int i = 0; i < n_entries; i++)
        if (p->row[i] < 0 || p->row[i] >= p->n_rows)
            return false;
    return true;
}

int program_decode(struct span bytes, struct part_program *out)
{
    struct part_program p = { 0 };
    struct head head;
    const void *found = take(&bytes, sizeof head);
    if (!found)
        return -EINVAL;
    memcpy(&head, found, sizeof head);
    if (head.magic != MAGIC || head.n_cols < 0 || head.n_rows < 0 || head.n_entries < 0)
        return -EINVAL;
    size_t cols = (size_t)head.n_cols, rows = (size_t)head.n_rows, n = (size_t)head.n_entries;
    p.n_cols = head.n_cols;
    p.n_rows = head.n_rows;
    if (!(p.lo = take(&bytes, cols * sizeof *p.lo)) ||
        !(p.hi = take(&bytes, cols * sizeof *p.hi)) ||
        !(p.cost = take(&bytes, cols * sizeof *p.cost)) ||
        !(p.row_lo = take(&bytes, rows * sizeof *p.row_lo)) ||
        !(p.row_hi = take(&bytes, rows * sizeof *p.row_hi)) ||
        !(p.value = take(&bytes, n * sizeof *p.value)) ||
        (head.guess && !(p.guess = take(&bytes, cols * sizeof *p.guess))) ||
        !(p.start = take(&bytes, (cols + 1) * sizeof *p.start)) ||
        !(p.row = take(&bytes, n * sizeof *p.row)) ||
        !(p.whole = take(&bytes, cols * sizeof *p.whole)) || bytes.len > 0 ||
        !entries_fit(&p, head.n_entries))
        return -EINVAL;
    *out = p;
    return 0;
}

static bool has_x(enum part_solved solved)
{
    return solved == PART_SOLVED_SOME || solved == PART_SOLVED_BEST;
}

int solution_encode(enum part_solved solved, double bound, const double *x, int n_cols,
                    struct buf *out)
{
    struct answer_head head = { MAGIC, solved, bound };
    int rc = buf_add(out, &head, sizeof head);
    if (rc == 0 && has_x(solved) && n_cols > 0)
        rc = buf_add(out, x, (size_t)n_cols * sizeof *x);
    return rc;
}

int solution_decode(struct span bytes, int n_cols, enum part_solved *solved, double *bound,
                    double *x)
{
    struct answer_head head;
    const void *found = take(&bytes, sizeof head);
    if (!found)
        return -EINVAL;
    memcpy(&head, found, sizeof head);
    if (head.magic != MAGIC || head.solved > PART_SOLVED_BEST)
        return -EINVAL;
    size_t len = has_x(head.solved) ? (size_t)n_cols * sizeof *x : 0;
    if (bytes.len != len)
        return -EINVAL;
    *solved = head.solved;
    if (head.solved == PART_SOLVED_IMPOSSIBLE)
        return 0;
    *bound = head.bound;
    if (len > 0)
        memcpy(x, bytes.p, len);
    return 0;
}
