/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the roles of a job: sizes, commands, kinds.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "base/util.h"
#include "conf/spec_int.h"
#include "runtime/runtime.h"

static const char tensorboard[] = "tensorboard";

static const char *command_of(const struct build *b, const char *key)
{
    const char *v = conf_get(b->c, key);
    return v && span_trim(span_of(v)).len > 0 ? v : NULL;
}

/* The default command of the tensorboard role, as in TonY. */
static char *tensorboard_command(const struct build *b)
{
    const char *python = conf_get(b->c, "tony.python-exec-path");
    return str_printf("%s sidecar_tensorboard.py", python && *python ? python : "python3");
}

/* The image of a role. On YARN the client passes it to the NodeManagers; on one machine the
 * executor starts the container. */
static int build_image(struct build *b, struct role_spec *r)
{
    static const char enabled[] = "tony.docker.enabled";
    if (!conf_bool(b->c, enabled) || strcmp(b->s->cluster, "local") != 0)
        return 0;
    AUTO(free_p) char *key = str_printf("tony.docker.%s.image", r->name);
    const char *image = key ? conf_get(b->c, key) : NULL;
    if (!image || !*image)
        image = conf_get(b->c, "tony.docker.containers.image");
    /* An image that begins with '-' would be read as an option. */
    if (image && *image && *image != '-')
        r->docker_image = str_dup(image);
    else if (strcmp(r->name, "am") != 0 &&
             strv_pushf(&b->s->warnings,
                        "%s: role '%s' has no image (tony.docker.%s.image): it runs without one",
                        conf_origin(b->c, enabled), r->name, r->name) < 0)
        return build_no_memory(b);
    const char *mounts = conf_get(b->c, "tony.docker.containers.mount");
    if (mounts && *mounts && !b->s->docker_mounts && !(b->s->docker_mounts = str_dup(mounts)))
        return build_no_memory(b);
    return key && (r->docker_image || !image || !*image || *image == '-') ? 0 : build_no_memory(b);
}

/* The fields that roles and the master have in common. */
static int fill_role(struct build *b, struct role_spec *r)
{
    char key[ROLE_KEY_MAX];
    const char *command = command_of(b, role_key(key, r->name, "command"));
    r->memory_mib = (uint64_t)conf_int(b->c, role_key(key, r->name, "memory"));
    r->memory_origin = str_dup(conf_origin(b->c, key));
    r->vcores = (uint32_t)conf_int(b->c, role_key(key, r->name, "vcores"));
    r->gpus = (uint32_t)conf_int(b->c, role_key(key, r->name, "gpus"));
    if (b->tensorboard_added && strcmp(r->name, tensorboard) == 0) {
        if (!conf_find(b->c, role_key(key, r->name, "vcores")))
            r->vcores = 2;
        if (!command)
            r->command = tensorboard_command(b);
        if (!command && !r->command)
            return build_no_memory(b);
    }
    if (!command)
        command = command_of(b, "tony.containers.command");
    if (!r->command && command)
        r->command = span_dup(span_trim(span_of(command)));
    if (!r->memory_origin || (command && !r->command))
        return build_no_memory(b);
    int rc = build_image(b, r);
    if (rc < 0)
        return rc;
    return build_resources(b, role_key(key, r->name, "resources"), &r->resources, &r->n_resources);
}

static int add_role(struct build *b, struct span name, uint32_t instances)
{
    struct job_spec *s = b->s;
    char key[ROLE_KEY_MAX];
    struct role_spec *r = &s->roles[s->n_roles];
    *r = (struct role_spec){
        .instances = instances, .kind = ROLE_TRACKED, .max_instances = -1, .ranks = 1
    };
    r->name = span_dup(name);
    if (!r->name)
        return build_no_memory(b);
    s->n_roles++;
    r->max_instances = conf_int(b->c, role_key(key, r->name, "max-instances"));
    r->ranks = (uint32_t)conf_int(b->c, role_key(key, r->name, "ranks"));
    int rc = fill_role(b, r);
    const char *env = rc == 0 ? conf_get(b->c, role_key(key, r->name, "env")) : NULL;
    if (env)
        rc = conf_env_parse(span_of(env), &r->env, b->e);
    if (rc == 0)
        rc = build_restart(b, r);
    if (rc == 0)
        rc = build_resize(b, r);
    if (rc == 0 && !r->command) {
        (void)build_fail(b, role_key(key, r->name, "instances"), EINVAL, "role '%s' has no command",
                         r->name);
        return err_hint(b->e,
                        "give it one (tony.%s.command), or one for all roles "
                        "(tony.containers.command)",
                        r->name);
    }
    s->n_tasks += instances;
    return rc;
}

