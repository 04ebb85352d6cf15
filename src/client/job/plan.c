/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan: shows what a job would request, run and ship. It submits nothing and writes nothing; it
 * asks the pool for its capacity.
 */
#include <errno.h>

#include "base/base.h"
#include "client/client_int.h"
#include "client/job/jobconf.h"
#include "client/job/plan_long.h"
#include "client/pool/forecast.h"
#include "client/show/names.h"
#include "conf/conf.h"
#include "runtime/runtime.h"
#include "storage/plan.h"
#include "storage/store.h"

#define SINGLE_ROLE "driver" /* the role name of the only task of a job without roles */

/* The plan shows the first task of each role, and further tasks until one of these limits is
 * reached. Without a limit the document would grow with the square of the number of tasks, because
 * the environment of each task has the addresses of all. */
enum { TASKS_MAX = 1000, TASKS_BYTES_MAX = 16 << 20 };

/* ---- environments ---- */

struct spec_view { /* the cluster spec with placeholders for addresses */
    struct rt_role *roles;
    size_t n;
    uint32_t n_tracked;
    struct plan_lengths lengths;
};

static void view_done(struct spec_view *v)
{
    for (size_t i = 0; i < v->n; i++) {
        char **addresses = (char **)(uintptr_t)v->roles[i].addresses;
        for (uint32_t k = 0; addresses && k < v->roles[i].n; k++)
            free(addresses[k]);
        free(addresses);
    }
    free(v->roles);
    *v = (struct spec_view){ 0 };
}

static int view_add(struct spec_view *out, const struct role_spec *r, const char *name)
{
    char **addresses = calloc(r->instances, sizeof *addresses);
    if (!addresses)
        return -ENOMEM;
    for (uint32_t k = 0; k < r->instances; k++)
        addresses[k] = str_printf("127.0.0.1:<port of %s %u>", name, k);
    out->roles[out->n++] = (struct rt_role){ .name = name,
                                             .addresses = (const char *const *)addresses,
                                             .n = r->instances,
                                             .kind = (uint32_t)r->kind,
                                             .ranks = r->ranks };
    if (r->kind == ROLE_TRACKED)
        out->n_tracked += r->instances;
    return 0;
}

static int view_build(const struct job_spec *s, struct spec_view *out)
{
    out->roles = calloc(s->n_roles + 1, sizeof *out->roles);
    int rc = out->roles ? 0 : -ENOMEM;
    for (size_t i = 0; rc == 0 && i < s->n_roles; i++)
        if (s->roles[i].instances)
            rc = view_add(out, &s->roles[i], s->roles[i].name);
    if (rc == 0 && s->single_node)
        rc = view_add(out, &s->am, SINGLE_ROLE);
    return rc;
}

static bool is_chief(const struct job_spec *s, const char *role, uint32_t index)
{
    const struct role_spec *chief = job_spec_role(s, "chief");
    return chief && chief->instances ? str_eq(role, "chief") : str_eq(role, "worker") && index == 0;
}

static void add_env(struct strv *env, const struct strv *more)
{
    for (size_t i = 0; i < more->n; i++) {
        const char *equals = strchr(more->v[i], '=');
        AUTO(free_p)
        char *key = equals ? span_dup(span_mem(more->v[i], (size_t)(equals - more->v[i]))) : NULL;
        if (key)
            /* Out of memory: the preview lacks a variable. */
            (void)strv_env_set(env, key, equals + 1);
    }
}

/* Variables that the executor sets in addition to those of the framework. */
static void add_own(const struct job_spec *s, struct strv *env)
{
    const struct {
        const char *name, *value;
    } own[] = {
        { "PWD", "<working directory>" },      { "TONY_CONTAINER_ID", "<container id>" },
        { "TONY_JOB_NAME", s->name },          { "TONY_ATTEMPT", "1" },
        { "TONY_LOG_DIR", "<log directory>" }, { "TONY_TASK_SOCKET", "<socket>" },
        { "TONY_PYTHON", s->python_binary },
    };
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (own[i].value)
            (void)strv_env_set(env, own[i].name, own[i].value); /* as in add_env() */
}

static bool has_role(const struct spec_view *view, const char *name)
{
    for (size_t i = 0; i < view->n; i++)
        if (str_eq(view->roles[i].name, name))
            return true;
    return false;
}

/* Build the environment as the executor would; placeholders stand for values known only at run
 * time. */
