/* SPDX-License-Identifier: Apache-2.0 */
/*
 * azkaban: the command of a job of Azkaban (type=command). It reads the properties that Azkaban has
 * written into the file $JOB_PROP_FILE, turns them into options of `tony run`, as TonY's own job
 * type does, and runs the job. If the flow is killed, Azkaban kills this process; like every `tony
 * run` it then stops the job.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/base.h"
#include "client/client_int.h"
#include "codec/properties.h"

static const struct {
    const char *property, *option;
} options[] = {
    { "src_dir", "--src_dir" },
    { "hdfs_classpath", "--hdfs_classpath" },
    { "executes", "--executes" },
    { "task_params", "--task_params" },
    { "python_binary_path", "--python_binary_path" },
    { "python_venv", "--python_venv" },
};

/* Azkaban's own properties that become tags of the application on YARN. */
static const char *const tags[] = { "azkaban.flow.execid", "azkaban.flow.flowid",
                                    "azkaban.flow.projectname", "azkaban.webserverhost" };

static const struct {
    const char *property, *variable;
} datasets[] = {
    { "azkaban.input.dataset", "AZKABAN_INPUT_DATASET" },
    { "azkaban.output.dataset", "AZKABAN_OUTPUT_DATASET" },
};

struct taken {
    struct strv words;
    struct buf tags;
    bool has_src;
};

static int add(struct taken *t, const char *option, const char *text)
{
    int rc = strv_push(&t->words, option);
    return rc < 0 ? rc : strv_push(&t->words, text);
}

static int add_dataset(struct taken *t, const char *variable, const char *value)
{
    AUTO(free_p) char *text = str_printf("%s=%s", variable, value);
    if (!text)
        return -ENOMEM;
    for (char *c = text; *c; c++) /* TonY's variables are lists with commas */
        if (*c == ',')
            *c = ';';
    return add(t, "--shell_env", text);
}

/* An item of the key tony.application.tags, in which a comma separates. */
static int add_tag(struct taken *t, const char *property, const char *value)
{
    AUTO(free_p) char *text = str_printf("%s%s:%s", t->tags.len ? "," : "", property, value);
    if (!text)
        return -ENOMEM;
    for (char *c = text + 1; *c; c++)
        if (*c == ',')
            *c = '_';
    return buf_adds(&t->tags, text);
}

static int take(const char *key, const char *value, void *arg)
{
    static const char env[] = "worker_env.", conf[] = "tony.";
    struct taken *t = arg;
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        if (str_eq(key, options[i].property)) {
            t->has_src = t->has_src || i == 0;
            return *value ? add(t, options[i].option, value) : 0;
        }
    for (size_t i = 0; i < ARRAY_LEN(datasets); i++)
        if (str_eq(key, datasets[i].property))
            return add_dataset(t, datasets[i].variable, value);
    for (size_t i = 0; i < ARRAY_LEN(tags); i++)
        if (str_eq(key, tags[i]) && *value)
            return add_tag(t, key, value);
    bool is_env = str_starts(key, env);
    if (!is_env && !str_starts(key, conf))
        return 0; /* a property of Azkaban or of another job type */
    AUTO(free_p) char *pair = str_printf("%s=%s", is_env ? key + sizeof env - 1 : key, value);
    return pair ? add(t, is_env ? "--shell_env" : "--conf", pair) : -ENOMEM;
}

static int add_rest(struct taken *t)
{
    struct stat st;
    AUTO(free_p) char *all = str_printf("tony.application.tags=%s", buf_cstr(&t->tags));
    int rc = all ? 0 : -ENOMEM;
    if (rc == 0 && t->tags.len)
        rc = add(t, "--conf", all);
    if (rc == 0 && !t->has_src && stat("src", &st) == 0 && S_ISDIR(st.st_mode))
        rc = add(t, "--src_dir", "src"); /* TonY's default */
    return rc;
}

static int read_file(const char *path, struct taken *t, struct err *e)
{
    AUTO(buf_done) struct buf text = { .max = PROPERTIES_MAX };
    int rc = fs_read(AT_FDCWD, path, &text, e);
    if (rc == 0)
        rc = properties_parse(path, buf_span(&text), take, t, e);
    if (rc == 0 && (rc = add_rest(t)) < 0)
        rc = err_set(e, ENOMEM, "no memory to read '%s'", path);
    return rc;
}

int cmd_azkaban(struct client *c)
{
    struct err e = { 0 };
    struct taken t = { .has_src = false };
    const char *path = c->o.n_args ? c->o.args[0] : getenv("JOB_PROP_FILE");
    if (!path || !*path) {
        (void)err_set(
            &e, EINVAL,
            "no properties file is given, and the environment variable JOB_PROP_FILE is not set");
        err_hint(
            &e,
            "Azkaban sets it for jobs with type=command; by hand: tony azkaban FILE.properties");
        return client_fail(EXIT_MISUSE, &e);
    }
    int rc = read_file(path, &t, &e);
    /* The options of this command line come last, so they override those from the properties. */
    struct options mine = c->o;
    c->o = (struct options){ 0 };
    for (size_t i = 0; rc == 0 && i < mine.n; i++) {
        rc = strv_push(&t.words, option_name(mine.v[i].id));
        if (rc == 0 && mine.v[i].value)
            rc = strv_push(&t.words, mine.v[i].value);
    }
    options_done(&mine);
    c->cmd = command_find("run");
    if (rc == 0)
        rc = options_parse((int)t.words.n, t.words.v, c->cmd->options, &c->o, &e);
    int code = rc < 0 ? client_fail(EXIT_MISUSE, &e) : cmd_run(c);
    strv_done(&t.words); /* the options point into it */
    buf_done(&t.tags);
    return code;
}
