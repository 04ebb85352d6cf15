# SPDX-License-Identifier: Apache-2.0
"""
`tony why`: failures of real programs, with the first cause and its victims, and the reasons why a job waits.
"""

import json
import os
import re
import shlex
import textwrap

import pytest
from conftest import app_of, wait_until

PYTHON = "/usr/bin/python3"


def py(text):
    return f"{PYTHON} -c {shlex.quote(textwrap.dedent(text).strip())}"


# name of the cause, command, keys of the role and of conf; {dir} is the test's own directory
ONE_TASK = {
    "a missing module": ("missing_module", py("import no_such_module"), {}, {}),
    "a module to be run": ("missing_module", f"{PYTHON} -m no_such_module", {}, {}),
    "a missing library": ("missing_library", py("import ctypes; ctypes.CDLL('libno_such.so.1')"), {}, {}),
    "a taken port": ("port_in_use", py("""
        import socket
        a = socket.create_server(('127.0.0.1', 0))
        socket.create_server(a.getsockname())"""), {}, {}),
    "a full disk": ("disk_full", py("print('x' * 100000, file=open('/dev/full', 'w'))"), {}, {}),
    "a full disk, of a shell": ("disk_full", "echo x > /dev/full", {}, {}),
    "NaN": ("nan", py("""
        import math
        loss = math.inf - math.inf
        if math.isnan(loss):
            raise ValueError(f'loss is {loss} at step 12')"""), {}, {}),
    "a segmentation fault": ("segfault", py("import ctypes; ctypes.string_at(0)"), {}, {}),
    "a segmentation fault under a shell": ("segfault", "kill -SEGV $$; true", {}, {}),
    "kill -9": ("killed", "kill -9 $$; true", {}, {}),
    "kill -9 of a child of the shell": ("killed", py("import os; os.kill(os.getpid(), 9)") + "; exit $?", {}, {}),
    "kill": ("terminated", "kill $$; true", {}, {}),
    "an abort": ("aborted", py("import os; os.abort()"), {}, {}),
    "a wrong path": ("wrong_path", py("open('data/train.csv')"), {}, {}),
    "a script that does not exist": ("wrong_path", f"{PYTHON} tarin.py", {}, {}),
    "no permission": ("permission", py("open('/sys/kernel/no_such', 'w')"), {}, {}),
    "a command that does not exist": ("command_not_found", "pyhton3 train.py", {}, {}),
    "a path that does not exist": ("command_not_found", "./train.sh --x=1", {}, {}),
    "a file without execute permission": ("not_executable", "cp /etc/passwd p; chmod 644 p; ./p", {}, {}),
    "a binary for another machine": ("not_executable", r"printf '\177ELFnothing' > p; chmod 755 p; ./p", {}, {}),
    "an interpreter that does not exist": ("missing_interpreter", r"printf '#!/no/such\n' > p; chmod 755 p; ./p", {}, {}),
    "too little memory": ("out_of_memory", py("x = bytearray(512 << 20)"), {"memory": "64m"}, {}),
    "no address space": ("out_of_memory", "ulimit -v 4000000; " + py("x = bytearray(1 << 40)"), {}, {}),
    "a timeout": ("timed_out", "sleep 600", {}, {"tony.task.executor.execution-timeout-ms": 200}),
    "wrong arguments": ("wrong_arguments", py("""
        import argparse
        argparse.ArgumentParser().parse_args(['--epoch', '3'])"""), {}, {}),
    "a syntax error": ("syntax_error", py("def f(:"), {}, {}),
    "a syntax error of a shell": ("syntax_error", "if true; then echo )", {}, {}),
    "too many files": ("open_files", "ulimit -n 32; " + py("x = [open('/dev/null') for _ in range(99)]"), {}, {}),
    "a damaged file": ("damaged_file", py("import pickle, io; pickle.load(io.BytesIO(b''))"), {}, {}),
    "an unknown host name": ("host_name", py("import socket; socket.getaddrinfo('no-such.invalid', 1)"), {}, {}),
    "a service outside the job refuses the connection": ("network", py("""
        import socket, urllib.request
        with socket.create_server(('127.0.0.1', 0)) as s:
            port = s.getsockname()[1]
        urllib.request.urlopen(f'http://127.0.0.1:{port}/')"""), {}, {}),
    "an exception": ("exception", py("raise KeyError('label')"), {}, {}),
    "an exception in an except block": ("exception", py("""
        try:
            {}['label']
        except KeyError:
            raise RuntimeError('no batch')"""), {}, {}),
    "an exit code": ("exit_code", "exit 7", {}, {}),
}


