# SPDX-License-Identifier: Apache-2.0
"""
Several ranks in a task, and the store through which ranks find each other. It survives the death of any rank.
"""

import os
import re
import textwrap

import pytest
from conftest import ROOT, wait_until
from lib_jobs import ended, kill9, lab, make_lab  # noqa: F401 (fixtures)

PYTHON = "/usr/bin/python3 -S"


def program(t, text):
    """The command that runs a Python program with the tests' helper functions."""
    t.n_files += 1
    path = t.base / f"program{t.n_files}.py"
    head = f"import os, signal, sys, time\nsys.path.insert(0, {str(ROOT / 'tests' / 'e2e')!r})\nfrom lib_store import Older, Store\n" \
           "rank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
    path.write_text(head + textwrap.dedent(text))
    return f"{PYTHON} -u {path}"


def run(t, command, n=2, ranks=2, framework="pytorch", state="SUCCEEDED", role=None, **top):
    app = t.submit(t.workers(command, n=n, framework=framework, role={"ranks": ranks, "memory": "200m", **(role or {})}, **top))
    t.run("wait", app, timeout=115)
    doc = t.status(app)
    assert doc["state"] == state, doc
    return app, doc


def environment(t, app, task, rank, attempt=1):
    text = t.log(app, task, f"stdout.{rank}" if rank else "stdout", attempt)
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.M))


# ---- the ranks of a task ----

