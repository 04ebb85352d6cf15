# SPDX-License-Identifier: Apache-2.0
"""The programs of tony, for an ordinary user of the Slurm of lib_slurm.py."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess

from lib_slurm import as_user, wait_until

BIN = pathlib.Path(os.environ.get("TONY_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build")) / "bin"


class Tony:
    def __init__(self, slurm, base, user):
        self.slurm, self.base, self.user = slurm, base, user
        self.home = base / "home"
        programs = base / "bin"  # the build directory may be closed to other users
        programs.mkdir(mode=0o755)
        for name in ("tony", "tony-master", "tony-executor", "tony-pool", "tony-pack"):
            shutil.copy(BIN / name, programs)
        self.program, self.clients = programs / "tony", []
        self.env = {"TONY_HOME": str(self.home), "HOME": str(base), "TONY_CONF_DIR": str(base)}

    def __call__(self, *args, ok=True, **kw):
        done = self.slurm.run(self.program, *args, user=self.user, env=self.env, cwd=self.base, **kw)
        assert not ok or done.returncode == 0, f"{args}: {done.returncode}\n{done.stdout}{done.stderr}{self.logs()}"
        return done

    def run(self, *args):
        """Accepts any exit code."""
        return self(*args, ok=False, timeout=120)

    def start(self, *args):
        """A command in the background. end_clients() kills those that are left."""
        client = subprocess.Popen([*as_user(self.user), str(self.program), *map(str, args)], env={**self.slurm.environment(), **self.env},
                                  cwd=self.base, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.clients.append(client)
        return client

    def end_clients(self):
        """Of a test that has failed."""
        for client in self.clients:
            if client.poll() is None:
                client.kill()
                client.wait()
            client.stdout.close()

    def end_pool(self):
        """A command that asked all clusters may have started the pool of this home."""
        if (self.home / "pool").is_dir():
            self("pool", "stop", "--force", ok=False)

    def job_file(self, command, instances=3, conf=None, **role):
        path = self.base / "job.yaml"
        role = {"instances": instances, "memory": "100m", "vcores": 1, "command": command, **role}
        path.write_text(json.dumps({"name": "x", "cluster": "slurm", "roles": {"worker": role}, "conf": {"tony.slurm.nodes": 3, **(conf or {})}}))
        return path

    def submit(self, command, **kw):
        return self("submit", self.job_file(command, **kw)).stdout.strip()

    def status(self, app):
        return json.loads(self("status", app, "--json").stdout)

    def await_running(self, app, n, limit=60):
        """The status, as soon as n tasks run."""
        def running():
            status = self.status(app)
            return status if [t["state"] for t in status.get("tasks", [])].count("running") == n else None
        return wait_until(running, f"{n} tasks of {app} run", limit)

    def number(self, app):
        """The number of the job in Slurm."""
        def read():
            for d in ("jobs", "history"):
                with contextlib.suppress(FileNotFoundError):  # the job may be moved now
                    return (self.home / d / app / "slurm_id").read_text().strip()
        return wait_until(read, "the batch script has written its number")

    def history(self, app):
        """The directory of a job that is over. The head keeper moves it there a moment after the verdict."""
        where = self.home / "history" / app
        wait_until(where.exists, "the head keeper has moved the job")
        return where

    def processes(self, *words):
        """The pids of processes of the job, on all nodes, with these words in their command lines."""
        found = []
        for node in self.slurm.names:
            for pid in self.slurm.processes(node) if node in self.slurm.procs else []:
                try:
                    line = pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                except OSError:
                    continue
                if all(word in line for word in words):
                    found.append(pid)
        return found

    def logs(self):
        files = [*self.home.glob("*/*/*.log"), *self.home.glob("*/*/nodes/*.log")]
        return "".join(f"\n== {f}\n{f.read_text(errors='replace')[-2000:]}" for f in files)
