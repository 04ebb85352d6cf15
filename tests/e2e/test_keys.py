# SPDX-License-Identifier: Apache-2.0
"""
Each key that users of the original rely on has an effect; or a message says that it has none, and why; or it
is refused with a replacement.
"""

import pytest

ACTS, YARN, IGNORED, REFUSED, LATER = "acts", "yarn", "ignored", "refused", "later"

# Names of the original, as its users write them; a value that fits the job below; and the effect here.
KEYS = [
    ("tony.yarn.queue", "default", YARN),
    ("tony.application.name", "x", ACTS),
    ("tony.application.type", "TONY", YARN),
    ("tony.application.tags", "a,b", YARN),
    ("tony.application.framework", "TensorFlow", ACTS),
    ("tony.application.distributed-mode", "FCFS", ACTS),
    ("tony.application.node-label", "fast", YARN),
    ("tony.application.placement-spec", "notin,node,a", REFUSED),
    ("tony.application.enable-preprocess", "true", ACTS),
    ("tony.application.timeout", "60000", ACTS),
    ("tony.application.num-client-rm-connect-retries", "4", YARN),
    ("tony.application.prepare-stage", "prep", ACTS),
    ("tony.application.training-stage", "worker,ps", ACTS),
    ("tony.application.untracked.jobtypes", "ps", ACTS),
    ("tony.application.sidecar.jobtypes", "ps", ACTS),
    ("tony.application.stop-on-failure-jobtypes", "ps", ACTS),
    ("tony.application.fail-on-worker-failure-enabled", "true", ACTS),
    ("tony.application.tensorboard-log-dir", "/tmp", ACTS),
    ("tony.application.security.enabled", "false", YARN),
    ("tony.application.hdfs-conf-path", "/etc/hdfs-site.xml", YARN),
    ("tony.application.yarn-conf-path", "/etc/yarn-site.xml", YARN),
    ("tony.application.mapred-conf-path", "/etc/mapred-site.xml", IGNORED),
    ("tony.application.hadoop.location", "hdfs:///hadoop.tgz#hadoop", YARN),
    ("tony.application.hadoop.classpath", "/a", YARN),
    ("tony.application.group.A", "prep", ACTS),
    ("tony.application.dependency.worker.timeout.after.A", "10", ACTS),
    ("tony.application.dependency.worker.timeout.after.A.ignored", "true", ACTS),
    ("tony.other.namenodes", "hdfs://nn2:8020", IGNORED),
    ("tony.python-exec-path", "python3", ACTS),
    ("tony.gpu-exec-path", "/usr/bin/nvidia-smi", IGNORED),
    ("tony.application.single-node", "false", IGNORED),
    ("tony.worker.instances", "2", ACTS),
    ("tony.worker.max-instances", "4", ACTS),
    ("tony.worker.memory", "128m", ACTS),
    ("tony.worker.vcores", "1", ACTS),
    ("tony.worker.gpus", "0", ACTS),
    ("tony.worker.command", "true", ACTS),
    ("tony.worker.resources", "/etc/hostname::h", ACTS),
    ("tony.worker.node-label", "fast", YARN),
    ("tony.worker.depends-on", "prep", ACTS),
    ("tony.worker.placement-spec", "in,node,a", REFUSED),
    ("tony.worker.allocation-tags", "a", REFUSED),
    ("tony.containers.resources", "/etc/hostname::h", ACTS),
    ("tony.containers.command", "true", ACTS),
    ("tony.containers.envs", "A=1", ACTS),
    ("tony.execution.envs", "A=1,B=2", ACTS),
    ("tony.containers.placement-spec", "in,node,a", REFUSED),
    ("tony.containers.allocation-tags", "a", REFUSED),
    ("tony.container.allocation.timeout", "60000", ACTS),
    ("tony.container.registration.timeout", "60000", ACTS),
    ("tony.task.max-total-instances", "10", ACTS),
    ("tony.task.max-total-gpus", "10", ACTS),
    ("tony.task.max-total-memory", "100000", ACTS),
    ("tony.task.max-total-vcores", "10", ACTS),
    ("tony.task.am.jvm.opts", "-Xmx1g", IGNORED),
    ("tony.task.executor.jvm.opts", "-Xmx1g", IGNORED),
    ("tony.task.default.jvm.opts", "-Da=b", IGNORED),
    ("tony.task.heartbeat-interval-ms", "500", ACTS),
    ("tony.task.max-missed-heartbeats", "5", ACTS),
    ("tony.task.metrics-interval-ms", "1000", ACTS),
    ("tony.task.gpu-metrics.enabled", "true", ACTS),
    ("tony.worker.timeout", "60000", ACTS),
    ("tony.task.executor.execution-timeout-ms", "60000", ACTS),
    ("tony.task.executor.registry-timeout-sec", "10", IGNORED),
    ("tony.task.executor.execution.error-message-max-depth", "10", ACTS),
    ("tony.am.memory", "1g", ACTS),
    ("tony.am.vcores", "1", ACTS),
    ("tony.am.gpus", "0", ACTS),
    ("tony.am.command", "true", ACTS),
    ("tony.am.resources", "/etc/hostname::h", ACTS),
    ("tony.am.node-label", "fast", YARN),
    ("tony.am.retry-count", "1", ACTS),
    ("tony.am.wait-client-signal-stop-timeout-sec", "1", IGNORED),
    ("tony.am.startup-timeout", "1000", YARN),
    ("tony.horovod.mode.test", "true", ACTS),
    ("tony.horovod.mode.test.fast.fail", "true", ACTS),
    ("tony.horovod.driver.mode.debug", "true", ACTS),
    ("tony.docker.enabled", "false", ACTS),
    ("tony.docker.containers.image", "a:1", ACTS),
    ("tony.docker.containers.mount", "/a:/a:ro", ACTS),
    ("tony.docker.worker.image", "a:1", ACTS),
    ("tony.docker.am.image", "a:1", ACTS),
    ("tony.history.location", "/tmp/h", YARN),
    ("tony.history.intermediate", "/tmp/h/i", IGNORED),
    ("tony.history.finished", "/tmp/h/f", IGNORED),
    ("tony.history.mover-interval-ms", "1000", IGNORED),
    ("tony.history.purger-interval-ms", "1000", IGNORED),
    ("tony.history.retention-sec", "86400", IGNORED),
    ("tony.history.finished-dir-timezone", "UTC", IGNORED),
    ("tony.portal.url", "https://portal:19886", IGNORED),
    ("tony.portal.cache.max-entries", "10", IGNORED),
    ("tony.keytab.user", "u", IGNORED),
    ("tony.keytab.location", "/k", IGNORED),
    ("tony.https.port", "1", IGNORED),
    ("tony.https.keystore.path", "/k", IGNORED),
    ("tony.https.keystore.type", "JKS", IGNORED),
    ("tony.https.keystore.password", "p", IGNORED),
    ("tony.https.keystore.algorithm", "A", IGNORED),
    ("tony.http.port", "1", IGNORED),
    ("tony.secret.key", "s", IGNORED),
    ("tony.version-info.version", "1", ACTS),  # the original's client writes it: no message is needed
    ("tony.version-info.revision", "1", ACTS),
    ("tony.version-info.branch", "1", ACTS),
    ("tony.version-info.user", "1", ACTS),
    ("tony.version-info.date", "1", ACTS),
    ("tony.version-info.url", "1", ACTS),
    ("tony.version-info.checksum", "1", ACTS),
]


