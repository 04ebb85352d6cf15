# SPDX-License-Identifier: Apache-2.0
"""
The parts of tony that frameworks need, on a cluster. The frameworks themselves take minutes and are in
tests/soak-yarn.
"""

import os
import re
import signal
import subprocess
import sys
import zipapp

import pytest
from lib_cluster import ANSWER_S, wait_until
from lib_tony import ROOT

sys.path[1:1] = [str(ROOT / "tests" / "frameworks"), str(ROOT / "tests" / "e2e")]
from lib_frameworks import MPI_PROGRAM, mpicc  # noqa: E402
from lib_horovod import DRIVER, RANK  # noqa: E402

PYTHON = "/usr/bin/python3"


def said(cluster, app, pattern):
    """Matches of a pattern in the output of all containers."""
    return sorted(x for text in cluster.container_log(app, "stdout*").values() for x in re.findall(pattern, text))


# ---- MPI ----

@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return mpicc(MPI_PROGRAM, tmp_path_factory.mktemp("mpi") / "ring")


@pytest.mark.slow
def test_mpi_continues_without_a_master(tony, cluster, base, program):
    """
    The master dies after the ranks have met. Their server still receives their messages, and the next master
    hears of the abort.
    """
    gates = [base / "one", base / "two"]
    jobs = [tony.workers(f"{program} '{what}' {gate}", n=3, framework="mpi") for what, gate in zip(("", "abort"), gates)]
    apps = [tony.submit(job) for job in jobs]
    for app in apps:
        wait_until(lambda: len(said(cluster, app, "sum 6")) == 3, "the ranks have met")
        mine = app.partition("_")[2]
        wait_until(lambda: sum(mine in line and "from ACQUIRED to RUNNING" in line for line in cluster.log_since({}, "rm")) > 3,
                   "the ResourceManager knows that all run")
    for pid, line in cluster.processes().items():
        if line.startswith("./tony-master"):
            os.kill(pid, signal.SIGKILL)
    for gate in gates:
        gate.touch()
    for app, state in zip(apps, ("SUCCEEDED", "FAILED")):
        tony.run("wait", app)
        doc = tony.status(app)
        assert (doc["state"], doc["epoch"], doc["generation"]) == (state, 2, 1), doc
    assert doc["cause"]["task"] == "worker:1" and "exit code 42" in doc["message"], doc


# ---- Horovod ----

def test_horovod(tony, cluster, base):
    """With tony's server, and with a user's driver that numbers the ranks backwards."""
    (base / "rank.py").write_text(RANK)
    (base / "driver.py").write_text(DRIVER)
    own = {"tony.horovod.driver.mode.debug": True, "tony.driver.command": f"{PYTHON} {base}/driver.py", "tony.driver.memory": "64m"}
    apps = [tony.submit(tony.workers(f"{PYTHON} {base}/rank.py", n=3, framework="horovod", conf=conf)) for conf in ({}, own)]
    for app in apps:
        tony.ok("wait", app)
        found = said(cluster, app, r"rank (\d) of 3 local (\d) 3 cross 0 1 stale None")
        assert found == [(str(i), str(i if app == apps[0] else 2 - i)) for i in range(3)], found


# ---- other features of these jobs ----

def test_parameters_of_a_command_before_all(tony, cluster):
    job = tony.workers('echo "[$MODEL_PARAMS]"', n=2, conf={
        "tony.application.enable-preprocess": True, "tony.am.command": 'echo "so: Model parameters: --depth 3"; env >&2'})
    r = tony.run("run", job)
    assert r.returncode == 0, r.stderr
    app = re.search(r"application_\d+_\d+", r.stdout)[0]
    assert said(cluster, app, r"^\[.*\]") == ["[--depth 3]"] * 2
    bad = tony.workers("true", conf={"tony.application.enable-preprocess": True, "tony.am.command": "exit 7"})
    r = tony.run("run", bad)
    assert r.returncode == 1 and "preprocess:0" in r.stdout and "exit code 7" in r.stdout, r.stdout + r.stderr


