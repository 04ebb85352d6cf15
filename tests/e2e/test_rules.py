# SPDX-License-Identifier: Apache-2.0
"""
The result of a job by the original's rules: which failure counts, which limit, and the environment of each
task.
"""

import json
import os
import re
import signal
import time

import pytest
from conftest import wait_until
from lib_jobs import lab, make_lab, replay_one  # noqa: F401

SLEEP = "sleep 1000"


def after(n):
    """A command that waits until n other tasks have ended and the master has recorded that."""
    return f"until [ $(grep -c attempt_ended ../../journal) -ge {n} ]; do sleep 0.02; done"


SAY = "env; echo said all"


def heard(n):
    """A command that waits until n tasks have done SAY."""
    return f"until [ $(grep -lx 'said all' ../../logs/*/1/stdout | wc -l) -ge {n} ]; do sleep 0.02; done"


def roles(**kw):
    return {name: {"instances": 1, **role} for name, role in kw.items()}


def run(tony, roles=None, args=(), **top):
    """
    Runs a job with these roles, by default with one instance each. Returns (exit code, status document).
    """
    r = tony.run("run", tony.job_file(roles, **top), "--json", *args)
    assert r.stdout, f"exit {r.returncode}\n{r.stderr}"
    return r.returncode, json.loads(r.stdout)


def results(tony, app):
    return {name: t["result"] for name, t in tony.tasks(app).items()}


# ---- which failure counts ----

GROUP = {"tony.application.group.A": "chief", "tony.application.dependency.worker.timeout.after.A": 1}
RULES = {
    # name: (roles, conf, exit code, text in the message, results)
    "chief": (roles(chief={"command": "exit 4"}, worker={"instances": 2, "command": SLEEP}), {},
              1, "task 'chief:0' failed with exit code 4", {"chief:0": "FAILED", "worker:0": "FINISHED", "worker:1": "FINISHED"}),
    "worker:0 without a chief": (roles(worker={"instances": 2, "command": f"[ $TASK_INDEX = 0 ] && exit 4; {SLEEP}"}), {},
                                 1, "task 'worker:0' failed with exit code 4", {"worker:0": "FAILED", "worker:1": "FINISHED"}),
    "another worker": (roles(worker={"instances": 2, "command": "[ $TASK_INDEX = 1 ] && exit 4; " + after(1)}), {},
                       0, "1 of 2 tasks did not", {"worker:0": "SUCCEEDED", "worker:1": "FAILED"}),
    "another worker where each counts": (
        roles(worker={"instances": 2, "command": f"[ $TASK_INDEX = 1 ] && exit 4; {SLEEP}"}),
        {"tony.application.fail-on-worker-failure-enabled": True},
        1, "task 'worker:1' failed with exit code 4", {"worker:0": "FINISHED", "worker:1": "FAILED"}),
    "one that stops the job": (roles(worker={"command": SLEEP}, evaluator={"command": "exit 9"}),
                               {"tony.application.stop-on-failure-jobtypes": "evaluator"},
                               1, "task 'evaluator:0'", {"worker:0": "FINISHED", "evaluator:0": "FAILED"}),
    "an evaluator": (roles(worker={"command": after(1)}, evaluator={"command": "exit 9"}), {},
                     0, "1 of 2", {"worker:0": "SUCCEEDED", "evaluator:0": "FAILED"}),
    "all but the chief": (roles(chief={"command": after(2)}, worker={"instances": 2, "command": "exit 2"}), {},
                          0, "2 of 3", {"chief:0": "SUCCEEDED", "worker:0": "FAILED", "worker:1": "FAILED"}),
    "all, none of them a chief": (roles(a={"command": "exit 1"}, b={"command": after(1) + "; exit 2"}), {},
                                  1, "task 'a:0' failed with exit code 1", {"a:0": "FAILED", "b:0": "FAILED"}),
    "an untracked one": (roles(worker={"command": SLEEP}, ps={"command": "exit 9"}), {},
                         1, "task 'ps:0' failed with exit code 9", {"worker:0": "FINISHED", "ps:0": "FAILED"}),
    "an untracked one that ends well": (roles(worker={"command": after(1)}, ps={"command": "true"}), {},
                                        0, "the task succeeded", {"worker:0": "SUCCEEDED", "ps:0": "SUCCEEDED"}),
    "untracked ones do not keep the job": (roles(worker={"command": "true"}, ps={"instances": 2, "command": SLEEP}), {},
                                           0, "", {"worker:0": "SUCCEEDED", "ps:0": "FINISHED", "ps:1": "FINISHED"}),
    "a sidecar": (roles(worker={"command": after(1)}, tensorboard={"command": "exit 5"}),
                  {"tony.application.fail-on-worker-failure-enabled": True},
                  0, "the task succeeded", {"worker:0": "SUCCEEDED", "tensorboard:0": "FAILED"}),
    "a preparing one": (roles(prep={"command": "exit 3"}, worker={"command": "true"}),
                        {"tony.application.prepare-stage": "prep"},
                        0, "1 of 2", {"prep:0": "FAILED", "worker:0": "SUCCEEDED"}),
    "a group's limit": (roles(chief={"command": "true"}, worker={"command": SLEEP}), GROUP,
                        1, "role 'worker' still ran 1 s after group 'A' had completed",
                        {"chief:0": "SUCCEEDED", "worker:0": "FINISHED"}),
    "a group's limit that ends the waiting": (
        roles(chief={"command": "true"}, worker={"command": SLEEP}),
        {**GROUP, "tony.application.dependency.worker.timeout.after.A.ignored": True},
        0, "the task succeeded", {"chief:0": "SUCCEEDED", "worker:0": "FINISHED"}),
    "a group's limit that leaves nobody to wait for": (
        roles(ps={"command": "true"}, worker={"command": SLEEP}),
        {**GROUP, "tony.application.group.A": "ps", "tony.application.dependency.worker.timeout.after.A.ignored": True},
        1, "no task is waited for any more", {"ps:0": "SUCCEEDED", "worker:0": "FINISHED"}),
    "the application's limit": (roles(worker={"command": SLEEP}), {"tony.application.timeout": 300},
                                3, "application timeout of 300 ms", {"worker:0": "FINISHED"}),
    "a task's limit": (roles(worker={"command": SLEEP}), {"tony.task.executor.execution-timeout-ms": 300},
                       1, "task 'worker:0' ran longer than the 300 ms that a task may (timed_out)", {"worker:0": "FAILED"}),
}


