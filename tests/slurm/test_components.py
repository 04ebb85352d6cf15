# SPDX-License-Identifier: Apache-2.0
"""Roles with different needs: components of a heterogeneous job, or one allocation."""

import json
import os
import pathlib
import re
import shutil
import signal
import tempfile

import pytest
from lib_slurm import USER, Slurm, wait_until
from lib_tony import Tony
from test_slurm import LONG, RESTARTS, app_of


@pytest.fixture
def backfill(slurm):
    """Components start only in a backfill cycle, which comes every 30 s by default."""
    slurm.reconfigure(SchedulerParameters="batch_sched_delay=0,bf_interval=1")
    yield slurm
    slurm.reconfigure()


def job_file(tony, command, ps=None, worker=None, **conf):
    path = tony.base / "job.yaml"
    roles = {"ps": {"instances": 1, "memory": "2g", "vcores": 1, "command": command, **(ps or {})},
             "worker": {"instances": 2, "memory": "2g", "vcores": 2, "gpus": 2, "command": command, **(worker or {})}}
    path.write_text(json.dumps({"name": "x", "cluster": "slurm", "roles": roles, "conf": conf}))
    return path


def test_roles_that_fit_on_the_same_nodes_share_one_allocation(tony):
    """The parameter server fits beside a worker: nothing has to wait for the backfill cycle."""
    plan = tony("plan", job_file(tony, "true", ps={"memory": "1g"})).stdout
    assert "hetjob" not in plan and "#SBATCH --nodes=2\n" in plan
    forced = tony("plan", job_file(tony, "true", ps={"memory": "1g"}, **{"tony.slurm.components": "roles"})).stdout
    assert forced.count("#SBATCH hetjob\n") == 1
    one = tony("plan", job_file(tony, "true", **{"tony.slurm.components": "one"})).stdout
    assert "hetjob" not in one and "#SBATCH --nodes=3\n" in one


def test_a_role_without_gpus_gets_nodes_without_gpus(tony, backfill):
    path = job_file(tony, "echo gpus $CUDA_VISIBLE_DEVICES on $CLUSTER_SPEC")
    shown = tony("plan", path).stdout
    assert shown.index("#SBATCH --nodes=1\n") < shown.index("#SBATCH hetjob\n") < shown.index("#SBATCH --nodes=2\n") < shown.index("--gres=gpu:2")
    done = tony("run", path)
    assert "SUCCEEDED" in done.stdout and "2 components" in done.stdout + done.stderr
    app = app_of(done)
    script = (tony.history(app) / "script").read_text()
    for start in ("#SBATCH", "export TONY_SLURM"):
        assert [x for x in script.splitlines() if x.startswith(start) and app not in x] == [
            x for x in shown.splitlines() if x.startswith(start) and "APPLICATION_ID" not in x], "plan = run"
    nodes = {t["task"]: t["node"] for t in tony.status(app)["tasks"]}
    assert len(set(nodes.values())) == 3, nodes
    assert "gpus on" in tony("logs", app, "ps:0", "--stdout").stdout
    for task in ("worker:0", "worker:1"):
        assert "gpus 0,1 on" in tony("logs", app, task, "--stdout").stdout
    wait_until(lambda: set(backfill.job(tony.number(app)).split()) == {"COMPLETED"}, "Slurm shows the result")


def test_a_waiting_job_says_that_it_waits_for_the_backfill_cycle(tony, slurm):
    slurm.reconfigure(SchedulerParameters="batch_sched_delay=0,bf_interval=600")  # it does not come
    try:
        app = tony("submit", job_file(tony, "true")).stdout.strip()
        wait_until(lambda: slurm.job(json.loads((tony.home / "jobs" / app / "slurm.json").read_text())["job"]).split() == ["PENDING"] * 2, "both components wait")
        assert "backfill" in tony("status", app).stdout
        row = json.loads(tony("list", "--cluster", "slurm", "--json").stdout)["jobs"][0]
        assert row["state"] == "WAITING" and row["slurm_state"] == "PENDING"
        tony("stop", app)
        wait_until(lambda: not slurm.jobs(), "no component is left")
    finally:
        slurm.reconfigure()


def test_whatever_dies_a_job_with_components_goes_on(tony, backfill):
    app = tony("submit", job_file(tony, LONG, **RESTARTS, **{f"tony.ps.{k.removeprefix('tony.worker.')}": v for k, v in RESTARTS.items() if "worker" in k})).stdout.strip()
    tony.await_running(app, 3)

    def kill(*words):
        os.kill(tony.processes(*words)[0], signal.SIGKILL)

    kill("tony-master", "--cluster")
    wait_until(lambda: tony.status(app)["epoch"] == 2, "the next master answers")
    assert [t["attempt"] for t in tony.await_running(app, 3)["tasks"]] == [1, 1, 1]
    for node in (0, 1, 2):
        before = tony.status(app)["restarts"]
        kill("tony-keeper ", f" node {node}")
        wait_until(lambda: tony.status(app)["restarts"] > before, f"the task of node {node} is restarted")
        status = tony.await_running(app, 3)
        assert len({t["node"] for t in status["tasks"]}) == 3, "each went back to a node of its component"
    kill("tony-keeper ", " head")
    wait_until(lambda: tony.status(app)["epoch"] == 3, "the master of the next head keeper answers")
    tony.await_running(app, 3)
    tony("stop", app)
    assert tony.status(app)["state"] == "KILLED"
    wait_until(lambda: not backfill.jobs(), "no component is left")
    wait_until(lambda: not tony.processes(app), "no process is left")


