# SPDX-License-Identifier: Apache-2.0
"""exec, forward and cp into a task on a real Hadoop: over TLS, through the master."""

import hashlib
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import threading

import pytest
from lib_cluster import wait_until


def popen(tony, *args):
    return subprocess.Popen(tony.argv(args), env=tony.env, cwd=tony.base,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(tony, *args, data=b""):
    p = popen(tony, *args)
    out, err = p.communicate(data, timeout=120)
    return p.returncode, out, err


def with_argument(text):
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and text.encode() in pathlib.Path("/proc", entry, "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry))
        except OSError:
            continue
    return found


@pytest.mark.takes(20)
def test_streams_on_yarn(tony, base):
    app = tony.submit(tony.workers("sleep 600", n=2))
    wait_until(lambda: {t["state"] for t in tony.json("tasks", app)["tasks"] or []} == {"running"}, "both tasks run", 120, 0.2)
    code, out, err = run(tony, "exec", app, "worker:1", "--", "sh", "-c", 'echo "$TONY_TASK"; echo err >&2; exit 7')
    assert (code, out, err) == (7, b"worker:1\n", b"err\n")

    data = random.Random(5).randbytes(8 << 20)
    code, out, err = run(tony, "exec", app, "worker:0", "-i", "--", "cat", data=data)
    assert code == 0 and hashlib.sha256(out).digest() == hashlib.sha256(data).digest()

    (base / "there").mkdir()
    (base / "there" / "f").write_bytes(data)
    assert run(tony, "cp", app, base / "there", "worker:0:copy") == (0, b"", b"")
    assert run(tony, "cp", app, "worker:0:copy/f", base / "back") == (0, b"", b"")
    assert (base / "back").read_bytes() == data

    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve():
            c, _ = server.accept()
            with c:
                c.sendall(c.recv(100).upper())
        threading.Thread(target=serve, daemon=True).start()
        p = popen(tony, "forward", app, "worker:0", f"0:{server.getsockname()[1]}")
        port = int(re.search(rb"127.0.0.1:(\d+) ->", p.stdout.readline()).group(1))
        with socket.create_connection(("127.0.0.1", port), 30) as c:
            c.settimeout(60)
            c.sendall(b"hello")
            assert c.recv(100) == b"HELLO"
        p.send_signal(signal.SIGINT)
        assert p.wait(60) == 0
        p.communicate()

    # Killed clients, and the end of the job, leave nothing behind.
    p = popen(tony, "exec", app, "worker:0", "--", "sh", "-c", "trap '' HUP TERM; setsid sleep 7636 & echo ready; sleep 7636")
    assert p.stdout.readline() == b"ready\n"
    p.kill()
    p.communicate()
    wait_until(lambda: not with_argument("7636"), "the command has ended with its client", 60, 0.1)
    p = popen(tony, "exec", app, "worker:0", "--", "sh", "-c", "trap '' HUP TERM; setsid sleep 7637 & echo ready; sleep 7637")
    assert p.stdout.readline() == b"ready\n"
    tony.ok("kill", app)
    assert p.wait(60) == 4
    p.communicate()
    wait_until(lambda: not with_argument("7637"), "the command has ended with the job", 60, 0.1)
    wait_until(lambda: b"is over" in run(tony, "exec", app, "worker:0", "--", "true")[2], "the user is told that the job is over", 60, 0.2)


def of_job(app, name):
    """Pids of processes with this name that have the number of the job in their environment."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            d = pathlib.Path("/proc", entry)
            if d.joinpath("comm").read_text().strip() == name and app.split("_", 1)[1].encode() in d.joinpath("environ").read_bytes():
                found.append(int(entry))
        except OSError:
            continue
    return found


VICTIMS = ["client", "stream", "task", "executor", "master"]


@pytest.mark.takes(30)
@pytest.mark.parametrize("victim", VICTIMS)
def test_nothing_is_left_after_kill_9(tony, victim):
    """As tests/e2e/test_streams.py on the pool. The numbers are those of this test alone: others may run beside it."""
    mark, task = f"764{VICTIMS.index(victim)}", f"765{VICTIMS.index(victim)}"
    app = tony.submit(tony.workers(f"sleep {task}"))
    wait_until(lambda: with_argument(task) and [t["state"] for t in tony.json("tasks", app)["tasks"] or []] == ["running"], "the task runs", 180, 0.2)
    p = popen(tony, "exec", app, "worker:0", "-i", "--", "sh", "-c",
              f"trap '' HUP TERM INT; setsid sh -c 'setsid sleep {mark} & sleep {mark}' & echo ready; sleep {mark}")
    assert p.stdout.readline() == b"ready\n"
    wait_until(lambda: len(with_argument(mark)) >= 3, "the command runs", 120, 0.1)
    pids = {"client": [p.pid], "task": with_argument(task)}.get(victim) or of_job(app, f"tony-{victim}")
    assert len(pids) == 1
    os.kill(pids[0], signal.SIGKILL)
    p.wait(180)
    assert p.returncode == (-signal.SIGKILL if victim == "client" else 4), p.stderr.read()
    p.communicate()
    wait_until(lambda: not with_argument(mark), "nothing of the command is left", 120, 0.1)
    wait_until(lambda: not of_job(app, "tony-stream"), "no process of the stream is left", 120, 0.1)
    if victim in ("client", "stream", "master"):
        wait_until(lambda: run(tony, "exec", app, "worker:0", "--", "echo", "again")[1] == b"again\n", "a new stream works", 180, 0.2)
        assert tony.json("tasks", app)["tasks"][0]["attempt"] == 1
    tony.run("kill", app)
    wait_until(lambda: not with_argument(task), "the task is gone", 120, 0.1)
