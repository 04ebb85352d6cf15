# SPDX-License-Identifier: Apache-2.0
"""Streams into a running task: exec, shell, forward, cp (docs/streams.md)."""

import fcntl
import hashlib
import os
import pathlib
import pty
import random
import re
import select
import signal
import socket
import stat
import struct
import subprocess
import termios
import threading
import time

import pytest
from conftest import wait_until
from lib_jobs import kill9, stat_of


@pytest.fixture
def app(tony):
    """A job with two tasks that run until the test ends."""
    app = tony.submit(tony.workers("sleep 600", n=2))
    tony.await_state(app, "RUNNING")
    wait_until(lambda: all(t["state"] == "running" for t in tony.tasks(app).values()), "both tasks run")
    yield app
    tony.run("kill", app)


def popen(tony, *args, **kw):
    """`tony ARGS` with pipes for bytes."""
    return subprocess.Popen([str(tony.bin / "tony"), *map(str, args)], env=tony.env, cwd=tony.base,
                            stdin=kw.pop("stdin", subprocess.PIPE), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)


def run(tony, *args, data=b"", timeout=60):
    p = popen(tony, *args)
    out, err = p.communicate(data, timeout=timeout)
    return p.returncode, out, err


def marked(tony, app, text):
    """Pids of processes on this machine that have `text` among their arguments, and belong to this job."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            line = pathlib.Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
            env = pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if text.encode() in line and f"TONY_APPLICATION_ID={app}".encode() in env:
            found.append(int(entry))
    return found


def test_the_programs_encrypt_with_libsodium(tony):
    """The linker leaves out functions that nothing calls. These are called instead of those of Mbed TLS."""
    for name in ("tony", "tony-master", "tony-executor"):
        names = subprocess.run(["nm", str(tony.bin / name)], check=True, capture_output=True, text=True).stdout
        for function in ("encrypt_and_tag", "auth_decrypt"):
            assert f" T __wrap_mbedtls_chachapoly_{function}\n" in names, (name, function)


def named(tony, comm):
    """Pids of the home's processes that have this name: tony-keeper, tony-executor, tony-stream."""
    found = []
    for pid in tony.processes():
        try:
            if pathlib.Path("/proc", str(pid), "comm").read_text().strip() == comm:
                found.append(pid)
        except OSError:
            continue
    return found


def stream_processes(tony):
    return named(tony, "tony-stream")


# ---- exec ----


def test_exec_is_beside_the_task(tony, app):
    code, out, err = run(tony, "exec", app, "worker:1", "--", "sh", "-c",
                         'echo out; echo err >&2; pwd; echo "$TONY_TASK $TASK_INDEX"; exit 7')
    assert code == 7
    assert err == b"err\n"
    first, cwd, task = out.decode().splitlines()
    assert first == "out" and "/containers/container_" in cwd and task == "worker:1 1"


def test_exec_waits_for_a_task_that_starts(own_tony):
    """`tony exec` right after the submission waits: the pool, the master and the task are still starting."""
    tony = own_tony()
    app = tony.submit(tony.workers("sleep 600"))
    assert run(tony, "exec", app, "worker:0", "--", "echo", "hi")[:2] == (0, b"hi\n")
    tony.ok("kill", app)


def test_exec_does_not_wait_for_a_task_that_has_ended(tony):
    app = tony.submit(tony.job_file({"worker": {"instances": 1, "command": "true"}, "ps": {"instances": 1, "command": "sleep 600"},
                                     "chief": {"instances": 1, "command": "sleep 600"}}))
    wait_until(lambda: tony.tasks(app)["worker:0"]["state"] == "ended", "worker:0 has ended")
    begin = time.monotonic()
    code, _, err = run(tony, "exec", app, "worker:0", "--", "true")
    assert code == 2 and b"ended" in err and time.monotonic() - begin < 8
    tony.ok("kill", app)


@pytest.mark.parametrize("command, code", [
    (["true"], 0), (["sh", "-c", "exit 255"], 255), (["sh", "-c", "kill -9 $$"], 128 + 9), (["sh", "-c", "kill -15 $$"], 128 + 15)])