# More cases, as tasks of one job; their screens are not compared.
MORE = {
    "memory of a child": ("out_of_memory", py("x = bytearray(512 << 20)") + "; exit 1", {"memory": "64m"}),
    "memory of a child, told by its parent": ("out_of_memory", py("""
        import subprocess, sys
        subprocess.run([sys.executable, '-c', 'x = bytearray(512 << 20)'], check=True)"""), {"memory": "64m"}),
    "a cut library": ("missing_library", f"printf x > foo.so; {PYTHON} -c 'import foo'", {}),
    "an attribute that is not there": ("version_mismatch", py("import os; os.no_such_function()"), {}),
    "file size": ("resource_limit", "ulimit -f 8; head -c 1000000 /dev/zero > x", {}),
    "file size of Python": ("resource_limit", "ulimit -f 8; " + py("open('x', 'wb').write(b'x' * 1000000)"), {}),
    "an interrupt": ("interrupted", py("import os, signal; os.kill(os.getpid(), signal.SIGINT)"), {}),
    "another signal": ("signal", "kill -USR1 $$; sleep 1", {}),
    "a command in a shell in a shell": ("command_not_found", "sh -c 'pyhton3 x'", {}),
    "line ends of Windows": ("missing_interpreter", r"printf '#!/usr/bin/python3\r\nprint(1)\n' > p; chmod +x p; ./p", {}),
    "a directory as command": ("not_executable", "mkdir d; ./d", {}),
    "a directory that is not there": ("wrong_path", "cd /no/such/dir && true", {}),
    "a damaged archive": ("damaged_file", "echo hello > x.gz; gunzip x.gz", {}),
    "cut JSON": ("damaged_file", py("import json; json.loads('{')"), {}),
    "a cut pickle": ("damaged_file", py("import pickle; pickle.loads(pickle.dumps(list(range(9999)))[:500])"), {}),
    "a refused connection": ("network", py("import socket; socket.create_connection(('127.0.0.1', 1))"), {}),
    "an address of another machine": ("wrong_address", py("import socket; socket.create_server(('192.0.2.1', 8080))"), {}),
    "a wrong argument": ("wrong_arguments", py("""
        import argparse
        p = argparse.ArgumentParser()
        p.add_argument('--n', type=int)
        p.parse_args(['--n', 'x'])"""), {}),
    "a wrong option": ("wrong_arguments", "head --nosuch", {}),
    "indentation": ("syntax_error", f"printf 'if 1:\\nx=1\\n' > x.py; {PYTHON} x.py", {}),
    "a message of sys.exit": ("exit_code", py("import sys; sys.exit('I give up')"), {}),
    "an error on stdout": ("exception", py("print('ERROR: bad learning rate'); exit(4)"), {}),
    "NaN on stdout": ("nan", py("print('epoch 3 loss: nan'); exit(4)"), {}),
    "infinity": ("nan", py("raise RuntimeError('gradient norm is not finite: inf')"), {}),
    "a directory that exists already": ("exists", py("import os; os.mkdir('a'); os.mkdir('a')"), {}),
    "a child's traceback": ("missing_module", py("""
        import multiprocessing as mp
        def f():
            import no_such_module
        p = mp.get_context('fork').Process(target=f); p.start(); p.join()
        if p.exitcode: raise RuntimeError(f'worker died with {p.exitcode}')"""), {}),
    "a child's signal": ("segfault", py("import subprocess; subprocess.run('kill -SEGV $$', shell=True, check=True)"), {}),
    "an earlier exception that was handled": ("exception", py("""
        import sys, traceback
        try: import apex
        except ImportError: traceback.print_exc()
        for i in range(5): print('step', i, file=sys.stderr)
        raise KeyError('label')"""), {}),
    "many lines after the exception": ("wrong_path", py("""
        import atexit, sys
        def close():
            for i in range(300): print('  closing handle', i, file=sys.stderr)
        atexit.register(close)
        open('/data/x')"""), {}),
}


def first_of(doc):
    found = [f for f in doc["failures"] if f["first"]]
    assert len(found) == 1, doc
    return found[0]


