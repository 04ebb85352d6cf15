# SPDX-License-Identifier: Apache-2.0
"""A job on YARN that is resized while its masters die."""

import json
import pathlib
import re
import shutil

from lib_cluster import wait_until
from lib_tony import BIN, BUILD, ROOT

STEPS = ROOT / "tests" / "fixtures" / "steps.sh"


class PointsJob:
    """A job whose masters die where the test says (tests/points/points.c), and the notes of its tasks (STEPS).
    charges: how often each task may be restarted after its own failure. more: further keys of the role."""

    def __init__(self, tony, mode, base, n=1, charges=0, **more):
        tony.bin = tony.base / "bin"
        if not tony.bin.exists():
            shutil.copytree(BIN, tony.bin)
            shutil.copy2(BUILD / "tests" / "points" / "tony-master", tony.bin / "tony-master")
        self.tony, self.dir, self.points = tony, base / "job", base / "points"
        self.dir.mkdir(parents=True)
        self.points.mkdir()
        role = {"env": {"DIR": str(self.dir)}, "resize": mode, "restart": "on-failure", "max-restarts": charges,
                "restart-scope": "job" if mode == "restart" else "task", **more}
        conf = {"tony.containers.envs": f"TONY_TEST_POINTS={self.points}", "tony.am.max-attempts": 30,
                "tony.task.restarts.node-lost": 5}
        self.path = tony.workers(f"bash {STEPS}", n=n, role=role, conf=conf)
        self.app = None

    def arm(self, life, number, after, action="kill"):
        """
        The life-th master dies after it has written the number-th part of its journal, counted from this
        event.
        """
        (self.points / f"master.{life}").write_text(f"{number} {action} done write */journal \n*/journal *{after}\n")

    def struck(self):
        return sorted(p.name for p in self.points.glob("*.struck"))

    def lines(self, name):
        path = pathlib.Path(self.dir / name)
        return path.read_text().splitlines() if path.exists() else []

    def steady(self, size):
        """Waits until the job has this size and all its tasks run and make progress."""

        def look():
            r = self.tony.run("status", self.app, "--json")
            doc = json.loads(r.stdout) if r.returncode == 0 else {}
            assert doc.get("exit_code") is None, doc
            role = (doc.get("roles") or [{}])[0]
            return doc.get("state") == "RUNNING" and "resize" not in doc and role["running"] == role["instances"] == size

        wait_until(look, f"the job has {size} workers, which run", 300, 0.1)
        before = [len(self.lines(f"steps{i}")) for i in range(size)]
        wait_until(lambda: all(len(self.lines(f"steps{i}")) > before[i] for i in range(size)), "all of its tasks train on", 300)

    def resize(self, n):
        """
        Asks until the job has this size. If a master dies before a node has reported a container, YARN may
        end the container. Then the job keeps its size and says so, and the resize is asked again; also if
        HDFS was too slow for the master.
        """
        for _ in range(9):
            r = self.tony.run("resize", self.app, f"worker={n}", "--wait")
            if r.returncode == 0:
                break
            assert r.returncode == 1 and re.search("could not join|was lost with its master", r.stderr), r.stdout + r.stderr
        self.steady(n)

    def end(self):
        """The status of the job after its tasks have ended with 0."""
        (self.dir / "go").touch()
        r = self.tony.run("wait", self.app)
        assert r.returncode == 0, r.stdout + r.stderr
        return self.tony.status(self.app)

    def charged(self):
        """The restarts that were charged to a budget, from the journal in the history of the ended job."""
        path, cluster = f"/user/root/.tony/history/{self.app}/journal", self.tony.cluster
        wait_until(lambda: cluster.exists(path), "the journal in the history")
        records = [json.loads(line) for line in cluster.read(path).splitlines()]
        return [r for r in records if r["e"] == "decided_restart" and "charge" in r]

    def check(self, doc):
        assert doc["state"] == "SUCCEEDED", doc
        assert not self.lines("double"), self.lines("double")
        for t in doc["tasks"]:
            i = t["index"]
            runs = [tuple(map(int, line.split())) for line in self.lines(f"began{i}")]
            attempts, generations = [r[0] for r in runs], [r[1] for r in runs]
            assert attempts == sorted(set(attempts)) and generations == sorted(generations), f"runs of worker:{i}: {runs}"
            assert self.lines(f"done{i}")[-1] == str(attempts[-1]) and t["exit_code"] == 0, (runs, t)
            steps = [int(x) for x in self.lines(f"steps{i}")]
            assert steps == list(range(1, len(steps) + 1)), f"a step of worker:{i} is lost or was done twice"
