# SPDX-License-Identifier: Apache-2.0
"""
Random kills with a seed: processes of jobs are killed at random moments, and after each job its reported
status is compared with what happened.

A seed decides the jobs, the victims and the pauses. The timing of the machine differs from run to run. So a
failure prints the seed and the victims; the same seed will probably, but not certainly, show it again.
"""

import json
import random
import time

from conftest import wait_until
from lib_jobs import kill9, replay_one

KINDS = ("pool", "master", "keeper", "executor", "task")
HARMLESS = {"pool", "master"}  # no task notices their deaths


class Job:
    """A job, what its tasks do if undisturbed, and what they recorded."""

    def __init__(self, lab, rnd, number):
        self.lab, self.victims = lab, []
        self.dir = lab.base / f"chaos{number}"
        self.dir.mkdir()
        self.plan = []
        lines = []
        for i in range(rnd.choice((1, 1, 2, 3, 5))):
            code = rnd.choice((0, 0, 0, 0, 0, 3 + i))
            seconds = rnd.choice((0, 0.02, 0.1, 0.25))
            daemon = rnd.choice(("", "", "(setsid sleep 300 &);", "(env -i setsid sh -c 'trap \"\" TERM; sleep 300; :' &);"))
            self.plan.append(code)
            sleep = f"sleep {seconds};" if seconds else ""
            lines.append(f"{i}) {daemon} {sleep} echo > done{i}; exit {code};;")
        command = f"cd {self.dir}; echo $$ >> start$TASK_INDEX; case $TASK_INDEX in " + " ".join(lines) + " esac"
        # no task dies of silence, only of a kill
        conf = {"tony.task.kill-grace-ms": 300, "tony.task.heartbeat-interval-ms": 100, "tony.task.max-missed-heartbeats": 1000,
                "tony.task.restarts.node-lost": 0}
        self.strict = rnd.random() < 0.3
        if self.strict:
            conf["tony.application.fail-on-worker-failure-enabled"] = True
        path = lab.workers(command, n=len(self.plan), role={"memory": "16m"}, conf=conf)
        self.app = lab.submit(path)

    def starts(self, i):
        f = self.dir / f"start{i}"
        return len(f.read_text().split()) if f.exists() else 0

    def done(self, i):
        return (self.dir / f"done{i}").exists()

    def check(self):
        """The job has ended, and its reported status is true."""
        code = self.lab.run("wait", self.app, timeout=60).returncode
        wait_until(self._is_put_away, f"{self.app} in the history")
        doc = self.lab.status(self.app)
        try:
            self._check(doc, code)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{json.dumps(doc)}") from e

    def _is_put_away(self):
        """
        If pool and keeper were killed after the verdict, the next command moves the job into the history.
        """
        if not self.lab.pids("pool"):
            self.lab.ok("pool", "start")
        return (self.lab.home / "history" / self.app).is_dir()

    def _check(self, doc, code):
        n = len(self.plan)
        harmless = {kind for kind, _ in self.victims} <= HARMLESS
        failing = [c for c in self.plan if c] if self.strict else [c for c in self.plan[:1] if c]
        assert doc["state"] in ("SUCCEEDED", "FAILED"), "nobody asked for a stop"
        assert code == doc["exit_code"] == (0 if doc["state"] == "SUCCEEDED" else 1)
        assert doc["message"]
        for i, t in enumerate(doc["tasks"]):
            assert self.starts(i) <= 1, f"task {i} was started {self.starts(i)} times"
            assert t["state"] == "ended"
            if t["exit_code"] is not None:
                assert t["exit_code"] == self.plan[i] and self.done(i), f"task {i} never said {t['exit_code']}"
            if t["result"] == "SUCCEEDED":
                assert t["exit_code"] == 0
            if t["result"] == "FAILED" and t["signal"]:
                assert not harmless, f"task {i} was killed, but not by us"
            if harmless and not failing:
                assert t["result"] == ("FAILED" if self.plan[i] else "SUCCEEDED") and self.starts(i) == 1, f"task {i} noticed"
        if doc["state"] == "SUCCEEDED":
            assert not failing and self.done(0), "it cannot have succeeded"
        elif harmless:
            assert failing and doc["cause"]["exit_code"] in [c for c in self.plan if c], "the first by time, if not the decisive one"
        if "cause" in doc:
            i = doc["cause"]["index"]
            assert doc["tasks"][i]["result"] in ("FAILED", "LOST"), "who was stopped is no cause"
        assert len(doc["tasks"]) == n
        replay_one(self.lab.home / "history" / self.app)


class Storm:
    def __init__(self, lab, seed):
        self.lab, self.seed, self.rnd = lab, seed, random.Random(seed)
        self.n_jobs = self.n_kills = 0
        self.killed = {}

    def strike(self, jobs, kinds):
        """kill -9 of one process of each kind, of whichever job. Kinds without a process are skipped."""
        for kind in kinds:
            found = [p for p in self.lab.processes_all() if p.kind == kind and (kind == "pool" or p.app in jobs)]
            if not found:
                continue
            p = self.rnd.choice(sorted(found))
            # recorded before the kill: the job may be over afterwards
            for job in jobs.values() if kind == "pool" else [jobs[p.app]]:
                job.victims.append((kind, p.pid))
            kill9(p.pid)
            self.n_kills += 1
            self.killed[kind] = self.killed.get(kind, 0) + 1
            if self.rnd.random() < 0.5:
                time.sleep(self.rnd.random() * 0.02)

    def round(self, n_jobs=1, n_strikes=1, victims=(1, 2)):
        """Runs several jobs at once and kills some of their processes. Then checks each job, and that no process
        or file is left."""
        jobs = {}
        for _ in range(n_jobs):
            self.n_jobs += 1
            job = Job(self.lab, self.rnd, self.n_jobs)
            jobs[job.app] = job
        for _ in range(n_strikes):
            time.sleep(self.rnd.random() ** 2 * 0.3)
            self.strike(jobs, self.rnd.sample(KINDS, self.rnd.choice(victims)))
        try:
            for job in jobs.values():
                job.check()
            # The pool was killed together with a keeper whose job was over: the next pool cleans up.
            if not self.lab.pids("pool"):
                self.lab.ok("pool", "start")
            self.lab.quiet()
        except BaseException as e:
            raise AssertionError(f"seed {self.seed}, round of job {self.n_jobs}: {e}\n{self.scene(jobs.values())}") from e

    def scene(self, jobs):
        """The live processes, and the logs about the jobs of this round."""
        parts = [f"{job.app}: victims {job.victims}, plan {job.plan}, strict {job.strict}" for job in jobs]
        parts += [str(p) for p in self.lab.processes_all()] + self.lab.litter()
        for job in jobs:
            for where in ("jobs", "history"):
                for name in ("keeper.log", "master.log", "exits", "journal"):
                    path = self.lab.home / where / job.app / name
                    if path.exists():
                        parts.append(f"---- {path}\n{path.read_text(errors='replace')[-6000:]}")
        parts.append("---- pool.log\n" + (self.lab.home / "pool" / "pool.log").read_text()[-6000:])
        return "\n".join(parts)
