/* SPDX-License-Identifier: Apache-2.0 */
/* The table of keys against the list of keys that users of TonY rely on; look-ups, nearest names,
 * reserved words, secrets. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "conf/conf.h"

/* A concrete key of each kind, the default in TonY's file (NULL: none), and the type of its
 * value. */
static const struct {
    const char *key, *dflt;
    enum conf_type type;
} tony[] = {
    { "tony.yarn.queue", "default", CT_STR },
    { "tony.application.name", "TensorFlowApplication", CT_STR },
    { "tony.application.type", "TONY", CT_STR },
    { "tony.application.tags", "", CT_LIST },
    { "tony.application.framework", "tensorflow", CT_ENUM },
    { "tony.application.distributed-mode", "GANG", CT_ENUM },
    { "tony.application.node-label", NULL, CT_STR },
    { "tony.application.placement-spec", NULL, CT_STR },
    { "tony.application.enable-preprocess", "false", CT_BOOL },
    { "tony.application.timeout", "0", CT_INT },
    { "tony.application.num-client-rm-connect-retries", "3", CT_INT },
    { "tony.application.prepare-stage", NULL, CT_LIST },
    { "tony.application.training-stage", NULL, CT_LIST },
    { "tony.application.untracked.jobtypes", "ps", CT_LIST },
    { "tony.application.sidecar.jobtypes", "tensorboard", CT_LIST },
    { "tony.application.stop-on-failure-jobtypes", "ps", CT_LIST },
    { "tony.application.fail-on-worker-failure-enabled", "false", CT_BOOL },
    { "tony.application.tensorboard-log-dir", NULL, CT_STR },
    { "tony.application.security.enabled", "true", CT_BOOL },
    { "tony.application.hdfs-conf-path", NULL, CT_STR },
    { "tony.application.yarn-conf-path", NULL, CT_STR },
    { "tony.application.mapred-conf-path", NULL, CT_STR },
    { "tony.application.hadoop.location", NULL, CT_STR },
    { "tony.application.hadoop.classpath", NULL, CT_STR },
    { "tony.application.group.A", NULL, CT_LIST },
    { "tony.application.dependency.worker.timeout.after.A", NULL, CT_INT },
    { "tony.application.dependency.worker.timeout.after.A.ignored", "false", CT_BOOL },
    { "tony.other.namenodes", NULL, CT_LIST },
    { "tony.python-exec-path", NULL, CT_STR },
    { "tony.gpu-exec-path", "nvidia-smi", CT_STR },
    { "tony.application.single-node", NULL, CT_BOOL },

    { "tony.worker.instances", "0", CT_INT },
    { "tony.worker.max-instances", "-1", CT_INT },
    { "tony.worker.memory", "2g", CT_MEM },
    { "tony.worker.vcores", "1", CT_INT },
    { "tony.worker.gpus", "0", CT_INT },
    { "tony.worker.command", NULL, CT_STR },
    { "tony.worker.resources", NULL, CT_LIST },
    { "tony.worker.node-label", NULL, CT_STR },
    { "tony.worker.depends-on", NULL, CT_LIST },
    { "tony.worker.placement-spec", NULL, CT_STR },
    { "tony.worker.allocation-tags", NULL, CT_LIST },
    { "tony.docker.worker.image", NULL, CT_STR },
    { "tony.docker.am.image", NULL, CT_STR },
    { "tony.ps.memory", "2g", CT_MEM },
    { "tony.ps.vcores", "1", CT_INT },
    { "tony.tensorboard.instances", "0", CT_INT },
    { "tony.am.command", NULL, CT_STR },
    { "tony.am.resources", NULL, CT_LIST },
    { "tony.am.node-label", NULL, CT_STR },

    { "tony.containers.resources", NULL, CT_LIST },
    { "tony.containers.command", NULL, CT_STR },
    { "tony.containers.envs", NULL, CT_ENVS },
    { "tony.execution.envs", NULL, CT_ENVS },
    { "tony.containers.placement-spec", NULL, CT_STR },
    { "tony.containers.allocation-tags", NULL, CT_LIST },
    { "tony.container.allocation.timeout", "-1", CT_INT },
    { "tony.container.registration.timeout", "-1", CT_INT },
    { "tony.docker.enabled", "false", CT_BOOL },
    { "tony.docker.containers.image", NULL, CT_STR },
    { "tony.docker.containers.mount", NULL, CT_STR },

    { "tony.task.max-total-instances", "-1", CT_INT },
    { "tony.task.max-total-gpus", "-1", CT_INT },
    { "tony.task.max-total-memory", NULL, CT_INT },
    { "tony.task.max-total-vcores", NULL, CT_INT },
    { "tony.task.am.jvm.opts", "", CT_STR },
    { "tony.task.executor.jvm.opts", "-Xmx1536m", CT_STR },
    { "tony.task.default.jvm.opts", NULL, CT_STR },
    { "tony.task.heartbeat-interval-ms", "1000", CT_INT },
    { "tony.task.max-missed-heartbeats", "25", CT_INT },
    { "tony.task.metrics-interval-ms", "5000", CT_INT },
    { "tony.task.gpu-metrics.enabled", "true", CT_BOOL },
    { "tony.worker.timeout", "0", CT_INT },
    { "tony.task.executor.execution-timeout-ms", "0", CT_INT },
    { "tony.task.executor.registry-timeout-sec", "0", CT_INT },
    { "tony.task.executor.execution.error-message-max-depth", "20", CT_INT },
    { "tony.am.memory", "2g", CT_MEM },
    { "tony.am.vcores", "1", CT_INT },
    { "tony.am.gpus", "0", CT_INT },
    { "tony.am.retry-count", "0", CT_INT },
    { "tony.am.wait-client-signal-stop-timeout-sec", "15", CT_INT },
    { "tony.am.startup-timeout", "0", CT_INT },
    { "tony.horovod.mode.test", "false", CT_BOOL },
    { "tony.horovod.mode.test.fast.fail", "false", CT_BOOL },
    { "tony.horovod.driver.mode.debug", "false", CT_BOOL },

    { "tony.history.location", NULL, CT_STR }, /* TonY's file has only a placeholder */
    { "tony.history.intermediate", NULL, CT_STR },
    { "tony.history.finished", NULL, CT_STR },
    { "tony.history.mover-interval-ms", "300000", CT_INT },
    { "tony.history.purger-interval-ms", "21600000", CT_INT },
    { "tony.history.retention-sec", "2592000", CT_INT },
    { "tony.history.finished-dir-timezone", "UTC", CT_STR },
    { "tony.portal.url", "https://localhost:19886", CT_STR },
    { "tony.portal.cache.max-entries", "10000", CT_INT },
    { "tony.keytab.user", "user1", CT_STR },
    { "tony.keytab.location", NULL, CT_STR },
    { "tony.https.port", "19886", CT_STR },
    { "tony.https.keystore.path", NULL, CT_STR },
    { "tony.https.keystore.type", "JKS", CT_STR },
    { "tony.https.keystore.password", "password", CT_STR },
    { "tony.https.keystore.algorithm", "SunX509", CT_STR },
    { "tony.http.port", "disabled", CT_STR },
    { "tony.secret.key", "changeme", CT_STR },
    { "tony.version-info.version", NULL, CT_STR },
    { "tony.version-info.revision", NULL, CT_STR },
    { "tony.version-info.branch", NULL, CT_STR },
    { "tony.version-info.user", NULL, CT_STR },
    { "tony.version-info.date", NULL, CT_STR },
    { "tony.version-info.url", NULL, CT_STR },
    { "tony.version-info.checksum", NULL, CT_STR },
};

