# SPDX-License-Identifier: Apache-2.0
"""
A second user of the same machine tries to join, read, stop and confuse a job. Only the modes and checks of tony
protect it: the directories around its own are open to everybody.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from conftest import NOBODY, wait_until
from lib_attack import ATTACK, CLAIM, FIRST_BYTES, LISTEN, OWN, plan_text, worked
from lib_jobs import Gated, lab, make_lab  # noqa: F401 (fixtures)
from test_gpu import fake_nvml

OTHER = NOBODY - 1

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")

def attack(**plan):
    r = subprocess.run([sys.executable, "-c", ATTACK], input=plan_text(**plan), capture_output=True, text=True, timeout=100,
                       user=OTHER, group=OTHER, extra_groups=[], cwd="/")
    assert r.returncode == 0, r.stderr
    return worked(r.stdout)


@pytest.fixture
def victim(make_lab):  # noqa: F811
    """A home whose surroundings are open to all."""
    lab = make_lab(as_nobody=True)  # noqa: F811
    for path in (lab.base, lab.base / "run", lab.bin):
        path.chmod(0o755)
    return lab


def test_the_attack_itself_works(victim):
    """The program that attacks reports each attack that succeeds: here all of them do."""
    open_file = victim.base / "open"
    open_file.write_text("hello")
    assert len(attack(files=[str(open_file)])) == 1


def test_files_sockets_and_processes_of_a_job(victim):
    job = Gated(victim, 2, env={"PASSWORD": "correct horse"}).running()
    live = victim.home / "jobs" / job.app
    files = [p for p in victim.home.rglob("*") if p.is_file()]
    names = {p.name for p in files}
    assert {"job.conf", "key", "journal", "exits", "stdout", "stderr", "pool.log", "pool"} <= names, names
    sockets = [p for p in victim.home.parent.rglob("*") if p.is_socket()]
    assert len(sockets) == 3, sockets
    directories = [victim.home, *[p for p in victim.home.rglob("*") if p.is_dir()], *{p.parent for p in sockets}]
    tony = ["env", f"TONY_HOME={victim.home}", f"XDG_RUNTIME_DIR={victim.base}/run", f"{victim.bin}/tony"]
    key = (live / "key").read_bytes().hex()
    did = attack(
        files=list(map(str, files)), sockets=list(map(str, sockets)), directories=list(map(str, directories)),
        pids=[p.pid for p in victim.processes_all()], secrets=["correct horse", key],
        commands=[tony + argv for argv in (["list"], ["status", job.app], ["logs", job.app], ["why", job.app], ["kill", job.app],
                                           ["wait", job.app], ["pool", "status"], ["pool", "stop", "--force"],
                                           ["exec", job.app, "worker:0", "--", "id"])])
    assert not did, "\n".join(did)
    job.release_all()
    job.over()
    job.started_once()
    final = victim.home / "history" / job.app
    files = [p for p in final.rglob("*") if p.is_file()]
    assert not attack(files=list(map(str, files)), directories=[str(final), str(final.parent)])
    victim.settled()


def test_the_socket_of_a_task(victim):
    """Another user cannot use the task's socket. It is an abstract socket, which has no mode, so tony checks each
    peer."""
    job = Gated(victim, 1, before='echo "$TONY_TASK_SOCKET" > name;').running()
    wait_until(lambda: (job.dir / "name").exists() and (job.dir / "name").read_text(), "the task has a socket")
    name = (job.dir / "name").read_text().strip().lstrip("@")
    assert name and not attack(abstract=[name])
    assert victim.status(job.app)["tasks"][0]["step"] != 4711
    job.release_all()
    job.over()
    victim.settled()


# Connects to the socket of a task again and again. $1: its name. Ends when its standard input ends.
STORM = """
import select, socket, sys
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(200):
        with socket.socket(socket.AF_UNIX) as s:
            s.setblocking(False)
            try:
                s.connect("\\0" + sys.argv[1])
            except OSError:
                pass
"""

# A program of the task. $1: the name of the socket.
ASK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect("\\0" + sys.argv[1])
    s.sendall(b'{"step": 7, "ask": "stop"}\\n')
    print(s.recv(100).decode())
"""