static int task_env(const struct job_spec *s, const struct spec_view *view,
                    const struct role_spec *role, const char *name, uint32_t index,
                    struct strv *env, struct err *e)
{
    if (role->gpus) {
        (void)strv_env_set(env, "CUDA_VISIBLE_DEVICES", "<devices>"); /* as in add_env() */
        (void)strv_env_set(env, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    }
    add_env(env, &s->container_env);
    add_env(env, &s->execution_env);
    add_env(env, &role->env);
    for (size_t i = 0; i < s->secrets.n; i++) {
        struct span from = span_of(s->secrets.v[i]), part;
        (void)span_split(&from, '=', &part);
        AUTO(free_p) char *secret = span_dup(part);
        if (secret)
            (void)strv_env_set(env, secret, "***"); /* as in add_env() */
    }
    if (role->ranks > 1 && !strv_env_get(env, "OMP_NUM_THREADS"))
        (void)strv_env_set(env, "OMP_NUM_THREADS", "<cores of a rank>"); /* as in add_env() */
    add_own(s, env);
    const struct runtime *rt = runtime_find(s->framework);
    if (!rt)
        return 0;
    bool chief = s->single_node || is_chief(s, name, index);
    struct rt_input in = {
        .application_id = "<application id>",
        .distributed_mode = s->gang ? "GANG" : "FCFS",
        .roles = view->roles,
        .n_roles = view->n,
        .role = name,
        .index = index,
        .generation = 1,
        .max_restarts = role_spec_restarts(role),
        .chief = chief,
        .single_node = s->single_node,
        .n_tracked = view->n_tracked,
        .server = s->server,
        .driver = s->horovod_driver ? "<driver>:<port>" : NULL,
        .spec_file = "<file with the cluster spec>",
        .file_only = s->addresses_in_file_only,
        .variable_max = SIZE_MAX, /* placeholders are longer than addresses: see plan_lengths() */
    };
    if (runtime_wants_tb_port(rt->name, name, chief, has_role(view, "tensorboard")))
        (void)strv_env_set(env, "TB_PORT", "<port>"); /* as in add_env() */
    return runtime_env(rt, &in, env, e);
}

static json_t *env_json(const struct strv *env, const struct plan_lengths *lengths)
{
    json_t *o = json_object();
    for (size_t i = 0; i < env->n; i++) {
        const char *equals = strchr(env->v[i], '=');
        AUTO(free_p)
        char *key = equals ? span_dup(span_mem(env->v[i], (size_t)(equals - env->v[i]))) : NULL;
        if (key && !plan_left_out(lengths, key))
            (void)json_object_set_new(o, key,
                                      json_string(conf_key_is_secret(key) ? "***" : equals + 1));
    }
    return o;
}

static int add_task(const struct job_spec *s, const struct spec_view *view,
                    const struct role_spec *role, uint32_t index, const char *name,
                    const char *command, json_t *tasks, size_t *bytes, struct err *e)
{
    struct strv env = { 0 };
    int rc = task_env(s, view, role, name, index, &env, e);
    if (rc == 0) {
        AUTO(free_p) char *task = str_printf("%s:%u", name, index);
        json_t *doc =
            json_pack("{s:s, s:s, s:s, s:o}", "task", task ? task : name, "role", name, "command",
                      command ? command : "", "env", env_json(&env, &view->lengths));
        if (role->resume_command)
            (void)json_object_set_new(doc, "resume_command", json_string(role->resume_command));
        if (role->ranks > 1)
            (void)json_object_set_new(doc, "ranks", json_integer(role->ranks));
        (void)json_array_append_new(tasks, doc);
    }
    for (size_t i = 0; i < env.n; i++)
        *bytes += strlen(env.v[i]);
    strv_done(&env);
    return rc;
}

static int tasks_json(const struct job_spec *s, json_t **out, json_t **out_too_long, struct err *e)
{
    struct spec_view view = { 0 };
    json_t *tasks = json_array();
    size_t bytes = 0;
    int rc = tasks ? view_build(s, &view) : -ENOMEM;
    if (rc < 0)
        rc = err_set(e, ENOMEM, "cannot plan the job: %m");
    if (rc == 0)
        rc = plan_lengths(s, &view.lengths, e);
    for (size_t i = 0; rc == 0 && i < s->n_roles; i++)
        for (uint32_t k = 0; rc == 0 && k < s->roles[i].instances; k++) {
            if (k > 0 && (json_array_size(tasks) >= TASKS_MAX || bytes >= TASKS_BYTES_MAX))
                break;
            rc = add_task(s, &view, &s->roles[i], k, s->roles[i].name, s->roles[i].command, tasks,
                          &bytes, e);
        }
    if (rc == 0 && s->single_node)
        rc = add_task(s, &view, &s->am, 0, SINGLE_ROLE, s->am.command, tasks, &bytes, e);
    if (rc < 0)
        json_decref(tasks);
    else
        *out = tasks;
    *out_too_long = rc < 0 ? NULL : plan_lengths_json(&view.lengths);
    view_done(&view);
    return rc;
}

/* ---- containers, resources, capacity ---- */

static json_t *role_json(const struct job_spec *s, const struct role_spec *r, const char *name,
                         uint32_t instances)
{
    static const char *const kinds[] = { [ROLE_NONE] = "tracked", /* the default */
                                         [ROLE_TRACKED] = "tracked",
                                         [ROLE_UNTRACKED] = "untracked",
                                         [ROLE_SIDECAR] = "sidecar" };
    json_t *waits = json_array();
    for (size_t i = 0; i < r->n_waits_for; i++)
        (void)json_array_append_new(waits, json_string(s->roles[r->waits_for[i]].name));
    /* The roles for which this role waits: their tasks must have started, or be ready. */
    for (size_t i = 0; i < r->n_gates; i++)
        (void)json_array_append_new(waits, json_sprintf("%s:%s", s->roles[r->gates[i].role].name,
                                                        r->gates[i].ready ? "ready" : "started"));
    enum resize_policy policy = role_spec_resize(s, r);
    json_t *doc = json_pack("{s:s, s:i, s:I, s:i, s:i, s:s, s:o, s:s}", "role", name, "instances",
                            (int)instances, "memory_mib", (json_int_t)r->memory_mib, "vcores",
                            (int)r->vcores, "gpus", (int)r->gpus, "kind", kinds[r->kind],
                            "waits_for", waits, "resize", resize_policy_name(policy));
    if (doc && policy != RESIZE_NEVER) {
        (void)json_object_set_new(doc, "min_instances", json_integer(r->min_instances));
        (void)json_object_set_new(doc, "max_instances",
                                  r->max_instances < 0 ? json_null()
                                                       : json_integer(r->max_instances));
    }
    return doc;
}

static json_t *containers_json(const struct job_spec *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_roles; i++)
        if (s->roles[i].instances)
            (void)json_array_append_new(
                list, role_json(s, &s->roles[i], s->roles[i].name, s->roles[i].instances));
    if (s->single_node)
        (void)json_array_append_new(list, role_json(s, &s->am, SINGLE_ROLE, 1));
    return list;
}

