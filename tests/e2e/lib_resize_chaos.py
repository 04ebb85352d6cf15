# SPDX-License-Identifier: Apache-2.0
"""
Jobs that are resized at random moments while their processes are killed at random moments. (lib_chaos.py has
jobs with a constant size.) A job is checked only after the kills and resizes have ended: it must have a
requested size, make progress, and end with success.
"""

import random
import time

from lib_chaos import KINDS
from lib_jobs import kill9
from lib_points import scene
from lib_resize import ResizedJob

SIZES = range(1, 6)
KEEPERS_MAX = 3  # for one job: a job whose keepers die four times, each within its first second, is given up
CLIENT_MAY_SAY = (0, 1, 2)  # complete; refused, given up or replaced; the job has this size already


class Job(ResizedJob):
    def __init__(self, lab, rnd):
        self.mode, self.first = rnd.choice(("restart", "live")), rnd.choice((1, 2, 3))
        super().__init__(lab, self.mode, self.first, charges=1000000, max_restarts=-1)
        self.wanted, self.clients, self.killed = [], [], []

    def ask(self, rnd):
        """A client asks for another size. It waits for the result, or leaves."""
        n = rnd.choice(SIZES)
        words = ["--timeout", rnd.choice(("300ms", "3s", "30s")), *(["--wait"] if rnd.random() < 0.7 else [])]
        self.wanted.append(n)
        self.clients.append(self.lab.start("resize", self.app, f"worker={n}", *words))

    def settle(self):
        """Waits until the clients have ended: from now on there are no requests and no kills."""
        for client in self.clients:
            out, err = client.communicate(timeout=180)
            assert client.returncode in (*CLIENT_MAY_SAY, -9), f"a client says {client.returncode}: {out}{err}"
        return self.steady()

    def check(self, size):
        doc = self.end()
        self.check_runs(doc)
        assert len(doc["tasks"]) == size, f"it had {size} workers, and ended with {len(doc['tasks'])}"
        last = doc.get("last_resize")
        roles = last["roles"] if last else []
        expected = [r["to"] if last["outcome"] == "done" else r["from"] for r in roles] or [size]
        assert expected == [size] and size in (self.first, *self.wanted), f"{size} workers: first {self.first}, {self.wanted}, {last}"
        most = len([k for k in self.killed if k in ("task", "executor")]) + self.killed.count("keeper") * max(SIZES)
        assert doc["restarts"] <= most, f"{doc['restarts']} restarts for {self.killed}"
        return doc


class ResizeStorm:
    """Counts its actions in `n`."""

    def __init__(self, lab, seed):
        self.lab, self.rnd, self.seed = lab, random.Random(seed), seed
        self.n = {"jobs": 0, "resizes asked": 0, "resizes done": 0, "runs": 0, **{f"{kind} killed": 0 for kind in (*KINDS, "client")}}

    def kill(self, jobs):
        kind = self.rnd.choice((*KINDS, "master", "client"))
        if kind == "client":
            found = [(c.pid, job) for job in jobs.values() for c in job.clients if c.poll() is None]
        else:
            found = [(p.pid, jobs.get(p.app)) for p in self.lab.processes_all() if p.kind == kind and (kind == "pool" or p.app in jobs)]
            found = [(pid, job) for pid, job in found if kind != "keeper" or job.killed.count("keeper") < KEEPERS_MAX]
        if not found:
            return
        pid, job = self.rnd.choice(sorted(found, key=lambda f: f[0]))
        if job:
            job.killed.append(kind)
        kill9(pid)
        self.n[f"{kind} killed"] += 1

    def round(self, n_jobs, n_steps):
        jobs = {}
        try:
            for _ in range(n_jobs):
                job = Job(self.lab, self.rnd).submit()
                jobs[job.app] = job
            for _ in range(n_steps):
                time.sleep(self.rnd.random() ** 2 * 0.3)
                if self.rnd.random() < 0.5:
                    self.rnd.choice(list(jobs.values())).ask(self.rnd)
                    self.n["resizes asked"] += 1
                else:
                    self.kill(jobs)
            if not self.lab.pids("pool"):
                self.lab.ok("pool", "start")
            sizes = {app: job.settle() for app, job in jobs.items()}
            for app, job in jobs.items():
                doc = job.check(sizes[app])
                self.n["jobs"] += 1
                self.n["resizes done"] += doc.get("resizes", 0)
                self.n["runs"] += sum(len(job.runs(i)) for i in SIZES)
            self.lab.quiet()
        except BaseException as e:
            told = "\n".join(f"{job.app}: {job.mode} from {job.first}, wanted {job.wanted}, killed {job.killed}" for job in jobs.values())
            raise AssertionError(f"seed {self.seed}, after {self.n}: {e}\n{told}\n" +
                                 "\n".join(scene(self.lab, job) for job in jobs.values())) from e
        finally:
            for job in jobs.values():
                for client in job.clients:
                    if client.poll() is None:
                        client.kill()
                        client.communicate()