def test_the_exit_code_is_that_of_the_command(tony, app, command, code):
    assert run(tony, "exec", app, "worker:0", "--", *command) == (code, b"", b"")


def test_wrong_tasks_and_programs_are_told(tony, app):
    script = "echo '#!/no/such/python9' > tool && chmod +x tool"
    assert run(tony, "exec", app, "worker:0", "--", "sh", "-c", script)[0] == 0
    for args, words in [
        (("worker:7", "--", "true"), "no task 'worker:7'"), (("worker", "--", "true"), "has 2 tasks"),
        (("worker:0", "--", "not-there"), "there is no program 'not-there'"),
        (("worker:0", "--", "/etc/passwd"), "cannot run '/etc/passwd': Permission denied"),
        (("worker:0", "--", "./tool"), "/./tool': its interpreter '/no/such/python9' is not there")]:
        code, out, err = run(tony, "exec", app, *args)
        assert (code, out) == (2, b"") and words in err.decode(), err
    assert run(tony, "exec", app, "worker:0")[0] == 2


def test_bytes_pass_unchanged(tony, app):
    data = random.Random(15).randbytes(3 << 20) + bytes(range(256))
    code, out, err = run(tony, "exec", app, "worker:0", "-i", "--", "cat", data=data)
    assert (code, err) == (0, b"") and hashlib.sha256(out).digest() == hashlib.sha256(data).digest()
    word = b"\xff\xfe'\n\x80"
    code, out, err = run(tony, "exec", app, "worker:0", "--", "printf", "%s", os.fsdecode(word))
    assert (code, out, err) == (0, word, b"")


def test_without_i_the_command_reads_nothing(tony, app):
    assert run(tony, "exec", app, "worker:0", "--", "cat", data=b"for nobody") == (0, b"", b"")


def test_an_input_that_cannot_be_read_is_told(tony, app):
    fd = os.open(tony.base, os.O_RDONLY)
    try:
        with popen(tony, "exec", app, "worker:0", "-i", "--", "wc", "-c", stdin=fd) as p:
            out, err = p.communicate(timeout=60)
    finally:
        os.close(fd)
    assert (p.returncode, out.strip()) == (0, b"0")
    assert b"cannot read standard input: Is a directory" in err, err


def test_a_command_that_does_not_read_gets_its_signals(tony, app):
    """Input beyond the window of the stream waits in the client. So a signal reaches the command before that
    input."""
    with popen(tony, "exec", app, "worker:0", "-i", "--", "sh", "-c", 'trap "exit 9" INT; echo ready; while :; do sleep 0.05; done') as p:
        assert p.stdout.readline() == b"ready\n"
        writer = threading.Thread(target=feed, args=(p.stdin, 8 << 20), daemon=True)
        writer.start()
        time.sleep(0.2)
        p.send_signal(signal.SIGINT)
        assert p.wait(30) == 9
        p.stdin.close = lambda: None
        writer.join(10)


def feed(pipe, n):
    try:
        pipe.write(b"x" * n)
        pipe.flush()
    except (BrokenPipeError, ValueError, OSError):
        pass


def test_what_the_command_leaves_behind_ends_with_it(tony, app):
    code, out, err = run(tony, "exec", app, "worker:0", "--", "sh", "-c",
                         "setsid sleep 7531 & (setsid sh -c 'setsid sleep 7531 & sleep 7531' &) ; sleep 0.2; echo done")
    assert (code, out) == (0, b"done\n"), err
    wait_until(lambda: not marked(tony, app, "7531"), "no process of the command is left")


def test_a_closed_output_ends_the_command(tony, app):
    with popen(tony, "exec", app, "worker:0", "--", "yes", "7532") as p:
        p.stdout.read(1000)
        p.stdout.close()
        assert p.wait(30) == 128 + signal.SIGPIPE
        p.stdout = None
        p.stdin.close()
        p.stdin = p.stderr = None
    wait_until(lambda: not marked(tony, app, "7532"), "the command has ended")


# ---- with a terminal ----