def test_many(tony):
    apps = {case: tony.submit(tony.workers(command, role={"memory": "128m", **role})) for case, (_, command, role) in MORE.items()}
    found = {}
    for case, app in apps.items():
        tony.run("wait", app)
        found[case] = first_of(tony.json("why", app))["known"]
        text = tony.ok("why", app)
        rows = sum(1 + (len(line) - 1) // 80 for line in text.splitlines())
        assert rows < 24, text
    assert found == {case: known for case, (known, _, _) in MORE.items()}


@pytest.mark.parametrize("case", ONE_TASK)
def test_one_task(tony, case):
    known, command, role, conf = ONE_TASK[case]
    app = tony.submit(tony.workers(command, role={"memory": "256m", **role}, conf=conf))
    tony.run("wait", app)
    doc = tony.json("why", app)
    first = [f for f in doc["failures"] if f["first"]]
    assert [(f["task"], f["known"]) for f in first] == [("worker:0", known)], doc
    text = tony.ok("why", app)
    assert first[0]["what"].split()[0] in text and "remedy" in text
    if first[0]["line"]:
        assert first[0]["line"] in " ".join(text.split()) or first[0]["line"][:60] in text


@pytest.mark.parametrize("head, words", [
    ("#! /no/such/python9 -u\n", "its interpreter '/no/such/python9' is not there"),
    ("#!/bin/sh\r\n", "its interpreter '/bin/sh' + carriage return is not there"),
    ("#!/usr/bin/env python9\n", "python9"),
])
def test_a_shipped_script_without_its_interpreter(tony, tmp_path, head, words):
    """The kernel answers 'No such file or directory' to the start of the script, which is there."""
    src = tmp_path / "src"
    src.mkdir()
    (src / "train").write_text(head + "exit 0\n")
    (src / "train").chmod(0o755)
    path = tony.workers("./train")
    r = tony.run("run", path, "--src_dir", src)
    assert r.returncode == 1 and words in " ".join(r.stderr.split()), r.stderr
    assert first_of(tony.json("why", "last"))["known"] == "missing_interpreter"


def test_an_environment_that_is_too_long_is_told_with_its_size(tony):
    """The kernel says 'Argument list too long', although the arguments are short."""
    env = {"A": "1", **{f"LONG{i}": "x" * 120_000 for i in range(22)}, "LONGEST": "x" * 121_000}
    r = tony.run("run", tony.workers("/bin/true", env=env))
    assert r.returncode == 1 and "the longest variable is 'LONGEST' with 121009" in " ".join(r.stdout.split()), r.stdout
    assert first_of(tony.json("why", "last"))["known"] == "arguments_too_long"


def why_of(tony, path, code=1):
    r = tony.run("run", path, timeout=110)
    assert r.returncode == code, r.stderr
    app = app_of(r)
    return tony.json("why", app), tony.ok("why", app), r


# Two tasks with a connection: rank 0, the chief, listens. The task whose index is $BAD fails as the case
# says. Like a Python interpreter, it closes its connection before its process ends. The other task then dies
# of the lost connection.
PAIR = """
    import os, socket, sys, time
    me, bad = int(os.environ['TASK_INDEX']), int(os.environ['BAD'])
    place = os.environ['PLACE']
    if me == 0:
        s = socket.create_server(('127.0.0.1', 0))
        open(place + '.new', 'w').write(str(s.getsockname()[1]))
        os.rename(place + '.new', place)
        peer = s.accept()[0]
    else:
        while not os.path.exists(place):
            time.sleep(0.01)
        peer = socket.create_connection(('127.0.0.1', int(open(place).read())))
    if me == bad:
        {fail}
    if not peer.recv(1):
        raise ConnectionResetError(104, 'Connection reset by peer')
"""
# What the bad task does; the cause.
PAIR_CASES = {
    "exits": ("peer.close(); sys.exit(5)", "exit_code"),
    "is killed": ("os.kill(os.getpid(), 9)", "killed"),
    "raises": ("raise ValueError('no such digit')", "exception"),
    "misses a module": ("import no_such_module", "missing_module"),
    "closes its socket a moment before": ("peer.close(); time.sleep(0.3); raise ValueError('no such digit')", "exception"),
    "sleeps after its traceback": (
        "sys.excepthook(*((ValueError, ValueError('no such digit'), None))); sys.stderr.flush(); peer.close(); time.sleep(600)", "exception"),
}


@pytest.mark.parametrize("case", PAIR_CASES)
@pytest.mark.parametrize("bad", [0, 1])
def test_a_victim_is_never_the_cause(tony, tmp_path, case, bad):
    fail, known = PAIR_CASES[case]
    path = tony.workers(py(PAIR.replace("{fail}", fail)), n=2, role={"memory": "128m"},
                        env={"BAD": str(bad), "PLACE": str(tmp_path / "port")},
                        conf={"tony.application.fail-on-worker-failure-enabled": True})
    doc, text, run = why_of(tony, path)
    first = first_of(doc)
    assert (first["task"], first["known"]) == (f"worker:{bad}", known), doc
    assert f"worker:{bad}" in doc["message"] and f"worker:{1 - bad}" not in doc["message"]
    victims = [f["task"] for f in doc["failures"] if f["victim"]]
    assert victims in ([], [f"worker:{1 - bad}"])
    if victims:
        assert f"victims   worker:{1 - bad} lost a peer" in text and f"victims   worker:{1 - bad}" in run.stderr
    assert first["what"][:20] in run.stderr and "remedy" in run.stderr


TORCH = """
    import os, sys, time
    os.environ['OMP_NUM_THREADS'] = '1'
    import torch, torch.distributed as dist
    dist.init_process_group('gloo')
    rank = dist.get_rank()
    for step in range(100000):
        t = torch.ones(4)
        dist.all_reduce(t)
        if step == 20 and rank == int(os.environ['BAD']):
            {fail}
"""
TORCH_CASES = {
    "killed": ("os.kill(os.getpid(), 9)", "killed"),
    "exception": ("raise ValueError('no such digit')", "exception"),
    "exit": ("sys.exit(3)", "exit_code"),
    "memory": ("torch.empty(1 << 50)", "out_of_memory"),
    "segfault": ("import ctypes; ctypes.string_at(0)", "segfault"),
}


# Each case imports PyTorch twice. The tests above have the same failures without it.
@pytest.mark.parametrize("case", [case if case == "exception" else pytest.param(case, marks=pytest.mark.slow) for case in TORCH_CASES])
def test_pytorch(tony, case):
    fail, known = TORCH_CASES[case]
    bad = len(case) % 2
    path = tony.workers(py(TORCH.replace("{fail}", fail)), n=2, framework="pytorch", role={"memory": "700m"}, env={"BAD": str(bad)},
                        conf={"tony.application.fail-on-worker-failure-enabled": True})
    doc, text, _ = why_of(tony, path)
    first = first_of(doc)
    assert (first["task"], first["known"]) == (f"worker:{bad}", known), json.dumps(doc, indent=1)
    assert f"first     worker:{bad}" in text


# ---- jobs that are not over ----


def test_a_waiting_job(own_tony):
    t = own_tony()
    memory = t.json("pool", "start")["capacity"]["memory_mib"]
    big = t.submit(t.workers("sleep 600", role={"memory": f"{memory * 2 // 3}m"}))
    t.await_state(big, "RUNNING")
    waits = t.submit(t.workers("true", role={"memory": f"{memory * 2 // 3}m"}))
    text = t.ok("why", waits)
    assert "waits" in text and "needs" in text and f"behind {t.status(big)['name']} ({int(big.rpartition('_')[2])})" in text and big not in text
    assert "roles that it waits for" not in text
    assert t.json("why", waits)["waiting"]["behind"] == big
    assert "all tasks run" in t.ok("why", big)
    t.ok("kill", waits)
    text = t.ok("why", waits)
    assert re.search(r"KILLED: killed by \S+ pid \d+$", text, re.M), text
    t.ok("kill", big)


def test_a_limit_that_ran_out(tony):
    app = tony.submit(tony.workers("sleep 600", conf={"tony.application.timeout": 300}))
    tony.run("wait", app)
    assert "remedy    raise tony.application.timeout" in tony.ok("why", app)


def test_a_role_that_waits_for_another(tony, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    app = tony.submit(tony.job_file({"prep": {"instances": 1, "command": f"read x < {gate}"},
                                     "worker": {"instances": 2, "command": "true", "depends-on": "prep"}}))
    tony.await_state(app, "RUNNING")
    text = wait_until(lambda: (lambda s: s if "held" in s else None)(tony.ok("why", app)), "it says what is held")
    assert "worker:0, worker:1: its turn has not come" in text
    gate.write_text("x\n")
    assert tony.run("wait", app).returncode == 0
    assert tony.ok("why", app).startswith(f"job {app} SUCCEEDED")


def test_a_tolerated_failure_is_printed(tony):
    app = tony.submit(tony.workers("exit $((TASK_INDEX * 3))", n=2))
    assert tony.run("wait", app).returncode == 0
    text = " ".join(tony.ok("why", app).split())
    assert "SUCCEEDED" in text and "worker:1" in text and "exit code 3" in text


def test_misuse(tony):
    assert tony.run("why").returncode == 2
    assert tony.run("why", "nonsense").returncode == 2