static bool is_instances(const struct entry *x, struct span *out_role)
{
    return x->row && str_eq(x->row->name, "tony.<role>.instances") &&
           conf_key_find(span_of(x->key), out_role) != NULL;
}

/* Count the roles and tasks, refuse too many, and allocate the roles. */
static int count_roles(struct build *b)
{
    size_t n = b->tensorboard_added;
    uint64_t tasks = b->tensorboard_added;
    struct span role;
    for (size_t i = 0; i < b->c->n; i++) {
        const struct entry *x = &b->c->v[i];
        int64_t instances = is_instances(x, &role) ? conf_int(b->c, x->key) : 0;
        if (instances <= 0)
            continue;
        n++;
        tasks += (uint64_t)instances;
        if (n > SPEC_ROLES_MAX)
            return build_fail(b, x->key, EINVAL, "the job has more than %d roles", SPEC_ROLES_MAX);
        if (tasks > SPEC_TASKS_MAX)
            return build_fail(b, x->key, EINVAL, "the job has more than %d tasks in all",
                              SPEC_TASKS_MAX);
    }
    b->s->roles = calloc(n + 2, /* two more: roles that other keys add */ sizeof *b->s->roles);
    return b->s->roles ? 0 : build_no_memory(b);
}

/* Call fn for every role of the job that a list key names. Other names are no error: they may be of
 * roles without instances. */
static int each_listed(struct build *b, const char *key, void (*fn)(struct role_spec *r))
{
    const char *v = conf_get(b->c, key);
    struct strv names = { 0 };
    int rc = v ? conf_list_parse(span_of(v), &names) : 0;
    for (size_t i = 0; i < names.n && rc == 0; i++) {
        int64_t at = build_role(b, names.v[i]);
        if (at >= 0)
            fn(&b->s->roles[at]);
    }
    strv_done(&names);
    return rc < 0 ? build_no_memory(b) : 0;
}

static void make_untracked(struct role_spec *r)
{
    r->kind = ROLE_UNTRACKED;
}

static void make_sidecar(struct role_spec *r)
{
    r->kind = ROLE_SIDECAR;
}

static void make_stopping(struct role_spec *r)
{
    r->stop_on_failure = true;
}

struct rt_role *job_spec_rt_roles(const struct job_spec *s, const uint32_t *n)
{
    struct rt_role *roles = calloc(s->n_roles + 1, sizeof *roles);
    for (size_t i = 0; roles && i < s->n_roles; i++)
        roles[i] = (struct rt_role){ .name = s->roles[i].name,
                                     .n = n ? n[i] : s->roles[i].instances,
                                     .kind = (uint32_t)s->roles[i].kind,
                                     .ranks = s->roles[i].ranks };
    return roles;
}

void job_spec_rt_job(const struct job_spec *s, const struct rt_role *roles, size_t n_roles,
                     struct rt_job *out)
{
    *out = (struct rt_job){ .roles = roles,
                            .n_roles = n_roles,
                            .gang = s->gang,
                            .local = str_eq(s->cluster, "local"),
                            .file_only = s->addresses_in_file_only };
}

/* Apply what the framework requires of its roles. If the user names untracked roles, the framework
 * adds none. */
static int framework_kinds(struct build *b)
{
    struct job_spec *s = b->s;
    const struct runtime *rt = runtime_find(s->framework);
    const struct entry *x = conf_find(b->c, "tony.application.untracked.jobtypes");
    AUTO(free_p) struct rt_role *roles = job_spec_rt_roles(s, NULL);
    if (!roles)
        return build_no_memory(b);
    int rc = rt && s->n_roles ? runtime_check(rt, roles, s->n_roles, s->gang, b->e) : 0;
    if (rc < 0) {
        const char *origin = conf_origin(b->c, "tony.application.framework");
        return err_wrap(b->e, rc, "%s", origin ? origin : "job");
    }
    for (size_t i = 0; rt && i < s->n_roles; i++) {
        struct role_spec *r = &s->roles[i];
        if (rt->serves && (!x || x->layer == CL_DEFAULT) && rt->serves(roles, s->n_roles, r->name))
            make_untracked(r);
        if (rt->unnoticed && rt->unnoticed(r->name))
            make_stopping(r);
    }
    return 0;
}

/* Check the lengths of the variables. The kinds must be known: they decide which tasks are
 * ranks. */
