# SPDX-License-Identifier: Apache-2.0
"""The pool: it is started when needed, runs once, admits whole jobs, and survives kill -9."""

import json
import os
import shutil
import select
import signal
import subprocess
import time

import pytest
from conftest import BIN, wait_until


def site(base, **keys):
    conf = base / "conf"
    conf.mkdir(exist_ok=True)
    lines = "".join(f"  tony.{k}: {v}\n" for k, v in keys.items())
    (conf / "tony-site.yaml").write_text("conf:\n" + lines)
    return str(conf)


@pytest.fixture
def small(own_tony, tmp_path):
    """A pool of 1 GB."""
    return own_tony(TONY_CONF_DIR=site(tmp_path, **{"pool.memory": "1g"}))


def sleeper(tony, memory="600m", **kw):
    return tony.workers("sleep 600", role={"memory": memory}, **kw)


def test_status_start_stop(own_tony):
    tony = own_tony()
    assert tony.json("pool", "status") == {"running": False}
    doc = tony.json("pool", "start")
    assert doc["running"] is True and doc["jobs"] == []
    assert doc["capacity"]["memory_mib"] > 0 and doc["used"]["memory_mib"] == 0
    assert os.path.basename(os.readlink(f"/proc/{doc['pid']}/exe")) == "tony-pool"
    assert tony.json("pool", "start")["pid"] == doc["pid"], "one is enough"
    text = tony.ok("pool", "status")
    assert f"pool {doc['pid']}" in text and "memory" in text
    assert tony.json("pool", "stop") == {"running": False, "stopped": True}
    wait_until(lambda: not tony.processes(), "the pool is gone")
    assert tony.run("pool", "stop").returncode == 0


def test_the_pool_leaves_the_directory_of_its_client(own_tony, tmp_path):
    tony = own_tony()
    pid = tony.json("pool", "start", cwd=tmp_path)["pid"]
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.getsid(pid) != os.getsid(0)


def test_the_pool_closes_the_descriptors_of_its_client(own_tony):
    tony = own_tony()
    ours, theirs = os.pipe()
    p = tony.start("pool", "start", pass_fds=[theirs])
    os.close(theirs)
    assert p.wait(60) == 0
    p.communicate()
    # The process that the pool has forked from may need a moment to exit.
    ended, _, _ = select.select([ours], [], [], 60)
    assert ended and os.read(ours, 1) == b"", "the pool holds a pipe of whoever started it"
    os.close(ours)


def test_simultaneous_starts_leave_one_pool(own_tony):
    tony = own_tony()
    ps = [tony.start("pool", "start", "--json") for _ in range(8)]
    outs = [p.communicate(timeout=60) for p in ps]
    assert [p.returncode for p in ps] == [0] * 8, outs
    # The pools that came too late say so, and may need a moment to end.
    wait_until(lambda: len([line for line in tony.processes().values() if "tony-pool" in line]) == 1, "one pool is left")
    assert len({json.loads(out)["pid"] for out, _ in outs}) == 1


def test_many_first_runs_at_once(own_tony):
    tony = own_tony()
    path = tony.workers("true")
    ps = [tony.start("run", path) for _ in range(6)]
    for p in ps:
        out, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
    ids = [r["application_id"] for r in tony.json("list", "--all")["jobs"]]
    assert len(set(ids)) == 6


def test_one_pool_for_many_jobs(own_tony):
    """
    A client starts a pool if there is none. So without this test a pool that dies with each job would go
    unnoticed.
    """
    tony = own_tony()
    pid = tony.json("pool", "start")["pid"]
    for command in ("true", "exit 3", "sleep 0.1"):
        tony.run("run", tony.workers(command))
        assert tony.json("pool", "status").get("pid") == pid


def test_ends_when_idle(own_tony, tmp_path):
    tony = own_tony(TONY_CONF_DIR=site(tmp_path, **{"pool.idle-timeout": "400"}))
    assert tony.run("run", tony.workers("sleep 1")).returncode == 0
    wait_until(lambda: not tony.processes(), "the idle pool has ended")
    assert tony.json("pool", "status") == {"running": False}
    first = tony.json("list")["jobs"][0]["application_id"]
    assert tony.run("run", tony.workers("true")).returncode == 0
    assert tony.json("list")["jobs"][0]["application_id"] > first, "numbers are never used again"


def test_stop_refuses_while_jobs_live(own_tony):
    tony = own_tony()
    app = tony.submit(tony.workers("sleep 600"))
    r = tony.run("pool", "stop")
    assert r.returncode != 0 and app in r.stderr
    assert tony.state(app) in ("WAITING", "STARTING", "RUNNING")
    assert tony.run("pool", "stop", "--force").returncode == 0
    wait_until(lambda: not tony.processes(), "all gone")
    assert tony.status(app)["state"] == "KILLED"


def test_memory_is_never_over_committed_and_order_is_kept(small):
    tony = small
    a = tony.submit(sleeper(tony))
    tony.await_state(a, "RUNNING")
    b = tony.submit(sleeper(tony))
    c = tony.submit(sleeper(tony, "100m"))  # it would fit, but must not overtake
    doc = tony.status(b)
    assert doc["state"] == "WAITING"
    assert doc["waiting"]["needs"] == {"memory_mib": 600, "vcores": 1, "gpus": 0}
    assert doc["waiting"]["free"]["memory_mib"] == 1024 - 600
    assert tony.status(c)["state"] == "WAITING" and tony.status(c)["waiting"]["behind"] == b
    pool = tony.json("pool", "status")
    assert pool["used"]["memory_mib"] == 600 and len(pool["jobs"]) == 3
    text = tony.ok("status", c)
    assert "needs" in text and "free" in text and f"behind    {doc['name']} (2)\n" in text, text
    tony.ok("kill", a)
    tony.await_state(b, "RUNNING")
    tony.await_state(c, "RUNNING")
    for app in (b, c):
        tony.ok("kill", app)
    wait_until(lambda: tony.json("pool", "status")["used"]["memory_mib"] == 0, "all is given back")


