/* SPDX-License-Identifier: Apache-2.0 */
/* Integer programs and their answers as bytes: whole, cut short, and with wrong numbers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "partition/solver_wire.h"

/* Two columns, one row: 1 <= x <= 3, y is whole, x + 2 y <= 8. */
static struct part_program example(void)
{
    static const double lo[] = { 1, 0 }, hi[] = { 3, 9 }, cost[] = { -1, -2 }, guess[] = { 1, 0 };
    static const double row_lo[] = { -1e30 }, row_hi[] = { 8 }, value[] = { 1, 2 };
    static const bool whole[] = { false, true };
    static const int start[] = { 0, 1, 2 }, row[] = { 0, 0 };
    return (struct part_program){ .n_cols = 2,
                                  .n_rows = 1,
                                  .lo = lo,
                                  .hi = hi,
                                  .cost = cost,
                                  .whole = whole,
                                  .row_lo = row_lo,
                                  .row_hi = row_hi,
                                  .start = start,
                                  .row = row,
                                  .value = value,
                                  .guess = guess };
}

static void a_program(void **state)
{
    (void)state;
    const struct part_program p = example();
    struct part_program back;
    AUTO(buf_done) struct buf bytes = { 0 };
    assert_int_equal(program_encode(&p, &bytes), 0);
    assert_int_equal(program_decode(buf_span(&bytes), &back), 0);
    assert_int_equal(back.n_cols, 2);
    assert_int_equal(back.n_rows, 1);
    assert_memory_equal(back.hi, p.hi, 2 * sizeof *p.hi);
    assert_memory_equal(back.cost, p.cost, 2 * sizeof *p.cost);
    assert_memory_equal(back.value, p.value, 2 * sizeof *p.value);
    assert_memory_equal(back.guess, p.guess, 2 * sizeof *p.guess);
    assert_memory_equal(back.start, p.start, 3 * sizeof *p.start);
    assert_true(!back.whole[0] && back.whole[1]);
    for (size_t len = 0; len < bytes.len; len++)
        assert_int_equal(program_decode((struct span){ bytes.p, len }, &back), -EINVAL);
}

static void wrong_entries(void **state)
{
    (void)state;
    static const int rows[][2] = { { 0, 1 }, { -1, 0 } },
                     starts[][3] = { { 1, 1, 2 }, { 0, 3, 2 } };
    struct part_program back;
    for (size_t i = 0; i < 2; i++) {
        struct part_program p = example(), q = example();
        AUTO(buf_done) struct buf a = { 0 };
        AUTO(buf_done) struct buf b = { 0 };
        p.row = rows[i];
        q.start = starts[i];
        assert_int_equal(program_encode(&p, &a), 0);
        assert_int_equal(program_encode(&q, &b), 0);
        assert_int_equal(program_decode(buf_span(&a), &back), -EINVAL);
        assert_int_equal(program_decode(buf_span(&b), &back), -EINVAL);
    }
}

static void an_answer(void **state)
{
    (void)state;
    const double x[] = { 2, 3 };
    for (enum part_solved solved = PART_SOLVED_NOT; solved <= PART_SOLVED_BEST; solved++) {
        bool has_x = solved == PART_SOLVED_SOME || solved == PART_SOLVED_BEST;
        AUTO(buf_done) struct buf bytes = { 0 };
        enum part_solved found = PART_SOLVED_NOT;
        double back[2] = { 0, 0 }, bound = 7;
        assert_int_equal(solution_encode(solved, -8, x, 2, &bytes), 0);
        assert_int_equal(solution_decode(buf_span(&bytes), 2, &found, &bound, back), 0);
        assert_int_equal(found, solved);
        assert_true(bound == (solved == PART_SOLVED_IMPOSSIBLE ? 7 : -8));
        assert_true(back[1] == (has_x ? 3 : 0));
        for (size_t len = 0; len < bytes.len; len++)
            assert_int_equal(
                solution_decode((struct span){ bytes.p, len }, 2, &found, &bound, back), -EINVAL);
        if (has_x) /* of a program with other columns */
            assert_int_equal(solution_decode(buf_span(&bytes), 3, &found, &bound, back), -EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program),
        cmocka_unit_test(wrong_entries),
        cmocka_unit_test(an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
