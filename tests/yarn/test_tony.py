# SPDX-License-Identifier: Apache-2.0
"""
Users of the original: its tony.xml files, its options, and the results that its own end-to-end tests expect.
The programs were written for this test.
"""

import json
import os
import re
import signal
import zipfile
from xml.sax.saxutils import escape

import pytest
from lib_cluster import wait_until
from lib_tony import APP

PYTHON = "/usr/bin/python3"
SMALL = {"tony.am.memory": "128m", "tony.worker.memory": "64m", "tony.ps.memory": "64m", "tony.chief.memory": "64m"}

SCRIPTS = {
    "good.py": "print('fine')\n",
    "bad.py": "import sys\nsys.exit(1)\n",
    "env.py": "import json, os\nprint(json.dumps(dict(os.environ)))\n",
    "checked.py": "import os, sys\nsys.exit(os.environ.get('ENV_CHECK') != 'ENV_CHECK')\n",
    "with_venv.py": "import os, sys\nsys.exit(os.environ.get('ENV_CHECK') != 'ENV_CHECK' or not os.path.exists('venv/123.xml'))\n",
    "torch_env.py": "import os\nprint('rank', int(os.environ['RANK']), 'of', int(os.environ['WORLD']))\n"
                    "assert os.environ['INIT_METHOD'].startswith('tcp://127.0.0.1:')\n",
    "by_role.py": "import os, sys, time\n"
                  "if os.environ['JOB_NAME'] == 'ps':\n    time.sleep(600)\n",
    "tb_port.py": "import os, sys\n"
                  "sys.exit(('TB_PORT' in os.environ) != (os.environ['JOB_NAME'] == 'chief'))\n",
    "second_fails.py": "import os, sys\nsys.exit(os.environ['TASK_INDEX'] == '1')\n",
}


@pytest.fixture
def scripts(base):
    folder = base / "scripts"
    folder.mkdir()
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def original(tony, scripts):
    """
    Runs a job as the original's client would: a tony.xml in the current directory, and options. Returns the
    result, with the job's id in `app`.
    """

    def run(*args, keys=None, python=PYTHON, timeout=300, **kw):
        tony.xml_file(**{k: escape(str(v)) for k, v in {**SMALL, **(keys or {})}.items()})
        options = ["--src_dir", "scripts", *(["--python_binary_path", python] if python else [])]
        r = tony.run("run", *options, *args, timeout=timeout, **kw)
        found = APP.search(r.stdout + r.stderr)
        r.app = found and found.group()
        return r

    return run


def outputs(cluster, app, name="stdout"):
    return sorted(text for text in cluster.container_log(app, name).values() if text)


def environments(cluster, app):
    """The output of env.py, by task."""
    found = [json.loads(text) for text in outputs(cluster, app)]
    return {f"{env['JOB_NAME']}:{env['TASK_INDEX']}": env for env in found}


# ---- one container: no role has instances ----

def test_single_node(original, cluster):
    r = original("--executes", "checked.py", "--shell_env", "ENV_CHECK=ENV_CHECK")
    assert r.returncode == 0, r.stderr
    assert len(cluster.rm(f"apps/{r.app}/appattempts")["appAttempts"]["appAttempt"]) == 1
    r = original("--executes", "env.py")
    assert r.returncode == 0, r.stderr
    env, = environments(cluster, r.app).values()
    assert env["PREPROCESSING_JOB"] == "true" and int(env["TB_PORT"]) > 0 and env["JOB_ID"] == r.app


def test_single_node_that_fails(original, tony):
    r = original("--executes", "bad.py")
    assert r.returncode == 1, r.stderr
    assert tony.status(r.app)["cause"]["task"] == "driver:0"


# ---- its roles and rules ----

def test_worker_with_a_venv(original, base):
    with zipfile.ZipFile(base / "env.zip", "w") as z:
        z.writestr("123.xml", "<x/>")
        z.writestr("bin/py", f"#!/bin/sh\nexec {PYTHON} \"$@\"\n")
    args = ["--python_venv", base / "env.zip", "--executes", "with_venv.py", "--shell_env", "ENV_CHECK=ENV_CHECK"]
    keys = {"tony.worker.instances": 1}
    assert (r := original(*args, keys=keys)).returncode == 0, r.stderr
    assert (r := original(*args, keys=keys, python="bin/py")).returncode == 0, r.stderr  # relative to the venv
    assert (r := original(*args[:-2], keys=keys)).returncode == 1, r.stderr


