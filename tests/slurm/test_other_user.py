# SPDX-License-Identifier: Apache-2.0
"""A second user on the same nodes tries to read, join, stop and confuse a job on Slurm."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import pytest
from lib_attack import ATTACK, FIRST_BYTES, OWN, plan_text, worked
from lib_slurm import as_user, wait_until
from lib_tony import Tony
from test_slurm import LONG, RESTARTS

OTHER = "daemon"  # an ordinary user who exists on each machine
VALUE = "Wq9-of-the-first-user"

# Connects to the ports, writes what is no TLS to some, and holds the rest open.
INTRUDER = r"""
import os, socket, sys, time
held = []
for port in map(int, sys.argv[1:]):
    for i in range(150):
        s = socket.socket()
        s.settimeout(5)
        try:
            s.connect(("127.0.0.1", port))
            if i % 3 == 0:
                s.sendall(os.urandom(4096))
            elif i % 3 == 1:
                s.sendall(b"\x16\x03\x03\x40\x00")
        except OSError:
            continue
        held.append(s)
print("ready", flush=True)
time.sleep(600)
"""

# Speaks to the sockets of tasks.
LIAR = r"""
import socket, sys
for name in sys.argv[1:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        try:
            s = socket.socket(socket.AF_UNIX, kind)
            s.settimeout(2)
            s.connect("\0" + name)
            s.sendall(b'{"step": 666, "checkpoint": "/evil"}\n')
            s.recv(1)
        except OSError:
            pass
"""


def ports(pids):
    """The TCP ports at which these processes listen."""
    inodes = set()
    for pid in pids:
        for fd in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):  # it was closed meanwhile
                inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(fd)))
    lines = [line.split() for f in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{f}").read_text().splitlines()[1:]]
    return {int(x[1].rpartition(":")[2], 16) for x in lines if x[3] == "0A" and x[9] in inodes}


@pytest.fixture
def app(tony, slurm):
    """A job with a secret, which runs. All directories above TONY_HOME are open."""
    tony.base.chmod(0o755)
    secret = tony.base / "token"
    secret.write_text(VALUE + "\n")
    secret.chmod(0o600)
    shutil.chown(secret, tony.user)
    path = tony.job_file(f"echo begins; {LONG}", conf=RESTARTS)
    path.write_text(json.dumps({**json.loads(path.read_text()), "secrets": {"A_TOKEN": {"file": "token"}}}))
    app = tony("submit", path).stdout.strip()
    tony.await_running(app, 3)
    yield app
    if tony.status(app)["live"]:
        tony("stop", app)


def of_job(tony):
    return [pid for words in (("tony-keeper ",), ("tony-executor ",), ("tony-master",), ("sleep 5.5",)) for pid in tony.processes(*words)]


def test_reading(tony, slurm, app):
    homes = [tony.home, *(d for d in pathlib.Path("/tmp").glob("tony-slurm-*") if d.owner() == tony.user)]
    assert len(homes) > 1
    found = slurm.run("find", *homes, "(", "-type", "f", "-o", "-type", "s", ")", "-readable", user=OTHER)
    assert found.stdout == "" and "Permission denied" in found.stderr, found.stdout
    key = (tony.home / "jobs" / app / "key").read_bytes()
    for pid in of_job(tony):
        line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        assert VALUE.encode() not in line and key not in line and key.hex().encode() not in line, line
        assert slurm.run("cat", f"/proc/{pid}/environ", user=OTHER).returncode != 0
    number = tony.number(app)
    for command in (("scontrol", "show", "job", "-dd", number), ("scontrol", "show", "step", f"{number}.0"), ("squeue", "-o", "%all"),
                    ("scontrol", "write", "batch_script", number, "-")):
        done = slurm.run(*command, user=OTHER)
        assert VALUE not in done.stdout and str(key.hex()) not in done.stdout and "tony-executor" not in done.stdout, command


def test_stopping(tony, slurm, app):
    number, pid = tony.number(app), tony.processes("tony-master", "--cluster")[0]
    for command in (("scancel", number), ("scancel", f"{number}.0"), ("scontrol", "requeue", number), ("scontrol", "suspend", number),
                    ("scontrol", "update", f"JobId={number}", "TimeLimit=1"), ("srun", "--jobid", number, "--overlap", "true"),
                    ("kill", "-9", pid)):
        assert slurm.run(*command, user=OTHER, cwd="/").returncode != 0, command
    theirs = {**tony.env, "HOME": "/"}
    for words in (("stop", app), ("resize", app, "worker=1"), ("exec", app, "worker:0", "--", "true"), ("logs", app), ("status", app)):
        done = slurm.run(tony.program, *words, user=OTHER, env=theirs, cwd="/")
        assert done.returncode != 0 and "begins" not in done.stdout, (words, done.stdout)
    assert [t["attempt"] for t in tony.await_running(app, 3)["tasks"]] == [1, 1, 1]


def test_joining_and_lying(tony, slurm, app):
    """Connections of a stranger keep nobody out, and the sockets of tasks take no word of a stranger."""
    open_ports = ports(of_job(tony))
    assert open_ports
    intruder = subprocess.Popen([*as_user(OTHER), "/usr/bin/python3", "-c", INTRUDER, *map(str, open_ports)], cwd="/", stdout=subprocess.PIPE, text=True)
    try:
        assert intruder.stdout.readline() == "ready\n"
        texts = [pathlib.Path(f"/proc/{pid}/environ").read_text() for pid in tony.processes("sleep 5.5")]
        names = {name for text in texts for name in re.findall(r"TONY_TASK_SOCKET=@([^\0]+)", text)}
        assert len(names) >= 3, "each task has a socket"
        slurm.run("/usr/bin/python3", "-c", LIAR, *names, user=OTHER, cwd="/")
        os.kill(next(p for p in tony.processes("tony-keeper ", " node 1")), signal.SIGKILL)
        wait_until(lambda: sorted(t["attempt"] for t in tony.await_running(app, 3)["tasks"]) == [1, 1, 2], "the next keeper has registered")
        assert "666" not in json.dumps([t["step"] for t in tony.status(app)["tasks"]]) and not tony.status(app).get("checkpoint")
        os.kill(tony.processes("tony-master", "--cluster")[0], signal.SIGKILL)
        wait_until(lambda: tony.status(app)["epoch"] == 2, "the next master answers")
        assert sorted(t["attempt"] for t in tony.await_running(app, 3)["tasks"]) == [1, 1, 2]
    finally:
        intruder.kill()
        intruder.wait()


@pytest.mark.parametrize("framework,variable", [("horovod", "HOROVOD_GLOO_RENDEZVOUS_PORT"), ("pytorch", "MASTER_PORT"), ("mpi", "PMI_PORT")])
def test_the_server_of_the_ranks(tony, slurm, framework, variable):
    """Another user of its node gets no answer, so they can neither take a rank, nor abort the job, nor read or change a key."""
    path = tony.job_file(f"echo port ${variable}; {LONG}", instances=2, conf={"tony.slurm.nodes": 2})
    path.write_text(json.dumps({**json.loads(path.read_text()), "framework": framework}))
    app = tony("submit", path).stdout.strip()
    tony.await_running(app, 2)
    text = wait_until(lambda: (t := tony("logs", app, "worker:1", "--stdout", ok=False).stdout).startswith("port ") and t, "the port is known")
    port = text.strip().rsplit(":", 1)[-1].rpartition(" ")[2]

    def attack():
        done = slurm.run("/usr/bin/python3", "-c", ATTACK, user=OTHER, cwd="/", stdin=None, input=plan_text(ports=[int(port)], texts=FIRST_BYTES))
        assert done.returncode == 0, done.stderr
        return worked(done.stdout)
    assert not attack()
    if framework == "horovod":
        said = slurm.run("/usr/bin/python3", "-c", OWN, port, user=tony.user, cwd="/").stdout
        assert "200 OK" in said and said.endswith("right\n"), said
        assert not attack()
        said = slurm.run("/usr/bin/python3", "-c", OWN.replace("PUT", "GET"), port, user=tony.user, cwd="/").stdout
        assert said.endswith("right\n"), said
    assert [t["attempt"] for t in tony.await_running(app, 2)["tasks"]] == [1, 1]
    tony("stop", app)


def test_confusing(tony, slurm, app):
    """Jobs and files of another user that have the names of those of tony."""
    trap = pathlib.Path("/tmp/tony-slurm-of-another-user")
    shutil.rmtree(trap, ignore_errors=True)
    trap.mkdir()
    (trap / "lock").symlink_to(tony.home / "jobs" / app / "job.conf")
    subprocess.run(["chown", "-hR", OTHER, trap], check=True)
    theirs = [slurm.run("sbatch", "--parsable", "--hold", "-o", "/dev/null", "-J", name, "--wrap", "true", user=OTHER, cwd="/").stdout.strip()
              for name in (f"tony-further-{app}", "tony-x")]
    try:
        assert all(theirs)
        assert [row["application_id"] for row in json.loads(tony("list", "--cluster", "slurm", "--json").stdout)["jobs"]] == [app]
        os.kill(next(p for p in tony.processes("tony-keeper ", " node 1")), signal.SIGKILL)
        wait_until(lambda: sorted(t["attempt"] for t in tony.await_running(app, 3)["tasks"]) == [1, 1, 2], "the keeper and its task restart")
        (tony.home / "jobs" / app / "further.json").write_text(json.dumps({"run": 0, "next": 3, "list": []}))  # so that the end cancels all
        tony("stop", app)
        wait_until(lambda: set(slurm.jobs()) == set(theirs), "only the jobs of the other user are left")
        again = tony("run", tony.job_file("true"))
        assert "SUCCEEDED" in again.stdout and trap.exists()
    finally:
        slurm.run("scancel", *theirs)
        shutil.rmtree(trap)


@pytest.mark.slow
def test_two_users_on_the_same_nodes(tony, slurm, app):
    """Each has a job there. They see only their own; what dies belongs to one; and files that name the other's job reach nothing of it."""
    base = pathlib.Path(tempfile.mkdtemp(prefix="th-", dir="/tmp"))
    shutil.chown(base, OTHER)
    theirs = Tony(slurm, base, OTHER)
    try:
        second = theirs.submit(LONG, conf=RESTARTS)
        assert {t["node"] for t in theirs.await_running(second, 3)["tasks"]} == {t["node"] for t in tony.status(app)["tasks"]}
        for of_one, own, other in ((tony, app, second), (theirs, second, app)):
            rows = json.loads(of_one("list", "--cluster", "slurm", "--json").stdout)["jobs"]
            assert [row["application_id"] for row in rows] == [own]
            for words in (("status", other), ("stop", other), ("logs", other), ("exec", other, "worker:0", "--", "true")):
                done = of_one(*words, ok=False)
                assert done.returncode == 2 and "there is no job" in done.stderr, done
        uid = pathlib.Path(base).stat().st_uid
        os.kill(next(p for p in tony.processes("tony-keeper ", " node 1") if os.stat(f"/proc/{p}").st_uid == uid), signal.SIGKILL)
        wait_until(lambda: sorted(t["attempt"] for t in theirs.await_running(second, 3)["tasks"]) == [1, 1, 2], "the keeper and its task restart")
        forged = theirs.home / "jobs" / app
        shutil.copytree(theirs.home / "jobs" / second, forged)
        shutil.copy(tony.home / "jobs" / app / "master.json", forged)
        subprocess.run(["chown", "-R", OTHER, forged], check=True)
        assert not theirs.status(app).get("tasks")
        theirs("stop", app, ok=False)  # the copy has the number of their own job
        assert [t["attempt"] for t in tony.await_running(app, 3)["tasks"]] == [1, 1, 1]
    finally:
        theirs("stop", second, ok=False)
        shutil.rmtree(base)
