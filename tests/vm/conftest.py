# SPDX-License-Identifier: Apache-2.0
"""
Tests in a machine of their own (lib_vm.py): what needs systemd, login sessions, control groups v2, a second user
or a lost power supply. Each file of tests boots one machine.
"""

import json
import os
import pathlib
import shutil
import tempfile
import time

import pytest
from lib_vm import Machine, missing

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TONY_BUILD", ROOT / "build")) / "bin"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """With `-n 2 --dist loadgroup` two machines run side by side: each file of tests has one, and each engine of images."""
    for item in items:
        params = getattr(item, "callspec", None)
        engine = params.params.get("on_engine", "") if params else ""
        item.add_marker(pytest.mark.xdist_group(f"{item.path.name}-{engine.partition('-')[0]}"))


def pytest_runtest_logreport(report):
    """A run takes long and may be cut short: show a failure at once, and not only at the end."""
    if report.failed:
        print(f"\n{report.nodeid} has failed:\n{report.longreprtext}\n", flush=True)


class Jobs:
    """tony as one user of the machine; each command is a login session of its own."""

    def __init__(self, machine, user):
        self.machine, self.user, self.n = machine, user, 0

    def sh(self, command, **kw):
        return self.machine.out(self.user, command, **kw)

    def tony(self, *args, **kw):
        return self.sh(f"tony {' '.join(args)}", **kw)

    def json(self, *args):
        return json.loads(self.tony(*args, "--json"))

    def submit(self, command, memory="64m", **top):
        self.n += 1
        doc = {"name": "test", "framework": "generic", "roles": {"worker": {"instances": 1, "memory": memory, "command": command}}, **top}
        self.machine.write(self.user, f"job{self.n}.yaml", json.dumps(doc))
        return self.tony("submit", f"job{self.n}.yaml")

    def state(self, app):
        return self.json("status", app)["state"]

    def wait_for(self, condition, what, limit=120):
        until = time.monotonic() + limit
        while not (value := condition()):
            assert time.monotonic() < until, f"within {limit} s: {what}"
            time.sleep(0.5)
        return value

    def running(self, command="echo $$ > started; sleep 1000", **kw):
        """A job whose task runs; its id and the pid of the task."""
        app = self.submit(command.replace("started", f"$HOME/started{self.n + 1}"), **kw)
        pid = self.wait_for(lambda: self.sh(f"cat started{self.n} || true"), "the task runs")
        return app, int(pid)

    def over(self, app):
        self.wait_for(lambda: self.state(app) in ("SUCCEEDED", "FAILED", "KILLED"), f"{app} is over")
        return self.json("status", app)


def machine_with(**kw):
    """A generator for fixtures: a machine that is removed afterwards."""
    lacks = missing()
    if lacks:
        pytest.skip(f"optional: {lacks}")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="tony-vm-"))
    found = None
    try:
        found = Machine(directory, BIN, **kw)
        yield found
    finally:
        if found:
            found.stop()
        shutil.rmtree(directory)


@pytest.fixture(scope="module")
def machine():
    yield from machine_with()


@pytest.fixture
def user(machine):
    jobs = Jobs(machine, "user")
    yield jobs
    jobs.sh("tony pool stop --force; rm -rf ~/.tony ~/started* ~/job*; true")
