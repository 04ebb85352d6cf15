# SPDX-License-Identifier: Apache-2.0
"""A real training, and a task that takes more memory than its role may."""

import pathlib
import shutil
import subprocess

from test_slurm import app_of

PROJECT = pathlib.Path(__file__).resolve().parents[2]


def test_a_task_that_takes_too_much_memory(tony, slurm):
    """This Slurm enforces no memory, so tony does. The other tasks are not touched before the verdict."""
    eats = "[ $TASK_INDEX = 1 ] || exec sleep 60; exec python3 -c \"import time; b = b'x' * (300 << 20); time.sleep(60)\""
    done = tony("run", tony.job_file(eats, conf={"tony.application.fail-on-worker-failure-enabled": True}), ok=False, timeout=120)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "task 'worker:1' ran out of memory" in said, said
    assert "of its 100 MB of memory" in tony("why", app_of(done)).stdout


def test_the_same_job_file_trains_here(tony, slurm):
    """The job file of the example names no cluster. Its two processes are on two nodes, and average their gradients by gloo."""
    for part in "examples/digits", "clients/python":
        shutil.copytree(PROJECT / part, tony.base / part)
    subprocess.run(["chown", "-R", tony.user, tony.base], check=True)
    done = tony("run", "--cluster", "slurm", "--conf", "tony.slurm.nodes=2", tony.base / "examples/digits/job.yaml", timeout=300)
    text = tony("logs", app_of(done), "--stdout").stdout
    assert "accuracy" in text, text
    nodes = {t["node"] for t in tony.status(app_of(done))["tasks"]}
    assert len(nodes) == 2, nodes