def test_a_storm_on_the_socket_of_a_task(victim):
    """Another user who connects without a pause does not keep the task itself from its socket."""
    job = Gated(victim, 1, before='echo "$TONY_TASK_SOCKET" > name;').running()
    wait_until(lambda: (job.dir / "name").exists() and (job.dir / "name").read_text(), "the task has a socket")
    name = (job.dir / "name").read_text().strip().lstrip("@")
    storms = [subprocess.Popen([sys.executable, "-c", STORM, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=OTHER, group=OTHER,
                               extra_groups=[], cwd="/") for _ in range(2)]
    try:
        for storm in storms:
            assert storm.stdout.readline() == "ready\n"
        for _ in range(5):
            asked = subprocess.run([sys.executable, "-c", ASK, name], capture_output=True, text=True, timeout=100, **victim.user)
            assert "stop" in asked.stdout, asked
    finally:
        for storm in storms:
            storm.communicate("")
    job.release_all()
    assert job.over()["tasks"][0]["step"] == 7
    victim.settled()


@pytest.mark.parametrize("framework,variable", [("horovod", "HOROVOD_GLOO_RENDEZVOUS_PORT"), ("pytorch", "MASTER_PORT"), ("mpi", "PMI_PORT")])
def test_the_server_of_the_ranks_refuses_another_user(victim, framework, variable):
    """Another user gets no answer, so they can neither take a rank, nor abort the job, nor read or change a key."""
    job = Gated(victim, 2, before=f'echo "${variable}" > port.new$TASK_INDEX; mv port.new$TASK_INDEX port$TASK_INDEX;', framework=framework).running()
    wait_until(lambda: (job.dir / "port0").exists() and (job.dir / "port1").exists(), "the tasks know the port")
    port = (job.dir / "port1").read_text().strip().rsplit(":", 1)[-1]
    assert port.isdigit(), port
    did = attack(ports=[int(port)], texts=FIRST_BYTES)
    assert not did, did
    if framework == "horovod":
        own = [sys.executable, "-c", OWN, port]
        said = subprocess.run(own, capture_output=True, text=True, timeout=60, **victim.user).stdout
        assert "200 OK" in said and said.endswith("right\n"), said
        assert not attack(ports=[int(port)], texts=FIRST_BYTES)
        said = subprocess.run(own[:-2] + [OWN.replace("PUT", "GET"), port], capture_output=True, text=True, timeout=60, **victim.user).stdout
        assert said.endswith("right\n"), said
    warned = "".join(p.read_text() for p in (victim.home / "jobs" / job.app / "logs").rglob("executor.log"))
    assert f"a process of user {OTHER} tried to connect" in warned
    assert victim.state(job.app) == "RUNNING"
    job.release_all()
    job.over()
    job.started_once()
    victim.settled()


# Opens 500 connections, and holds all that the server does not close. $1: the port.
FLOOD = """
import socket, sys
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) for _ in range(500)]
print("ready", flush=True)
sys.stdin.read()
"""


def test_many_connections_of_another_user(victim):
    """500 connections of another user do not keep the job's own ranks from connecting."""
    job = Gated(victim, 2, before='echo "$HOROVOD_GLOO_RENDEZVOUS_PORT" > port.new$TASK_INDEX; mv port.new$TASK_INDEX port$TASK_INDEX;',
                framework="horovod").running()
    wait_until((job.dir / "port1").exists, "the tasks know the port")
    port = (job.dir / "port1").read_text().strip()
    flood = subprocess.Popen([sys.executable, "-c", FLOOD, port], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             user=OTHER, group=OTHER, extra_groups=[], cwd="/")
    try:
        assert flood.stdout.readline() == "ready\n"
        said = subprocess.run([sys.executable, "-c", OWN, port], capture_output=True, text=True, timeout=60, **victim.user).stdout
        assert "200 OK" in said and said.endswith("right\n"), said
    finally:
        flood.communicate("")
    job.release_all()
    job.over()
    job.started_once()
    victim.settled()


# Holds 200 connections to a web server and never completes a request. $1: the port.
SLOW = """
import socket, sys
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) for _ in range(200)]
for s in held:
    try:
        s.sendall(b"GET /met")
    except OSError:
        pass
print("ready", flush=True)
sys.stdin.read()
"""


def test_slow_connections_to_the_page(make_lab):  # noqa: F811
    """Connections of another user that never send a request do not keep a reader from the pool's page."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    lab = make_lab(as_nobody=True, site={"pool.page-port": port})  # noqa: F811
    job = Gated(lab, 1).running()
    slow = subprocess.Popen([sys.executable, "-c", SLOW, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            user=OTHER, group=OTHER, extra_groups=[], cwd="/")
    try:
        assert slow.stdout.readline() == "ready\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
            assert b"tony_pool_jobs" in page.read()
    finally:
        slow.communicate("")
    job.release_all()
    job.over()
    lab.settled()


def test_a_forwarded_port(victim):
    """tony forward listens on loopback, for processes of its own user only."""
    job = Gated(victim, 1).running()
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = victim.start("forward", job.app, "worker:0", f"0:{server.getsockname()[1]}")
        port = int(re.search(r"127.0.0.1:(\d+) ->", client.stdout.readline()).group(1))
        server.settimeout(3)
        assert not attack(ports=[port], texts=["hello"])
        with pytest.raises(TimeoutError):
            server.accept()  # nothing was passed on
        server.settimeout(60)
        say = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.sendall(b'hello'); print(s.recv(5))"
        own = subprocess.Popen([sys.executable, "-c", say, str(port)], stdout=subprocess.PIPE, text=True, **victim.user)
        with server.accept()[0] as c:
            assert c.recv(5) == b"hello"
            c.sendall(b"right")
            assert own.communicate(timeout=60)[0] == "b'right'\n"
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=60)
    job.release_all()
    job.over()
    victim.settled()


# Another user owns the directory below /tmp in which sockets are usually made. $1: the home's surroundings, $2: user, $3: other
TAKEN = """set -e
mount --bind "$1" /mnt; mount -t tmpfs -o mode=1777 none /tmp; mkdir -p "$1"; mount --bind /mnt "$1"
mkdir -m 755 /tmp/tony-$2; chown $3 /tmp/tony-$2
exec setpriv --reuid=$2 --regid=$2 --clear-groups -- env -u XDG_RUNTIME_DIR sh -ec '
tony run -q "$0"; tony list; ls -ld /tmp/tony-*-*; rm -r /tmp/tony-*-*; tony run -q "$0"; tony pool stop' "$4"
"""


def test_the_name_of_the_runtime_directory_is_taken(victim):
    """Then tony puts its sockets into a directory with a random name, and into another one if a program that
    cleans /tmp removes that."""
    job = victim.workers("echo hello")
    r = subprocess.run(["unshare", "-m", "sh", "-c", TAKEN, "sh", victim.base, str(NOBODY), str(OTHER), job],
                       env=victim.env, capture_output=True, text=True, timeout=120, cwd="/")
    assert r.returncode == 0, r.stdout + r.stderr
    assert r.stdout.count("SUCCEEDED") >= 2 and f"/tmp/tony-{NOBODY}-" in r.stdout, r.stdout


def test_a_port_that_another_user_has_taken(victim):
    """
    A port is reserved for a task by a socket that lets the task bind it, too, and the kernel lets another user do the
    same. tony does not take that user's program for the TensorBoard or notebook of the task, and sends it nothing.
    """
    job = Gated(victim, 1, before='echo "$TB_PORT" > port.new; mv port.new port;', framework="tensorflow").running()
    wait_until((job.dir / "port").exists, "the task knows its port")
    port = int((job.dir / "port").read_text())
    said = victim.base / "thief"
    with open(said, "w") as out:
        thief = subprocess.Popen([sys.executable, "-c", LISTEN, str(port)], stdout=out, user=OTHER, group=OTHER, extra_groups=[], cwd="/")
    try:
        wait_until(lambda: said.read_text().startswith("bound\n"), "the other user has the port")
        # the executor looks whether a TensorBoard answers, and looks again
        wait_until(lambda: said.read_text().count("connected b''") >= 2, "the executor does not believe it")
        assert victim.status(job.app)["tensorboard"] is None
        client = victim.start("forward", job.app, "worker:0", f"0:{port}")
        local = int(re.search(r"127.0.0.1:(\d+) ->", client.stdout.readline()).group(1))
        say = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.sendall(b'token'); print(s.recv(9))"
        own = subprocess.run([sys.executable, "-c", say, str(local)], capture_output=True, text=True, timeout=60, **victim.user)
        assert "welcome" not in own.stdout, own
        assert f"port {port} of the task's machine belongs to another user" in client.stderr.readline()
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=60)
    finally:
        thief.kill()
        thief.wait()
    assert "token" not in said.read_text()
    serve = [sys.executable, "-c", LISTEN, str(port)]
    board = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, cwd="/", **victim.user)
    try:
        wait_until(lambda: victim.status(job.app)["tensorboard"], "that of the job's own user is found")
    finally:
        board.kill()
        board.communicate()
    job.release_all()
    job.over()
    victim.settled()


# A task that listens at its port once the file `go` is there.
LATE = """import os, socket
with socket.socket() as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("0.0.0.0", int(os.environ["TONY_ADDRESS"].rpartition(":")[2])))
    s.listen()
