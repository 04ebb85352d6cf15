# SPDX-License-Identifier: Apache-2.0
"""The Python package `tony` of clients/python, with real jobs."""

import asyncio
import contextlib
import os
import pathlib
import subprocess
import sys
import time

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "clients/python"))
import tony as package  # noqa: E402
import tony.aio  # noqa: E402

PYTHON = "/usr/bin/python3"


@pytest.fixture
def client(own_tony, monkeypatch):
    """The package, calling the programs of the build with a home of its own."""
    t = own_tony()
    for key, value in t.env.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("TONY_PROGRAM", str(t.bin / "tony"))
    return t


def spec(command, n=2, **more):
    return {"name": "from-python", "command": command, "framework": "generic", "roles": {"worker": {"instances": n, "memory": "64m"}}, **more}


def test_a_job_from_a_dict(client):
    job = package.submit(spec("echo hello $TASK_INDEX"))
    status = job.wait()
    assert (status.state, status.exit_code, status.name, status.ended) == ("SUCCEEDED", 0, "from-python", True)
    assert [t.name for t in status.tasks] == ["worker:0", "worker:1"] and status.roles[0].instances == 2
    assert job.logs("worker:1") == "hello 1\n" and job.logs("worker:1", stderr=True) == ""
    assert package.jobs()[0].application_id == job.application_id
    assert package.version() == package._program.document(["version"])["version"]


def test_a_relative_src_of_a_dict(client, tmp_path, monkeypatch):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/hello").write_text("from the source\n")
    monkeypatch.chdir(tmp_path)
    job = package.submit(spec("cat hello", n=1, src="code"))
    job.wait()
    assert job.logs("worker:0") == "from the source\n"


def test_all_relative_paths_of_a_dict(client, tmp_path, monkeypatch):
    """All relative paths of the dict begin at the current directory, and a job without a name is called like it:
    not like a temporary directory."""
    here = tmp_path / "the-project"
    (here / "code").mkdir(parents=True)
    for name in ("data.txt", "more.txt", "key"):
        (here / name).write_text(name)
    (here / "key").chmod(0o600)
    monkeypatch.chdir(here)
    job = spec('echo $(cat data.txt more.txt) $KEY', n=1, src="code", resources=["data.txt"], secrets={"KEY": {"file": "key"}})
    del job["name"]
    job["roles"]["worker"]["resources"] = ["more.txt"]
    job = package.submit(job)
    assert job.wait().name == "the-project"
    assert job.logs("worker:0") == "data.txtmore.txt key\n"


def test_a_failed_job(client):
    job = package.submit(spec("echo no such digit >&2; exit 3", n=1))
    with pytest.raises(package.JobFailed, match="exit code 3") as caught:
        job.wait()
    status = caught.value.status
    assert status.state == "FAILED" and status.cause.task == "worker:0" and status.cause.exit_code == 3
    assert "no such digit" in status.cause.stderr_tail
    assert job.wait(check=False).state == "FAILED"
    assert job.why()["failures"][0]["exit_code"] == 3


def test_a_refused_job(client):
    with pytest.raises(package.TonyError, match="memory") as caught:
        package.submit({"command": "true", "roles": {"worker": {"instances": 1, "memory": "much"}}})
    assert caught.value.code == 2
    with pytest.raises(package.TonyError) as caught:
        package.Job("application_1_0001").status()
    assert caught.value.code == 2 and "application_1_0001" in caught.value.message


def test_events_wait_with_a_limit_and_kill(client):
    job = package.submit(spec("sleep 600", n=1))
    seen = []
    for event in job.events():
        seen.append((event.kind, event.task, event.state))
        if seen[-1] == ("task", "worker:0", "running"):
            with pytest.raises(TimeoutError):
                job.wait(timeout=0.2)
            job.kill()
    assert seen[0][0] == "job" and seen[-1] == ("job", None, "KILLED")
    told = list(job.events())
    assert [(e.kind, e.task, e.state) for e in told if e.kind != "progress"] == [x for x in seen if x[0] != "progress"]
    assert {"master", "gang"} <= {e.kind for e in told} and told[-1].raw["exit_code"] == 3
    assert ("task", "worker:0", "ended") in seen


def test_resize(client):
    job = package.submit(spec("sleep 600", n=1, roles={"worker": {"instances": 1, "memory": "64m", "resize": "live"}}))
    next(e for e in job.events() if (e.kind, e.state) == ("task", "running"))
    job.resize(worker=2)
    next(e for e in job.events() if (e.task, e.state) == ("worker:1", "running"))
    job.stop()
    assert job.status().state == "KILLED"


