/* SPDX-License-Identifier: Apache-2.0 */
/* Job files and site files in both syntaxes: their meaning, and refusals with file, line and
 * hint. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "conf/conf.h"
#include "torture.h"

#define XML(body) "<?xml version=\"1.0\"?>\n<configuration>\n" body "</configuration>\n"
#define PROP(name, value) "<property><name>" name "</name><value>" value "</value></property>\n"

/* Prints the values above the defaults, in order: key=value@origin; */
static void print_set(const struct conf *c, struct buf *out, bool origins)
{
    struct conf_entry x;
    for (size_t i = 0; conf_at(c, i, &x); i++) {
        if (strcmp(x.origin, "default") == 0)
            continue;
        assert_int_equal(0, buf_addf(out, "%s=%s%s%s%s;\n", x.key, x.value, origins ? "@" : "",
                                     origins ? x.origin : "", x.final ? "!" : ""));
    }
}

static void test_yaml_meaning(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *set;
    } cases[] = {
        { "j.yaml", "name: digits\nframework: pytorch\ncluster: local\n",
          "tony.application.name=digits@j.yaml:1;\ntony.application.framework=pytorch@j.yaml:2;\n"
          "tony.cluster=local@j.yaml:3;\n" },
        { "d/j.yaml",
          "src: .\nvenv: env.tar.gz\nresources: [vocab.txt, './a,b', /abs/x, "
          "'hdfs://nn/y#archive']\n",
          "tony.application.src-dir=d@d/j.yaml:1;\ntony.application.python-venv=d/env.tar.gz@d/"
          "j.yaml:2;\n"
          "tony.containers.resources=d/vocab.txt,d/a\\,b,/abs/x,hdfs://nn/y#archive@d/"
          "j.yaml:3;\n" },
        { "j.yaml", "src: src\nvenv: /v\nresources: a.txt, b.txt::c#archive\n",
          "tony.application.src-dir=src@j.yaml:1;\ntony.application.python-venv=/v@j.yaml:2;\n"
          "tony.containers.resources=a.txt,b.txt::c#archive@j.yaml:3;\n" },
        { "/j.yaml", "src: .\n", "tony.application.src-dir=/@/j.yaml:1;\n" },
        { "d/j.yaml", "resources: a.txt, b.txt::c#archive\nconf: {tony.am.resources: x}\n",
          "tony.containers.resources=d/a.txt,d/b.txt::c#archive@d/j.yaml:1;\ntony.am.resources=d/"
          "x@d/j.yaml:2;\n" },
        { "j",
          "command: python train.py --epochs 3\nenv: {OMP_NUM_THREADS: 1, E: , L: 'a,b', S: ' x "
          "'}\n",
          "tony.containers.command=python train.py --epochs 3@j:1;\n"
          "tony.execution.envs=OMP_NUM_THREADS=1,E=,L=a\\,b,S=\\ x\\ @j:2;\n" },
        { "j", "env: [A=1, 'B=2,3']\n", "tony.execution.envs=A=1,B=2\\,3@j:1;\n" },
        { "j", "env: '[foo=1, bar]'\n", "tony.execution.envs=[foo=1, bar]@j:1;\n" },
        { "j", "env:\nresources:\nroles:\nconf:\n",
          "tony.execution.envs=@j:1;\ntony.containers.resources=@j:2;\n" },
        { "j",
          "roles:\n  worker:\n    instances: 2\n    memory: 1g\n    env: {X: y}\n  ps: {instances: "
          "1, depends-on: [worker]}\n  later:\n",
          "tony.worker.instances=2@j:3;\ntony.worker.memory=1g@j:4;\ntony.worker.env=X=y@j:5;\n"
          "tony.ps.instances=1@j:6;\ntony.ps.depends-on=worker@j:6;\n" },
        { "j",
          "conf:\n  tony.application.timeout: 600000\n  tony.application.untracked.jobtypes: [ps, "
          "eval]\n",
          "tony.application.timeout=600000@j:2;\ntony.application.untracked.jobtypes=ps,eval@j:3;"
          "\n" },
        { "j", "roles:\n  w: {min-instances: 1, resize: live, resume-command: go on}\n",
          "tony.w.min-instances=1@j:2;\ntony.w.resize=live@j:2;\n"
          "tony.w.resume-command=go on@j:2;\n" },
        { "j", "{\"name\": \"json is yaml\", \"roles\": {\"w\": {\"instances\": 1}}}",
          "tony.application.name=json is yaml@j:1;\ntony.w.instances=1@j:1;\n" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = { 0 };
        struct buf b = { 0 };
        struct conf *c = conf_new();
        if (conf_load_text(c, CL_JOB, cases[i].name, span_of(cases[i].text), false, &e) < 0)
            fail_msg("%s", e.msg);
        /* a key with a default keeps its place in the order: compare sets of lines, ordered by the
         * table */
        print_set(c, &b, true);
        struct span rest = span_of(cases[i].set), line;
        size_t len = 0;
        while (span_split(&rest, '\n', &line)) {
            if (line.len > 0 && !memmem(buf_cstr(&b), b.len, line.p, line.len + 1))
                fail_msg("case %zu: '%.*s' is not in\n%s", i, (int)line.len, line.p, buf_cstr(&b));
            len += line.len > 0 ? line.len + 1 : 0;
        }
        if (len != b.len)
            fail_msg("case %zu: more than expected:\n%s", i, buf_cstr(&b));
        buf_done(&b);
        conf_free(c);
    }
}