/* Keys that only tony has. */
static const struct {
    const char *key, *dflt;
    enum conf_type type;
} ours[] = {
    { "tony.task.streams", "true", CT_BOOL },
    { "tony.slurm.partition", NULL, CT_STR },
    { "tony.slurm.account", NULL, CT_STR },
    { "tony.slurm.qos", NULL, CT_STR },
    { "tony.slurm.constraint", NULL, CT_STR },
    { "tony.slurm.nodelist", NULL, CT_STR },
    { "tony.slurm.exclude", NULL, CT_STR },
    { "tony.slurm.reservation", NULL, CT_STR },
    { "tony.slurm.licenses", NULL, CT_STR },
    { "tony.slurm.time-limit", "0", CT_INT },
    { "tony.slurm.nice", "0", CT_INT },
    { "tony.application.on-end", NULL, CT_STR },
    { "tony.application.on-end-secret", NULL, CT_STR },
    { "tony.application.secrets", NULL, CT_ENVS },
    { "tony.slurm.nodes", "0", CT_INT },
    { "tony.slurm.spare-nodes", "0", CT_INT },
    { "tony.slurm.further-allocations", "true", CT_BOOL },
    { "tony.slurm.components", "auto", CT_ENUM },
    { "tony.slurm.gpu-type", NULL, CT_STR },
    { "tony.slurm.requeue", "true", CT_BOOL },
    { "tony.slurm.requeue-at-limit", "false", CT_BOOL },
    { "tony.slurm.extra-arguments", "", CT_LIST },
    { "tony.application.addresses-in-environment", "true", CT_BOOL },
    { "tony.am.max-attempts", "5", CT_INT },
    { "tony.am.attempt-window", "10000", CT_INT },
    { "tony.cluster", "local", CT_STR },
    { "tony.task.restarts.preempted", "8", CT_INT },
    { "tony.task.restarts.node-lost", "4", CT_INT },
    { "tony.task.restarts.disk-failed", "4", CT_INT },
    { "tony.task.restarts.launch-failed", "2", CT_INT },
    { "tony.node.max-failures", "3", CT_INT },
    { "tony.node.failure-window", "3600000", CT_INT },
    { "tony.worker.restart", NULL, CT_ENUM },
    { "tony.worker.restart-scope", NULL, CT_ENUM },
    { "tony.worker.max-restarts", "3", CT_INT },
    { "tony.worker.restart-window", "0", CT_INT },
    { "tony.worker.restart-delay", "0", CT_INT },
    { "tony.worker.retry-on", NULL, CT_LIST },
    { "tony.worker.no-retry-on", NULL, CT_LIST },
    { "tony.worker.spares", "0", CT_INT },
    { "tony.worker.min-instances", "1", CT_INT },
    { "tony.worker.resize", NULL, CT_ENUM },
    { "tony.worker.resume-command", NULL, CT_STR },
    { "tony.resize.timeout", "600000", CT_INT },
    { "tony.application.priority", "0", CT_INT },
    { "tony.application.src-dir", NULL, CT_STR },
    { "tony.application.python-venv", NULL, CT_STR },
    { "tony.application.python-binary-path", NULL, CT_STR },
    { "tony.worker.env", NULL, CT_ENVS },
    { "tony.worker.ranks", "1", CT_INT },
    { "tony.pytorch.store", "true", CT_BOOL },
    { "tony.worker.progress-pattern", NULL, CT_STR },
    { "tony.worker.ready", NULL, CT_STR },
    { "tony.worker.stops", NULL, CT_LIST },
    { "tony.task.umask", NULL, CT_STR },
    { "tony.task.checkpoint-dir", NULL, CT_STR },
    { "tony.task.checkpoint-pattern", NULL, CT_STR },
    { "tony.task.checkpoint-marker", NULL, CT_STR },
    { "tony.task.checkpoint-grace", "30000", CT_INT },
    { "tony.task.checkpoint-signal", "TERM", CT_ENUM },
    { "tony.task.kill-grace-ms", "5000", CT_INT },
    { "tony.task.master-away-limit", "600000", CT_INT },
    { "tony.client.away-limit", "60000", CT_INT },
    { "tony.pool.idle-timeout", "600000", CT_INT },
    { "tony.pool.page-port", "0", CT_INT },
    { "tony.pool.memory", NULL, CT_MEM },
    { "tony.pool.memory-reserve", "512m", CT_MEM },
    { "tony.pool.vcores", NULL, CT_INT },
    { "tony.pool.gpus", NULL, CT_INT },
    { "tony.pool.policy", "fifo", CT_ENUM },
    { "tony.pool.policy.theta1", "0.1", CT_REAL },
    { "tony.pool.policy.theta2", "0.1", CT_REAL },
    { "tony.pool.policy.loss-max", NULL, CT_REAL },
    { "tony.pool.policy.adjust-max", NULL, CT_INT },
    { "tony.pool.policy.reserve", "0", CT_REAL },
    { "tony.pool.policy.levels", "60,600,6000", CT_LIST },
    { "tony.pool.policy.payback", "1800000", CT_INT },
    { "tony.pool.policy.resize-cost", "10000", CT_INT },
    { "tony.pool.policy.interval", "10000", CT_INT },
    { "tony.pool.policy.resize-limit", "300000", CT_INT },
    { "tony.pool.policy.time-limit", "500", CT_INT },
    { "tony.application.weight", "1", CT_INT },
    { "tony.application.budget", NULL, CT_REAL },
    { "tony.application.restart-on-boot", NULL, CT_BOOL },
    { "tony.application.acl-view", "*", CT_STR },
    { "tony.application.acl-modify", "", CT_STR },
    { "tony.worker.resource-types", NULL, CT_LIST },
    { "tony.yarn.arbiter-keys", "", CT_LIST },
    { "tony.yarn.cache-age", "2592000000", CT_INT },
    { "tony.port-range", NULL, CT_STR },
    { "tony.store.max-age", "604800000", CT_INT },
};