def test_pytorch(original, cluster):
    r = original("--executes", "torch_env.py", keys={"tony.application.framework": "pytorch", "tony.ps.instances": 0, "tony.worker.instances": 2})
    assert r.returncode == 0, r.stderr
    assert outputs(cluster, r.app) == ["rank 0 of 2\n", "rank 1 of 2\n"]


def test_tensorflow(original, cluster):
    r = original("--executes", "env.py", keys={"tony.ps.instances": 1, "tony.worker.instances": 2})
    assert r.returncode == 0, r.stderr
    env = environments(cluster, r.app)
    spec = json.loads(env["worker:1"]["CLUSTER_SPEC"])
    assert {role: len(v) for role, v in spec.items()} == {"ps": 1, "worker": 2}
    assert all(address.startswith("127.0.0.1:") for v in spec.values() for address in v)
    assert json.loads(env["worker:1"]["TF_CONFIG"]) == {"cluster": spec, "task": {"type": "worker", "index": 1}}
    assert env["worker:0"]["IS_CHIEF"] == "true" and "IS_CHIEF" not in env["worker:1"]
    assert {e["TASK_NUM"] for e in env.values()} == {"2"} and {e["DISTRIBUTED_MODE"] for e in env.values()} == {"GANG"}


def test_worker_and_server_that_fail(original):
    r = original("--executes", "bad.py", keys={"tony.ps.instances": 1, "tony.worker.instances": 1})
    assert r.returncode == 1, r.stderr


def test_the_job_does_not_wait_for_its_server(original, tony):
    r = original("--executes", "by_role.py", keys={"tony.ps.instances": 1, "tony.worker.instances": 1})
    assert r.returncode == 0, r.stderr
    assert {name: t["result"] for name, t in tony.tasks(r.app).items()} == {"worker:0": "SUCCEEDED", "ps:0": "FINISHED"}


@pytest.mark.parametrize("strict, code", [(False, 0), (True, 1)])
def test_a_worker_that_is_not_the_chief_fails(original, strict, code):
    r = original("--executes", "second_fails.py", keys={
        "tony.worker.instances": 2, "tony.application.fail-on-worker-failure-enabled": str(strict).lower()})
    assert r.returncode == code, r.stderr


def test_the_chief_alone_has_a_tensorboard_port(original):
    r = original("--executes", "tb_port.py", keys={"tony.chief.instances": 1, "tony.ps.instances": 1, "tony.worker.instances": 1})
    assert r.returncode == 0, r.stderr


def test_tensorboard_beside_the_job(original, cluster, base):
    """Its default command needs TensorBoard; the test's command prints its environment."""
    show = f"{PYTHON} env.py"
    r = original("--sidecar_tensorboard_log_dir", "/tmp/events", python=None, keys={
        "tony.tensorboard.memory": "64m", "tony.tensorboard.command": f"{show}; touch {base}/up; sleep 600",
        "tony.worker.instances": 1, "tony.worker.command": f"while [ ! -e {base}/up ]; do sleep 0.1; done; {show}"})
    assert r.returncode == 0, r.stderr
    env = environments(cluster, r.app)
    assert "TB_PORT" in env["tensorboard:0"] and env["tensorboard:0"]["TB_LOG_DIR"] == "/tmp/events"
    assert "TB_PORT" not in env["worker:0"]


def test_standalone(original):
    keys = {"tony.application.framework": "standalone", "tony.worker.instances": 1}
    assert (r := original("--executes", "good.py", keys=keys)).returncode == 0, r.stderr
    r = original("--executes", "good.py", keys={**keys, "tony.slave.instances": 1})
    assert r.returncode == 2 and not r.app and "standalone" in r.stderr, r.stderr


