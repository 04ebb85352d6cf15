# SPDX-License-Identifier: Apache-2.0
"""The program `tony` as a user with a Hadoop client configuration runs it."""

import json
import os
import pathlib
import re
import subprocess

from lib_cluster import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TONY_BUILD", ROOT / "build"))
BIN = pathlib.Path(os.environ.get("TONY_BIN") or BUILD / "bin")
APP = re.compile(r"application_\d+_\d{4,}")
SANITIZER = ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "LLVM_PROFILE_FILE", "GCOV_PREFIX", "GCOV_PREFIX_STRIP")


def floor(cluster, command, n=2):
    """Runs the command in n containers by the program bench/yarn_floor.c, which uses nothing of tony."""
    p = cluster.state["ports"]
    at = "127.0.0.1:{}".format
    return subprocess.run([str(BUILD / "bench" / "yarn-floor"), "--rm", at(p["rm"]), "--scheduler", at(p["rm_sched"]), "--namenode",
                           at(p["nn"]), "--webhdfs", f"http://{at(p['nn_http'])}/webhdfs/v1", str(n), command],
                          capture_output=True, text=True, timeout=300)


class Tony:
    """
    The machine of a user: it has a HOME, the programs, the configuration of the cluster, and nothing else of
    the cluster.
    """

    def __init__(self, base, cluster, conf="conf", **extra):
        self.base = pathlib.Path(base)
        self.home = self.base / "tony"
        self.cluster = cluster
        self.bin = BIN
        self.env = {
            "PATH": f"{BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.base),
            "LANG": "C.UTF-8",
            "TONY_HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.base / "run"),
            "HADOOP_CONF_DIR": str(cluster.dir / conf),
            "TONY_CONF_DIR": str(self.base / "site"),
            **extra,
        }
        self.env.update({name: os.environ[name] for name in SANITIZER if name in os.environ})
        (self.base / "run").mkdir(mode=0o700, exist_ok=True)
        (self.base / "site").mkdir(exist_ok=True)
        # The daemons of a busy machine may answer slowly. The retry intervals of this cluster are short.
        (self.base / "site" / "tony-site.yaml").write_text("conf: {tony.application.num-client-rm-connect-retries: 60}\n")
        self.n_files = 0
        self.wrap = []  # words before each command: see lib_gateway.py

    # ---- running it ----

    def argv(self, args):
        """run, submit and plan name the cluster; all other commands find it through the application."""
        args = [str(a) for a in args]
        if args[0] in ("run", "submit", "plan") and "--cluster" not in args:
            args[1:1] = ["--cluster", "yarn"]
        return [*self.wrap, str(self.bin / "tony"), *args]

    def run(self, *args, timeout=300, cwd=None, env=None, stdout=subprocess.PIPE):
        """Runs a command of tony, which may exit with any code; stdout and stderr are text."""
        return subprocess.run(self.argv(args), env={**self.env, **(env or {})}, cwd=cwd or self.base, stdin=subprocess.DEVNULL,
                              stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=timeout)

    def ok(self, *args, **kw):
        r = self.run(*args, **kw)
        assert r.returncode == 0, f"tony {args}: exit {r.returncode}\n{r.stdout}\n{r.stderr}"
        return r.stdout

    def json(self, *args, **kw):
        return json.loads(self.ok(*args, "--json", **kw))

    def start(self, *args, cwd=None, env=None, **kw):
        """A Popen, for a command that the test interrupts."""
        return subprocess.Popen(self.argv(args), env={**self.env, **(env or {})}, cwd=cwd or self.base, stdin=subprocess.DEVNULL,
                                stdout=kw.pop("stdout", subprocess.PIPE), stderr=kw.pop("stderr", subprocess.PIPE), text=True, **kw)

    # ---- jobs ----

    def job_file(self, roles=None, directory=None, **top):
        """
        Makes a job file from a dict (JSON is YAML). roles: {"worker": {...}}; the default memory is small,
        also for the master.
        """
        doc = {"name": "test", "framework": "generic", **top}
        doc["conf"] = {"tony.am.memory": "128m", **doc.get("conf", {})}
        if roles is not None:
            doc["roles"] = {name: {"memory": "64m", **role} for name, role in roles.items()}
        self.n_files += 1
        path = pathlib.Path(directory or self.base) / f"job{self.n_files}.yaml"
        path.write_text(json.dumps(doc, indent=1))
        return path

    def workers(self, command, n=1, directory=None, role=None, **top):
        return self.job_file({"worker": {"instances": n, "command": command, **(role or {})}}, directory, **top)

    def xml_file(self, name="tony.xml", directory=None, **keys):
        """A job file in the form of TonY's users."""
        rows = "".join(f"  <property><name>{k}</name><value>{v}</value></property>\n" for k, v in keys.items())
        path = pathlib.Path(directory or self.base) / name
        path.write_text(f"<?xml version='1.0'?>\n<configuration>\n{rows}</configuration>\n")
        return path

    def submit(self, path, *args):
        out = self.ok("submit", path, *args).strip()
        assert APP.fullmatch(out), out
        return out

    def status(self, app):
        """
        The job's state from its master or its history. If the master is too busy to answer, it is asked
        again.
        """

        def told():
            doc = self.json("status", app)
            return None if "does not answer" in (doc["message"] or "") else doc

        return wait_until(told, f"the master of {app} answers", 300, 0.1)

    def await_state(self, app, *states, limit=300):
        return wait_until(lambda: (lambda s: s if s["state"] in states else None)(self.status(app)), f"job {app} in {states}", limit, 0.1)

    def tasks(self, app):
        tasks = wait_until(lambda: self.json("tasks", app)["tasks"], f"the master of {app} answers", 300, 0.1)
        return {t["task"]: t for t in tasks}

    # ---- a job that runs until the test releases it ----

    def gated(self, n=1, tail="", **top):
        """
        A running job whose tasks exit with 0 at let_go(). Returns its client, its id and the pids of its
        tasks.
        """
        self.n_files += 1
        gate = self.base / f"gate{self.n_files}"
        p = self.start("run", self.workers(f"while [ ! -e {gate} ]; do sleep 0.1; done{tail}", n=n, **top))
        p.gate = gate

        def tasks():
            found = [pid for pid, line in self.cluster.processes().items() if str(gate) in line and "bash -c while" in line]
            return len(found) == n and found

        pids = wait_until(lambda: tasks() or p.poll() is not None, "the tasks of the job", 300)
        assert p.poll() is None, p.communicate()
        app = wait_until(lambda: self.cluster.environ(pids[0]).get("JOB_ID"), "an environment: it is empty in the middle of an exec")
        return p, app, pids

    def let_go(self, p, code=0):
        """Releases the tasks of a gated job. Returns the client's output."""
        p.gate.write_text("")
        out, err = p.communicate(timeout=300)
        assert p.returncode == code, out + err
        return out + err