/* ---- what is shipped ---- */

static json_t *ship_json(struct cluster_job *j, int *rc, struct err *e)
{
    static const char *const kinds[] = {
        [SHIP_NONE] = "",     [SHIP_SRC] = "src",         [SHIP_DIR] = "directory",
        [SHIP_FILE] = "file", [SHIP_ARCHIVE] = "archive", [SHIP_IN_PLACE] = "in-place"
    };
    json_t *list = json_array();
    for (size_t i = 0; *rc == 0 && i < j->n_items; i++) {
        struct ship_item *it = &j->items[i];
        if (it->kind != SHIP_IN_PLACE)
            *rc = store_survey(it, e);
        if (*rc == 0)
            *rc = store_digest(it, e);
        if (*rc == 0)
            (void)json_array_append_new(
                list, json_pack("{s:s, s:s, s:s, s:s, s:I, s:i}", "kind", kinds[it->kind], "source",
                                it->source, "name", it->name, "role", it->role, "bytes",
                                (json_int_t)it->bytes, "files", (int)it->n_files));
    }
    return list;
}

/* ---- output as text ---- */

static void print_containers(const json_t *doc)
{
    struct table t = { .n_cols = 7 };
    table_add(&t, "ROLE", "TASKS", "MEMORY", "CORES", "GPUS", "KIND", "AFTER", NULL);
    size_t i, k;
    json_t *r, *w;
    json_array_foreach(json_object_get(doc, "containers"), i, r)
    {
        char n[16], memory[32], cores[16], gpus[16];
        AUTO(buf_done) struct buf after = { 0 };
        json_array_foreach(json_object_get(r, "waits_for"), k, w)
        {
            (void)buf_addf(&after, "%s%s", k ? ", " : "", json_string_value(w));
        }
        (void)snprintf(n, sizeof n, "%lld", (long long)doc_int(r, "instances", 0));
        (void)snprintf(cores, sizeof cores, "%lld", (long long)doc_int(r, "vcores", 0));
        (void)snprintf(gpus, sizeof gpus, "%lld", (long long)doc_int(r, "gpus", 0));
        table_add(&t, doc_str(r, "role"), n,
                  str_size((uint64_t)doc_int(r, "memory_mib", 0) << 20, memory, sizeof memory),
                  cores, gpus, doc_str(r, "kind"), buf_cstr(&after), NULL);
    }
    table_print(&t);
}

