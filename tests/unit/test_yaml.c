/* SPDX-License-Identifier: Apache-2.0 */
/* The YAML reader: what it accepts, and message and line of each refusal. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/base.h"
#include "codec/yaml.h"
#include "torture.h"

/* The tree in one line: maps {k=v}, lists [a], text 'quoted' or plain, ~ for null; with line
 * numbers on request. */
static void print_node(struct buf *b, const struct ynode *n, bool lines)
{
    const char *open = n->kind == YN_MAP ? "{" : "[", *close = n->kind == YN_MAP ? "}" : "]";
    if (lines)
        assert_int_equal(0, buf_addf(b, "%u:", n->line));
    if (ynode_is_null(n)) {
        assert_int_equal(0, buf_adds(b, "~"));
        return;
    }
    if (n->kind == YN_SCALAR) {
        assert_int_equal(n->len, strlen(n->text));
        assert_int_equal(0, buf_addf(b, n->quoted ? "'%s'" : "%s", n->text));
        return;
    }
    assert_int_equal(0, buf_adds(b, open));
    size_t count = 0;
    for (const struct ynode *m = n->first; m; m = m->next, count++) {
        if (count > 0)
            assert_int_equal(0, buf_adds(b, ","));
        if (m->key)
            assert_int_equal(0, buf_addf(b, "%s=", m->key));
        print_node(b, m, lines);
    }
    assert_int_equal(count, n->n);
    assert_int_equal(0, buf_adds(b, close));
}

static void test_trees(void **state)
{
    (void)state;
    static const struct {
        const char *text, *tree;
        bool lines;
    } cases[] = {
        { "a: 1", "{a=1}", false },
        { "a: '1'\nb: \"x y\"", "{a='1',b='x y'}", false },
        { "a: [1, {b: c}, []]", "{a=[1,{b=c},[]]}", false },
        { "a:\nb: ~\nc: null\nd: NULL\ne: 'null'\nf: \"\"\n", "{a=~,b=~,c=~,d=~,e='null',f=''}",
          false },
        { "- x\n- y: z\n", "[x,{y=z}]", false },
        { "", "~", false },
        { "# only a comment\n", "~", false },
        { "---\na: b\n", "{a=b}", false },
        { "a: b\n...\n", "{a=b}", false },
        { "a: |\n  one\n  two\nb: >\n  one\n  two\n", "{a='one\ntwo\n',b='one two\n'}", false },
        { "\"k e y\": v", "{k e y=v}", false },
        { "a: true\nb: 0x10\nc: 1e3\n", "{a=true,b=0x10,c=1e3}", false },
        { "a: b # c\n", "{a=b}", false },
        { "\xef\xbb\xbf"
          "a: b\n",
          "{a=b}", false },
        { "a: \xc3\xa4\n", "{a=\xc3\xa4}", false },
        { "<<: x\n", "{<<=x}", false },
        { "a: 1\nb:\n  - 2\n  - c: 3\n\nd: 4\n", "1:{a=1:1,b=3:[3:2,4:{c=4:3}],d=6:4}", true },
        { "a: 'x\n\n  y'\nb: 2\n", "1:{a=1:'x\ny',b=4:2}", true },
        { "a: b\r\nc: d\r\n", "1:{a=1:b,c=2:d}", true },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = { 0 };
        struct ydoc *d = NULL;
        struct buf b = { 0 };
        int rc = ydoc_parse("f", span_of(cases[i].text), &d, &e);
        if (rc != 0)
            fail_msg("'%s': %s", cases[i].text, e.msg);
        print_node(&b, ydoc_root(d), cases[i].lines);
        assert_string_equal(buf_cstr(&b), cases[i].tree);
        buf_done(&b);
        ydoc_free(d);
    }
}