def each_on_its_component(tony, wide):
    """All tasks need the same. Without components four tasks would be spread over the four nodes, of which two are spare."""
    same = {"gpus": 0, "vcores": 1, "memory": "100m"}
    app = tony("submit", job_file(tony, LONG, ps={**same, "instances": 3}, worker={**same, "instances": 1},
                                  **{"tony.slurm.components": "roles", "tony.slurm.spare-nodes": 1})).stdout.strip()
    nodes = {t["task"]: t["node"] for t in tony.await_running(app, 4)["tasks"]}
    lists = [wide.run("scontrol", "show", "hostnames", x).stdout.split() for x in wide.job(tony.number(app), "%N").split()]
    of_ps = next(x for x in lists if nodes["ps:0"] in x)
    assert [len(x) for x in lists] == [2, 2] and all((nodes[task] in of_ps) == task.startswith("ps:") for task in nodes), (nodes, lists)
    tony("stop", app)
    wait_until(lambda: not wide.jobs(), "no component is left")


@pytest.mark.takes(40)
def test_a_node_of_a_component_without_power(the_slurm):
    """Each component has a spare node. Without one Slurm would end the run: it keeps no component of a single node."""
    base = pathlib.Path(tempfile.mkdtemp(prefix="tw-", dir="/tmp"))
    base.chmod(0o755)
    wide = Slurm(base / "c", nodes=4, gpus=2, SchedulerParameters="batch_sched_delay=0,bf_interval=1")
    (base / "home").mkdir()
    shutil.chown(base / "home", USER)
    try:
        wide.start()
        tony = Tony(wide, base / "home", USER)
        each_on_its_component(tony, wide)
        conf = {"tony.slurm.spare-nodes": 1, "tony.task.master-away-limit": 2000, "tony.application.distributed-mode": "FCFS",
                "tony.worker.restart": "on-failure", "tony.worker.max-restarts": 9, "tony.worker.restart-scope": "task"}
        app = tony("submit", job_file(tony, LONG, worker={"instances": 1}, **conf)).stdout.strip()
        status = tony.await_running(app, 2)
        victim = next(t for t in status["tasks"] if t["task"] == "worker:0")
        wide.power_off(victim["node"])

        def replaced():
            task = next(t for t in tony.status(app)["tasks"] if t["task"] == "worker:0")
            return task if task["state"] == "running" and task["attempt"] == 2 else None
        task = wait_until(replaced, "the task runs on another node of its component")
        assert task["node"] != victim["node"] and task["gpus"] == victim["gpus"], task
        wait_until(lambda: f"down" in wide.run("sinfo", "-h", "-N", "-p", "all", "-n", victim["node"], "-o", "%t").stdout, "Slurm has given the node up")
        assert [t["attempt"] for t in tony.await_running(app, 2)["tasks"]] == [1, 2], "the run goes on after that"
        assert set(wide.job(tony.number(app)).split()) == {"RUNNING"}
        tony("stop", app)
        wait_until(lambda: not wide.jobs(), "no component is left")
    finally:
        wide.stop()
        shutil.rmtree(base, ignore_errors=True)


def test_the_labels_of_roles_are_constraints(tony):
    done = tony("plan", job_file(tony, "true", ps={"memory": "100m"}, **{"tony.ps.node-label": "fat", "tony.application.node-label": "fast"}))
    first, second = done.stdout.split("#SBATCH hetjob\n")
    assert "--constraint=fat\n" in first and "--constraint=fast\n" in second.partition("unset")[0]
    assert "only on YARN" not in done.stdout + done.stderr


def test_keys_that_contradict_components_are_refused(tony, slurm):
    for conf, words in (({"tony.ps.node-label": "fat", "tony.slurm.nodes": 3}, "tony.slurm.nodes can only be used with one component"),
                        ({"tony.ps.node-label": "fat", "tony.slurm.components": "one"}, "different node labels"),
                        ({"tony.slurm.components": "roles", "tony.slurm.spare-nodes": 1}, "enough nodes for the 2 components")):
        for command in ("submit", "plan"):
            done = tony(command, job_file(tony, "true", **conf), ok=False)
            assert done.returncode == 2 and re.sub(r"\s+", " ", words) in done.stderr + done.stdout, (command, done.stdout, done.stderr)
    assert not slurm.jobs()


@pytest.mark.slow
def test_all_components_go_back_into_the_queue(tony, backfill):
    app = tony("submit", job_file(tony, LONG)).stdout.strip()
    first = tony.await_running(app, 3)["epoch"]
    assert backfill.run("scontrol", "requeue", tony.number(app), user=tony.user).returncode == 0
    wait_until(lambda: set(backfill.job(tony.number(app)).split()) == {"PENDING"}, "both components wait")
    wait_until(lambda: set(backfill.job(tony.number(app)).split()) == {"RUNNING"}, "both components start again", limit=240)
    wait_until(lambda: (tony.status(app).get("epoch") or 0) > first, "the master of the next run answers")
    tony.await_running(app, 3)
    tony("stop", app)


@pytest.mark.slow
def test_a_single_node_of_a_component_ends_the_job(tony, backfill):
    """Slurm puts only that component back into its queue, where it would wait for ever."""
    app = tony("submit", job_file(tony, LONG)).stdout.strip()
    victim = next(t for t in tony.await_running(app, 3)["tasks"] if t["task"] == "worker:1")
    backfill.power_off(victim["node"])
    wait_until(lambda: "FAILED" in backfill.job(tony.number(app)), "Slurm has ended a component")
    doc = wait_until(lambda: (d := tony.status(app)) and not d["live"] and d, "the job is over", limit=300)
    assert doc["state"] == "FAILED" and "one of its components" in str(doc), doc
    wait_until(lambda: not backfill.jobs(), "nothing waits in the queue")