def test_stages(original, cluster, base):
    mark = base / "prepared"
    r = original(python=None, keys={
        "tony.prep.instances": 1, "tony.prep.memory": "64m", "tony.prep.command": f"sleep 0.5; touch {mark}",
        "tony.worker.instances": 1, "tony.worker.command": f"test -e {mark}",
        "tony.application.prepare-stage": "prep", "tony.application.training-stage": "worker"})
    assert r.returncode == 0, r.stderr


def test_first_come_first_served(original, cluster):
    r = original("--executes", "env.py", keys={"tony.application.distributed-mode": "FCFS", "tony.worker.instances": 2})
    assert r.returncode == 0, r.stderr
    env = environments(cluster, r.app)
    assert {e["DISTRIBUTED_MODE"] for e in env.values()} == {"FCFS"} and all("TF_CONFIG" not in e for e in env.values())


def test_a_worker_outlives_its_group(original, tony):
    r = original(python=None, keys={
        "tony.chief.instances": 1, "tony.chief.command": "true", "tony.worker.instances": 2, "tony.worker.command": "sleep 600",
        "tony.application.group.A": "chief", "tony.application.dependency.worker.timeout.after.A": 2})
    assert r.returncode == 1, r.stderr
    assert "worker" in tony.status(r.app)["message"]


@pytest.mark.takes(10)
def test_a_worker_without_heartbeats_is_lost(tony, cluster):
    """Its executor is stopped, and continues too late."""
    p, app, pids = tony.gated(conf={"tony.task.heartbeat-interval-ms": 300, "tony.task.max-missed-heartbeats": 25,
                                    "tony.task.restarts.node-lost": 0})
    executor, = [pid for pid, line in cluster.processes().items() if line.startswith(("tony-executor", "./tony-executor"))]
    os.kill(executor, signal.SIGSTOP)
    out, err = p.communicate(timeout=300)
    assert p.returncode == 1 and "node_lost" in out, out + err
    wait_until(lambda: not os.path.exists(f"/proc/{pids[0]}"), "the task gone")


def test_more_tasks_than_the_cluster_holds_now(original, cluster):
    """A cluster may grow on demand, so the job waits for its tasks as long as it says."""
    r = original("--executes", "good.py", keys={
        "tony.application.framework": "generic", "tony.worker.instances": 10000, "tony.worker.memory": "2g",
        "tony.container.allocation.timeout": 1000})
    assert r.returncode == 1 and "all 2 nodes of the cluster together have 16 GB now" in r.stderr, r.stderr
    assert "tony.container.allocation.timeout" in r.stderr, r.stderr
    assert cluster.await_app(r.app, "FINISHED")["finalStatus"] == "FAILED"


# ---- its options ----

def test_precedence_of_settings(original, cluster, base):
    """
    A role's command wins over --executes, --conf over the file; environments and resources of all places are
    combined.
    """
    (base / "test.zip").write_bytes(b"x")
    (base / "common.zip").write_bytes(b"y")
    r = original("--executes", "ls", "--shell_env", "TEST1=one", "--container_env", "TEST2=two", "--shell_env", "ODD=a=b, c",
                 "--conf", f"tony.containers.resources={base}/test.zip", "--conf", "tony.containers.envs=TEST3=three",
                 "--conf", "tony.worker.instances=2", "--conf", "tony.application.name=named",
                 python=None, keys={
                     "tony.worker.instances": 1, "tony.worker.command": f"ls; {PYTHON} env.py >&2", "tony.application.name": "other",
                     "tony.containers.resources": f"{base}/common.zip::renamed", "tony.containers.envs": "FILE=file",
                     "tony.execution.envs": "EXEC=exec"})
    assert r.returncode == 0, r.stderr
    assert cluster.app(r.app)["name"] == "named"
    listed, second = outputs(cluster, r.app)
    assert listed == second and {"test.zip", "renamed", "env.py"} <= set(listed.split())
    env = json.loads([t for t in outputs(cluster, r.app, "stderr") if t.startswith("{")][0])
    wanted = {"TEST1": "one", "TEST2": "two", "TEST3": "three", "FILE": "file", "EXEC": "exec", "ODD": "a=b, c"}
    assert {k: env.get(k) for k in wanted} == wanted