static int check_environment(struct build *b)
{
    struct job_spec *s = b->s;
    const struct runtime *rt = runtime_find(s->framework);
    AUTO(free_p) struct rt_role *roles = job_spec_rt_roles(s, NULL);
    struct rt_job job;
    if (!roles)
        return build_no_memory(b);
    job_spec_rt_job(s, roles, s->n_roles, &job);
    int rc = rt ? runtime_check_lengths(rt, &job, b->e) : 0;
    const char *origin = conf_origin(b->c, "tony.application.framework");
    return rc < 0 ? err_wrap(b->e, rc, "%s", origin ? origin : "job") : 0;
}

static int build_kinds(struct build *b)
{
    struct job_spec *s = b->s;
    int rc = each_listed(b, "tony.application.sidecar.jobtypes", make_sidecar);
    /* After the sidecars: a role in both lists is untracked, so its failure fails the job. */
    if (rc == 0)
        rc = each_listed(b, "tony.application.untracked.jobtypes", make_untracked);
    if (rc == 0)
        rc = framework_kinds(b);
    if (rc == 0)
        rc = each_listed(b, "tony.application.stop-on-failure-jobtypes", make_stopping);
    if (rc < 0)
        return rc;
    bool any = s->n_roles == 0;
    for (size_t i = 0; i < s->n_roles; i++) {
        struct role_spec *r = &s->roles[i];
        if (b->tensorboard_added && strcmp(r->name, tensorboard) == 0)
            r->kind = ROLE_SIDECAR;
        if (r->kind == ROLE_SIDECAR)
            r->stop_on_failure = false; /* the failure of a sidecar is ignored */
        any = any || r->kind == ROLE_TRACKED;
    }
    if (any)
        return check_environment(b);
    char key[ROLE_KEY_MAX];
    (void)build_fail(b, role_key(key, s->roles[0].name, "instances"), EINVAL,
                     "the job would never end: it waits for none of its roles ('%s' is %s)",
                     s->roles[0].name,
                     s->roles[0].kind == ROLE_SIDECAR ? "a sidecar" : "untracked");
    return err_hint(b->e, "add a role, or set tony.application.untracked.jobtypes and "
                          "tony.application.sidecar.jobtypes");
}

/* Find the role whose first task is rank 0: the chief, else the first tracked role in the file. */
static void find_server(struct build *b)
{
    struct job_spec *s = b->s;
    uint64_t ranks = 0;
    int64_t first = -1, chief = -1;
    for (size_t i = 0; i < s->n_roles; i++) {
        const struct role_spec *r = &s->roles[i];
        if (r->kind != ROLE_TRACKED)
            continue;
        ranks += (uint64_t)r->instances * r->ranks;
        if (first < 0)
            first = (int64_t)i;
        if (str_eq(r->name, "chief"))
            chief = (int64_t)i;
    }
    const struct runtime *rt = runtime_find(s->framework);
    if (!rt || !rt->server || ranks < MAX(rt->server_from, 1u) || s->single_node)
        return;
    if (str_eq(rt->name, "pytorch") && !conf_bool(b->c, "tony.pytorch.store"))
        return; /* the program starts its own store */
    if (s->horovod_driver || s->horovod_fast_fail)
        return;
    s->server = true;
    s->server_role = (uint32_t)(chief >= 0 ? chief : first);
}

/* The key that an error about a job without tasks and command names: the first key of a role, else
 * the first key of the job file. */
static const char *blame_for_nothing(const struct build *b)
{
    const char *first = "tony.containers.command";
    bool found = false;
    for (size_t i = 0; i < b->c->n; i++) {
        const struct entry *x = &b->c->v[i];
        if (x->layer < CL_JOB || !x->row)
            continue;
        if (str_starts(x->row->name, "tony.<role>."))
            return x->key;
        if (!found)
            first = x->key;
        found = true;
    }
    return first;
}

static int build_am(struct build *b)
{
    struct role_spec *am = &b->s->am;
    am->name = strdup("am");
    am->instances = 1;
    am->max_instances = -1;
    am->min_instances = 1;
    am->kind = ROLE_TRACKED;
    am->ranks = 1;
    if (!am->name)
        return build_no_memory(b);
    int rc = fill_role(b, am);
    if (rc < 0 || !b->s->single_node || am->command)
        return rc;
    (void)build_fail(b, blame_for_nothing(b), EINVAL,
                     "the job has neither a role with instances nor a command");
    return err_hint(
        b->e, "write 'command: ...', or roles such as 'worker: {instances: 2, command: ...}'");
}

/* TonY starts a driver of its own and uses the user's only in a debug mode. tony starts no driver:
 * the rendezvous server runs next to rank 0, or in the user's driver. */