class Terminal:
    """`tony ARGS` on a pseudo-terminal that the test controls."""

    def __init__(self, tony, *args, rows=31, columns=97):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.slave = slave
        self.before = termios.tcgetattr(slave)
        self.text = b""

        def become_leader():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.p = subprocess.Popen([str(tony.bin / "tony"), *map(str, args)], env={**tony.env, "TERM": "vt100"}, cwd=tony.base,
                                  stdin=slave, stdout=slave, stderr=slave, preexec_fn=become_leader)

    def send(self, data):
        os.write(self.master, data)

    def expect(self, pattern, limit=30):
        deadline = time.monotonic() + limit
        while not (m := re.search(pattern, self.text)):
            assert time.monotonic() < deadline, f"no {pattern} in {self.text}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 65536)
        self.text = self.text[m.end():]
        return m

    def resize(self, rows, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def is_restored(self):
        return termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(tony, app):
    made = []

    def make(*args, **kw):
        t = Terminal(tony, *args, **kw)
        made.append(t)
        return t

    yield make
    for t in made:
        t.close()


def test_a_shell_has_a_terminal(tony, app, terminal):
    t = terminal("shell", app, "worker:0")
    t.send(b"PS1=; tty -s && echo is-'tty' $TERM; stty size\n")
    t.expect(rb"is-tty vt100\r\n31 97\r\n")
    assert not t.is_restored(), "raw mode"
    t.resize(40, 120)  # the client learns of the new size by a signal, perhaps only after it has read the next input
    t.send(b"until stty size | grep 40; do sleep 0.05; done\n")
    t.expect(rb"40 120\r\n")
    t.send(b"sleep 600; echo was-'interrupted'\n")
    time.sleep(0.3)
    t.send(b"\x03echo after-'int'\n")
    t.expect(rb"after-int")
    t.send(b"exit 5\n")
    assert t.p.wait(30) == 5
    assert t.is_restored()


@pytest.mark.parametrize("how", ["exit", "kill", "int-before", "task"])
def test_the_terminal_is_restored(tony, app, terminal, how):
    t = terminal("exec", app, "worker:0", "-it", "--", "sh", "-c", "echo rea'dy'; read x; exit 3")
    t.expect(rb"ready")
    wait_until(lambda: not t.is_restored(), "raw mode")
    if how == "exit":
        t.send(b"\n")
        assert t.p.wait(30) == 3
    elif how == "kill":
        t.p.send_signal(signal.SIGHUP)
        assert t.p.wait(30) == 128 + signal.SIGHUP
    elif how == "int-before":
        t.p.send_signal(signal.SIGTERM)  # passed on to the command
        assert t.p.wait(30) == 128 + signal.SIGTERM
    else:
        tony.ok("kill", app)
        t.expect(rb"the task is being stopped|the connection to the task was lost")
        assert t.p.wait(30) == 4
    assert t.is_restored()


def test_a_stopped_client_gives_the_terminal_back(tony, app, terminal):
    t = terminal("exec", app, "worker:0", "-it", "--", "sh", "-c", "echo rea'dy'; read x; stty size; exit 3")
    t.expect(rb"ready")
    wait_until(lambda: not t.is_restored(), "raw mode")
    t.p.send_signal(signal.SIGTSTP)
    wait_until(lambda: (stat_of(t.p.pid) or " ")[0] == "T", "the client is stopped")
    assert t.is_restored()
    t.resize(11, 22)
    t.p.send_signal(signal.SIGCONT)
    wait_until(lambda: not t.is_restored(), "raw mode again")
    time.sleep(0.1)
    t.send(b"\r")
    t.expect(rb"11 22")
    assert t.p.wait(30) == 3 and t.is_restored()


# ---- the task does not notice ----


def test_a_stream_does_not_delay_the_end_of_the_task(tony):
    flag = tony.base / "go-end"
    app = tony.submit(tony.workers(f"until [ -e {flag} ]; do sleep 0.02; done; exit 0"))
    tony.await_state(app, "RUNNING")
    with popen(tony, "exec", app, "worker:0", "--", "sh", "-c", "trap '' HUP TERM; echo ready; sleep 7533") as p:
        assert p.stdout.readline() == b"ready\n"
        flag.touch()
        tony.await_state(app, "SUCCEEDED", limit=20)
        assert p.wait(30) == 4
        assert b"the connection to the task was lost" in p.stderr.read()
    wait_until(lambda: not marked(tony, app, "7533"), "the command has ended with the task")
    doc = tony.status(app)
    assert doc["state"] == "SUCCEEDED"


def test_a_failed_command_is_no_failure_of_the_task(tony, app):
    run(tony, "exec", app, "worker:0", "--", "sh", "-c", "kill -9 $$")
    assert {t["state"] for t in tony.tasks(app).values()} == {"running"}
    assert {t["attempt"] for t in tony.tasks(app).values()} == {1}


def test_a_stalled_reader_delays_nobody(tony, app):
    """The reader of the client's output stops reading. The memory of all processes stays bounded, and the master
    still answers others."""
    with popen(tony, "exec", app, "worker:0", "--", "yes", "7534") as p:
        p.stdout.read(1)
        time.sleep(1)
        began = time.monotonic()
        for _ in range(5):
            tony.json("status", app)
        assert time.monotonic() - began < 10
        assert run(tony, "exec", app, "worker:0", "--", "echo", "other")[1] == b"other\n"
        for pid in [p.pid, *stream_processes(tony)]:
            rss = int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path("/proc", str(pid), "status").read_text()).group(1))
            assert rss < 40000, f"{pid}: {rss} KiB"
        p.kill()
        p.wait()
    wait_until(lambda: not marked(tony, app, "7534"), "the command has ended")


