# SPDX-License-Identifier: Apache-2.0
"""
Large numbers: a thousand tasks in a job, twenty jobs at once, the order of the queue; and places where
secrets must not appear.
"""

import os
import random
import re
import stat

import pytest
from conftest import BIN, wait_until
from lib_jobs import Gated, kill9, lab, make_lab  # noqa: F401 (fixtures)

BIG = {"pool.memory": "64g"}
SMALL = {"memory": "16m", "vcores": 0}


@pytest.fixture
def big(make_lab):
    return make_lab(site=BIG)


@pytest.mark.alone("loads the machine: a thousand tasks")
def test_a_thousand_tasks(big):
    lab = big
    r = lab.run("run", lab.workers("true", n=1000, role=SMALL), timeout=60)
    assert r.returncode == 0, r.stderr[-2000:]
    app = re.search(r"application_\d+_\d+", r.stdout).group()
    doc = lab.status(app)
    assert doc["roles"][0]["succeeded"] == 1000 and doc["epoch"] == 1
    assert len(list((lab.dir(app) / "logs").iterdir())) == 1000
    lab.settled()


@pytest.mark.slow
@pytest.mark.alone("loads the machine: a thousand tasks")
def test_a_thousand_tasks_killed_in_the_middle(big):
    """The job is killed while some tasks run, some are starting and some have no container yet."""
    lab = big
    for n_started in (1, 300):
        app = lab.submit(lab.workers("echo x >> $HOME/started; exec sleep 1000", n=1000, role=SMALL,
                                     conf={"tony.application.distributed-mode": "FCFS", "tony.task.kill-grace-ms": 3000}))
        started = lab.base / "started"
        wait_until(lambda: started.exists() and started.stat().st_size >= 2 * n_started, f"{n_started} tasks run")
        lab.ok("kill", app, timeout=60)
        lab.in_history(app)
        doc = lab.status(app)
        assert doc["state"] == "KILLED"
        assert not [t for t in doc["tasks"] if t["result"] == "FAILED"], "whoever was stopped did not fail"
        lab.settled()
        started.unlink()


@pytest.mark.slow
@pytest.mark.alone("loads the machine: a thousand tasks")
def test_a_thousand_running_tasks_and_kills(big):
    """The master and the pool are killed. All thousand tasks go on, and the master stays small."""
    lab = big
    n = 1000
    gate = lab.base / "gate"
    command = f"echo >> $HOME/started; exec 3<> {gate}; read x <&3; echo go >&3"
    os.mkfifo(gate)
    app = lab.submit(lab.workers(command, n=n, role=SMALL))
    (lab.base / "started").touch()
    wait_until(lambda: (lab.base / "started").stat().st_size == n and lab.n_running(app) == n, "all run", 60)
    master = lab.one("master", app)
    rss = [int(line.split()[1]) for line in open(f"/proc/{master}/status") if line.startswith("VmRSS")][0]
    kill9(master)
    kill9(lab.one("pool"))
    wait_until(lambda: (lambda d: d.get("epoch") == 2 and d["roles"][0]["running"] == n and all(t["connected"] for t in d["tasks"]))
               (lab.status(app)), "all are back", 60, 0.1)
    fd = os.open(gate, os.O_RDWR)
    os.write(fd, b"go\n")
    assert lab.run("wait", app, timeout=60).returncode == 0
    os.close(fd)
    doc = lab.status(app)
    assert doc["roles"][0]["succeeded"] == n
    assert (lab.base / "started").stat().st_size == n, "no task was started twice"
    if "ASAN_OPTIONS" not in os.environ:
        assert rss <= 8192, f"the master had {rss} KiB resident"
    lab.settled()


def test_twenty_jobs_at_once_through_a_small_pool(make_lab):
    """Only five jobs fit at a time, and the pool is killed twice; each job runs once."""
    lab = make_lab(site={"pool.memory": "100m"})
    clients = []
    for i in range(20):
        path = lab.workers(f"echo x >> $HOME/ran{i}; sleep 0.05; exit {i % 3}", role={"memory": "20m"})
        clients.append(lab.start("run", path))
        if i in (7, 14):
            # A child of the pool is a keeper that is about to exec: its death may cost a task its node.
            pools = {p.pid: p for p in lab.processes_all() if p.kind == "pool"}
            kill9(*[p.pid for p in pools.values() if p.parent not in pools])
    codes = [p.wait(60) for p in clients]
    outs = [p.communicate() for p in clients]
    for i, (code, (out, err)) in enumerate(zip(codes, outs)):
        ran = (lab.base / f"ran{i}")
        n = ran.read_text().count("x") if ran.exists() else 0
        assert n <= 1, f"job {i} ran {n} times"
        assert code == (1 if i % 3 else 0) and n == 1, (i, code, n, out, err)
    lab.settled()


def test_the_queue_is_in_order(make_lab):
    """Jobs start by priority, then by arrival. A small job that would fit does not overtake a large one."""
    lab = make_lab(site={"pool.memory": "100m"})
    first = Gated(lab, role={"memory": "90m"}).running()
    wanted, apps = [], {}
    rnd = random.Random(7)
    for i in range(12):
        priority, memory = rnd.choice((-3, 0, 0, 5)), rnd.choice(("60m", "80m", "100m"))
        app = lab.submit(lab.workers(f"echo {i} >> $HOME/order", role={"memory": memory}), "--conf",
                         f"tony.application.priority={priority}")
        apps[app] = i
        wanted.append((-priority, i))
    waiting = {a: lab.status(a) for a in apps}
    assert {d["state"] for d in waiting.values()} == {"WAITING"}
    expected = [i for _, i in sorted(wanted)]
    by_number = {v: k for k, v in apps.items()}
    for before, after in zip(expected, expected[1:]):
        assert waiting[by_number[after]]["waiting"]["behind"] == by_number[before]
    first.release(0)
    for app in apps:
        assert lab.run("wait", app).returncode == 0
    assert [int(x) for x in (lab.base / "order").read_text().split()] == expected
    lab.settled()