static void check_row(const char *key, const char *dflt, enum conf_type type, bool is_ours)
{
    const struct conf_key *row = conf_key_find(span_of(key), NULL);
    if (!row)
        fail_msg("%s is not known", key);
    if (!str_eq(row->dflt, dflt))
        fail_msg("%s: default '%s', expected '%s'", key, row->dflt ? row->dflt : "(none)",
                 dflt ? dflt : "(none)");
    if (row->type != type || str_starts(row->since, "TonY") == is_ours)
        fail_msg("%s: type %d since %s", key, row->type, row->since);
}

static void test_all_keys(void **state)
{
    (void)state;
    size_t n, covered = 0;
    const struct conf_key *rows = conf_keys(&n);
    bool *seen = calloc(n, sizeof *seen);
    for (size_t i = 0; i < ARRAY_LEN(tony); i++)
        check_row(tony[i].key, tony[i].dflt, tony[i].type, false);
    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        check_row(ours[i].key, ours[i].dflt, ours[i].type, true);
    /* the table has no key outside these lists */
    for (size_t i = 0; i < ARRAY_LEN(tony) + ARRAY_LEN(ours); i++) {
        const char *key = i < ARRAY_LEN(tony) ? tony[i].key : ours[i - ARRAY_LEN(tony)].key;
        size_t at = (size_t)(conf_key_find(span_of(key), NULL) - rows);
        covered += !seen[at];
        seen[at] = true;
    }
    for (size_t i = 0; i < n; i++) {
        if (!seen[i])
            fail_msg("%s is in the table but not in this test", rows[i].name);
    }
    assert_int_equal(covered, n);
    free(seen);
}