def test_dependencies_and_stops(tony):
    """
    Workers begin when the server has made its file. The server ignores TERM. It ends with the workers, and
    that is no failure.
    """
    deaf = "trap '' TERM; sleep 0.3; echo > up; while :; do sleep 0.1; done"
    r = tony.run("run", tony.job_file({
        "server": {"instances": 1, "command": deaf, "ready": "file:up"},
        "worker": {"instances": 2, "command": "true", "depends-on": "server:ready", "stops": "server"},
        "last": {"instances": 1, "command": "true", "depends-on": "worker:succeeded"}}, conf={"tony.task.kill-grace-ms": 200}))
    assert r.returncode == 0, r.stderr
    app = re.search(r"application_\d+_\d+", r.stdout)[0]
    tasks = tony.tasks(app)
    assert {name: t["result"] for name, t in tasks.items()} == {
        "server:0": "FINISHED", "worker:0": "SUCCEEDED", "worker:1": "SUCCEEDED", "last:0": "SUCCEEDED"}


BOARD = """
import argparse, http.server, os
p = argparse.ArgumentParser()
p.add_argument("--logdir"); p.add_argument("--port", type=int, default=int(os.environ["TB_PORT"])); p.add_argument("--bind_all", action="store_true")
http.server.ThreadingHTTPServer(("", p.parse_args().port), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.mark.parametrize("where", ["chief", "sidecar"])
def test_the_url_of_tensorboard(tony, cluster, base, where):
    """Once it answers, its URL is in the output of `run`, in the status and on the job's page."""
    src = base / "src"
    (src / "tensorboard").mkdir(parents=True)
    (src / "tensorboard/__init__.py").touch()
    (src / "tensorboard/main.py").write_text(BOARD)
    board = f"{PYTHON} -m tensorboard.main" if where == "chief" else f"while [ ! -e {base}/go ]; do sleep 0.1; done"
    job = tony.job_file({"chief": {"instances": 1, "command": board},
                         "worker": {"instances": 1, "command": f"while [ ! -e {base}/go ]; do sleep 0.1; done"}},
                        conf={"tony.tensorboard.memory": "128m"}, src=str(src), framework="tensorflow")
    more = ["--python_binary_path", PYTHON, "--sidecar_tensorboard_log_dir", base] if where == "sidecar" else []
    p = tony.start("run", job, *more)
    app, = wait_until(cluster.live_apps, "the job is there")
    wait_until(lambda: cluster.app(app)["state"] == "RUNNING", "the job runs")
    url = wait_until(lambda: tony.status(app).get("tensorboard"), "the address is known")
    assert "Directory listing" in cluster.get(url)
    assert url in tony.ok("status", app)
    with cluster.opener.open(cluster.app(app)["trackingUrl"], timeout=ANSWER_S) as answer:
        assert url in answer.read().decode()
    if where == "chief":
        tony.ok("kill", app)
    (base / "go").touch()
    out, err = p.communicate(timeout=300)
    assert p.returncode == (3 if where == "chief" else 0) and f" tensorboard {url}\n" in err, out + err


# ---- environments ----

HELLO = "#!{0}\nimport sys\nprint('hello', sys.prefix != sys.base_prefix)\n"


def test_environments(tony, cluster, base):
    """
    A venv that was moved after it was made, as a tar archive and as a directory; and a program in one file.
    """
    old, new = base / "made-here", base / "env"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", old], check=True, timeout=300)
    (old / "bin/hello").write_text(HELLO.format(f"{old}/bin/python3"))
    (old / "bin/hello").chmod(0o755)
    old.rename(new)
    subprocess.run(["tar", "czf", base / "env.tar.gz", "-C", new, "."], check=True)
    (base / "app").mkdir()
    (base / "app/__main__.py").write_text("print('hello pex')\n")
    zipapp.create_archive(base / "app", base / "app.pex", interpreter="/usr/bin/env python3")
    apps = [tony.submit(tony.workers("venv/bin/hello", venv=str(venv))) for venv in (base / "env.tar.gz", new)]
    apps.append(tony.submit(tony.workers("./app.pex", resources=[str(base / "app.pex")])))
    for app in apps:
        tony.ok("wait", app)
    assert [said(cluster, app, "hello .*") for app in apps] == [["hello True"], ["hello True"], ["hello pex"]]
    (new / "bin/python3").unlink()
    (new / "bin/python3").write_bytes(b"\xcf\xfa\xed\xfe" + bytes(100))
    r = tony.run("run", tony.workers("venv/bin/hello", venv=str(new)))
    assert r.returncode == 2 and "is a program of macOS" in r.stderr, r.stderr