@pytest.mark.parametrize("name", RULES)
def test_which_failures_fail_the_job(tony, name):
    made, conf, code, says, want = RULES[name]
    rc, doc = run(tony, made, conf=conf)
    assert (rc, doc["exit_code"]) == (code, code), doc["message"]
    assert says in doc["message"]
    assert results(tony, doc["application_id"]) == want


def test_their_journals_replay(tony):
    for path in (tony.home / "history").glob("application_*"):
        replay_one(path)


# ---- the original's end-to-end tests about rules ----


def test_stages_follow_each_other(tony, tmp_path):
    """A later role is requested once all earlier ones have ended; its spec also contains the earlier ones."""
    note = f"date +%s%N >> {tmp_path}/$JOB_NAME"
    rc, doc = run(tony, roles(prep={"instances": 2, "command": f"sleep 0.$TASK_INDEX; {note}"},
                                 worker={"instances": 2, "command": f"{note}; echo $CLUSTER_SPEC"}),
                     conf={"tony.application.prepare-stage": "prep", "tony.application.training-stage": "worker"})
    assert rc == 0
    at = {name: [int(x) for x in (tmp_path / name).read_text().split()] for name in ("prep", "worker")}
    assert max(at["prep"]) < min(at["worker"])
    spec = json.loads(tony.log(doc["application_id"], "worker:1"))
    assert {role: len(a) for role, a in spec.items()} == {"prep": 2, "worker": 2}


def test_stages_of_three_by_depends_on(tony, tmp_path):
    note = f"echo $JOB_NAME >> {tmp_path}/order"
    rc, _ = run(tony, roles(c={"command": note, "depends-on": "b"}, b={"command": note, "depends-on": "a"}, a={"command": note}))
    assert rc == 0
    assert (tmp_path / "order").read_text().split() == ["a", "b", "c"]


