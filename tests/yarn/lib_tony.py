"""The program `tony`, as somebody with a Hadoop client configuration types it."""

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


class Tony:
    """One machine of a user: a HOME, the programs, the configuration of the cluster and nothing else of it."""

    def __init__(self, base, cluster, conf="conf", **extra):
        self.base = pathlib.Path(base)
        self.home = self.base / "tony"
        self.cluster = cluster
        self.env = {
            "PATH": f"{BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.base),
            "LANG": "C.UTF-8",
            "TONY_HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.base / "run"),
            "HADOOP_CONF_DIR": str(cluster.dir / conf),
            **extra,
        }
        self.env.update({name: os.environ[name] for name in SANITIZER if name in os.environ})
        (self.base / "run").mkdir(mode=0o700, exist_ok=True)
        self.n_files = 0

    # ---- running it ----

    def argv(self, args):
        """run, submit and plan name the cluster; all other commands know it from the application."""
        args = [str(a) for a in args]
        if args[0] in ("run", "submit", "plan") and "--cluster" not in args:
            args[1:1] = ["--cluster", "yarn"]
        return [str(BIN / "tony"), *args]

    def run(self, *args, timeout=100, cwd=None, env=None, stdout=subprocess.PIPE):
        """Any exit code; stdout and stderr as text."""
        return subprocess.run(self.argv(args), env={**self.env, **(env or {})}, cwd=cwd or self.base, stdin=subprocess.DEVNULL,
                              stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=timeout)

    def ok(self, *args, **kw):
        r = self.run(*args, **kw)
        assert r.returncode == 0, f"tony {args}: exit {r.returncode}\n{r.stdout}\n{r.stderr}"
        return r.stdout

    def json(self, *args, **kw):
        return json.loads(self.ok(*args, "--json", **kw))

    def start(self, *args, cwd=None, env=None, **kw):
        """A Popen, for what is to be interrupted."""
        return subprocess.Popen(self.argv(args), env={**self.env, **(env or {})}, cwd=cwd or self.base, stdin=subprocess.DEVNULL,
                                stdout=kw.pop("stdout", subprocess.PIPE), stderr=kw.pop("stderr", subprocess.PIPE), text=True, **kw)

    # ---- jobs ----

    def job_file(self, roles=None, directory=None, **top):
        """A job file from a dict (JSON is YAML). roles: {"worker": {...}}; memory defaults to little, also the master's."""
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
        """A job file as TonY's users have it."""
        rows = "".join(f"  <property><name>{k}</name><value>{v}</value></property>\n" for k, v in keys.items())
        path = pathlib.Path(directory or self.base) / name
        path.write_text(f"<?xml version='1.0'?>\n<configuration>\n{rows}</configuration>\n")
        return path

    def submit(self, path, *args):
        out = self.ok("submit", path, *args).strip()
        assert APP.fullmatch(out), out
        return out

    def status(self, app):
        return self.json("status", app)

    def await_state(self, app, *states, limit=90):
        return wait_until(lambda: (lambda s: s if s["state"] in states else None)(self.status(app)), f"job {app} in {states}", limit, 0.1)

    def tasks(self, app):
        return {t["task"]: t for t in self.json("tasks", app)["tasks"]}