static void test_xml_meaning(void **state)
{
    (void)state;
    struct err e = { 0 };
    struct buf b = { 0 };
    struct conf *c = conf_new();
    assert_int_equal(
        0, conf_load_text(c, CL_JOB, "t.xml",
                          SPAN(XML(PROP("tony.worker.instances", " 4 ") PROP("dfs.replication", "3")
                                       PROP("my.own.key", "${x}") PROP("tony.ps.instances", "1")
                                           PROP("tony.worker.resources", "a.txt, b.zip#archive"))),
                          true, &e));
    print_set(c, &b, true);
    assert_string_equal(
        buf_cstr(&b),
        "tony.worker.instances=4@t.xml:3;\ndfs.replication=3@t.xml:4;\nmy.own.key=${x}@t.xml:5;\n"
        "tony.ps.instances=1@t.xml:6;\ntony.worker.resources=a.txt, b.zip#archive@t.xml:7;\n");
    assert_string_equal(conf_get(c, "dfs.replication"), "3");
    buf_done(&b);
    conf_free(c);
}

/* The same job in two syntaxes. */
static void test_both_syntaxes(void **state)
{
    (void)state;
    static const char yaml[] =
        "name: digits\nframework: pytorch\ncommand: python t.py\nenv: {A: 1, B: 2}\n"
        "roles: {worker: {instances: 2, memory: 1g}}\nconf: {tony.application.timeout: 5}\n";
    static const char xml[] =
        XML(PROP("tony.application.name", "digits") PROP("tony.application.framework", "pytorch")
                PROP("tony.containers.command", "python t.py")
                    PROP("tony.execution.envs", "A=1,B=2") PROP("tony.worker.instances", "2")
                        PROP("tony.worker.memory", "1g") PROP("tony.application.timeout", "5"));
    struct buf a = { 0 }, b = { 0 };
    struct conf *c = conf_new(), *d = conf_new();
    assert_int_equal(0, conf_load_text(c, CL_JOB, "j", span_of(yaml), false, NULL));
    assert_int_equal(0, conf_load_text(d, CL_JOB, "j", span_of(xml), true, NULL));
    print_set(c, &a, false);
    print_set(d, &b, false);
    assert_string_equal(buf_cstr(&a), buf_cstr(&b));
    buf_done(&a);
    buf_done(&b);
    conf_free(c);
    conf_free(d);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence, *hint;
        bool xml;
    } cases[] = {
        { "", "j:1: the file is empty", "", false },
        { "# nothing\n", "j:1: the file is empty", "", false },
        { "- a\n", "j:1: the file must be a mapping of keys such as 'name' and 'roles', not a list",
          "name: digits", false },
        { "just text\n", "j:1: the file must be a mapping", "", false },
        { "nmae: x\n", "j:1: unknown key 'nmae'", "did you mean 'name'?", false },
        { "role: {}\n", "j:1: unknown key 'role'", "did you mean 'roles'?", false },
        { "zebra: {}\n", "j:1: unknown key 'zebra'", "known here: name,", false },
        { "zebra: {}\n", "j:1: unknown key 'zebra'", "priority, weight, budget", false },
        { "priority: high\n", "j:1: 'tony.application.priority'", "", false },
        { "tony.application.timeout: 5\n", "j:1: unknown key 'tony.application.timeout'",
          "under 'conf:'", false },
        { "final: {tony.cluster: local}\n", "j:1: unknown key 'final'", "", false },
        { "name:\n", "j:1: 'name' has no value", "behind the colon", false },
        { "name: [a]\n", "j:1: 'name' must be one value, not a list", "", false },
        { "name: {a: b}\n", "j:1: 'name' must be one value, not a mapping", "", false },
        { "framework: torch\n", "j:1: 'tony.application.framework' must be one of", "", false },
        { "env: {A: [1]}\n", "j:1: variable 'A' of 'env' must be text, not a list", "", false },
        { "env: {'A=B': 1}\n", "j:1: 'A=B' cannot be the name of a variable", "", false },
        { "env: [A]\n", "j:1: an item of 'env' must be NAME=VALUE", "", false },
        { "env: [[A=1]]\n", "j:1: an item of 'env' must be NAME=VALUE", "", false },
        { "resources: {a: b}\n", "j:1: 'resources' must be a list, not a mapping", "", false },
        { "resources:\n  - a\n  - [b]\n", "j:3: an item of 'resources' must be text, not a list",
          "", false },
        { "resources:\n  - a\n  -\n", "j:3: an item of 'resources' must be text, not nothing", "",
          false },
        { "roles: [worker]\n", "j:1: 'roles' must be a mapping of role names, not a list", "",
          false },
        { "roles:\n  worker: 2\n", "j:2: 'worker' must be a mapping such as", "", false },
        { "roles:\n  task: {instances: 1}\n",
          "j:2: 'task' cannot be the name of a role: it is reserved", "choose another", false },
        { "roles:\n  'a b': {instances: 1}\n", "j:2: 'a b' cannot be the name of a role", "letters",
          false },
        { "roles:\n  w: {instances: two}\n",
          "j:2: 'tony.w.instances' must be a whole number, not 'two'", "", false },
        { "conf:\n  tony.resize.timeout: soon\n",
          "j:2: 'tony.resize.timeout' must be a time, not 'soon'", "500ms, 90s, 10m, 2h, 1d",
          false },
        { "roles:\n  w:\n    resize: perhaps\n", "j:3: 'tony.w.resize' must be", "", false },
        { "roles:\n  w:\n    resize: [live]\n", "j:3: 'resize' must be one value, not a list", "",
          false },
        { "roles:\n  w:\n    min-instances: 0\n",
          "j:3: 'tony.w.min-instances' must be at least 1, not 0", "", false },
        { "roles:\n  w:\n    min-instanzes: 1\n", "j:3: unknown key 'min-instanzes' of role 'w'",
          "did you mean 'min-instances'?", false },
        { "roles:\n  w:\n    resume-comand: x\n", "j:3: unknown key 'resume-comand' of role 'w'",
          "did you mean 'resume-command'?", false },
        { "roles:\n  w:\n    instances: -1\n", "j:3: 'tony.w.instances' must be at least 0, not -1",
          "", false },
        { "roles:\n  w:\n    memory: 0\n", "j:3: 'tony.w.memory' must be at least 1 MiB, not 0 MiB",
          "", false },
        { "roles:\n  w:\n    memory: 1.5g\n", "j:3: 'tony.w.memory' must be a size", "", false },
        { "roles:\n  w:\n    instances:\n", "j:3: 'instances' has no value", "", false },
        { "roles:\n  w:\n    instances: [1]\n", "j:3: 'instances' must be one value, not a list",
          "", false },
        { "roles:\n  w:\n    instanes: 1\n", "j:3: unknown key 'instanes' of role 'w'",
          "did you mean 'instances'?", false },
        { "roles:\n  w:\n    cpus: 1\n", "j:3: unknown key 'cpus' of role 'w'", "", false },
        { "roles:\n  worker:\n    timeout: 1\n", "j:3: unknown key 'timeout' of role 'worker'", "",
          false },
        { "roles:\n  w: {env: {A: {}}}\n", "j:2: variable 'A' of 'env' must be text", "", false },
        { "roles:\n  w: {}\n  w: {}\n", "j:3: 'w' is given twice, first in line 2", "", false },
        { "conf: [a]\n", "j:1: 'conf' must be a mapping of keys to values, not a list", "", false },
        { "conf:\n  tony.worker.instaces: 1\n", "j:2: unknown key 'tony.worker.instaces'",
          "did you mean 'tony.worker.instances'?", false },
        { "conf:\n  dfs.replication: 1\n",
          "j:2: unknown key 'dfs.replication': keys begin with 'tony.'", "", false },
        { "conf:\n  tony.docker.enabled: perhaps\n",
          "j:2: 'tony.docker.enabled' must be true or false", "", false },
        { "name: a\nconf:\n  tony.application.name: b\n",
          "j:3: 'tony.application.name' is given twice, first in line 1", "remove one", false },
        { "roles:\n  w: {memory: 1g}\nconf:\n  tony.w.memory: 2g\n",
          "j:4: 'tony.w.memory' is given twice, first in line 2", "", false },
        { "name: a\nname: b\n", "j:2: 'name' is given twice, first in line 1", "", false },
        { XML(PROP("tony.a.instances", "1") PROP("tony.a.instances", "2")),
          "j:4: 'tony.a.instances' is given twice, first in line 3", "remove one", true },
        { XML(PROP("dfs.x", "1") PROP("dfs.x", "1")),
          "j:4: 'dfs.x' is given twice, first in line 3", "", true },
        { XML(PROP("tony.worker.instaces", "1")), "j:3: unknown key 'tony.worker.instaces'",
          "did you mean", true },
        { XML(PROP("tony.worker.instances", "x")),
          "j:3: 'tony.worker.instances' must be a whole number, not 'x'", "", true },
        { XML("<property><name>a</name></property>"), "j:3: property 'a' has no <value>", "",
          true },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = { 0 };
        struct conf *c = conf_new();
        int rc = conf_load_text(c, CL_JOB, "j", span_of(cases[i].text), cases[i].xml, &e);
        if (rc != -EINVAL && rc != -ERANGE)
            fail_msg("case %zu gives %d: %s", i, rc, e.msg);
        if (!str_starts(e.msg, cases[i].sentence) || !strstr(e.hint, cases[i].hint))
            fail_msg("case %zu: '%s' hint '%s'", i, e.msg, e.hint);
        conf_free(c);
    }
}