@pytest.fixture(scope="module")
def job(common_tony):
    """A job to which each of the keys can be applied."""
    return common_tony.job_file({"prep": {"instances": 1}, "worker": {"instances": 2}, "ps": {"instances": 1}}, command="true",
                                conf={"tony.application.group.A": "prep"})


@pytest.mark.parametrize("key, value, what", KEYS, ids=[k[0] for k in KEYS])
def test_a_key(tony, job, key, value, what):
    r = tony.run("plan", job, "--conf", f"{key}={value}")
    if what == REFUSED:
        assert r.returncode == 2 and f"'{key}' cannot be set" in r.stderr and "node-label" in r.stderr, r.stderr
        return
    assert r.returncode == 0, r.stderr
    said = [line for line in r.stderr.splitlines() if "without effect here" in line]
    if what == ACTS:
        assert not said, r.stderr
    elif what == YARN:
        assert said and f"{key} (only on YARN)" in said[0], r.stderr
    elif what == IGNORED:
        assert said and f"{key} (" in said[0] and not said[0].endswith(f"{key} ()"), r.stderr


def test_keys_without_effect_are_listed_in_one_line(tony, tmp_path):
    """One line lists the keys, with each reason once."""
    rows = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v, what in KEYS
                   if what in (IGNORED, YARN) or k in ("tony.worker.instances", "tony.containers.command"))
    (tmp_path / "tony.xml").write_text(f"<configuration>{rows}</configuration>")
    r = tony.run("plan", tmp_path / "tony.xml")
    assert r.returncode == 0, r.stderr
    assert r.stderr.count("without effect here") == 1 and r.stderr.count("tony uses no JVM") == r.stderr.count("(only on YARN)") == 1, r.stderr
