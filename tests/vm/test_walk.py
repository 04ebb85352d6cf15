# SPDX-License-Identifier: Apache-2.0
"""
What an ordinary user does on a fresh machine, with the commands of README.md and docs/troubleshooting.md: install the
package that `make deb` makes, run a first job, exceed a limit of memory, log out and in, and go on after the machine
has lost its power.
"""

import re
import subprocess

import pytest
from conftest import ROOT, machine_with
from lib_pages import blocks
from lib_vm import ENGINES
from test_reboot import TIMES, TRAIN, resumed_at, steps

# Also what tony's package needs. The other packages are those of test_images.py, whose image of a disk is there already
# for the most part.
PACKAGES = (*ENGINES, "libarchive13")
# What README.md tells a new user to type after the installation.
README = "; ".join(line for line in next(b for b in blocks("README.md") if b.kind() == "packages").text.splitlines()
                   if line.startswith("tony"))


@pytest.fixture(scope="module")
def machine():
    made = subprocess.run(["make", "--no-print-directory", "deb"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=3600)
    assert made.returncode == 0, made.stdout + made.stderr
    deb = ROOT / made.stdout.split()[-1]
    for found in machine_with(packages=PACKAGES, files=[deb]):
        # the programs of the package, and not those that other tests use
        found.ssh("root", f"apt-get install -y --no-install-recommends /tony/{deb.name} && umount /tony && sed -i s,/tony:,, /etc/environment", timeout=600)
        assert found.out("user", "command -v tony; ls /tony") == "/usr/bin/tony"
        yield found


@pytest.mark.parametrize("lingers", [False, True], ids=["without-lingering", "lingering"])
def test_memory_session_power(user, lingers):
    machine = user.machine
    try:
        walk(user, machine, lingers)
    finally:
        machine.ssh("root", "loginctl disable-linger user")
        user.sh("rm -rf steps saved")


def walk(user, machine, lingers):
    out = user.sh(README, timeout=300)
    assert all(f"I am task {i} of 3" in out for i in range(3)), out

    # the limit of memory: first as the machine is, then after what doctor and the page advise
    found = next(c for c in user.json("doctor")["checks"] if c["name"] == "cgroups")
    assert found["state"] == "note" and "loginctl enable-linger" in found["hint"], found
    if lingers:
        machine.ssh("root", "loginctl enable-linger user")
        user.tony("pool", "stop")
        found = next(c for c in user.json("doctor")["checks"] if c["name"] == "cgroups")
        assert found["state"] == "ok", found
    hog = "python3 -c 'import time; x = bytearray(300 << 20); time.sleep(100000)'"
    r = machine.ssh("user", f"tony run --memory 96m -- {hog}", check=False, timeout=600)
    assert r.returncode == 1 and "out of memory" in " ".join((r.stdout + r.stderr).split()), r
    assert "memory" in user.tony("why", "last")

    # the session
    machine.write("user", "train.py", TRAIN)
    app = user.submit("cd $HOME; exec python3 train.py", **{"restart-on-boot": True})
    user.wait_for(lambda: len(steps(user)) > 2, "the task works")
    pid = user.sh("pgrep -u user -f '^python3 train.py'")
    if lingers:  # all processes of all sessions of the user end
        machine.ssh("root", "for s in $(loginctl list-sessions --no-legend | awk '$3 == \"user\" { print $1 }'); do loginctl terminate-session $s; done")
    listed = user.json("list")["jobs"][0]
    assert (listed["application_id"], listed["state"]) == (app, "RUNNING"), listed
    assert user.sh("pgrep -u user -f '^python3 train.py'") == pid
    assert user.json("status", "last")["restarts"] == 0

    # the power
    user.wait_for(lambda: len(steps(user)) > 5, "the task works on")
    user.sh("sync")
    machine.lose_power()
    machine.boot()
    if not lingers:
        assert user.sh("pgrep -c tony-keeper || true") == "0"
        user.tony("list")
    assert resumed_at(user) >= 3
    for command in ("status last", "why last", "list"):
        text = " ".join(user.tony(command).split())
        assert re.search(TIMES, text), text
    doc = user.json("status", app)
    assert doc["state"] == "RUNNING" and doc["restarts"] == 1
    user.tony("kill", "last")
    assert user.over(app)["state"] == "KILLED"
    user.tony("pool", "disable")
