# SPDX-License-Identifier: Apache-2.0
"""The environment of tasks in unusual jobs, compared with values that were worked out by hand."""

import json

import pytest


def found(tony, framework, roles, **conf):
    """The environment of each rank, by "role:index" or "role:index.rank"."""
    path = tony.job_file({name: {"command": "env", **role} for name, role in roles.items()}, framework=framework,
                         conf={"tony.application.fail-on-worker-failure-enabled": True, **conf})
    app = tony.submit(path)
    assert tony.run("wait", app).returncode == 0, tony.status(app)
    out = {}
    for task in tony.status(app)["tasks"]:
        for k in range(roles[task["task"].split(":")[0]].get("ranks", 1)):
            text = tony.log(app, task["task"], f"stdout.{k}" if k else "stdout")
            out[task["task"] + (f".{k}" if k else "")] = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return out


def check(env, wanted):
    """wanted: names, then for each rank the values in that order; "-" = not set."""
    names, rows = wanted[0].split(), wanted[1]
    assert {task: {n: e.get(n) for n in names} for task, e in env.items()} == {
        task: dict(zip(names, [None if v == "-" else v for v in row.split()])) for task, row in rows.items()}


WAITED = {"tony.application.untracked.jobtypes": "ps", "tony.application.stop-on-failure-jobtypes": ""}


def test_tensorflow_with_all_roles(tony):
    """The chief is last in the file. Servers have no rank. Only evaluators see evaluators."""
    ps = {"instances": 2, "command": "env; touch up; sleep 1000", "ready": "file:up"}
    env = found(tony, "tensorflow", {
        "ps": ps, "worker": {"instances": 2, "depends-on": "ps:ready"}, "evaluator": {"instances": 2}, "chief": {"instances": 1}}, **WAITED)
    check(env, ("TASK_NUM IS_CHIEF TONY_RANK TONY_WORLD_SIZE", {
        "ps:0": "5 - - 5", "ps:1": "5 - - 5", "worker:0": "5 - 1 5", "worker:1": "5 - 2 5",
        "evaluator:0": "5 - 3 5", "evaluator:1": "5 - 4 5", "chief:0": "5 true 0 5"}))
    spec = json.loads(env["ps:0"]["CLUSTER_SPEC"])
    assert list(spec) == ["ps", "worker", "evaluator", "chief"]
    for task, e in env.items():
        role, index = task.split(":")
        assert json.loads(e["CLUSTER_SPEC"]) == spec and spec[role][int(index)] == e["TONY_ADDRESS"]
        seen = ["ps", "worker", "evaluator", "chief"] if role == "evaluator" else ["ps", "worker", "chief"]
        assert json.loads(e["TF_CONFIG"]) == {"cluster": {r: spec[r] for r in seen}, "task": {"type": role, "index": int(index)}}
        assert e["TONY_MASTER_ADDR"] + ":" + e["TONY_MASTER_PORT"] == spec["chief"][0]
        assert ("TB_PORT" in e) == (role == "chief")


def test_pytorch_with_ranks_of_two_roles(tony):
    """
    A chief with two ranks, which come first; workers with three ranks each; and a watcher without a rank.
    """
    env = found(tony, "pytorch", {
        "watcher": {"instances": 1, "command": "env; touch up; sleep 1000", "ready": "file:up"}, "worker": {"instances": 2, "ranks": 3, "depends-on": "watcher:ready", "restart": "on-failure"},
        "chief": {"instances": 1, "ranks": 2, "restart": "on-failure", "max-restarts": 5}}, **{"tony.application.untracked.jobtypes": "watcher"})
    names = "RANK WORLD_SIZE WORLD LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME"
    check(env, (names, {
        "watcher:0": "- 8 8 - - - - 3 - - watcher",
        "chief:0": "0 8 8 0 2 0 0 3 0 2 chief", "chief:0.1": "1 8 8 1 2 0 0 3 1 2 chief",
        "worker:0": "2 8 8 0 3 1 1 3 0 6 worker", "worker:0.1": "3 8 8 1 3 1 1 3 1 6 worker", "worker:0.2": "4 8 8 2 3 1 1 3 2 6 worker",
        "worker:1": "5 8 8 0 3 2 2 3 3 6 worker", "worker:1.1": "6 8 8 1 3 2 2 3 4 6 worker", "worker:1.2": "7 8 8 2 3 2 2 3 5 6 worker"}))
    assert {task[:5]: e["TORCHELASTIC_MAX_RESTARTS"] for task, e in env.items()} == {"watch": "0", "chief": "5", "worke": "3"}
    assert {e["INIT_METHOD"] for e in env.values()} == {"tcp://" + env["chief:0"]["TONY_ADDRESS"]}
    assert {f"{e['MASTER_ADDR']}:{e['MASTER_PORT']}" for e in env.values()} == {env["chief:0"]["TONY_ADDRESS"]}