def test_fcfs_starts_each_at_once(tony, tmp_path):
    """No task waits for others: the first runs before the second has registered."""
    rc, doc = run(tony, roles(worker={"instances": 2, "command": "env"}), framework="tensorflow",
                     conf={"tony.application.distributed-mode": "FCFS"})
    env = tony.log(doc["application_id"], "worker:1")
    assert rc == 0
    assert "DISTRIBUTED_MODE=FCFS" in env
    assert "TF_CONFIG" not in env and "CLUSTER_SPEC" not in env


def test_standalone(tony):
    rc, doc = run(tony, roles(solo={"command": "env"}), framework="standalone")
    env = tony.log(doc["application_id"], "solo:0")
    assert rc == 0 and "TF_CONFIG" not in env and "TB_PORT" not in env
    r = tony.run("run", tony.job_file(roles(worker={"command": "true"}, slave={"command": "true"}), framework="standalone"))
    assert r.returncode == 2 and "standalone" in r.stderr


@pytest.mark.parametrize("framework", ["tensorflow", "pytorch", "generic", "standalone"])
def test_a_job_without_roles(tony, framework):
    """TensorFlow would refuse a TF_CONFIG without a chief and without a worker."""
    rc, doc = run(tony, None, command="env", framework=framework)
    env = dict(line.split("=", 1) for line in tony.log(doc["application_id"], "driver:0").splitlines() if "=" in line)
    assert rc == 0
    assert "TF_CONFIG" not in env
    assert env["PREPROCESSING_JOB"] == "true"
    assert ("TB_PORT" in env) == (framework != "standalone")


def test_only_the_chief_has_tb_port(tony):
    """
    As in the original's TensorBoardPortSetOnlyOnChiefWorker; if there is a role tensorboard, only that role
    gets it.
    """
    made = {name: {"command": "env"} for name in ("chief", "ps", "worker")}
    _, doc = run(tony, roles(**made), conf={"tony.application.untracked.jobtypes": "none"})
    have = [t for t in doc_tasks(tony, doc) if "TB_PORT=" in tony.log(doc["application_id"], t)]
    assert have == ["chief:0"]
    made["tensorboard"] = {"command": f"{SAY}; {SLEEP}"}
    made["chief"] = {"command": f"env; {heard(1)}"}
    _, doc = run(tony, roles(**made), conf={"tony.application.untracked.jobtypes": "none"})
    have = [t for t in doc_tasks(tony, doc) if "TB_PORT=" in tony.log(doc["application_id"], t)]
    assert have == ["tensorboard:0"]


def doc_tasks(tony, doc):
    return list(tony.tasks(doc["application_id"]))


def test_the_cluster_as_each_framework_tells_it(tony):
    """
    The expected values are computed from the addresses in the status, and compared with what the tasks saw.
    """
    made = roles(chief={"command": f"{SAY}; {heard(7)}"}, ps={"instances": 2, "command": f"{SAY}; {SLEEP}"},
                 worker={"instances": 2, "command": SAY}, evaluator={"command": SAY}, tensorboard={"command": f"{SAY}; {SLEEP}"})
    rc, doc = run(tony, made, framework="tensorflow")
    assert rc == 0
    app = doc["application_id"]
    at = {name: t["address"] for name, t in tony.tasks(app).items()}
    spec = {}
    for name, address in at.items():
        spec.setdefault(name.split(":")[0], []).append(address)
    for name in at:
        env = dict(re.findall(r"^(\w+)=(.*)$", tony.log(app, name), re.M))
        role, index = name.split(":")
        assert json.loads(env["CLUSTER_SPEC"]) == spec
        hidden = {"tensorboard"} if role == "evaluator" else {"tensorboard", "evaluator"}
        assert json.loads(env["TF_CONFIG"]) == {"cluster": {r: a for r, a in spec.items() if r not in hidden},
                                                "task": {"type": role, "index": int(index)}}
        assert (env["JOB_NAME"], env["TASK_INDEX"], env["TASK_NUM"]) == (role, index, "4")
        assert env.get("IS_CHIEF") == ("true" if role == "chief" else None)


