# SPDX-License-Identifier: Apache-2.0
"""The provider for Apache Airflow, in a real Airflow: tools/install-frameworks airflow."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from conftest import BIN, Tony, make_base, remove_base, wait_until  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.takes(120)]
FRAMEWORKS = pathlib.Path(subprocess.run([ROOT / "tools/install-frameworks", "--where"], capture_output=True, text=True, check=True).stdout.strip())
PYTHON = FRAMEWORKS / "airflow/bin/python3"


def end(p):
    """Wait for a script that start() has begun, and put its output into p.out. Its threads are shown if it hangs: Airflow alone
    needs half a minute on a busy machine, so the limit is far away."""
    try:
        p.out, _ = p.communicate(timeout=600)
    except subprocess.TimeoutExpired:
        p.send_signal(signal.SIGABRT)  # faulthandler is on
        p.out, _ = p.communicate()
        pytest.fail(f"the script has not ended\n{p.out}")
    return p.returncode


@pytest.fixture(scope="module")
def airflow():
    """A function that runs a Python text with an Airflow that has a new database, and a home of tony."""
    assert PYTHON.exists(), f"there is no {PYTHON}; run tools/install-frameworks airflow"
    base = make_base()
    tony = Tony(base)
    env = {**tony.env, "AIRFLOW_HOME": str(base / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "TONY_PROGRAM": str(BIN / "tony"),
           "PYTHONPATH": f"{ROOT}/clients/python:{ROOT}/clients/airflow", "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
           "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO", "PYTHONFAULTHANDLER": "1"}
    subprocess.run([PYTHON, "-m", "airflow", "db", "migrate"], env=env, check=True, capture_output=True, timeout=600)

    def start(text):
        script = base / "dag.py"
        script.write_text(HEAD + textwrap.dedent(text))
        return subprocess.Popen([PYTHON, script], env=env, cwd=base, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(text):
        p = start(text)
        return end(p), p.out

    run.start, run.tony = start, tony
    yield run
    left = tony.stop()
    remove_base(base)
    assert not left, left


HEAD = """
import json, pendulum
from airflow import DAG
from tony_airflow import TonyOperator

JOB = {"framework": "generic", "roles": {"worker": {"instances": 2, "memory": "64m"}}}

def dag(**task):
    with DAG("train", start_date=pendulum.datetime(2026, 1, 1), schedule=None) as d:
        TonyOperator(task_id="train", **task)
    return d

def xcoms(run):
    ti = run.get_task_instance("train")
    return {key: ti.xcom_pull(task_ids="train", key=key) for key in ("return_value", "application_id", "verdict", "metrics")}
"""


def test_a_job_runs(airflow):
    """A job runs, waited for in a worker of Airflow or, deferred, in its triggerer."""
    code, out = airflow("""
        for deferrable in (True, False):
            run = dag(job={**JOB, "command": "echo hello {{ ds }} $TASK_INDEX"}, deferrable=deferrable).test()
            print("RESULT", json.dumps({"state": run.state, **xcoms(run)}))
    """)
    assert code == 0, out
    results = [json.loads(x.removeprefix("RESULT ")) for x in out.splitlines() if x.startswith("RESULT ")]
    assert len(results) == 2 and out.count("worker:1 stdout | hello 20") >= 2, "the output of the tasks, with Airflow's date in the command"
    for result in results:
        assert result["state"] == "success" and result["return_value"] == "SUCCEEDED"
        assert result["verdict"]["state"] == "SUCCEEDED" and result["verdict"]["exit_code"] == 0
        assert result["metrics"]["worker:0"]["cpu_ms"] >= 0
        assert airflow.tony.status(result["application_id"])["state"] == "SUCCEEDED"


def test_a_job_file_that_fails(airflow):
    path = airflow.tony.workers("echo bad digit >&2; exit 4")
    code, out = airflow(f"""
        try:
            run = dag(job={str(path)!r}, conf={{"tony.worker.instances": 1}}, deferrable=True).test()
            print("STATE", run.state, xcoms(run)["verdict"])
        except Exception as e:
            print("RAISED", e)
    """)
    assert ("STATE failed" in out or "RAISED" in out) and "failed with exit code 4" in out and "worker:0 stderr | bad digit" in out, out


def test_the_job_is_stopped_with_airflows_task(airflow):
    def jobs():
        return {j["application_id"]: j["state"] for j in airflow.tony.json("list")["jobs"]}
    before = jobs()
    p = airflow.start("""
        dag(job={**JOB, "command": "sleep 600"}).test()
    """)
    app = wait_until(lambda: next((a for a, state in jobs().items() if state == "RUNNING" and a not in before), None), "the job runs", 600, 0.5)
    p.send_signal(signal.SIGTERM)
    end(p)
    assert airflow.tony.await_state(app, "KILLED")["state"] == "KILLED", p.out
    assert f"stopping job {app}" in p.out


def test_a_trigger_that_is_cancelled(airflow):
    """A cancelled trigger stops the job if Airflow has given up the task, and not if only the triggerer ends."""
    code, out = airflow("""
        import asyncio, tony
        from tony_airflow import TonyTrigger

        async def cancelled(given_up):
            job = await tony.aio.submit({**JOB, "command": "sleep 600"})
            trigger = TonyTrigger(**TonyTrigger(job.application_id).serialize()[1])
            trigger.is_given_up = lambda: given_up
            waits = asyncio.ensure_future(anext(trigger.run()))
            async for event in job.events():
                if (event.kind, event.state) == ("task", "running"):
                    break
            waits.cancel()
            try:
                print("FIRED", await waits)
            except asyncio.CancelledError:
                pass
            state = (await job.status()).state
            await job.kill()
            return state

        print("STATES", asyncio.run(cancelled(True)), asyncio.run(cancelled(False)))
    """)
    assert code == 0 and "STATES KILLED RUNNING" in out and "FIRED" not in out, out


def test_airflow_lists_the_provider():
    """The provider is installed as a package, as its users install it."""
    target = make_base()
    try:
        subprocess.run([PYTHON, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", target, ROOT / "clients/airflow"],
                       check=True, timeout=600, capture_output=True)
        r = subprocess.run([PYTHON, "-m", "airflow", "providers", "list"], env={**os.environ, "PYTHONPATH": f"{target}:{ROOT}/clients/python",
                           "AIRFLOW_HOME": str(target / "home")}, capture_output=True, text=True, timeout=600)
        assert "apache-airflow-providers-tony" in r.stdout, r.stdout + r.stderr
    finally:
        remove_base(target)