/* Each refusal names its line; if no single line is wrong, it names the file. */
static void test_refused_as_a_whole(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        { "roles:\n", "j:1: the job has neither a role with instances nor a command" },
        { "name: x\nroles: {w: {instances: 1}}\n", "j:2: role 'w' has no command" },
        { "command: x\nroles:\n  b: {instances: 1}\n  a: {instances: 1, depends-on: b}\n"
          "conf:\n  tony.application.prepare-stage: a\n",
          "j:4: the roles are not a DAG, so none of them could start: 'b' waits for 'a' waits for "
          "'b'" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = { 0 };
        struct conf *c = conf_new();
        struct job_spec *s = NULL;
        assert_int_equal(0, conf_load_text(c, CL_JOB, "j", span_of(cases[i].text), false, &e));
        assert_int_equal(-EINVAL, job_spec_build(c, &s, &e));
        assert_string_equal(e.msg, cases[i].sentence);
        conf_free(c);
    }
}

/* ---- files ---- */

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/tony-conf-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    unsetenv("TONY_CONF_DIR");
    return fs_remove_tree(AT_FDCWD, dir, NULL);
}

static const char *file(const char *name, const char *text)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    if (text)
        assert_int_equal(0, fs_write_atomic(AT_FDCWD, path, span_of(text), 0600, false, NULL));
    return path;
}

