# SPDX-License-Identifier: Apache-2.0
"""Processes of one job on the cluster that a test kills, and checks that the job works again."""

import contextlib
import json
import os
import signal

from lib_cluster import wait_until

KINDS = ("task", "executor", "master")
LIMIT_S = 300


def await_reported(tony, app):
    """
    Waits until the ResourceManager knows that the tasks' containers run: if the master dies, it ends
    containers that it does not know.
    """
    ids = [t["container"] for t in tony.tasks(app).values()]

    def known():
        lines = [line for line in tony.cluster.log_since({}, "rm") if "from ACQUIRED to RUNNING" in line]
        return all(any(i in line for line in lines) for i in ids)

    wait_until(known, "the ResourceManager knows that all run", LIMIT_S)


class Victims:
    """The processes of a job. `program`: text in the command line of a task's own process."""

    def __init__(self, tony, app, program):
        self.tony, self.cluster, self.app, self.program = tony, tony.cluster, app, program
        self.dead = []  # kind and pid of each killed process

    def all(self):
        """Live pids by kind."""
        found = {kind: [] for kind in KINDS}
        for pid, line in sorted(self.cluster.processes().items()):
            env = self.cluster.environ(pid)
            if self.app.partition("_")[2] not in env.get("CONTAINER_ID", ""):
                continue
            kind = ("master" if line.startswith("./tony-master") else "executor" if line.startswith(("tony-executor", "./tony-executor"))
                    else "task" if self.program in line and "TONY_TASK" in env else None)
            if kind:
                found[kind].append(pid)
        return found

    def kill(self, kind, dice=None):
        """kill -9 of one process of this kind, once there is one that was not killed before."""
        gone = {pid for _, pid in self.dead}
        live = wait_until(lambda: [pid for pid in self.all()[kind] if pid not in gone], f"a {kind} to kill", LIMIT_S)
        pid = dice.choice(live) if dice else live[0]
        self.dead.append((kind, pid))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return pid

    def role(self):
        """The job's only role in `tony status`; empty if no program answers."""
        r = self.tony.run("status", self.app, "--json")
        doc = json.loads(r.stdout) if r.returncode == 0 else {}
        return (doc.get("roles") or [{}])[0] if doc.get("state") == "RUNNING" else {}

    def past(self, n, step):
        """Waits until n tasks run and the job has gone beyond this step. Returns the job's step."""

        def there():
            role = self.role()
            return role.get("running") == n and role.get("step", 0) > step and role["step"]

        return wait_until(there, f"{n} tasks past step {step}", LIMIT_S, 0.1)
