# SPDX-License-Identifier: Apache-2.0
"""A process of a job on YARN dies at each record that its master writes from a resize until the end of the job."""

import contextlib
import os
import signal
import threading

import pytest
from lib_cluster import wait_until
from lib_kills import Victims, await_reported
from lib_resize_job import PointsJob


class Striker(threading.Thread):
    """Waits until the master has stopped at its record, kills a process of this kind, and lets the master go on."""

    def __init__(self, job, kind):
        super().__init__(daemon=True)
        self.job, self.kind, self.over, self.killed = job, kind, threading.Event(), None
        self.victims = Victims(job.tony, job.app, "steps.sh")
        self.start()

    def stopped_master(self):
        for pid in self.victims.all()["master"]:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as f:
                if f.read().rpartition(")")[2].split()[0] == "T":
                    return pid
        return None

    def run(self):
        while not self.job.struck():
            if self.over.wait(0.02):
                return
        master = wait_until(self.stopped_master, "the master has stopped", 60, 0.02)
        for pid in self.victims.all()[self.kind][:1]:  # at the end of the job there may be none
            self.killed = pid
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.kill(master, signal.SIGCONT)

    def end(self):
        self.over.set()
        self.join(120)
        assert not self.is_alive()


@pytest.mark.parametrize("mode, old, new", [("restart", 1, 3), ("restart", 3, 1), ("live", 1, 3), ("live", 3, 1)])
@pytest.mark.parametrize("victim", ["master", "executor", "task"])
def test_at_each_record_of_a_resize(tony, cluster, base, victim, mode, old, new):
    number, struck = 0, True
    while struck:
        number += 1
        job = PointsJob(tony, mode, base / f"{number}", old, charges=1 if victim == "task" else 0)
        job.arm(1, number, "resize", "kill" if victim == "master" else "stop")
        job.app = tony.submit(job.path)
        job.steady(old)
        await_reported(tony, job.app)
        striker = Striker(job, victim) if victim != "master" else None
        job.resize(new)
        doc = job.end()
        if striker:
            striker.end()
        job.check(doc)
        assert len(doc["tasks"]) == new
        assert victim != "master" or not job.charged(), job.charged()
        struck = job.struck()
        print(f"{mode} {old} to {new}, {victim} at record {number}: {struck}, {doc['restarts']} restarts", flush=True)
    assert number > 5