def test_which_containers_get_the_environments(tony, cluster):
    """--container_env also reaches the master's container; --shell_env only the tasks."""
    p, app, pids = tony.gated(conf={"tony.containers.envs": "OF_CONTAINERS=1", "tony.execution.envs": "OF_TASKS=1"})
    env = cluster.environ(pids[0])
    assert env["OF_CONTAINERS"] == env["OF_TASKS"] == "1"
    master, = [pid for pid, line in cluster.processes().items() if line.startswith("./tony-master")]
    env = cluster.environ(master)
    assert env["OF_CONTAINERS"] == "1" and "OF_TASKS" not in env
    tony.let_go(p)


def test_task_params(original, cluster, scripts):
    (scripts / "args.sh").write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")  # not executable: the original sets the permission
    r = original("--executes", "args.sh", "--task_params", "--epochs 3 'two words'", python=None, keys={"tony.worker.instances": 1})
    assert r.returncode == 0, r.stderr
    assert outputs(cluster, r.app) == ["<--epochs><3><two words>"]


def test_class_path(original, cluster):
    """If the node has Hadoop, its jars come first, unless SKIP_HADOOP_PATH forbids it."""
    keys = {"tony.worker.instances": 1}
    first = f"{cluster.dir}/conf"
    whole = environments(cluster, original("--executes", "env.py", keys=keys).app)["worker:0"]
    assert whole["HADOOP_HDFS_HOME"] == str(cluster.dir)  # set by the NodeManager
    assert whole["CLASSPATH"].startswith(first + ":") and ".jar:" in whole["CLASSPATH"]
    r = original("--executes", "env.py", "--container_env", "SKIP_HADOOP_PATH=true", keys=keys)
    plain = environments(cluster, r.app)["worker:0"]["CLASSPATH"].split(":")
    assert "./*" in plain and first in plain and not any(x.endswith(".jar") for x in plain)


def test_hdfs_classpath(original, cluster):
    for name in ("a.jar", "b.jar", "more/c.jar"):
        cluster.put(f"/yarn/libs/{name}", name.encode())
    cluster.put("/yarn/one.jar", b"one")
    try:
        r = original("--executes", "cat a.jar b.jar one.jar; ls", "--hdfs_classpath", "/yarn/libs,/yarn/one.jar,/yarn/nothing", python=None,
                     keys={"tony.worker.instances": 1})
        assert r.returncode == 0, r.stderr
        text, = outputs(cluster, r.app)
        assert text.startswith("a.jarb.jarone") and "c.jar" not in text
        assert "/yarn/nothing" in r.stderr  # left out, with a message
    finally:
        cluster.remove("/yarn")


def test_resources_in_hdfs(original, cluster, base):
    with zipfile.ZipFile(base / "made.zip", "w") as z:
        z.writestr("inside", "unpacked")
    fs = f"hdfs://127.0.0.1:{cluster.state['ports']['nn']}"
    cluster.put("/data/words", b"words")
    cluster.put("/data/made.zip", (base / "made.zip").read_bytes())
    try:
        r = original("--executes", "cat named un/inside", python=None, keys={
            "tony.worker.instances": 1, "tony.containers.resources": f"{fs}/data/words::named,{fs}/data/made.zip::un#archive"})
        assert r.returncode == 0, r.stderr
        assert outputs(cluster, r.app) == ["wordsunpacked"]
        r = original("--executes", "true", python=None, keys={
            "tony.worker.instances": 1, "tony.containers.resources": f"{fs}/data/missing"})
        assert r.returncode == 2 and "/data/missing" in r.stderr and not r.app, r.stderr
    finally:
        cluster.remove("/data")


