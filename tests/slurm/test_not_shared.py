# SPDX-License-Identifier: Apache-2.0
"""Nodes that do not see TONY_HOME: the job fails, and says so. Each node has its own mount namespace, so a directory can be hidden there."""

import contextlib
import pathlib
import subprocess

import pytest
from lib_slurm import wait_until


@contextlib.contextmanager
def hidden(slurm, nodes, directory):
    """An empty directory is mounted over this one on the nodes. A node loses it with its power, too."""
    enter = [["nsenter", f"--target={slurm.processes(n)[0]}", "--pid", "--mount"] for n in nodes]
    for e in enter:
        subprocess.run([*e, "mount", "-t", "tmpfs", "-o", "mode=755", "none", directory], check=True)
    try:
        yield
    finally:
        for e in enter:
            subprocess.run([*e, "umount", "--lazy", directory], check=True)


def test_no_node_sees_the_home(tony, slurm):
    with hidden(slurm, slurm.names, tony.base):
        done = tony("run", tony.job_file("true"), ok=False, timeout=120)
    assert done.returncode not in (0, 3) and "all nodes must see TONY_HOME" in done.stdout + done.stderr, done.stdout + done.stderr
    assert not slurm.jobs()


@pytest.mark.takes(70)
def test_only_the_first_node_sees_the_home(tony, slurm):
    with hidden(slurm, slurm.names[1:], tony.base):
        app = tony.submit("true")
        doc = wait_until(lambda: (d := tony.status(app)) and not d["live"] and d, "the job has failed", limit=180)
        wait_until(lambda: not slurm.jobs(), "nothing is left")
    assert doc["state"] == "FAILED" and "2 of the 3 nodes of the allocation have never connected" in str(doc), doc
    assert list(pathlib.Path(tony.home, "history", app).glob("batch.log"))