# ---- kill -9 ----


@pytest.mark.parametrize("victim", ["client", "stream", "master", "executor", "keeper", "task"])
@pytest.mark.parametrize("tty", [False, True])
def test_nothing_is_left_after_kill_9(own_tony, victim, tty):
    tony = own_tony()
    app = tony.submit(tony.workers("sleep 600"))
    tony.await_state(app, "RUNNING")
    wait_until(lambda: tony.tasks(app)["worker:0"]["state"] == "running", "the task runs")
    flags = ["-t"] if tty else []
    with popen(tony, "exec", app, "worker:0", *flags, "-i", "--", "sh", "-c",
               "trap '' HUP TERM INT; setsid sh -c 'setsid sleep 7535 & sleep 7535' & echo re''ady; sleep 7535") as p:
        while b"ready" not in p.stdout.readline():
            pass
        wait_until(lambda: len(marked(tony, app, "7535")) >= 3, "the command runs")
        pids = {"client": [p.pid], "task": [tony.tasks(app)["worker:0"]["pid"]]}.get(victim) or named(tony, f"tony-{victim}")
        kill9(*pids, *([] if pids else [p.pid]))
        assert len(pids) == 1
        code = p.wait(30)
        assert code == (-9 if victim == "client" else 4), p.stderr.read()
    wait_until(lambda: not marked(tony, app, "7535"), "nothing of the command is left")
    wait_until(lambda: not stream_processes(tony), "no process of the stream is left")
    if victim in ("client", "stream", "master"):
        tony.await_state(app, "RUNNING")
        assert tony.tasks(app)["worker:0"]["attempt"] == 1
        wait_until(lambda: run(tony, "exec", app, "worker:0", "--", "echo", "again")[1] == b"again\n", "a new stream works")
    tony.run("kill", app)


# ---- forward ----


class Echo(threading.Thread):
    """Sends back what it gets, and ends its side when the other side has ended."""

    def __init__(self, family=socket.AF_INET, host="127.0.0.1"):
        super().__init__(daemon=True)
        self.listener = socket.socket(family)
        self.listener.bind((host, 0))
        self.listener.listen(64)
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    @staticmethod
    def serve(c):
        with c:
            while data := c.recv(65536):
                c.sendall(data)
            c.shutdown(socket.SHUT_WR)


@pytest.fixture
def forward(tony, app):
    made = []

    def make(*ports):
        p = popen(tony, "forward", app, "worker:0", *ports)
        made.append(p)
        return p, [int(re.search(rb"127.0.0.1:(\d+) ->", p.stdout.readline()).group(1)) for _ in ports]

    yield make
    for p in made:
        p.send_signal(signal.SIGINT)
        assert p.wait(30) == 0
        p.communicate()