def test_no_program(client, monkeypatch):
    monkeypatch.delenv("TONY_PROGRAM")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(package.TonyError, match="cannot find the program 'tony'"):
        package.jobs()


def test_run_a_function(client):
    factor = 10  # travels with the function

    def work(base, *, plus):
        print("a line of its own")
        return {"rank": int(os.environ["RANK"]), "value": base * factor + plus, "big": "x" * 100_000}

    results = package.run(work, (4,), {"plus": 2}, workers=2, memory="128m", framework="pytorch", python=PYTHON)
    assert results == [{"rank": r, "value": 42, "big": "x" * 100_000} for r in range(2)]
    assert package.jobs()[0].status().name == "work"
    assert package.jobs()[0].logs("worker:0").startswith("a line of its own\n")


def test_run_a_function_that_raises(client):
    def fails():
        raise ValueError("no such digit")

    with pytest.raises(package.RemoteError, match="worker:0: ValueError: no such digit") as caught:
        package.run(fails, memory="128m", python=PYTHON)
    assert "in fails" in caught.value.traceback and caught.value.task == "worker:0"

    def exits():
        os._exit(5)

    with pytest.raises(package.JobFailed, match="exit code 5"):
        package.run(exits, memory="128m", python=PYTHON)


def test_each_task_of_a_function_counts(client):
    """A function that raises only in a task whose failure the framework would tolerate makes the call fail."""
    def work():
        if os.environ["TASK_INDEX"] == "1":
            raise KeyError("the second")
        time.sleep(600)

    with pytest.raises(package.RemoteError, match="the second") as caught:
        package.run(work, workers=2, memory="128m", python=PYTHON)
    assert caught.value.task == "worker:1"

    def late():
        if os.environ["TASK_INDEX"] == "1":
            raise KeyError("the second")

    with pytest.raises(package.RemoteError, match="the second"):
        package.run(late, workers=2, memory="128m", python=PYTHON, conf={"tony.application.fail-on-worker-failure-enabled": False})
    with pytest.raises(ValueError, match="at least 1"):
        package.run(work, workers=0)


def test_aio_needs_no_import_of_its_own():
    code = "import sys, tony; assert 'asyncio' not in sys.modules; tony.aio.submit; from tony import *; aio.run"
    subprocess.run([PYTHON, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(pathlib.Path(package.__file__).parents[1])})
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing


def test_asyncio(client):
    async def both():
        jobs = await asyncio.gather(*(package.aio.submit(spec(f"exit {code}", n=1)) for code in (0, 3)))
        good = await jobs[0].wait()
        with pytest.raises(package.JobFailed):
            await jobs[1].wait()
        events = [e async for e in jobs[1].events()]
        slow = await package.aio.submit(spec("sleep 600", n=1))
        with pytest.raises(TimeoutError):
            await slow.wait(timeout=0.3)
        await slow.kill()
        return good, events, await slow.status()

    good, events, slow = asyncio.run(both())
    assert good.state == "SUCCEEDED" and events[-1].state == "FAILED" and slow.state == "KILLED"


def test_a_cancelled_wait_ends(monkeypatch):
    """A cancelled wait ends, also if it is cancelled at the same moment as a line of `tony events` comes or the
    time limit ends."""
    lines = []

    @contextlib.contextmanager
    def following(args, put):
        lines.append(put)
        yield lambda: None

    monkeypatch.setattr(package._program, "following", following)
    event = '{"event": "task", "task": "worker:0", "state": "running"}'

    async def cancelled(turns, timeout):
        waits = asyncio.ensure_future(package.aio.Job("application_1_0001").wait(timeout))
        while not lines:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        lines.pop()(event)
        for _ in range(turns):
            await asyncio.sleep(0)
        waits.cancel()
        done, _ = await asyncio.wait({waits}, timeout=60)
        return bool(done) and waits.cancelled()

    for timeout in (None, 600):
        for turns in range(12):
            assert asyncio.run(cancelled(turns, timeout)), (timeout, turns)


def test_a_cancelled_run_kills_its_job(client):
    """asyncio.run() would wait for ever for a thread that waits for the job."""
    async def main():
        runs = asyncio.ensure_future(package.aio.run(time.sleep, (600,), memory="128m", python=PYTHON))
        while not package.jobs() or (await package.aio.Job(package.jobs()[0].application_id).status()).state != "RUNNING":
            await asyncio.sleep(0.05)
        runs.cancel()
        await asyncio.wait({runs}, timeout=60)
        return runs.cancelled()

    assert asyncio.run(main())
    assert package.jobs()[0].wait(check=False).state == "KILLED"