static void print_demand(const json_t *doc)
{
    const json_t *d = json_object_get(doc, "demand"), *c = json_object_get(doc, "capacity");
    char want[32], have[32];
    (void)printf("\nIn all %lld container%s, %s, %lld GPUs at once",
                 (long long)doc_int(d, "containers", 0),
                 doc_int(d, "containers", 0) == 1 ? "" : "s",
                 str_size((uint64_t)doc_int(d, "memory_mib", 0) << 20, want, sizeof want),
                 (long long)doc_int(d, "gpus", 0));
    if (json_is_object(c))
        (void)printf("; %s has %s, %lld GPUs", cluster_named(doc_str(doc, "cluster"))->title,
                     str_size((uint64_t)doc_int(c, "memory_mib", 0) << 20, have, sizeof have),
                     (long long)doc_int(c, "gpus", 0));
    (void)printf(".\n");
}

/* Show the first task of each role in full. The others differ only in their numbers. */
static void print_tasks(const json_t *doc)
{
    const char *role = "";
    size_t i;
    json_t *task;
    json_array_foreach(json_object_get(doc, "tasks"), i, task)
    {
        if (str_eq(doc_str(task, "role"), role))
            continue;
        role = doc_str(task, "role");
        (void)printf("\n%s\n  command  %s\n", doc_str(task, "task"), doc_str(task, "command"));
        if (doc_str(task, "resume_command")[0])
            (void)printf("  resumes  %s\n", doc_str(task, "resume_command"));
        const char *key;
        json_t *value;
        json_object_foreach(json_object_get(task, "env"), key, value)
        {
            (void)printf("  %s=%s\n", key, json_string_value(value));
        }
    }
}

static void print_ship(const json_t *doc)
{
    const json_t *ship = json_object_get(doc, "ship");
    if (json_array_size(ship) == 0) {
        (void)printf("\nNothing is shipped.\n");
        return;
    }
    (void)printf("\n");
    struct table t = { .n_cols = 6 };
    table_add(&t, "SHIPPED", "AS", "FOR", "FILES", "SIZE", "SOURCE", NULL);
    size_t i;
    json_t *it;
    json_array_foreach(ship, i, it)
    {
        char files[16], size[32];
        (void)snprintf(files, sizeof files, "%lld", (long long)doc_int(it, "files", 0));
        bool in_place = str_eq(doc_str(it, "kind"), "in-place");
        table_add(&t, doc_str(it, "kind"), doc_str(it, "name")[0] ? doc_str(it, "name") : ".",
                  doc_str(it, "role")[0] ? doc_str(it, "role") : "all", in_place ? "" : files,
                  in_place ? "" : str_size((uint64_t)doc_int(it, "bytes", 0), size, sizeof size),
                  doc_str(it, "source"), NULL);
    }
    table_print(&t);
}

/* Print what the cluster adds to the plan, such as the script that would be submitted. */
static void print_shown(const json_t *doc)
{
    size_t i;
    json_t *line;
    json_array_foreach(json_object_get(doc, "shown"), i, line)
    {
        (void)printf("%s%s\n", i ? "" : "\n", json_string_value(line));
    }
}

/* Ask the cluster for its part of the plan. */
static int ask_cluster(struct client *c, struct cluster_job *j, struct cluster_plan *out)
{
    struct cluster *k = NULL;
    int rc = client_open(c, j->cluster, j->conf, &k, &out->why);
    if (rc == 0)
        rc = j->cluster->plan(k, j, out, &out->why);
    out->refused = out->refused || rc == -EXIT_MISUSE;
    return rc;
}

static json_t *lines_json(const struct strv *lines)
{
    json_t *list = json_array();
    for (size_t i = 0; i < lines->n; i++)
        (void)json_array_append_new(list, json_string(lines->v[i]));
    return list;
}