def test_killed_jobs_leave_the_queue_in_order(make_lab):
    lab = make_lab(site={"pool.memory": "100m"})
    first = Gated(lab, role={"memory": "90m"}).running()
    apps = [lab.submit(lab.workers("true", role={"memory": "90m"})) for _ in range(5)]
    for app in (apps[0], apps[3]):
        lab.ok("kill", app)
        assert lab.status(app)["state"] == "KILLED"
    assert lab.status(apps[1])["waiting"]["behind"] == first.app
    assert lab.status(apps[4])["waiting"]["behind"] == apps[2]
    first.release(0)
    for app in (apps[1], apps[2], apps[4]):
        assert lab.run("wait", app).returncode == 0
    lab.settled()


SECRET = "Xy7-very-hush-0815"


def test_the_executor_is_small_and_static():
    program = BIN / "tony-executor"
    content = program.read_bytes()
    if b"__asan_init" in content or b"__gcov_init" in content:
        pytest.skip("build: with coverage or a sanitizer, not to be shipped")
    assert len(content) < 3_600_000, "also with its symbols; libsodium has 0.2 MB of it (decision 0034)"
    assert b"/ld-linux" not in content, "and it needs no loader"


def test_secrets_stay_off_command_lines_and_logs(lab):
    """Values of variables whose names look like secrets, given in each possible way, and the job's key appear on
    no command line and in no log."""
    path = lab.job_file({"worker": {"instances": 2, "command": "test ${#API_TOKEN} -gt 5 -a ${#MY_SECRET} -gt 5 || exit 9; "
                                    "read x < $HOME/gate", "env": {"API_TOKEN": SECRET + "1"}}},
                        env={"MY_SECRET": SECRET + "2"}, conf={"tony.https.keystore.password": SECRET + "3"})
    os.mkfifo(lab.base / "gate")
    p = lab.start("run", path, "--shell_env", f"DB_PASSWORD={SECRET}4", "--container_env", f"AWS_SECRET_ACCESS_KEY={SECRET}5")
    app = wait_until(lambda: next((x.name for x in (lab.home / "jobs").glob("application_*")), None), "the job")
    wait_until(lambda: lab.n_running(app) == 2, "both run")
    key = (lab.dir(app) / "key").read_bytes()
    lines = []
    for q in lab.processes_all():
        if q.pid != p.pid:  # the user's own command line is the user's responsibility
            lines.append(q.line)
    texts = ["\n".join(lines)] + [lab.ok(*args) for args in (
        ("status", app, "--json"), ("status", app), ("tasks", app, "--json"), ("list", "--json"), ("pool", "status", "--json"),
        ("plan", path, "--json"), ("plan", path))]
    kill9(lab.one("master", app))
    wait_until(lambda: lab.status(app).get("epoch") == 2, "another master")
    fd = os.open(lab.base / "gate", os.O_RDWR)
    os.write(fd, b"go\ngo\n")
    out, err = p.communicate(timeout=60)
    os.close(fd)
    assert p.returncode == 0, out + err
    lab.in_history(app)
    texts += [out, err]
    for top, _, names in os.walk(lab.home):
        for name in names:
            if name != "job.conf":
                texts.append(open(os.path.join(top, name), errors="replace").read())
    for text in texts:
        for secret in (SECRET, key.hex(), key.decode(errors="replace").strip()):
            if secret and secret in text:
                at = text.index(secret)
                raise AssertionError(f"a secret in: {text[max(0, at - 200):at + 40]}")
    lab.settled()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_files_are_private_with_any_umask(lab, umask):
    """With any umask of the user, directories have the mode 0700 and files 0600. Shipped programs stay executable."""
    path = lab.workers("echo x > mine; echo log")
    old = os.umask(umask)
    try:
        r = lab.run("run", path)
    finally:
        os.umask(old)
    assert r.returncode == 0, r.stderr
    lab.settled()
    for top, dirs, names in os.walk(lab.home):
        for name in dirs + names:
            st = os.lstat(os.path.join(top, name))
            if not stat.S_ISLNK(st.st_mode):
                assert st.st_mode & 0o077 == 0, f"{top}/{name}: {oct(st.st_mode)}"
    for top, dirs, names in os.walk(lab.base / "run"):
        for name in dirs + names:
            assert os.lstat(os.path.join(top, name)).st_mode & 0o077 == 0, name
    assert os.stat(lab.home).st_mode & 0o077 == 0


@pytest.mark.alone("measures how much memory the pool has")
def test_the_pool_does_not_grow(lab):
    """After a hundred jobs the pool has as many descriptors and children, and as much memory, as after ten."""
    def run(n):
        path = lab.workers("true", role={"memory": "8m"})
        for _ in range(n // 10):
            apps = [lab.submit(path) for _ in range(10)]
            for app in apps:
                lab.run("wait", app)
        lab.settled()
    run(10)
    pid = lab.one("pool")
    fds = len(os.listdir(f"/proc/{pid}/fd"))

    def rss():
        return [int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS")][0]
    before = rss()
    run(100)
    wait_until(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= fds, "the last clients are gone, and no more is open than before")
    if "ASAN_OPTIONS" not in os.environ:
        assert rss() - before < 1024, f"{rss() - before} KiB more"