"""


def test_the_user_who_has_taken_a_port_is_named(victim):
    work = victim.base / "work"
    work.mkdir()
    (work / "late.py").write_text(LATE)
    victim.give(work, *work.iterdir())
    app = victim.submit(victim.workers(f"cd {work}; echo ${{TONY_ADDRESS##*:}} > new; mv new port; until [ -e go ]; do sleep 0.1; done; python3 late.py"))
    wait_until((work / "port").exists, "the task knows its port")
    port = (work / "port").read_text().strip()
    thief = subprocess.Popen([sys.executable, "-c", LISTEN, port], stdout=subprocess.PIPE, text=True, user=OTHER, group=OTHER, extra_groups=[], cwd="/")
    try:
        assert thief.stdout.readline() == "bound\n"
        (work / "go").touch()
        assert victim.run("wait", app).returncode == 1
    finally:
        thief.kill()
        thief.communicate()
    said = " ".join(victim.ok("why", app).split())
    assert f"a process of user {OTHER} listens at port {port}, which is reserved for this task" in said, said
    victim.settled()


def test_a_user_whom_only_the_name_service_knows(victim):
    """tony is a static program, which cannot load the name service's modules. It asks getent for a user of LDAP."""
    uid, base = 54321, victim.base / "ldap"
    for path in (base, base / "home", base / "bin"):
        path.mkdir()
        path.chmod(0o755)
        os.chown(path, uid, uid)
    getent = base / "bin/getent"
    getent.write_text(f'#!/bin/sh\n[ "$*" = "passwd {uid}" ] && echo "alice:x:{uid}:{uid}::/home:/bin/sh"\n')
    getent.chmod(0o755)
    env = {**victim.env, "TONY_HOME": str(base / "home"), "XDG_RUNTIME_DIR": str(base), "PATH": f"{base}/bin:{victim.env['PATH']}"}
    for command in (["run", "-q", "--", "true"], ["pool", "stop"]):
        r = subprocess.run([victim.bin / "tony", *command], env=env, user=uid, group=uid, extra_groups=[], cwd="/",
                           capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r.stderr
    summaries = [json.loads(p.read_text()) for p in (base / "home/history").glob("*/summary*")]
    assert [s["user"] for s in summaries] == ["alice"], summaries


def test_a_gpu_that_another_user_claims(make_lab, tmp_path):  # noqa: F811
    """The job waits, and its status names the process and the user that claim the GPU."""
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == os.geteuid() and directory != directory.parent:
            directory.chmod(directory.stat().st_mode | 0o711)
    tmp_path.chmod(0o1777)
    lab = make_lab(as_nobody=True, TONY_NVML=fake_nvml(), FAKE_GPUS="2", TONY_GPU_LOCKS=str(tmp_path))  # noqa: F811
    thief = subprocess.Popen([sys.executable, "-c", CLAIM, "1", str(tmp_path)], stdout=subprocess.PIPE, text=True,
                             user=OTHER, group=OTHER, extra_groups=[], cwd="/")
    try:
        pid = thief.stdout.readline().strip()
        app = lab.submit(lab.workers("true", n=2, role={"gpus": 1}))
        program = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        text = f"GPU 1 is used by another job of this machine (user {OTHER}, process {pid}, {program})"
        for command in ("status", "why"):
            wait_until(lambda: text in " ".join(lab.ok(command, app).split()), f"tony {command} says it")
        assert lab.status(app)["state"] in ("WAITING", "STARTING")
        gpus = [c["value"] for c in lab.json("doctor")["checks"] if c["name"] == "GPU"]
        assert len(gpus) == 2 and gpus[1].endswith(f"; claimed by user {OTHER}, process {pid}, {program}"), gpus
    finally:
        thief.kill()
        thief.communicate()
    wait_until(lambda: lab.state(app) == "SUCCEEDED", "the job runs")
    lab.settled()