static void test_files(void **state)
{
    (void)state;
    struct conf *c = conf_new();
    struct err e = { 0 };
    char want[512];
    /* syntax by suffix; XML also by its first bytes */
    assert_int_equal(0, conf_load_file(c, CL_JOB, file("a.yaml", "name: one\n"), &e));
    assert_string_equal(conf_get(c, "tony.application.name"), "one");
    assert_int_equal(
        0, conf_load_file(c, CL_JOB, file("b.xml", XML(PROP("tony.application.name", "two"))), &e));
    assert_string_equal(conf_get(c, "tony.application.name"), "two");
    assert_int_equal(0, conf_load_file(c, CL_JOB,
                                       file("c", "\n <configuration>" PROP("tony.application.name",
                                                                           "x") "</configuration>"),
                                       &e));
    assert_string_equal(conf_get(c, "tony.application.name"), "x");

    assert_int_equal(-ENOENT, conf_load_file(c, CL_JOB, file("none.yaml", NULL), &e));
    (void)snprintf(want, sizeof want, "cannot open '%s/none.yaml': No such file or directory", dir);
    assert_string_equal(e.msg, want);
    assert_int_equal(-EISDIR, conf_load_file(c, CL_JOB, dir, &e));
    (void)snprintf(want, sizeof want, "'%s' is a directory, not a configuration file", dir);
    assert_string_equal(e.msg, want);
    assert_int_equal(-EINVAL,
                     conf_load_file(c, CL_JOB, file("bad.yaml", "name: a\nnmae: b\n"), &e));
    (void)snprintf(want, sizeof want, "%s/bad.yaml:2: unknown key 'nmae'", dir);
    assert_string_equal(e.msg, want);
    if (geteuid() != 0) {
        assert_int_equal(0, chmod(file("a.yaml", NULL), 0));
        assert_int_equal(-EACCES, conf_load_file(c, CL_JOB, file("a.yaml", NULL), &e));
    }
    conf_free(c);
}

