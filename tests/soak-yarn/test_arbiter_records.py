# SPDX-License-Identifier: Apache-2.0
"""A process dies at each record that a master writes while one job gives containers to another one, until the end of both."""

import contextlib
import os
import signal
import threading

import pytest
from lib_cluster import wait_until
from lib_kills import Victims, await_reported
from lib_resize_job import PointsJob

POLICY = """
conf:
  tony.application.num-client-rm-connect-retries: 60
  tony.pool.policy: drf
  tony.pool.policy.interval: 200
  tony.pool.policy.resize-limit: 20000
"""
LIMIT_S = 300


class Exchange:
    """
    Two nodes have room for four workers. The first job has all four; the arbiter lets it give two of them to the
    second job. `at`: the job whose master comes to the number-th record; `victim`: what dies there.
    """

    def __init__(self, tony, base, mode, at, number, victim):
        self.tony, self.arbiter, self.stopping, self.divided = tony, None, False, False
        self.first = PointsJob(tony, mode, base / "first", 4, **{"memory": "3900m", "min-instances": 1, "max-instances": 4})
        self.second = PointsJob(tony, mode, base / "second", 2, **{"memory": "3900m", "min-instances": 2, "max-instances": 4})
        self.struck_job = getattr(self, at)
        # The exchange begins with the wish of the arbiter in the first journal, and with the beginning of the second.
        self.struck_job.arm(1, number, "shrink" if at == "first" else "", "kill" if victim == "master" else "stop")
        self.striker = None if victim == "master" else threading.Thread(target=self.strike, daemon=True)

    def start_arbiter(self):
        self.arbiter = self.tony.start("arbiter", "run", "--queue", "default", stdout=open(self.tony.base / "arbiter.out", "a"),
                                       stderr=open(self.tony.base / "arbiter.err", "a"))

    def kill_arbiter(self):
        self.arbiter.kill()
        self.arbiter.wait(10)

    def stopped_master(self):
        for pid in Victims(self.tony, self.struck_job.app, "steps.sh").all()["master"]:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as f:
                if f.read().rpartition(")")[2].split()[0] == "T":
                    return pid
        return None

    def strike(self):
        """Kills the arbiter while the master has stopped at its record, starts another one, and lets the master go on."""
        while not self.struck_job.struck():
            if self.stopping:
                return
            threading.Event().wait(0.02)
        master = wait_until(self.stopped_master, "the master has stopped", 60, 0.02)
        if not self.divided:
            self.kill_arbiter()
            self.start_arbiter()
        os.kill(master, signal.SIGCONT)

    def run(self):
        tony, jobs = self.tony, (self.first, self.second)
        self.first.app = tony.submit(self.first.path)
        self.first.steady(4)
        await_reported(tony, self.first.app)
        self.start_arbiter()
        self.second.app = tony.submit(self.second.path)
        if self.striker:
            self.striker.start()
        for job in jobs:
            job.steady(2)
        for job in jobs:  # no container beside those of the tasks and of the master
            wait_until(lambda job=job: tony.cluster.app(job.app)["runningContainers"] == 3, "three containers", LIMIT_S)
        self.divided = True
        self.kill_arbiter()
        for job in jobs:
            job.steady(2)
        for job in jobs:
            doc = job.end()
            job.check(doc)
            assert len(doc["tasks"]) == 2, doc

    def end(self):
        self.stopping = True
        if self.striker and self.striker.ident:
            self.striker.join(120)
        if self.arbiter:
            self.kill_arbiter()
        for job in (self.first, self.second):
            if job.app:
                self.tony.run("kill", job.app)  # of a test that failed


@pytest.mark.parametrize("mode", ["live", "restart"])
@pytest.mark.parametrize("at", ["first", "second"])
@pytest.mark.parametrize("victim", ["master", "arbiter"])
def test_at_each_record_of_an_exchange(tony, cluster, base, victim, at, mode):
    (tony.base / "site" / "tony-site.yaml").write_text(POLICY)
    number, struck = 0, True
    while struck:
        number += 1
        x = Exchange(tony, base / f"{number}", mode, at, number, victim)
        try:
            x.run()
        finally:
            x.end()
        struck = x.struck_job.struck()
        print(f"{mode}, {victim} at record {number} of the {at} job: {struck}", flush=True)
    assert number > 5