static int build_horovod(struct build *b)
{
    static const char key[] = "tony.horovod.driver.mode.debug";
    struct job_spec *s = b->s;
    if (strcmp(s->framework, "horovod") != 0)
        return 0;
    s->horovod_fast_fail = conf_bool(b->c, "tony.horovod.mode.test.fast.fail");
    s->horovod_driver = conf_bool(b->c, key);
    for (size_t i = 0; i < b->c->n && !s->horovod_driver; i++) {
        const struct entry *x = &b->c->v[i];
        if (!str_starts(x->key, "tony.driver."))
            continue;
        (void)build_fail(b, x->key, EINVAL, "'%s' has no effect, because '%s' is not set", x->key,
                         key);
        return err_hint(b->e, "remove it, or set %s to true", key);
    }
    if (!s->horovod_driver)
        return 0;
    if (!command_of(b, "tony.driver.command")) {
        (void)build_fail(b, key, EINVAL, "'%s' is set, but the job has no command for the driver",
                         key);
        return err_hint(b->e, "set tony.driver.command");
    }
    int64_t at = build_role(b, "driver");
    if (at >= 0 && s->roles[at].instances > 1)
        return build_fail(b, "tony.driver.instances", EINVAL, "Horovod has one driver, not %u",
                          s->roles[at].instances);
    int rc = at >= 0 ? 0 : add_role(b, span_of("driver"), 1);
    if (rc == 0)
        rc = build_fixed_size(b, &s->roles[build_role(b, "driver")], "Horovod has one driver");
    return rc;
}

int build_roles(struct build *b)
{
    struct span role;
    b->tensorboard_added = b->s->tensorboard_log_dir != NULL;
    int rc = count_roles(b);
    for (size_t i = 0; i < b->c->n && rc == 0; i++) {
        const struct entry *x = &b->c->v[i];
        int64_t instances = is_instances(x, &role) ? conf_int(b->c, x->key) : 0;
        if (instances > 0 && !(b->tensorboard_added && span_eqs(role, tensorboard)))
            rc = add_role(b, role, (uint32_t)instances);
    }
    if (rc == 0 && b->tensorboard_added)
        rc = add_role(b, span_of(tensorboard), 1);
    if (rc == 0 && b->tensorboard_added)
        rc = build_fixed_size(b, &b->s->roles[b->s->n_roles - 1], "a job has one TensorBoard");
    if (rc == 0)
        rc = build_horovod(b);
    if (rc == 0)
        rc = build_kinds(b);
    if (rc == 0)
        find_server(b);
    b->s->single_node = rc == 0 && b->s->n_roles == 0;
    if (rc == 0)
        rc = build_am(b);
    if (b->s->single_node)
        b->s->n_tasks = 1;
    return rc;
}

/* Add the preprocess task, which TonY runs in its master. Here it is a task of the last role. All
 * other tasks wait for it, but it has no rank and is not in the cluster spec. */
int build_preprocess(struct build *b)
{
    static const char key[] = "tony.application.enable-preprocess";
    struct job_spec *s = b->s;
    s->preprocess = conf_bool(b->c, key) && !s->single_node;
    if (!s->preprocess)
        return 0;
    if (build_role(b, PREPROCESS_ROLE) >= 0) {
        (void)build_fail(b, key, EINVAL,
                         "role '%s' cannot have this name: '%s' adds a task with it",
                         PREPROCESS_ROLE, key);
        return err_hint(b->e, "give the role another name");
    }
    if (!s->am.command) {
        (void)build_fail(b, key, EINVAL, "'%s' has no command to run", key);
        return err_hint(b->e, "give it one (tony.am.command), or one for all roles "
                              "(tony.containers.command)");
    }
    uint32_t at = (uint32_t)s->n_roles;
    struct role_spec *r = &s->roles[s->n_roles++]; /* count_roles() has allocated enough */
    *r = (struct role_spec){ .instances = 1,
                             .kind = ROLE_UNTRACKED,
                             .max_instances = -1,
                             .ranks = 1,
                             .memory_mib = s->am.memory_mib,
                             .vcores = s->am.vcores,
                             .gpus = s->am.gpus,
                             .name = str_dup(PREPROCESS_ROLE),
                             .command = str_dup(s->am.command),
                             .memory_origin = str_dup(s->am.memory_origin) };
    s->n_tasks++;
    if (!r->name || !r->command || !r->memory_origin)
        return build_no_memory(b);
    int rc = build_resources(b, "tony.am.resources", &r->resources, &r->n_resources);
    if (rc == 0)
        rc = build_restart(b, r);
    if (rc == 0)
        rc = build_resize(b, r);
    if (rc == 0)
        rc = build_fixed_size(b, r, "preprocessing is one task");
    for (uint32_t i = 0; i < at && rc == 0; i++)
        rc = build_add_role(b, &s->roles[i].waits_for, &s->roles[i].n_waits_for, at);
    return rc;
}