/* Refused by its size without reading it: a sparse file of a terabyte takes no longer. */
static void test_huge_file(void **state)
{
    (void)state;
    static const off_t sizes[] = { (off_t)100 << 20, (off_t)1 << 40, (4 << 20) + 1 };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const char *path = file("huge.yaml", "name: x\n");
        if (truncate(path, sizes[i]) == -1)
            continue; /* the file system has no such large files */
        struct conf *c = conf_new();
        struct err e = { 0 };
        int64_t start = clock_mono_ms();
        assert_int_equal(-EFBIG, conf_load_file(c, CL_JOB, path, &e));
        assert_true(strstr(e.msg, "huge.yaml' is larger than 4 MiB") != NULL);
        assert_true(clock_mono_ms() - start < 1000);
        conf_free(c);
    }
    struct conf *c = conf_new();
    struct err e = { 0 };
    /* a file without a size is refused once it is too large */
    assert_int_equal(-EFBIG, conf_load_file(c, CL_JOB, "/dev/zero", &e));
    conf_free(c);
}

static void test_site(void **state)
{
    (void)state;
    struct conf *c = conf_new();
    struct err e = { 0 };
    assert_int_equal(0, setenv("TONY_CONF_DIR", dir, 1));
    assert_int_equal(0, conf_load_site(c, &e)); /* no file there */
    (void)file("tony-site.xml",
               XML(PROP("tony.yarn.queue", "q1")
                       PROP("tony.yarn.queue", "q2") /* Hadoop's own file: the later value wins */
                   "<property><name>tony.application.timeout</name><value>7</value><final>true</"
                   "final></property>\n" PROP("tony.application.timeout", "9")
                       PROP("hadoop.x", "y")));
    assert_int_equal(0, conf_load_site(c, &e));
    assert_string_equal(conf_get(c, "tony.yarn.queue"), "q2");
    assert_string_equal(conf_get(c, "tony.application.timeout"), "7");
    assert_string_equal(conf_get(c, "hadoop.x"), "y");
    assert_int_equal(
        0, conf_load_text(c, CL_JOB, "j", SPAN("conf: {tony.yarn.queue: mine}\n"), false, &e));
    /* TonY takes the other value here. */
    assert_string_equal(conf_get(c, "tony.yarn.queue"), "mine");
    assert_int_equal(
        -EINVAL,
        conf_load_text(c, CL_JOB, "j", SPAN("conf: {tony.application.timeout: 1}\n"), false, &e));
    assert_true(str_starts(
        e.msg, "j:1: 'tony.application.timeout' cannot be changed: it is final in site file "));
    assert_true(str_ends(e.msg, "tony-site.xml:5"));
    conf_free(c);

    assert_int_equal(0, unlink(file("tony-site.xml", NULL)));
    (void)file("tony-site.yaml", "conf: {tony.yarn.queue: q3}\nfinal: {tony.cluster: local}\n");
    c = conf_new();
    assert_int_equal(0, conf_load_site(c, &e));
    assert_string_equal(conf_get(c, "tony.yarn.queue"), "q3");
    assert_int_equal(-EINVAL,
                     conf_set(c, CL_OPTION, "tony.cluster", "yarn", "--cluster", false, &e));
    assert_true(str_starts(e.msg, "--cluster: 'tony.cluster' cannot be changed"));
    conf_free(c);

    (void)file("tony-site.yaml", "conf: {tony.yarn.quee: q3}\n");
    c = conf_new();
    assert_int_equal(-EINVAL, conf_load_site(c, &e));
    assert_true(str_starts(e.msg, "site file ") && strstr(e.msg, "tony-site.yaml:1: unknown key"));
    conf_free(c);
    (void)file("tony-site.yaml", "");
    c = conf_new();
    assert_int_equal(0, conf_load_site(c, &e));
    conf_free(c);
    assert_int_equal(0, setenv("TONY_CONF_DIR", "/nonexistent/dir", 1));
    c = conf_new();
    assert_int_equal(0, conf_load_site(c, &e));
    conf_free(c);
}