def talk(port, data):
    with socket.create_connection(("127.0.0.1", port), 10) as c:
        c.settimeout(30)
        sender = threading.Thread(target=lambda: (c.sendall(data), c.shutdown(socket.SHUT_WR)), daemon=True)
        sender.start()
        got = b""
        while piece := c.recv(1 << 20):
            got += piece
        sender.join(30)
        return got


def test_forward(tony, app, forward):
    four, six = Echo(), Echo(socket.AF_INET6, "::1")
    _, (a, b) = forward(f"0:{four.port}", f"0:{six.port}")
    data = random.Random(4).randbytes(2 << 20)
    assert talk(a, data) == data
    assert talk(b, b"six") == b"six"
    assert talk(a, b"") == b""
    many = [threading.Thread(target=lambda: results.append(talk(a, data[:100000]) == data[:100000])) for _ in range(16)]
    results = []
    for t in many:
        t.start()
    for t in many:
        t.join()
    assert results == [True] * 16
    wait_until(lambda: not stream_processes(tony), "each connection has ended on both sides")


def test_forward_to_a_port_without_a_listener(tony, app, forward):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        p, (port,) = forward(f"0:{s.getsockname()[1]}")
        assert talk(port, b"") == b""
        assert b"Connection refused" in p.stderr.readline()


# ---- cp ----


def tree_of(root):
    found = {}
    for path in sorted(pathlib.Path(os.fsdecode(root)).rglob("*")):
        name = os.fsencode(path.relative_to(os.fsdecode(root)))
        if path.is_symlink():
            found[name] = ("link", os.readlink(os.fsencode(path)))
        elif path.is_dir():
            found[name] = ("dir", path.stat().st_mode & 0o777)
        else:
            found[name] = (path.read_bytes(), path.stat().st_mode & 0o777, path.stat().st_mtime_ns)
    return found


@pytest.fixture
def work(tony):
    import shutil
    import tempfile
    d = pathlib.Path(tempfile.mkdtemp(dir=tony.base))
    yield d
    shutil.rmtree(d, ignore_errors=True)


def test_cp_copies_a_tree_to_a_task_and_back(tony, app, work):
    src = work / "src"
    (src / "a" / "b").mkdir(parents=True)
    (src / "a" / "big").write_bytes(random.Random(2).randbytes(5 << 20))
    (src / "empty").touch()
    (src / "run.sh").write_text("#!/bin/sh\n")
    (src / "run.sh").chmod(0o755)
    (src / "a" / "up").symlink_to("../run.sh")
    pathlib.Path(os.fsdecode(os.fsencode(src) + b"/\xff\xfe name")).write_bytes(b"odd")
    assert run(tony, "cp", app, src, "worker:0:copy")[0] == 0
    assert run(tony, "exec", app, "worker:0", "--", "sh", "-c", "ls -d copy/a/b && cat copy/empty")[1] == b"copy/a/b\n"
    assert run(tony, "cp", app, "worker:0:copy", work / "back")[0] == 0
    assert tree_of(work / "back") == tree_of(src)
    # into an existing directory; and only the content of a directory
    assert run(tony, "cp", app, "worker:0:copy/run.sh", work / "back")[0] == 0
    (work / "inside").mkdir()
    assert run(tony, "cp", app, "worker:0:copy/.", work / "inside")[0] == 0
    assert tree_of(work / "inside") == tree_of(src)
    assert run(tony, "cp", app, src / "run.sh", "worker:0:copy/a")[0] == 0
    assert run(tony, "exec", app, "worker:0", "--", "cat", "copy/a/run.sh")[1] == b"#!/bin/sh\n"


def test_cp_refuses(tony, app, work):
    for args, words in [
        ((work, work), "one of the two places must be in a task"), (("worker:0:a", "worker:1:b"), "on this machine"),
        (("worker:0:not-there", work), "cannot read 'not-there': No such file"), ((work / "none", "worker:0:x"), "cannot read"),
        (("worker:0:/dev/null", work), "only files and directories"), (("worker:9:x", work), "no task 'worker:9'")]:
        code, out, err = run(tony, "cp", app, *args)
        assert code in (1, 2) and words in err.decode(), (args, err)
    assert list(work.iterdir()) == []