/* Each key of TonY has an effect, or a message says why not. */
static void test_each_key_has_an_effect_and_a_help_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(tony); i++) {
        const struct conf_key *row = conf_key_find(span_of(tony[i].key), NULL);
        if (row->effect == CE_LATER)
            fail_msg("%s is known and does nothing", tony[i].key);
        if (strlen(row->help) < 10)
            fail_msg("%s says nothing of itself", tony[i].key);
    }
}

static void test_rows_are_sound(void **state)
{
    (void)state;
    size_t n;
    const struct conf_key *k = conf_keys(&n);
    for (size_t i = 0; i < n; i++) {
        struct err e = { 0 };
        struct conf *c = conf_new();
        assert_non_null(c);
        assert_true(str_starts(k[i].name, "tony."));
        assert_true(k[i].type > CT_NONE && k[i].type < CT_COUNT);
        assert_true(k[i].effect > CE_NONE && k[i].effect < CE_COUNT);
        assert_true(k[i].min <= k[i].max);
        assert_int_equal(k[i].type == CT_ENUM, k[i].choices != NULL);
        assert_non_null(k[i].unit);
        if (!str_ends(k[i].help, ".") || strchr(k[i].help, '|'))
            fail_msg("%s: help is not one sentence for a table", k[i].name);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(k[i].name, k[j].name);
        /* the default value is valid for its key */
        if (k[i].dflt && !strchr(k[i].name, '<') &&
            conf_set(c, CL_CONF, k[i].name, k[i].dflt, "test", false, &e) < 0)
            fail_msg("%s", e.msg);
        conf_free(c);
    }
}