/* A final value in a job file does not bind the command line. */
static void test_final_in_job_file(void **state)
{
    (void)state;
    struct conf *c = conf_new();
    struct err e = { 0 };
    assert_int_equal(
        0, conf_load_text(c, CL_JOB, "j",
                          SPAN(XML("<property><name>tony.cluster</name><value>yarn</value>"
                                   "<final>true</final></property>")),
                          true, &e));
    struct conf_entry x;
    for (size_t i = 0; conf_at(c, i, &x); i++)
        assert_false(x.final);
    assert_int_equal(0, conf_set(c, CL_CONF, "tony.cluster", "local", "--conf", false, &e));
    assert_string_equal(conf_get(c, "tony.cluster"), "local");
    conf_free(c);
}

/* ---- no memory ---- */

struct text {
    const char *text;
    bool xml;
};

static int load_and_build(void *ctx)
{
    const struct text *t = ctx;
    struct err e = { 0 };
    struct job_spec *s = NULL;
    struct conf *c = conf_new();
    int rc = c ? conf_load_text(c, CL_JOB, "d/j", span_of(t->text), t->xml, &e) : -ENOMEM;
    if (rc == 0)
        rc = job_spec_build(c, &s, &e);
    if (rc < 0)
        assert_null(s);
    job_spec_free(s);
    conf_free(c);
    return rc;
}

static void test_torture(void **state)
{
    (void)state;
    struct text yaml = {
        "name: digits\nframework: pytorch\nsrc: .\nenv: {A: 1, B: 'x,y'}\nresources: [a.txt, "
        "'b.zip::c#archive']\n"
        "command: python t.py\nroles:\n  worker: {instances: 2, env: {X: y}, resources: [z]}\n"
        "  ps: {instances: 1}\n  prep: {instances: 1, command: x}\n"
        "conf:\n  tony.application.prepare-stage: [prep]\n  tony.application.training-stage: "
        "worker,ps\n"
        "  tony.application.group.A: [prep]\n  tony.application.dependency.worker.timeout.after.A: "
        "5\n"
        "  tony.ps.depends-on: prep\n  tony.application.tensorboard-log-dir: /tmp\n",
        false
    };
    struct text xml = { XML(PROP("tony.worker.instances", "2") PROP("tony.containers.command", "x")
                                PROP("dfs.x", "y") PROP("tony.worker.depends-on", "ps")
                                    PROP("tony.ps.instances", "1")),
                        true };
    assert_true(torture(load_and_build, &yaml) > 100);
    assert_true(torture(load_and_build, &xml) > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_yaml_meaning),
        cmocka_unit_test(test_xml_meaning),
        cmocka_unit_test(test_both_syntaxes),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refused_as_a_whole),
        cmocka_unit_test_setup_teardown(test_files, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_huge_file, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_site, make_dir, remove_dir),
        cmocka_unit_test(test_final_in_job_file),
        cmocka_unit_test(test_torture),
    };
    return cmocka_run_group_tests_name("conf_load", tests, NULL, NULL);
}