def test_horovod_with_ranks_of_two_roles(tony):
    env = found(tony, "horovod", {"worker": {"instances": 2, "ranks": 2}, "chief": {"instances": 1}})
    names = "RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE HOSTNAME"
    check(env, (" ".join("HOROVOD_" + n for n in names.split()), {
        "chief:0": "0 5 0 5 0 1 127.0.0.1", "worker:0": "1 5 1 5 0 1 127.0.0.1", "worker:0.1": "2 5 2 5 0 1 127.0.0.1",
        "worker:1": "3 5 3 5 0 1 127.0.0.1", "worker:1.1": "4 5 4 5 0 1 127.0.0.1"}))
    assert {f"{e['HOROVOD_GLOO_RENDEZVOUS_ADDR']}:{e['HOROVOD_GLOO_RENDEZVOUS_PORT']}" for e in env.values()} == {env["chief:0"]["TONY_ADDRESS"]}


def test_mxnet(tony):
    env = found(tony, "mxnet", {"worker": {"instances": 3}, "server": {"instances": 2}, "scheduler": {"instances": 1}})
    roles = {"worker:0": "worker", "worker:1": "worker", "worker:2": "worker", "server:0": "server", "server:1": "server",
             "scheduler:0": "scheduler"}
    port = env["scheduler:0"]["TONY_PORT"]
    check(env, ("DMLC_ROLE DMLC_PS_ROOT_URI DMLC_PS_ROOT_PORT DMLC_NUM_SERVER DMLC_NUM_WORKER DMLC_LOCAL",
                {task: f"{role} 127.0.0.1 {port} 2 3 0" for task, role in roles.items()}))


@pytest.mark.parametrize("framework, names, ranks", [
    ("jax", "JAX_PROCESS_ID JAX_NUM_PROCESSES", "{rank} 5"),
    ("mpi", "PMI_ID MPI_LOCALRANKID MPI_LOCALNRANKS", "{rank} {local} {of}"),
    ("xgboost", "DMLC_TASK_ID DMLC_NUM_WORKER", "{rank} 5"),
])
def test_numbered_ranks(tony, framework, names, ranks):
    """Two roles with ranks: b before a in the file, a with two ranks in each task."""
    env = found(tony, framework, {"b": {"instances": 1}, "a": {"instances": 2, "ranks": 2}})
    place = {"b:0": (0, 0, 1), "a:0": (1, 0, 2), "a:0.1": (2, 1, 2), "a:1": (3, 0, 2), "a:1.1": (4, 1, 2)}
    check(env, (names, {task: ranks.format(rank=r, local=k, of=n) for task, (r, k, n) in place.items()}))
    where = {"jax": "JAX_COORDINATOR_ADDRESS", "mpi": "PMI_PORT"}.get(framework)
    if where:
        assert {e[where] for e in env.values()} == {env["b:0"]["TONY_ADDRESS"]}


def test_lightgbm_ray_and_dask(tony):
    env = found(tony, "lightgbm", {"b": {"instances": 1}, "a": {"instances": 2}})
    machines = ",".join(env[task]["TONY_ADDRESS"] for task in ("b:0", "a:0", "a:1"))
    assert {e["LIGHTGBM_MACHINES"] for e in env.values()} == {machines}
    assert all(e["LIGHTGBM_NUM_MACHINES"] == "3" and e["LIGHTGBM_LOCAL_LISTEN_PORT"] == e["TONY_PORT"] for e in env.values())
    env = found(tony, "ray", {"worker": {"instances": 2}, "head": {"instances": 1}}, **{"tony.application.untracked.jobtypes": ""})
    head = env["head:0"]["TONY_ADDRESS"]
    assert {e["RAY_HEAD_HOST"] + ":" + e["RAY_HEAD_PORT"] for e in env.values()} == {head}
    assert {task: e.get("RAY_ADDRESS") for task, e in env.items()} == {"head:0": None, "worker:0": head, "worker:1": head}
    env = found(tony, "dask", {"driver": {"instances": 1}, "worker": {"instances": 1}, "scheduler": {"instances": 1}},
                **{"tony.application.untracked.jobtypes": ""})
    assert {e["DASK_SCHEDULER_ADDRESS"] for e in env.values()} == {"tcp://" + env["scheduler:0"]["TONY_ADDRESS"]}