def test_cp_replaces_no_special_file(tony, app, work):
    """A file is put in place by a rename, which would replace /dev/null of a user who may write to /dev."""
    os.mkfifo(work / "pipe")
    (work / "link").symlink_to("pipe")
    (work / "f").write_text("x")
    tree = work / "tree"
    tree.mkdir()
    (tree / "pipe").write_text("x")
    assert run(tony, "exec", app, "worker:0", "--", "sh", "-c", "echo x > special-f && mkdir -p special && mkfifo special/pipe")[0] == 0
    for args in [("worker:0:special-f", work / "pipe"), ("worker:0:special-f", work / "link"), (work / "f", "worker:0:special/pipe"),
                 (str(tree) + "/.", "worker:0:special")]:
        code, _, err = run(tony, "cp", app, *args)
        assert code == 1 and "it is a named pipe" in err.decode(), (args, err)
    assert stat.S_ISFIFO((work / "pipe").stat().st_mode) and (work / "link").is_symlink()
    assert run(tony, "exec", app, "worker:0", "--", "test", "-p", "special/pipe")[0] == 0


def test_cp_leaves_out_what_leads_outside(tony, app, work):
    src = work / "src"
    src.mkdir()
    (src / "out").symlink_to("/etc/passwd")
    (src / "up").symlink_to("../x")
    (src / "self").symlink_to(".")
    (src / "trick").symlink_to("self/../../x")
    os.mkfifo(src / "pipe")
    code, out, err = run(tony, "cp", app, src, "worker:0:links")
    assert code == 0
    assert sorted(re.findall(r"(\w+): left out", err.decode())) == ["out", "pipe", "trick", "up"]
    assert run(tony, "exec", app, "worker:0", "--", "ls", "links")[1] == b"self\n"


def test_an_interrupted_copy_leaves_no_part_of_a_file(tony, app, work):
    with open(work / "big", "wb") as f:
        f.truncate(4 << 30)
    p = popen(tony, "cp", app, work / "big", "worker:0:part/")
    assert p.wait(30) in (1, 2)
    p.communicate()
    p = popen(tony, "cp", app, work / "big", "worker:0:whole")
    cwd = run(tony, "exec", app, "worker:0", "--", "pwd")[1].decode().strip()
    wait_until(lambda: list(pathlib.Path(cwd).glob(".tony-*")), "the copy has begun")
    p.send_signal(signal.SIGINT)
    assert p.wait(30) == 128 + signal.SIGINT
    p.communicate()
    wait_until(lambda: not list(pathlib.Path(cwd).glob(".tony-*")), "the part is removed")
    assert not (pathlib.Path(cwd) / "whole").exists()


# ---- who may ----


def test_a_site_switches_streams_off(own_tony, tmp_path):
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "tony-site.xml").write_text("<configuration><property><name>tony.task.streams</name><value>false</value>"
                                        "<final>true</final></property></configuration>")
    tony = own_tony(TONY_CONF_DIR=str(conf))
    app = tony.submit(tony.workers("sleep 600"))
    tony.await_state(app, "RUNNING")
    wait_until(lambda: tony.tasks(app)["worker:0"]["state"] == "running", "the task runs")
    for args in (("exec", app, "worker:0", "--", "true"), ("forward", app, "worker:0", "80"), ("cp", app, "worker:0:.", "x")):
        code, out, err = run(tony, *args)
        assert code in (1, 2) and b"switched off (tony.task.streams)" in err, (args, code, err)
    r = tony.run("submit", tony.workers("true"), "--conf", "tony.task.streams=true")
    assert r.returncode == 2 and "final" in r.stderr
    tony.run("kill", app)


def test_a_finished_job_has_no_streams(tony):
    app = tony.submit(tony.workers("true"))
    tony.run("wait", app)
    code, out, err = run(tony, "exec", app, "worker:0", "--", "true")
    assert code == 2 and b"is over" in err