def test_each_rank_has_its_variables_and_logs(tony):
    made = {"chief": {"instances": 1, "ranks": 2, "command": "env"}, "worker": {"instances": 2, "ranks": 3, "command": "env; echo mine >&2"}}
    app = tony.submit(tony.job_file(made, framework="pytorch", env={"OMP_NUM_THREADS": "5"}))
    assert tony.run("wait", app).returncode == 0
    want = 0
    pids = set()
    for task, ranks in (("chief:0", 2), ("worker:0", 3), ("worker:1", 3)):
        for local in range(ranks):
            env = environment(tony, app, task, local)
            got = [env[k] for k in ("RANK", "TONY_RANK", "LOCAL_RANK", "TONY_LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "WORLD", "GROUP_WORLD_SIZE")]
            assert got == [str(x) for x in (want, want, local, local, ranks, 8, 8, 3)], (task, local)
            assert env["ROLE_NAME"] == task.split(":")[0] and env["OMP_NUM_THREADS"] == "5"
            assert ("TB_PORT" in env) == (task == "chief:0" and local == 0), "one rank has the port"
            assert env["TORCHELASTIC_ERROR_FILE"].endswith(f"/error.{local}.json" if local else "/error.json")
            assert env["TORCHELASTIC_USE_AGENT_STORE"] == "True"
            pids.add((task, local))
            want += 1
    assert len(pids) == 8
    tasks = tony.tasks(app)
    assert tasks["worker:0"]["ranks"] == 3 and tasks["worker:0"]["attempt"] == 1
    assert tony.ok("logs", app, "worker:1", "--rank", "2", "--stderr") == "mine\n"
    assert "RANK=7\n" in tony.ok("logs", app, "worker:1", "--rank", "2", "--stdout")
    all_of_one = tony.ok("logs", app, "worker:1", "--stderr")
    assert re.findall("==> (.*) <==", all_of_one) == ["worker:1 stderr", "worker:1 stderr.1", "worker:1 stderr.2"]
    r = tony.run("logs", app, "worker:1", "--rank", "3")
    assert r.returncode == 2 and "no rank 3" in r.stderr


def test_each_rank_has_its_cores(tony):
    """If a container may use only the cores that it asked for, each rank gets a part of them."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("hardware: one core cannot be parted")
    command = "sh -c 'grep Cpus_allowed_list /proc/self/status; echo threads $OMP_NUM_THREADS'"
    app, _ = run(tony, command, n=1, framework="generic", role={"vcores": len(cores)})
    lists = [tony.log(app, "worker:0", name).splitlines() for name in ("stdout", "stdout.1")]

    def named(text):
        return {c for part in text.split(":")[1].split(",") for a, b in [(part.strip().split("-") * 2)[:2]] for c in range(int(a), int(b) + 1)}

    first, second = named(lists[0][0]), named(lists[1][0])
    assert first and second and not first & second and first | second == set(cores)
    assert lists[0][1] == lists[1][1] == f"threads {max(len(cores) // 2, 1)}"


def test_the_first_failed_rank_decides(tony):
    command = program(tony, """
        def stopped(*_):
            print("stopped", flush=True)
            sys.exit(9)
        signal.signal(signal.SIGTERM, stopped)
        s = Store()
        s.barrier("up", size)
        if rank == 1:
            print("ValueError: no such digit", file=sys.stderr)
            sys.exit(3)
        if rank == 0:
            print("noise", file=sys.stderr)
        time.sleep(1000)
    """)
    app, doc = run(tony, command, n=1, ranks=3, state="FAILED", conf={"tony.task.kill-grace-ms": 600000})
    assert doc["message"] == "task 'worker:0' failed with exit code 3: local rank 1 of 3"
    assert doc["cause"]["rank"] == 1 and doc["cause"]["stderr_tail"] == "ValueError: no such digit\n"
    # The other ranks were stopped: otherwise `tony wait` would not have ended.
    assert tony.log(app, "worker:0") == tony.log(app, "worker:0", "stdout.2") == "stopped\n"
    assert tony.ok("why", app).rstrip().endswith("/worker-0/1/stderr.1")


def test_a_rank_that_ignores_term_is_killed(tony):
    """
    A rank is killed. Another rank ignores TERM: it is killed after the grace, and is not the first cause.
    """
    command = program(tony, """
        s = Store()
        if rank == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        s.barrier("up", size)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(1000)
    """)
    _, doc = run(tony, command, n=1, state="FAILED", conf={"tony.task.kill-grace-ms": 300})
    assert "killed by signal 9" in doc["message"] and "local rank 1 of 2" in doc["message"]


def test_a_task_succeeds_when_all_ranks_have(tony):
    """A rank that ends early with 0 only waits for the others."""
    command = program(tony, """
        s = Store()
        if rank == 0:
            s.set("pid", str(os.getpid()))
            s.get("pid")  # an answer: nothing of a peer counts that has gone before its user was known
            sys.exit(0)
        pid = s.get("pid").decode()
        while os.path.exists(f"/proc/{pid}/cmdline") and open(f"/proc/{pid}/cmdline").read():
            time.sleep(0.02)
        print("last")
    """)
    app, doc = run(tony, command, n=1)
    assert tony.log(app, "worker:0", "stdout.1") == "last\n"


def test_the_memory_limit_covers_all_ranks(tony):
    """Each rank alone stays below the limit of the task; together they exceed it."""
    command = program(tony, """
        hold = bytearray(60 << 20)
        hold[::4096] = b"x" * len(hold[::4096])
        Store().barrier("full", size)
        time.sleep(1000)
    """)
    _, doc = run(tony, command, n=1, ranks=3, state="FAILED", role={"memory": "120m"})
    assert doc["cause"]["reason"] == "out_of_memory", doc["cause"]


def test_a_command_that_does_not_exist(tony):
    _, doc = run(tony, "/nowhere/x", n=1, ranks=3, framework="generic", state="FAILED")
    # The shell that runs the command is found: it reports the missing program with 127.
    assert doc["cause"]["reason"] == "exited" and doc["cause"]["exit_code"] == 127, doc["cause"]
    assert "/nowhere/x" in str(doc["cause"])


# ---- the store ----

MANY = """
    kind = Store if rank % 2 else Older
    s = kind()
    assert s.add("ranks") <= size
    s.set(f"at/{rank}", str(rank * rank))
    s.wait(*[f"at/{i}" for i in range(size)])
    assert sum(int(s.get(f"at/{i}")) for i in range(size)) == sum(i * i for i in range(size))
    s.barrier("done", size)
    assert s.add("ranks", 0) == size
    if rank == 0:
        assert s.delete("at/0") and not s.has("at/0") and s.has("at/1")
    print("through")
"""


def test_64_ranks(tony):
    app, _ = run(tony, program(tony, MANY), n=4, ranks=16, role={"memory": "600m"})
    for task in range(4):
        for local in range(16):
            assert tony.log(app, f"worker:{task}", f"stdout.{local}" if local else "stdout") == "through\n"


KILLED = """
    s = Store()
    again = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    print(os.environ["MASTER_PORT"], again)
    assert s.add(f"come/{rank}") == 1, "nothing is left of those before"
    s.barrier("up", size)
    if rank == again % size and again < TIMES:
        os.kill(os.getpid(), signal.SIGKILL)
    if again < TIMES:
        time.sleep(1000)
    s.barrier("done", size)
"""


def test_rank_0_dies_and_the_next_store_is_empty(tony):
    command = program(tony, "TIMES = 3\n" + textwrap.dedent(KILLED))
    app, doc = run(tony, command, role={"restart": "on-failure", "max-restarts": 5})
    assert doc["generation"] == 4
    ports = set()
    for attempt in range(1, 5):
        seen = {tony.log(app, f"worker:{task}", name, attempt).split()[0] for task in (0, 1) for name in ("stdout", "stdout.1")}
        assert len(seen) == 1, "all meet at the same"
        ports |= seen
    assert len(ports) == 4, "and each time elsewhere"


def test_the_store_survives_the_master(lab):
    command = program(lab, """
        s = Store()
        s.barrier("up", size)
        print("up", flush=True)
        while not os.path.exists(os.environ["GO"]):
            time.sleep(0.02)
        s.set(f"later/{rank}", b"x")
        s.wait(*[f"later/{i}" for i in range(size)])
        Store().barrier("done", size)
    """)
    go = lab.base / "go"
    app = lab.submit(lab.workers(command, n=2, framework="pytorch", role={"ranks": 2, "memory": "200m", "env": {"GO": str(go)}}))
    wait_until(lambda: lab.run("logs", app, "--stdout").stdout.count("up\n") == 4, "all are up", pause=0.05)
    kill9(*lab.pids("master", app))
    wait_until(lambda: lab.status(app)["epoch"] == 2, "another master")
    go.write_text("")
    assert lab.await_state(app, "SUCCEEDED", "FAILED")["state"] == "SUCCEEDED"
    assert lab.status(app)["restarts"] == 0


def test_the_store_survives_the_end_of_rank_0(tony):
    command = program(tony, """
        s = Store()
        if rank == 0:
            s.set("pid", str(os.getpid()))
            s.get("pid")  # an answer: nothing of a peer counts that has gone before its user was known
            sys.exit(0)
        pid = s.get("pid").decode()
        while os.path.exists(f"/proc/{pid}"):
            time.sleep(0.02)
        for i in range(20):
            assert Store().add("late") == i + 1
            time.sleep(0.02)
    """)
    run(tony, command, ranks=1)


LOOK = """
    import socket
    addresses = [os.environ["MASTER_ADDR"]] + ADDRESSES
    for a in addresses:
        s = socket.socket()
        print(a, s.connect_ex((a, int(os.environ["MASTER_PORT"]))) == 0, os.environ.get("TORCHELASTIC_USE_AGENT_STORE"))
"""


@pytest.mark.parametrize("what", ["pytorch", "off", "one rank", "generic"])
def test_which_jobs_have_a_store(tony, what):
    """The store listens only on this machine's address, and only if several ranks of PyTorch need it."""
    text = "ADDRESSES = ['127.0.0.2', '::1'][:1]\n" + textwrap.dedent(LOOK)
    if what == "generic":
        text = "os.environ.update(MASTER_ADDR=os.environ['TONY_MASTER_ADDR'], MASTER_PORT=os.environ['TONY_MASTER_PORT'])\n" + text
    command = program(tony, text)
    if what == "generic":
        command = f"env RANK=0 WORLD_SIZE=1 {command}"
    app, _ = run(tony, command, n=1, ranks=1 if what == "one rank" else 2, framework="generic" if what == "generic" else "pytorch",
                 conf={"tony.pytorch.store": False} if what == "off" else {})
    there = what == "pytorch"
    assert tony.log(app, "worker:0").splitlines() == [f"127.0.0.1 {there} {'True' if there else None}", f"127.0.0.2 False {'True' if there else None}"]


def test_the_store_ends_with_the_job(tony):
    """
    The listening socket is closed. Another test may already listen on the same port: the inode shows whose
    socket it is.
    """
    command = program(tony, """
        port = int(os.environ["MASTER_PORT"])
        rows = [line.split() for line in open("/proc/net/tcp").read().splitlines()[1:]]
        print(*[row[9] for row in rows if row[1] == f"0100007F:{port:04X}" and row[3] == "0A"])
    """)
    app, _ = run(tony, command)
    inode = tony.log(app, "worker:0").strip()
    assert inode.isdigit(), "it listened while the job ran"
    wait_until(lambda: inode not in [line.split()[9] for line in open("/proc/net/tcp").read().splitlines()[1:]], "it listens no more")


def test_ranks_are_stopped_with_the_job(lab):
    app = lab.submit(lab.workers("sleep 1000", n=2, role={"ranks": 3}))
    pids = wait_until(lambda: (lambda p: p if len(p) == 6 else None)(lab.pids("task", app)), "six processes")
    lab.ok("kill", app)
    for pid in pids:
        ended(pid)