static void test_find(void **state)
{
    (void)state;
    static const struct {
        const char *key, *row, *part;
    } cases[] = {
        { "tony.worker.memory", "tony.<role>.memory", "worker" },
        { "tony.Evaluator_2-b.gpus", "tony.<role>.gpus", "Evaluator_2-b" },
        { "tony.am.memory", "tony.am.memory", "" },
        { "tony.worker.timeout", "tony.worker.timeout", "" },
        { "tony.ps.timeout", NULL, "" },
        { "tony.containers.resources", "tony.containers.resources", "" },
        { "tony.task.resources", NULL, "" },
        { "tony.task.max-total-gpus", "tony.task.max-total-gpus", "" },
        { "tony.task.max-total-memory", "tony.task.max-total-<resource>", "memory" },
        { "tony.task.max-total-", NULL, "" },
        { "tony.application.group.A", "tony.application.group.<group>", "A" },
        { "tony.application.dependency.w.timeout.after.G",
          "tony.application.dependency.<role>.timeout.after.<group>", "w" },
        { "tony.application.dependency.w.timeout.after.G.ignored",
          "tony.application.dependency.<role>.timeout.after.<group>.ignored", "w" },
        { "tony.docker.containers.image", "tony.docker.containers.image", "" },
        { "tony.docker.worker.image", "tony.docker.<role>.image", "worker" },
        { "tony.<role>.memory", NULL, "" },
        { "tony..memory", NULL, "" },
        { "tony.a.b.memory", NULL, "" },
        { "tony.a b.memory", NULL, "" },
        { "tony.\xc3\xa4.memory", NULL, "" },
        { "tony.-x.memory", NULL, "" },
        { "tony.worker", NULL, "" },
        { "tony.worker.memory ", NULL, "" },
        { "Tony.worker.memory", NULL, "" },
        { "worker.memory", NULL, "" },
        { "", NULL, "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct span part;
        const struct conf_key *row = conf_key_find(span_of(cases[i].key), &part);
        if (!str_eq(row ? row->name : NULL, cases[i].row))
            fail_msg("'%s' finds '%s'", cases[i].key, row ? row->name : "nothing");
        if (!span_eqs(part, cases[i].part))
            fail_msg("'%s' has the part '%.*s'", cases[i].key, (int)part.len, part.p);
    }
}

static void test_nearest(void **state)
{
    (void)state;
    static const struct {
        const char *key, *near;
    } cases[] = {
        { "tony.worker.instaces", "tony.worker.instances" },
        { "tony.worker.Memory", "tony.worker.memory" },
        { "tony.worker.vcore", "tony.worker.vcores" },
        { "tony.worker.mem", "tony.worker.memory" },
        { "worker.instances", "tony.worker.instances" },
        { "tony.aplication.name", "tony.application.name" },
        { "tony.application.timout", "tony.application.timeout" },
        { "tony.task.heartbeat-interval", "tony.task.heartbeat-interval-ms" },
        { "tony.application.untracked.job-types", "tony.application.untracked.jobtypes" },
        { "tony.application.gruop.A", "tony.application.group.A" },
        { "tony.container.resources", "tony.containers.resources" },
        { "tony.clutser", "tony.cluster" },
        { "yarn.resourcemanager.address", NULL },
        { "x", NULL },
        { "", NULL },
        { "tony.", NULL },
        { "tony.worker.something-quite-different", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf scratch = { 0 };
        const char *near = conf_key_nearest(cases[i].key, &scratch);
        if (!str_eq(near, cases[i].near))
            fail_msg("near '%s' is '%s'", cases[i].key, near ? near : "nothing");
        buf_done(&scratch);
    }
}

static void test_role_names(void **state)
{
    (void)state;
    static const char *const good[] = {
        "worker",      "ps",
        "chief",       "evaluator",
        "tensorboard", "driver",
        "scheduler",   "server",
        "w",           "0",
        "a-b_c9",      "Worker",
        "head",        "123456789012345678901234567890123456789012345678901234567890123"
    };
    static const char *const reserved[] = {
        "am",      "application", "task",         "containers",       "container",     "docker",
        "history", "pool",        "yarn",         "client",           "store",         "execution",
        "horovod", "cluster",     "portal",       "secret",           "http",          "https",
        "keytab",  "other",       "version-info", "python-exec-path", "gpu-exec-path", "slurm"
    };
    static const char *const bad[] = {
        "",         "-a",
        "a.b",      "a b",
        "a/b",      "..",
        "\xc3\xa4", "a:b",
        "a\n",      "1234567890123456789012345678901234567890123456789012345678901234"
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct err e = { 0 };
        if (!conf_role_name_ok(span_of(good[i]), &e))
            fail_msg("%s: %s", good[i], e.msg);
    }
    for (size_t i = 0; i < ARRAY_LEN(reserved); i++) {
        struct err e = { 0 };
        if (conf_role_name_ok(span_of(reserved[i]), &e) || !strstr(e.msg, "reserved") || !*e.hint)
            fail_msg("%s: '%s'", reserved[i], e.msg);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err e = { 0 };
        if (conf_role_name_ok(span_of(bad[i]), &e) || strstr(e.msg, "reserved") || !*e.msg)
            fail_msg("'%s': '%s'", bad[i], e.msg);
    }
}

static void test_secrets(void **state)
{
    (void)state;
    static const char *const secret[] = { "tony.secret.key",
                                          "tony.https.keystore.password",
                                          "HF_TOKEN",
                                          "AWS_SECRET_ACCESS_KEY",
                                          "aws.access.key.id",
                                          "db_Password",
                                          "fs.azure.credential",
                                          "my.private-key",
                                          "OPENAI_API_KEY",
                                          "WANDB_API_KEY",
                                          "github.token",
                                          "authtoken",
                                          "TOKEN" };
    static const char *const open[] = { "tony.worker.memory",
                                        "TOKENIZERS_PARALLELISM",
                                        "PATH",
                                        "tony.application.name",
                                        "KEYBOARD",
                                        "",
                                        "tokenizer" };
    for (size_t i = 0; i < ARRAY_LEN(secret); i++) {
        if (!conf_key_is_secret(secret[i]))
            fail_msg("%s is no secret", secret[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(open); i++) {
        if (conf_key_is_secret(open[i]))
            fail_msg("%s is a secret", open[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_keys),
        cmocka_unit_test(test_each_key_has_an_effect_and_a_help_text),
        cmocka_unit_test(test_rows_are_sound),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_role_names),
        cmocka_unit_test(test_secrets),
    };
    return cmocka_run_group_tests_name("conf_keys", tests, NULL, NULL);
}
