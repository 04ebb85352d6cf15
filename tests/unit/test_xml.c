/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of configuration XML: what it accepts, and message and line of each refusal. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "codec/xml.h"
#include "torture.h"

#define HEAD "<?xml version=\"1.0\"?>\n<configuration>\n"
#define TAIL "</configuration>\n"

static void test_props(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *props; /* "LINE:NAME=VALUE;" for each property, "VALUE!" if it is final */
    } cases[] = {
        { HEAD TAIL, "" },
        { "<configuration/>", "" },
        { "\xef\xbb\xbf<configuration/>", "" },
        { HEAD "<property><name>a</name><value>1</value></property>\n" TAIL, "3:a=1;" },
        { HEAD "<property>\n <name> a </name>\n <value>\n  x y\n </value>\n</property>" TAIL,
          "4:a=x y;" },
        { HEAD "<property><name>a</name><value></value></property>"
               "<property><value>2</value><name>b</name></property>" TAIL,
          "3:a=;3:b=2;" },
        { HEAD "<property><name>a</name><value/><final>true</final></property>" TAIL, "3:a=!;" },
        { HEAD "<property><name>a</name><value>1</value><final> TRUE </final></property>" TAIL,
          "3:a=1!;" },
        { HEAD "<property><name>a</name><value>1</value><final>false</final></property>" TAIL,
          "3:a=1;" },
        { HEAD "<property name=\"a\" value=\"1 &lt; 2\" final=\"true\"/>" TAIL, "3:a=1 < 2!;" },
        { HEAD "<property><name>a</name><value>&lt;b&gt; &amp;&#x41;</value></property>" TAIL,
          "3:a=<b> &A;" },
        { HEAD "<property><name>a</name><value><![CDATA[<x> & y]]></value></property>" TAIL,
          "3:a=<x> & y;" },
        { HEAD "<!-- c --><property><name>a</name><value>1<!-- c -->2</value></property>" TAIL,
          "3:a=12;" },
        { HEAD "<property><name>a</name><value>1</value>"
               "<description>use <b>bold</b> <property><name>x</name></property></description>"
               "<source>f</source><tag>t</tag></property>" TAIL,
          "3:a=1;" },
        { HEAD "<property><name>a</name><value>1</value></property>\n"
               "<property><name>a</name><value>2</value></property>\n" TAIL,
          "3:a=1;4:a=2;" }, /* the caller decides */
        { "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><configuration><property>"
          "<name>a</name><value>\xc3\xa4</value></property></configuration>",
          "1:a=\xc3\xa4;" }, /* it is UTF-8, whatever the declaration says */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = { 0 };
        struct xml_conf *x = NULL;
        struct buf b = { 0 };
        if (xml_conf_parse("f", span_of(cases[i].text), &x, &e) != 0)
            fail_msg("'%s': %s", cases[i].text, e.msg);
        for (size_t k = 0; k < x->n; k++)
            assert_int_equal(0, buf_addf(&b, "%u:%s=%s%s;", x->v[k].line, x->v[k].name,
                                         x->v[k].value, x->v[k].final ? "!" : ""));
        assert_string_equal(buf_cstr(&b), cases[i].props);
        buf_done(&b);
        xml_conf_free(x);
    }
}

