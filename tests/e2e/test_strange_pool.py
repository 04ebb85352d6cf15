# SPDX-License-Identifier: Apache-2.0
"""
A pool that misbehaves: another version, no answer, a closed connection, or no pool at all. The client reports
it and ends in time.
"""

import fcntl
import json
import os
import pathlib
import socket
import struct
import subprocess
import threading

import pytest
from conftest import wait_until


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def frame(body):
    return struct.pack(">I", len(body)) + body


def refused(num, message, hint=b""):
    return frame(field(1, field(1, num) + field(2, message) + field(3, hint)))


@pytest.fixture
def strange(own_tony):
    """
    Listens in place of the pool. After a request it answers with the given bytes, and then closes the
    connection or stays silent.
    """
    tony = own_tony()
    tony.ok("list")
    runtime = pathlib.Path((tony.home / "pool" / "runtime").read_text().strip())
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(runtime / "pool.sock"))
    listener.listen(16)
    tony.answers, tony.asked, held = [], [], []

    def serve():
        while True:
            try:
                conn, _ = listener.accept()
            except OSError:
                return
            data = conn.recv(65536)
            tony.asked.append(data)
            answer = tony.answers.pop(0) if tony.answers else None
            if answer is None:
                conn.close()
                continue
            try:
                conn.sendall(answer)
            except OSError:
                pass
            held.append(conn)  # the connection stays open

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield tony
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for conn in held:
        conn.close()
    os.unlink(runtime / "pool.sock")


def test_a_pool_of_another_version(strange):
    strange.answers += [refused(71, b"this pool speaks version 9, the client version 1", b"tony pool stop, then again")] * 2
    r = strange.run("run", strange.workers("true"))
    assert r.returncode == 4
    assert "version 9" in r.stderr and "hint: tony pool stop" in r.stderr
    r = strange.run("pool", "status")
    assert r.returncode == 4 and "version 9" in r.stderr


@pytest.mark.parametrize("num, code", [(22, 2), (34, 2), (28, 4), (30, 4), (12, 4), (99999, 4)])
def test_the_exit_code_of_a_refusal(strange, num, code):
    strange.answers += [refused(num, b"because of this")]
    r = strange.run("submit", strange.workers("true"))
    assert r.returncode == code and "because of this" in r.stderr and r.stdout == ""


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 64, frame(b"\xff" * 10), struct.pack(">I", 0)],
                         ids=["http", "long", "no message", "empty"])
def test_garbage(strange, garbage):
    strange.answers += [garbage] * 8
    r = strange.run("pool", "status", timeout=60)
    assert r.returncode == 4 and r.stderr.startswith("tony: ")


def test_an_answer_of_the_wrong_type(strange):
    strange.answers += [frame(field(40, field(1, b"[1, 2")))] * 3
    assert strange.run("pool", "status").returncode == 4
    assert strange.run("submit", strange.workers("true")).returncode == 4


def test_a_pool_that_always_closes_the_connection(strange):
    """The client tries again a few times, and then gives up."""
    r = strange.run("submit", strange.workers("true"), timeout=60)
    assert r.returncode == 4 and r.stderr.startswith("tony: ")
    assert 2 <= len(strange.asked) <= 10


def pool_lock(strange):
    path = strange.home / "pool/locks/pool"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    return path


def test_a_pool_has_stopped_when_it_gave_its_lock_up(strange):
    """
    The pool answers, stops listening, and then cleans up. `tony pool stop && rm -r ~/.tony` must wait for the
    end of that.
    """
    socket_path = next(strange.base.rglob("pool.sock"))
    with open(pool_lock(strange), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        strange.answers += [frame(field(40, field(1, b"{}")))]
        p = strange.start("pool", "stop")
        wait_until(lambda: strange.asked, "it was asked")
        aside = socket_path.with_name("aside")
        os.rename(socket_path, aside)
        with pytest.raises(subprocess.TimeoutExpired):
            p.wait(0.3)
    out, err = p.communicate(timeout=60)
    os.rename(aside, socket_path)
    assert p.returncode == 0 and "has stopped" in err


def test_a_pool_that_is_just_starting_is_stopped(strange):
    """The pool has its lock and does not listen yet. The client must not report that there is no pool."""
    socket_path = next(strange.base.rglob("pool.sock"))
    aside = socket_path.with_name("aside")
    os.rename(socket_path, aside)
    lock = open(pool_lock(strange), "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    strange.answers += [frame(field(40, field(1, b"{}")))]
    p = strange.start("pool", "stop")
    with pytest.raises(subprocess.TimeoutExpired):
        p.wait(0.3)
    os.rename(aside, socket_path)
    wait_until(lambda: strange.asked, "it is asked as soon as it listens")
    os.rename(socket_path, aside)
    lock.close()
    out, err = p.communicate(timeout=60)
    os.rename(aside, socket_path)
    assert p.returncode == 0 and "has stopped" in err


def test_wait_continues_after_an_invalid_update(strange):
    app = "application_1_0001"
    (strange.home / "jobs" / app).mkdir()
    update = field(41, field(1, app.encode()) + field(2, b"RUNNING") + field(3, b"{not json"))
    last = field(41, field(1, app.encode()) + field(2, b"FAILED") + field(3, b"") + field(4, 1) + field(5, 1))
    strange.answers += [frame(update) + frame(last)]
    assert strange.run("wait", app, timeout=60).returncode == 1
    (strange.home / "jobs" / app).rmdir()


def test_an_answer_in_parts(strange):
    """An answer that is longer than a frame comes in several.."""
    def part(text, more):
        return frame(field(40, field(1, text) + (field(2, 1) if more else b"")))
    strange.answers += [part(b'{"pid":7,"jo', True) + part(b'bs":[', True) + part(b"]}", False)]
    r = strange.run("pool", "status", "--json")
    assert r.returncode == 0 and json.loads(r.stdout)["pid"] == 7, r