static void refused(const char *what, struct span text, int rc, const char *sentence,
                    const char *hint)
{
    struct err e = { 0 };
    struct ydoc *d = NULL;
    int got = ydoc_parse("f.yaml", text, &d, &e);
    if (got != rc)
        fail_msg("%s gives %d (%s)", what, got, e.msg);
    assert_null(d);
    if (!str_starts(e.msg, sentence))
        fail_msg("%s: '%s', expected '%s'", what, e.msg, sentence);
    if (!strstr(e.hint, hint))
        fail_msg("%s: hint '%s', expected '%s'", what, e.hint, hint);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence, *hint;
    } cases[] = {
        { "a: 1\nb: 2\na: 3\n", "f.yaml:3: 'a' is given twice, first in line 1", "" },
        { "x:\n  a: 1\n  \"a\": 3\n", "f.yaml:3: 'a' is given twice, first in line 2", "" },
        { "x: {a: 1, a: 2}", "f.yaml:1: 'a' is given twice, first in line 1", "" },
        { "a: &x 1\n", "f.yaml:1: anchors", "quotes" },
        { "a: 1\nb: *x\n", "f.yaml:2: anchors", "" },
        { "a: &x [1]\n", "f.yaml:1: anchors", "" },
        { "a: &x {}\n", "f.yaml:1: anchors", "" },
        { "&x a: 1\n", "f.yaml:1: anchors", "" },
        { "a: !!str 1\n", "f.yaml:1: tags", "quotes" },
        { "a: !python/object x\n", "f.yaml:1: tags", "" },
        { "a: ! x\n", "f.yaml:1: tags", "" },
        { "!!map\na: 1\n", "f.yaml:1: tags", "" },
        { "[a, b]: 1\n", "f.yaml:1: a key must be text", "" },
        { "? {a: b}\n: 1\n", "f.yaml:1: a key must be text", "" },
        { "'': 1\n", "f.yaml:1: a key is empty", "" },
        { "a: 1\n---\nb: 2\n", "f.yaml:2: a second document", "---" },
        { "a: \"x\\0y\"\n", "f.yaml:1: a value has a NUL byte", "" },
        { "a: 1\nb: 2\nc: \x01\n", "f.yaml:3: cannot be read as YAML: control characters",
          "\\x01" },
        { "\xef\xbb\xbf"
          "a: \xc3\xa4\nb: 'x\x7f'\n",
          "f.yaml:2: cannot be read as YAML: control characters", "\\x7F" },
        { "a: [1, 2\nb: 3\n", "f.yaml:2: cannot be read as YAML: ", "around line 2" },
        { "a: b: c\n", "f.yaml:1: cannot be read as YAML: ", "" },
        { "a:\n\t- x\n", "f.yaml:2: cannot be read as YAML: ", "" },
        { "a: 'x\n", "f.yaml:2: cannot be read as YAML: ", "" },
        { "a: \x01\n", "f.yaml:", "" },
        { "a: 1\nb: \xff\xfe\n", "f.yaml:2: the text is not UTF-8", "" },
        { "a: \xc0\x80\n", "f.yaml:1: the text is not UTF-8", "" },
        { "a: \xed\xa0\x80\n", "f.yaml:1: the text is not UTF-8", "" },
        { "%YAML 3.0\n---\na: b\n", "f.yaml:1: cannot be read as YAML: ", "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        refused(cases[i].text, span_of(cases[i].text), -EINVAL, cases[i].sentence, cases[i].hint);
    refused("NUL", SPAN("a: 1\nb: \0c\n"), -EINVAL, "f.yaml:2: the text has a NUL byte", "");
    refused("UTF-16",
            SPAN("\xff\xfe"
                 "a\0:\0 \0"
                 "1\0"),
            -EINVAL, "f.yaml:1: the text is not UTF-8", "");
}

static void fill_many(struct buf *b, const char *what, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(0, buf_adds(b, what));
}

static void test_ceilings(void **state)
{
    (void)state;
    struct buf b = { 0 };
    fill_many(&b, "[", 10000);
    refused("10,000 levels", buf_span(&b), -EFBIG, "f.yaml:1: nested more than 64 levels deep", "");
    buf_clear(&b);
    fill_many(&b, "{a: ", 10000);
    refused("10,000 maps", buf_span(&b), -EFBIG, "f.yaml:1: nested more than 64 levels deep", "");
    buf_clear(&b);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(0, buf_addf(&b, "%*sa:\n", (int)i, ""));
    refused("1,000 block levels", buf_span(&b), -EFBIG, "f.yaml:65: nested more than 64 levels",
            "");
    buf_clear(&b);
    fill_many(&b, "- ", 10000);
    refused("levels of dashes", buf_span(&b), -EFBIG, "f.yaml:1: nested more than 64 levels", "");
    buf_clear(&b);
    fill_many(&b, "- x\n", YAML_NODES_MAX + 5);
    refused("many nodes", buf_span(&b), -EFBIG, "f.yaml:100000: more than 100000 values", "");
    buf_clear(&b);
    fill_many(&b, "# 789012345\n", YAML_TEXT_MAX / 12 + 1);
    refused("large", buf_span(&b), -EFBIG, "f.yaml: larger than 4 MiB", "");
    buf_clear(&b);
    /* exactly at the limits */
    fill_many(&b, "[", YAML_DEPTH_MAX);
    fill_many(&b, "]", YAML_DEPTH_MAX);
    struct err e = { 0 };
    struct ydoc *d = NULL;
    assert_int_equal(0, ydoc_parse("f", buf_span(&b), &d, &e));
    ydoc_free(d);
    d = NULL;
    buf_clear(&b);
    for (size_t i = 0; i < YAML_NODES_MAX - 1; i++)
        assert_int_equal(0, buf_addf(&b, "k%zu: x\n", i));
    clock_t start = clock(); /* CPU time of this process, so a busy machine does not matter */
    assert_int_equal(0, ydoc_parse("f", buf_span(&b), &d, &e)); /* repeated keys are found fast */
    assert_true(clock() - start < 5 * CLOCKS_PER_SEC);
    ydoc_free(d);
    buf_done(&b);
}

/* The classic attack: each line doubles the one before, so a few hundred bytes become terabytes. */
static void test_alias_bomb(void **state)
{
    (void)state;
    struct buf b = { 0 };
    assert_int_equal(0, buf_adds(&b, "a0: &a0 [lol, lol]\n"));
    for (int i = 1; i < 40; i++)
        assert_int_equal(0, buf_addf(&b, "a%d: &a%d [*a%d, *a%d]\n", i, i, i - 1, i - 1));
    refused("alias bomb", buf_span(&b), -EINVAL, "f.yaml:1: anchors", "");
    buf_done(&b);
}

static void test_kind_names(void **state)
{
    (void)state;
    static const char *const names[] = { "text", "a list", "a mapping", "nothing" };
    struct ydoc *d = NULL;
    assert_int_equal(0, ydoc_parse("f", SPAN("a: 1\nb: [2]\nc: {}\nd:\n"), &d, NULL));
    size_t i = 0;
    for (const struct ynode *n = ydoc_root(d)->first; n; n = n->next)
        assert_string_equal(ynode_kind_name(n), names[i++]);
    assert_int_equal(i, ARRAY_LEN(names));
    ydoc_free(d);
    ydoc_free(NULL);
}

static int parse_once(void *ctx)
{
    struct ydoc *d = NULL;
    struct err e = { 0 };
    int rc = ydoc_parse("f", span_of(ctx), &d, &e);
    if (rc < 0)
        assert_null(d);
    ydoc_free(d);
    return rc;
}

static void test_torture(void **state)
{
    (void)state;
    assert_true(torture(parse_once, (void *)"a: 1\nb: [2, {c: 'd'}]\nroles: {x: {y: z}}\n") > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees),      cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_ceilings),   cmocka_unit_test(test_alias_bomb),
        cmocka_unit_test(test_kind_names), cmocka_unit_test(test_torture),
    };
    return cmocka_run_group_tests_name("yaml", tests, NULL, NULL);
}