static void refused(const char *what, struct span text, int rc, const char *sentence,
                    const char *hint)
{
    struct err e = { 0 };
    struct xml_conf *x = NULL;
    int got = xml_conf_parse("f.xml", text, &x, &e);
    if (got != rc)
        fail_msg("%s gives %d (%s)", what, got, e.msg);
    assert_null(x);
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
        { "", "f.xml:1: cannot be read as XML: there is no <configuration>", "" },
        { "name: digits\n", "f.xml:1: cannot be read as XML: ", "" },
        { "<a/>", "f.xml:1: the outermost element must be <configuration>, not <a>", "" },
        { "<configuration>\n<prop/>\n</configuration>", "f.xml:2: unknown element <prop>", "" },
        { HEAD "<property>\n<nam>x</nam></property>" TAIL, "f.xml:4: unknown element <nam>",
          "<name>" },
        { HEAD "<property><value>1</value></property>" TAIL, "f.xml:3: a property has no <name>",
          "" },
        { HEAD "<property/>" TAIL, "f.xml:3: a property has no <name>", "" },
        { HEAD "<property><name> </name><value>1</value></property>" TAIL,
          "f.xml:3: the name of a property is empty", "" },
        { HEAD "<property><name>a</name></property>" TAIL, "f.xml:3: property 'a' has no <value>",
          "" },
        { HEAD "<property><name>a</name><name>b</name><value/></property>" TAIL,
          "f.xml:3: a property has two <name>", "" },
        { HEAD "<property name='a'><name>b</name><value/></property>" TAIL,
          "f.xml:3: a property has two <name>", "" },
        { HEAD "<property><name>a</name><value>1</value><value>1</value></property>" TAIL,
          "f.xml:3: a property has two <value>", "" },
        { HEAD "<property><name>a</name><value>x <b>y</b></value></property>" TAIL,
          "f.xml:3: element <b> stands inside a text", "&lt;" },
        { HEAD "hello" TAIL, "f.xml:3: text stands outside", "" },
        { HEAD "<property>\n\nx<name>a</name><value/></property>" TAIL, "f.xml:", "" },
        { HEAD "<property><name>a</name>", "f.xml:3: cannot be read as XML: ", "" },
        { HEAD "<property></configuration>", "f.xml:3: cannot be read as XML: mismatched tag", "" },
        { HEAD TAIL "<configuration/>", "f.xml:4: cannot be read as XML: ", "" },
        { HEAD "<property><name>a</name><value>&x;</value></property>" TAIL,
          "f.xml:3: cannot be read as XML: undefined entity", "" },
        { "<!DOCTYPE configuration>\n<configuration/>", "f.xml:1: document types", "<!DOCTYPE" },
        { "<?xml version=\"1.0\"?>\n<!DOCTYPE c [\n<!ENTITY a \"b\">]>\n<configuration/>",
          "f.xml:2: document types", "" },
        { "<!DOCTYPE c SYSTEM \"http://127.0.0.1:1/x.dtd\">\n<configuration/>",
          "f.xml:1: document types", "" },
        { HEAD "<xi:include xmlns:xi=\"http://www.w3.org/2001/XInclude\" href=\"x\"/>" TAIL,
          "f.xml:3: XInclude", "into this one" },
        { HEAD "<include href=\"x\"/>" TAIL, "f.xml:3: XInclude", "" },
        { "<configuration>\n\xff</configuration>", "f.xml:2: the text is not UTF-8", "" },
        { "\xff\xfe<\x01", "f.xml:1: the text is not UTF-8", "" },
        { HEAD "<property><name>a</name><value>&#0;</value></property>" TAIL,
          "f.xml:3: cannot be read as XML: ", "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        refused(cases[i].text, span_of(cases[i].text), -EINVAL, cases[i].sentence, cases[i].hint);
    refused("NUL", SPAN("<configuration>\n\0</configuration>"), -EINVAL,
            "f.xml:2: the text has a NUL byte", "");
}

/* Entities are not expanded, and no file is fetched. */
static void test_bombs(void **state)
{
    (void)state;
    refused("a billion laughs",
            SPAN("<?xml version=\"1.0\"?>\n<!DOCTYPE lolz [\n<!ENTITY lol \"lol\">\n"
                 "<!ENTITY lol1 \"&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;\">\n"
                 "<!ENTITY lol2 \"&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;&lol1;\">\n"
                 "]>\n<configuration><property><name>a</name><value>&lol2;</value></property>"
                 "</configuration>"),
            -EINVAL, "f.xml:2: document types", "");
    refused("an external entity",
            SPAN("<!DOCTYPE c [<!ENTITY x SYSTEM \"file:///etc/passwd\">]>\n"
                 "<configuration><property><name>a</name><value>&x;</value></property>"
                 "</configuration>"),
            -EINVAL, "f.xml:1: document types", "");
    refused("a parameter entity",
            SPAN("<!DOCTYPE c [<!ENTITY % x SYSTEM \"file:///dev/zero\"> %x;]>\n<configuration/>"),
            -EINVAL, "f.xml:1: document types", "");
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
    fill_many(&b, "<configuration>", 10000);
    refused("10,000 levels", buf_span(&b), -EINVAL, "f.xml:1: unknown element <configuration>", "");
    buf_clear(&b);
    fill_many(&b, "<configuration><property><description>", 1);
    fill_many(&b, "<b>", 10000);
    refused("10,000 levels of markup", buf_span(&b), -EFBIG, "f.xml:1: nested more than 64", "");
    buf_clear(&b);
    fill_many(&b, "<configuration><property><name>a</name><value>", 1);
    fill_many(&b, "0123456789abcdef", (1 << 20) / 16 + 1);
    refused("a long value", buf_span(&b), -EFBIG, "f.xml:1: a value is longer than 1024 KiB", "");
    buf_clear(&b);
    fill_many(&b, "                ", XML_TEXT_MAX / 16 + 1);
    refused("large", buf_span(&b), -EFBIG, "f.xml: larger than 4 MiB", "");
    buf_clear(&b);
    fill_many(&b, "<configuration>", 1);
    fill_many(&b, "<property name='a' value=''/>", XML_PROPS_MAX + 1);
    refused("many properties", buf_span(&b), -EFBIG, "f.xml:1: more than 100000 properties", "");
    buf_done(&b);
}

static int parse_once(void *ctx)
{
    struct xml_conf *x = NULL;
    struct err e = { 0 };
    int rc = xml_conf_parse("f", span_of(ctx), &x, &e);
    if (rc < 0)
        assert_null(x);
    xml_conf_free(x);
    return rc;
}

static void test_torture(void **state)
{
    (void)state;
    assert_true(torture(parse_once,
                        (void *)HEAD "<property><name>a</name><value>1</value></property>"
                                     "<property name='b' value='2'/>" TAIL) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_props),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bombs),   cmocka_unit_test(test_ceilings),
        cmocka_unit_test(test_torture),
    };
    return cmocka_run_group_tests_name("xml", tests, NULL, NULL);
}