def test_ranks_of_pytorch(tony):
    """The chief first, then in the order of the file; untracked tasks have no rank."""
    made = roles(ps={"command": f"{SAY}; {SLEEP}"}, worker={"instances": 2, "command": "env"}, chief={"command": f"env; {heard(1)}"},
                 extra={"command": "env"})
    rc, doc = run(tony, made, framework="pytorch")
    assert rc == 0
    app = doc["application_id"]
    at = {name: t["address"] for name, t in tony.tasks(app).items()}
    ranks = {}
    for name in at:
        env = dict(re.findall(r"^(\w+)=(.*)$", tony.log(app, name), re.M))
        ranks[name] = env.get("RANK")
        assert env["WORLD"] == env["WORLD_SIZE"] == "4"
        assert env["INIT_METHOD"] == f"tcp://{at['chief:0']}" == f"tcp://{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
    assert ranks == {"ps:0": None, "chief:0": "0", "worker:0": "1", "worker:1": "2", "extra:0": "3"}


def test_no_log_is_named_of_a_task_that_never_started(tony):
    r = tony.run("run", tony.workers("true", conf={"tony.container.registration.timeout": 1}, role={"instances": 40}))
    if "did not register" in r.stdout:  # on a fast machine it may happen in time
        assert r.returncode == 1 and "its log" not in r.stderr


# ---- limits while there is no master ----


def test_the_allocation_limit_counts_in_the_queue(lab):
    """A job that waits in the pool has no master. Its limit still counts, also after the pool's death."""
    capacity = lab.json("pool", "start")["capacity"]["memory_mib"]
    first = lab.submit(lab.workers(SLEEP, role={"memory": "1g"}))
    lab.await_state(first, "RUNNING")
    role = {"worker": {"instances": 1, "memory": f"{capacity - 512}m", "command": "true"}}
    rc, doc = run(lab, role, conf={"tony.container.allocation.timeout": 700})
    assert rc == 1 and doc["state"] == "FAILED"
    assert doc["message"] == "the job waited for its containers for more than 700 ms"
    second = lab.submit(lab.job_file(role, conf={"tony.container.allocation.timeout": 1500}))
    patient = lab.submit(lab.job_file(role, conf={"tony.container.allocation.timeout": 1500, "tony.application.distributed-mode": "FCFS"}))
    lab.run("list")
    os.kill(lab.pool_pid(), 9)
    lab.run("pool", "start")
    doc = lab.await_state(second, "FAILED")
    assert "more than 1500 ms" in doc["message"]
    assert lab.state(patient) == "WAITING", "only gangs have this limit"
    lab.ok("kill", patient)
    lab.ok("kill", first)
    lab.settled()


# ---- a silent master must not cause deaths ----


@pytest.mark.takes(7)
def test_a_master_that_was_stopped_kills_nobody(lab):
    """
    If the master was stopped, the time of its own silence does not count, however low the limit on heartbeats
    is.
    """
    go = lab.base / "go"
    app = lab.submit(lab.workers(f"until [ -e {go} ]; do sleep 0.05; done", n=4,
                                 conf={"tony.task.heartbeat-interval-ms": 2000, "tony.task.max-missed-heartbeats": 3}))
    wait_until(lambda: lab.n_running(app) == 4, "all run")
    master = lab.one("master", app)
    os.kill(master, signal.SIGSTOP)
    time.sleep(7)  # longer than the limit; the limit is longer than a busy machine delays an executor
    os.kill(master, signal.SIGCONT)
    wait_until(lambda: all(t["connected"] and not t["suspect"] for t in lab.tasks(app).values()), "it has heard of all")
    go.touch()
    doc = lab.await_state(app, "SUCCEEDED", "FAILED")
    assert (doc["message"], doc["restarts"]) == ("all 4 tasks succeeded", 0)


@pytest.mark.parametrize("words, says", [
    ("T error master.failed error=no-luck\nT info  master.registered", "no-luck"),
    ("T info  master.registered epoch=1", None),
    ("Assertion failed: luck > 0", "Assertion failed: luck > 0"),
])
def test_the_message_has_the_error_of_a_master_that_cannot_start(make_lab, words, says):
    """The message has its error, or the output of an abort; not the lines of a normal start."""
    lab = make_lab(copy=True)
    script = lab.bin / "tony-master"
    script.unlink()
    script.write_text(f"#!/bin/sh\ncat >&2 <<'E'\n{words}\nE\nexit 1\n")
    script.chmod(0o755)
    assert lab.run("run", lab.workers("true")).returncode == 1
    message = lab.status(lab.jobs_on_disk()[0])["message"]
    assert says in message if says else message.endswith("it ended again and again")
    assert "info" not in message