static int plan_json(struct client *c, struct cluster_job *j, json_t **out, bool *out_fits,
                     struct err *e)
{
    const struct job_spec *s = j->spec;
    struct job_demand d;
    job_spec_demand(s, &d);
    json_t *tasks = NULL, *too_long = NULL;
    int rc = tasks_json(s, &tasks, &too_long, e);
    json_t *ship = ship_json(j, &rc, e);
    if (rc < 0) {
        json_decref(tasks);
        json_decref(too_long);
        json_decref(ship);
        return rc;
    }
    struct cluster_plan plan = { 0 };
    (void)ask_cluster(c, j, &plan); /* plan.why says what failed */
    json_t *capacity = plan.capacity ? json_incref(plan.capacity) : json_null();
    *out_fits = !plan.refused;
    if (plan.why.num)
        client_note("%s", plan.why.msg);
    *out = json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:{s:i, s:I, s:i, s:i}, s:o, s:b, s:o, s:i, s:o, s:o}", "name",
        s->name, "framework", s->framework, "cluster", s->cluster, "distributed_mode",
        s->gang ? "GANG" : "FCFS", "containers", containers_json(s), "demand", "containers",
        (int)d.n_containers, "memory_mib", (json_int_t)d.memory_mib, "gpus", (int)d.gpus, "vcores",
        (int)d.vcores, "capacity", capacity, "fits", *out_fits, "tasks", tasks, "tasks_omitted",
        (int)(s->n_tasks - MIN(s->n_tasks, (uint32_t)json_array_size(tasks))), "ship", ship,
        "too_long", too_long);
    if (*out && plan.more)
        (void)json_object_update_missing(*out, plan.more);
    if (*out && plan.shown.n)
        (void)json_object_set_new(*out, "shown", lines_json(&plan.shown));
    cluster_plan_done(&plan);
    char digest[DIGEST_HEX];
    if (*out && plan_of_job(s, j->items, j->n_items, digest) == 0)
        (void)json_object_set_new(*out, "digest",
                                  json_string(digest)); /* on failure it is absent */
    return *out ? 0 : err_set(e, ENOMEM, "cannot plan the job: %m");
}

/* The expected start of the job, and the jobs that it would shrink or delay. */
static json_t *when_json(struct client *c, const struct cluster_job *j)
{
    if (j->cluster->no_forecast)
        return json_pack("{s:s}", "unknown", j->cluster->no_forecast);
    struct forecast *f = forecast_load(c);
    json_t *when = f ? forecast_plan(f, j->spec) : NULL;
    forecast_free(f);
    return when ? when : json_pack("{s:s}", "unknown", "the pool does not answer");
}

int cmd_plan(struct client *c)
{
    struct err e = { 0 };
    struct cluster_job j;
    if (client_job_load(c, &j, &e) < 0)
        return client_fail(e.num == ENOMEM ? EXIT_CLUSTER : EXIT_MISUSE, &e);
    json_t *doc = NULL;
    bool fit = true;
    int rc = plan_json(c, &j, &doc, &fit, &e);
    if (rc == 0 && options_has(&c->o, OPT_WHEN))
        (void)json_object_set_new(doc, "when", when_json(c, &j)); /* on failure it is absent */
    cluster_ops_close(TAKE(c->cluster));
    client_job_done(&j);
    if (rc < 0)
        return client_fail(ship_exit_code(&e), &e);
    int code;
    if (options_has(&c->o, OPT_JSON)) {
        code = client_print_json(doc);
    } else {
        json_t *made = doc;
        doc = names_shown(c, made, true);
        json_decref(made);
        (void)printf("%s: framework %s, cluster %s\n\n", doc_str(doc, "name"),
                     doc_str(doc, "framework"), doc_str(doc, "cluster"));
        print_containers(doc);
        print_demand(doc);
        plan_lengths_print(doc);
        print_tasks(doc);
        print_ship(doc);
        (void)printf("\nDigest of this plan: %s\n", doc_str(doc, "digest"));
        print_shown(doc);
        if (json_is_object(json_object_get(doc, "when"))) /* at the end, so that it stays visible */
            forecast_print_plan(c, json_object_get(doc, "when"));
        json_decref(doc);
        code = client_flush_stdout();
    }
    return code == EXIT_DONE && !fit ? EXIT_MISUSE : code;
}