def test_site_files_by_their_keys(original, tony, cluster, base):
    """
    tony.application.{yarn,hdfs}-conf-path name the cluster without HADOOP_CONF_DIR, and the files are
    shipped.
    """
    del tony.env["HADOOP_CONF_DIR"]
    for name, parts in (("my-hdfs.xml", ("core-site.xml", "hdfs-site.xml")), ("my-yarn.xml", ("yarn-site.xml",))):
        rows = [line for part in parts for line in (cluster.dir / "conf" / part).read_text().splitlines() if "<property>" in line]
        (base / name).write_text("<configuration>\n" + "\n".join(rows) + "\n</configuration>\n")
    r = original("--executes", "grep -l resourcemanager *-site.xml; ls", python=None, keys={
        "tony.worker.instances": 1, "tony.application.yarn-conf-path": base / "my-yarn.xml",
        "tony.application.hdfs-conf-path": base / "my-hdfs.xml"})
    assert r.returncode == 0, r.stderr
    words = outputs(cluster, r.app)[0].split()
    assert words[0] == "yarn-site.xml" and {"hdfs-site.xml", "yarn-site.xml"} <= set(words)


def test_keys_of_a_jvm(original):
    r = original("--executes", "good.py", keys={
        "tony.worker.instances": 1, "tony.task.executor.jvm.opts": "-Xmx1g", "tony.task.am.jvm.opts": "-Xmx1g",
        "mapreduce.map.memory.mb": 1024, "tony.history.mover-interval-ms": 1000})
    assert r.returncode == 0, r.stderr
    said = [line for line in r.stderr.splitlines() if "without effect" in line]
    assert len(said) == 1 and "tony.task.executor.jvm.opts" in said[0] and "tony.history.mover-interval-ms" in said[0], r.stderr
    assert "mapreduce" not in r.stderr


def test_an_unknown_key(original):
    r = original("--executes", "good.py", keys={"tony.worker.instances": 1, "tony.worker.memroy": "1g"})
    assert r.returncode == 2 and "tony.worker.memory" in r.stderr and not r.app, r.stderr


def test_docker(tony, cluster):
    """
    The variables that YARN's Docker runtime would get. This cluster has no such runtime, and ignores them.
    """
    conf = {"tony.docker.enabled": "true", "tony.docker.containers.image": "library/usual:1", "tony.docker.containers.mount": "/etc/a:/b:ro",
            "tony.docker.am.image": "library/master:2", "tony.docker.worker.image": "library/worker:3"}
    p, app, pids = tony.gated(1, conf=conf)
    told = []
    for script in cluster.scripts(app).values():
        found = dict(re.findall(r'^export (YARN_CONTAINER_RUNTIME_\w+)="(.*)"$', script, re.M))
        told.append([found.get("YARN_CONTAINER_RUNTIME_" + x) for x in ("TYPE", "DOCKER_IMAGE", "DOCKER_MOUNTS")])
    assert sorted(told) == [["docker", "library/master:2", "/etc/a:/b:ro"], ["docker", "library/worker:3", "/etc/a:/b:ro"]]
    tony.let_go(p)


def test_docker_without_an_image(original, cluster):
    r = original("--executes", "env.py", keys={"tony.worker.instances": 1, "tony.docker.enabled": "true"})
    assert r.returncode == 0 and "tony.docker.worker.image" in r.stderr, r.stderr
    assert "YARN_CONTAINER_RUNTIME_TYPE" not in environments(cluster, r.app)["worker:0"]


def test_a_forged_result_is_not_believed(tony, cluster):
    """In a shared directory of histories another user has put a result in the place of the job's own."""
    (tony.base / "site/tony-site.yaml").write_text(
        "conf: {tony.application.num-client-rm-connect-retries: 60, tony.history.location: /shared/histories}\n")
    r = tony.run("run", tony.workers("exit 3"))
    assert r.returncode == 1, r.stdout
    app = APP.search(r.stdout).group()
    path = f"/shared/histories/{app}/status.json"
    cluster.await_app(app, "FINISHED")  # the client does not wait for the history
    assert cluster.exists(path)["permission"] == "640"
    forged = {**cluster.read(path), "state": "SUCCEEDED", "exit_code": 0, "message": "forged"}
    cluster.hdfs("DELETE", path, "DELETE")
    cluster.put(path, json.dumps(forged).encode())
    cluster.hdfs("SETOWNER", path, "PUT", owner="mallory")
    r = tony.run("status", app, "--json")
    doc = json.loads(r.stdout)
    assert (doc["state"], doc["exit_code"]) == ("FAILED", 1), r.stdout
    assert "is ignored: user 'mallory' wrote it" in r.stderr, r.stderr
