# SPDX-License-Identifier: Apache-2.0
"""`tony azkaban` as the command of a job that Azkaban's own ProcessJob runs, with the properties file that it writes."""

import os
import re
import subprocess

import pytest
from hdcluster import jars
from lib_cluster import wait_until
from lib_tony import APP, ROOT

AZKABAN = ROOT / "tests/fixtures/azkaban"
OPEN = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")  # Azkaban reads the pid of its child from a private field


@pytest.fixture
def azkaban(tony):
    """A function azkaban(script, stdin) that runs a job of two workers, in the working directory that Azkaban
    gives it."""
    work = tony.base / "work"
    (work / "src").mkdir(parents=True)
    started = []

    def make(script):
        (work / "src/train.sh").write_text(script)
        properties = tony.base / "train.job"
        lines = {"type": "command", "working.dir": work, "command": f"{tony.bin}/tony azkaban", "executes": "sh train.sh",
                 "task_params": "--rate 0.1", "worker_env.GREETING": "hello", "tony.cluster": "yarn", "tony.am.memory": "128m",
                 "tony.worker.instances": 2, "tony.worker.memory": "64m", "azkaban.input.dataset": "/data/a,/data/b",
                 "azkaban.flow.execid": 4711, "azkaban.flow.flowid": "nightly"}
        properties.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
        found = jars.directory(pom=AZKABAN / "pom.xml")
        jars.fetch(found, AZKABAN / "pom.xml")
        log = open(tony.base / "azkaban.log", "w")
        p = subprocess.Popen([jars.java(), *OPEN, "-cp", f"{found}/*", AZKABAN / "RunJob.java", properties], env=tony.env, cwd=tony.base,
                             stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)
        started.append(p)
        return p
    yield make
    for p in started:
        p.kill()
        p.wait()


def log(tony):
    return (tony.base / "azkaban.log").read_text()


def test_a_job_of_azkaban(tony, azkaban):
    p = azkaban('echo "$GREETING|$AZKABAN_INPUT_DATASET|$@"\n')
    assert p.wait(300) == 0, log(tony)
    assert "completed successfully" in log(tony)
    app = APP.search(log(tony)).group()
    assert tony.ok("logs", app, "worker:1", "--stdout") == "hello|/data/a;/data/b|--rate 0.1\n"


def test_a_failed_job_fails_the_job_of_azkaban(tony, azkaban):
    p = azkaban("exit 7\n")
    assert p.wait(300) != 0
    assert re.search(r"ProcessFailureException|failed", log(tony)), log(tony)


def test_cancelled(tony, azkaban):
    """Azkaban's cancel() ends the application on YARN."""
    p = azkaban("echo up; sleep 1000\n")
    app = wait_until(lambda: APP.search(log(tony)), "the job is submitted", 300).group()
    tony.await_state(app, "RUNNING")
    wait_until(lambda: "up" in tony.run("logs", app, "worker:1", "--stdout").stdout, "a worker runs", 300, 0.2)
    os.write(p.stdin.fileno(), b"x")
    assert p.wait(300) != 0
    assert tony.await_state(app, "KILLED")["state"] == "KILLED"