def test_priority_goes_first(small):
    tony = small
    a = tony.submit(sleeper(tony))
    tony.await_state(a, "RUNNING")
    low = tony.submit(sleeper(tony))
    high = tony.submit(sleeper(tony), "--conf", "tony.application.priority=5")
    tony.ok("kill", a)
    tony.await_state(high, "RUNNING")
    assert tony.state(low) == "WAITING"
    tony.ok("kill", low)
    tony.ok("kill", high)


def test_killing_a_job_that_waits(small):
    tony = small
    a = tony.submit(sleeper(tony))
    b = tony.submit(sleeper(tony))
    assert tony.run("kill", b).returncode == 0
    assert tony.status(b)["state"] == "KILLED"
    assert tony.run("wait", b).returncode == 3
    assert json.loads((tony.home / "history" / b / "status.json").read_text())["state"] == "KILLED"
    assert tony.state(a) != "KILLED"
    tony.ok("kill", a)


def test_ctrl_c_of_a_run_whose_job_waits(small):
    tony = small
    a = tony.submit(sleeper(tony))
    tony.await_state(a, "RUNNING")
    p = tony.start("run", sleeper(tony))
    for line in p.stderr:
        if "WAITING" in line:
            break
    assert "needs" in line and "free" in line
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 3 and "KILLED" in out, err
    tony.ok("kill", a)


def test_cores_are_weights(own_tony):
    tony = own_tony()
    app = tony.submit(tony.workers("sleep 0.3", n=8, role={"memory": "16m", "vcores": 4}))
    assert tony.run("wait", app).returncode == 0


def test_kill_9_of_the_pool_loses_nothing(own_tony, tmp_path):
    tony = own_tony()
    gate = "until [ -e {} ]; do sleep 0.02; done; exit {}"
    short = tony.submit(tony.workers(gate.format(tmp_path / "short", 3)))
    long = tony.submit(tony.workers(gate.format(tmp_path / "long", 0)))
    tony.await_state(short, "RUNNING")
    tony.await_state(long, "RUNNING")
    pid = tony.pool_pid()
    os.kill(pid, signal.SIGKILL)
    (tmp_path / "short").touch()
    assert tony.run("wait", short).returncode == 1, "its own exit code, not that of the accident"
    assert tony.status(short)["cause"]["exit_code"] == 3
    (tmp_path / "long").touch()
    assert tony.run("wait", long).returncode == 0
    assert tony.pool_pid() not in (None, pid)


def test_a_job_that_waits_survives_the_pool(small):
    tony = small
    a = tony.submit(sleeper(tony))
    tony.await_state(a, "RUNNING")
    b = tony.submit(tony.workers("true", role={"memory": "600m"}))
    os.kill(tony.pool_pid(), signal.SIGKILL)
    wait_until(lambda: tony.json("pool", "status").get("running"), "a new pool")
    assert tony.state(b) == "WAITING"
    tony.ok("kill", a)
    assert tony.run("wait", b).returncode == 0


def test_submissions_while_the_pool_is_killed(own_tony):
    """Each submission is accepted once: none is lost, none runs twice."""
    tony = own_tony()
    path = tony.workers("true", role={"memory": "8m"})
    ids = []
    for _ in range(12):
        ps = [tony.start("submit", path) for _ in range(3)]
        time.sleep(0.004)  # no condition to wait for: some submissions are under way
        for pid, line in tony.processes().items():
            if "tony-pool" in line:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for p in ps:
            out, err = p.communicate(timeout=60)
            assert p.returncode == 0, err
            ids.append(out.strip())
    assert len(set(ids)) == len(ids) == 36
    for app in ids:
        assert tony.run("wait", app).returncode == 0
    assert sorted(tony.jobs_on_disk()) == sorted(ids)


def test_two_homes_two_pools(own_tony):
    one, two = own_tony(), own_tony()
    assert one.json("pool", "start")["pid"] != two.json("pool", "start")["pid"]
    app = one.submit(one.workers("true"))
    one.run("wait", app)
    assert two.json("list")["jobs"] == []


def test_a_file_in_place_of_the_pool_directory_is_named(own_tony):
    tony = own_tony()
    tony.ok("list")
    pool_dir = tony.home / "pool"
    shutil.rmtree(pool_dir)
    pool_dir.write_text("in the way")
    r = tony.run("run", tony.workers("true"))
    assert r.returncode == 4 and str(pool_dir) in r.stderr


def test_the_program_is_missing(own_tony, tmp_path):
    """The directory has only tony: the message names the missing program."""
    tony = own_tony()
    (tmp_path / "tony").write_bytes((BIN / "tony").read_bytes())
    (tmp_path / "tony").chmod(0o755)
    r = subprocess.run([tmp_path / "tony", "run", tony.workers("true")], env={**tony.env, "PATH": "/usr/bin:/bin"}, capture_output=True,
                       text=True, timeout=60)
    assert r.returncode == 4 and "tony-pool" in r.stderr
