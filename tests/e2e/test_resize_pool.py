# SPDX-License-Identifier: Apache-2.0
"""
Resizes below the master: a job that waits is resized by a pool that dies in the middle of it, and the real pool and keepers share the
machine among jobs that grow and shrink while both are killed. The masters are played here.
"""

import json
import random
import time

import lib_wire as wire
import pytest
from conftest import wait_until
from lib_jobs import ended, kill9, make_lab  # noqa: F401 (fixture)
from lib_points import make_points_lab  # noqa: F401 (fixture)


def socket_of(lab, name):
    return wait_until(lambda: next(iter((lab.base / "run" / "tony").glob(f"*/{name}")), None), f"the socket {name}")


def pool_wire(lab):
    """To the pool that the keeper of a running job starts."""
    def dial():
        try:
            return wire.Wire(socket_of(lab, "pool.sock"))
        except OSError:
            return None
    w = wait_until(dial, "a pool that listens")
    w.send(wire.CLIENT_HELLO, wire.pack(f1=1, f2="test"))
    return w


def resize(lab, app, n):
    """Asks the pool to resize the job. Returns False if the pool died before it answered."""
    try:
        w = pool_wire(lab)
        w.send(wire.RESIZE_JOB, wire.pack(f1=app, f2=[wire.pack(f1="worker", f2=n)], f3="tester"))
        body, fields = w.hear()
    except (wire.Gone, ConnectionError):
        return False
    assert body == wire.ANSWER, fields
    return True


# ---- a job that waits ----

def test_the_pool_dies_while_it_resizes_a_waiting_job(make_points_lab):  # noqa: F811
    lab = make_points_lab(site={"pool.memory": "200m"})
    first = lab.submit(lab.workers("sleep 1000", role={"memory": "150m"}))
    lab.await_state(first, "RUNNING")
    app = lab.submit(lab.workers("true", role={"memory": "60m"}))
    size, struck, missed = 1, [], 0
    while missed < 3:  # a second pool may take the orders, and find that there is one already
        lab.disarm()
        lab.arm("pool", len(struck) + 1, "kill", app)
        for pid in lab.pids("pool"):
            kill9(pid)
            ended(pid)
        wanted = size % 3 + 1
        answered = resize(lab, app, wanted)
        at = lab.struck("pool")
        lab.disarm()
        now = len(lab.status(app)["tasks"])
        assert now in ((wanted,) if answered else (size, wanted)), f"killed {at}: {size} -> {wanted}, and it has {now}"
        left = lab.home / "jobs" / app / "job.conf.new"
        assert answered or not at or not left.exists(), f"killed {at}: {left} is left"
        size = now
        missed = 0 if at else missed + 1
        struck += [at] if at else []
    assert any("done rename" in s for s in struck) and any("call rename" in s for s in struck), struck
    assert len(struck) >= 6, struck
    lab.run("kill", first)
    assert lab.await_state(app, "SUCCEEDED")
    assert len(lab.tasks(app)) == size


def test_two_clients_resize_a_waiting_job_at_once(make_lab):  # noqa: F811
    """Both would write job.conf.new: the second one is refused, and may ask again."""
    lab = make_lab(site={"pool.memory": "200m"})
    first = lab.submit(lab.workers("sleep 1000", role={"memory": "190m"}))
    lab.await_state(first, "RUNNING")
    app = lab.submit(lab.workers("true", role={"memory": "30m"}))
    wires = [pool_wire(lab) for _ in range(4)]
    refused = size = 0
    for i in range(50):
        for k, w in enumerate(wires):
            w.send(wire.RESIZE_JOB, wire.pack(f1=app, f2=[wire.pack(f1="worker", f2=1 + (i + k) % 5)], f3="tester"))
        answers = [w.hear() for w in wires]
        done = [1 + (i + k) % 5 for k, (body, _) in enumerate(answers) if body == wire.ANSWER]
        bad = [f for body, f in answers if body != wire.ANSWER]
        assert all(b"is being resized already" in f[2][0] or b"ERANGE" in f or b"this size" in f[2][0] for f in bad), bad
        refused += len(bad)
        size = len(lab.status(app)["tasks"])
        assert size in done or not done, (size, answers)
    assert refused, "no two of them came at once"
    lab.run("kill", first)
    lab.run("kill", app)
    lab.in_history(app)
    lab.in_history(first)


# ---- jobs that run ----

EACH_MIB = 40
MISSES_MAX = 6  # rounds in a row in which no process came to the point
ROOM = 8  # containers in the pool


class Master:
    """Plays the master of one job: tells the keeper which containers it wants, and takes those that are granted.
    It starts no task."""

    def __init__(self, lab, app):
        self.lab, self.app, self.wire = lab, app, None
        self.size, self.has, self.asked, self.epoch, self.n_cancels, self.confirmed = 1, {}, set(), 0, 0, 0
        self.pending = {}  # slot: number of the cancel

    def connect(self):
        """Connects to the present keeper, as the master that this keeper has started last."""
        def register():
            try:
                lines = (self.lab.home / "jobs" / self.app / "exits").read_text().splitlines()
                self.epoch = max(json.loads(line).get("master", 0) for line in lines)
                w = wire.Wire(socket_of(self.lab, f"{int(self.app.rsplit('_', 1)[1])}.k"))
                w.send(wire.REGISTER_MASTER, wire.pack(f1=1, f2=self.epoch, f3=1))
                body, fields = w.hear()
            except (wire.Gone, OSError, ValueError):
                return None
            if body != wire.REGISTERED:
                return None
            return w, fields
        self.wire, fields = wait_until(register, f"a keeper of {self.app}")
        self.has, self.asked, self.pending = {}, set(), {}
        self._granted(fields.get(1, []))
        self.want(self.size)

    def want(self, size):
        self.size = size
        asks = {i: wire.pack(f1=i, f2=EACH_MIB, f3=1) for i in range(size)}
        try:
            self.wire.send(wire.WANT_CONTAINERS, wire.pack(f1=list(asks.values())))
            for slot in [s for s in self.has if s >= size]:
                self.wire.send(wire.RELEASE_CONTAINERS, wire.pack(f1=self.has.pop(slot)))
            for slot in [s for s in self.asked if s >= size]:
                self.n_cancels += 1
                self.wire.send(wire.CANCEL_ASKS, wire.pack(f1=slot, f2=self.n_cancels))
                self.asked.discard(slot)
                self.pending[slot] = self.n_cancels
            new = [s for s in range(size) if s not in self.has and s not in self.asked]
            if new:
                self.wire.send(wire.REQUEST_CONTAINERS, wire.pack(f1=[asks[s] for s in new]))
                self.asked.update(new)
        except wire.Gone:
            self.connect()

    def _granted(self, containers):
        for c in map(wire.unpack, containers):
            slot = c.get(2, [0])[0]
            if 5 in c:  # completed
                continue
            if slot in self.pending:  # the keeper takes it back when it hears that it was cancelled
                continue
            self.has[slot] = c[1][0].decode()
            self.asked.discard(slot)

    def hear(self, limit=0.0):
        """Handles all frames that have arrived."""
        try:
            while (frame := self.wire.hear(limit)):
                body, fields = frame
                if body == wire.CONTAINERS_ALLOCATED:
                    assert not fields.get(2), f"{self.app} was refused {fields}"
                    self._granted(fields.get(1, []))
                    for number in fields.get(4, []):
                        self.pending = {s: n for s, n in self.pending.items() if n > number}
        except wire.Gone:
            self.connect()

    def finish(self):
        try:
            self.wire.send(wire.FINISH_JOB, wire.pack(f1="SUCCEEDED"))
        except wire.Gone:
            self.connect()
            self.wire.send(wire.FINISH_JOB, wire.pack(f1="SUCCEEDED"))


def share(lab):
    """Three jobs of one container, in a pool that has room for ROOM."""
    program = lab.bin / "tony-master"
    program.unlink()
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    masters = []
    for _ in range(3):
        app = lab.submit(lab.workers("true", role={"memory": f"{EACH_MIB}m"}))
        masters.append(Master(lab, app))
    for m in masters:
        m.connect()
    return masters


def end_all(lab, masters):
    for m in masters:
        m.finish()
    kill9(*[p.pid for p in lab.processes_all() if "sleep 1000" in p.line])
    for m in masters:
        lab.in_history(m.app)
        m.wire.close()
    lab.quiet()


@pytest.fixture
def shared(make_lab):  # noqa: F811
    lab = make_lab(copy=True, site={"pool.memory": f"{ROOM * EACH_MIB}m"})
    masters = share(lab)
    yield lab, masters
    end_all(lab, masters)


def hear_all(masters, limit=0.0):
    for m in masters:
        m.hear(limit)
    held = sum(len(m.has) for m in masters)
    assert held <= ROOM, f"{held} containers are granted, and there is room for {ROOM}: {[m.has for m in masters]}"


def settle(lab, masters, sizes):
    """Waits until each master has what it wants, and the pool reports the same."""
    for m, size in zip(masters, sizes):
        m.want(size)

    def done():
        hear_all(masters, 0.01)
        if [len(m.has) for m in masters] != list(sizes):
            return False
        doc = lab.json("pool", "status")
        return doc.get("used", {}).get("memory_mib") == sum(sizes) * EACH_MIB and not any("wants" in j for j in doc["jobs"])
    wait_until(done, f"{sizes}; they want {[m.size for m in masters]}, and have {[m.has for m in masters]}")


def test_jobs_grow_and_shrink(shared):
    lab, masters = shared
    settle(lab, masters, (1, 1, 1))
    settle(lab, masters, (4, 2, 2))
    settle(lab, masters, (1, 1, 6))
    masters[0].want(4)  # waits for the third to give back
    wait_until(lambda: any("wants" in j for j in lab.json("pool", "status")["jobs"]), "it waits")
    hear_all(masters)
    assert len(masters[0].has) == 1
    masters[2].want(3)
    settle(lab, masters, (4, 1, 3))
    settle(lab, masters, (1, 1, 1))


@pytest.mark.parametrize("seed", range(2))
def test_pools_and_keepers_die_while_jobs_grow_and_shrink(shared, seed):
    lab, masters = shared
    rng = random.Random(seed)
    for _ in range(25):
        m = rng.choice(masters)
        m.want(rng.randint(1, 5))
        hear_all(masters, rng.choice((0.0, 0.002, 0.02)))
        what = rng.random()
        if what < 0.3:
            kill9(*lab.pids("pool"))
        elif what < 0.5:
            kill9(*lab.pids("keeper", rng.choice(masters).app))
        hear_all(masters)
    settle(lab, masters, (2, 1, 5))
    settle(lab, masters, (1, 6, 1))
    settle(lab, masters, (1, 1, 1))


@pytest.mark.parametrize("program, filter", [("pool", "application_"), ("pool", "socket:"), ("keeper", "socket:")])
def test_killed_at_each_step_of_a_resize(make_points_lab, program, filter):  # noqa: F811
    lab = make_points_lab(site={"pool.memory": f"{ROOM * EACH_MIB}m"})
    masters = share(lab)
    struck, missed, rounds = [], 0, 0
    # Each of the three keepers starts a pool, and two of these pools find the third one and end. Nobody knows which one
    # stays: each gets the orders.
    lives = range(1, 4 if program == "pool" else 2)
    while len(struck) < 9 and missed < MISSES_MAX:
        m = masters[rounds % 3]  # a job whose keepers die four times within their first second is given up
        rounds += 1
        lab.disarm()
        for life in lives:
            lab.arm(program, len(struck) + 1, "kill", filter, life)
        time.sleep(1.1 if program == "keeper" else 0)  # one that has lived longer does not count
        for pid in lab.pids(program, None if program == "pool" else m.app):  # the next one has its orders
            kill9(pid)
            ended(pid)
        for size in (4, 1, 6):
            settle(lab, masters, [size if x is m else 1 for x in masters])
        # the other jobs can have the containers that m has given back
        settle(lab, masters, [1 if x is m else 3 for x in masters])
        settle(lab, masters, (1, 1, 1))
        at = [text for text in (lab.struck(program, life) for life in lives) if text]
        missed = 0 if at else missed + 1
        struck += at[:1]
    assert len(set(struck)) >= 3, struck
    lab.disarm()
    end_all(lab, masters)


def test_a_resize_request_of_the_pool_reaches_the_master(shared):
    lab, masters = shared
    w = pool_wire(lab)
    wish = wire.pack(f1=7, f2=60000, f3=1, f4="there is room")
    w.send(wire.CLIENT_ASK, wire.pack(f1=wire.WISH, f2=masters[0].app, f31=wish))
    assert w.hear()[0] == wire.ANSWER
    def told():
        frame = masters[0].wire.hear(0.1)
        return frame if frame and frame[0] == wire.SIZE_WISH else None
    fields = wait_until(told, "the wish")[1]
    assert fields[1] == [7] and fields[3] == [1] and fields[4] == [b"there is room"] and fields[2][0] <= 60000


def bounds_of(lab, app):
    found = next((j.get("bounds") for j in lab.json("pool", "status").get("jobs", []) if j["application_id"] == app), None)
    return found and {key: found[key] for key in ("min", "max")}


def test_a_new_pool_knows_the_bounds(shared):
    lab, masters = shared
    app = masters[0].app
    masters[0].wire.send(wire.SIZE_BOUNDS, wire.pack(f1=2, f2=5))
    wait_until(lambda: bounds_of(lab, app) == {"min": 2, "max": 5}, "the bounds")
    kill9(*lab.pids("pool"))
    wait_until(lambda: bounds_of(lab, app) == {"min": 2, "max": 5}, "the bounds in the next pool")
    kill9(*lab.pids("keeper", app))
    wait_until(lambda: len(lab.pids("keeper", app)) == 1, "the next keeper")
    masters[0].connect()
    assert bounds_of(lab, app) is None
    masters[0].wire.send(wire.SIZE_BOUNDS, wire.pack(f1=1, f2=1))
    wait_until(lambda: bounds_of(lab, app) == {"min": 1, "max": 1}, "the bounds that the next master has told")


# ---- jobs with their own masters ----

def ask_to_shrink(lab, app, n):
    w = pool_wire(lab)
    w.send(wire.CLIENT_ASK, wire.pack(f1=wire.WISH, f2=app, f31=wire.pack(f1=n, f2=60000, f4="others wait")))
    assert w.hear()[0] == wire.ANSWER
    w.close()


def test_the_pool_shrinks_a_job_within_its_bounds(make_lab):  # noqa: F811
    lab = make_lab(site={"pool.memory": "400m"})
    app = lab.submit(lab.workers("sleep 1000", n=4, role={"memory": "40m", "min-instances": 2, "max-instances": 6}))
    lab.await_state(app, "RUNNING")
    wait_until(lambda: bounds_of(lab, app) == {"min": 2, "max": 6}, "the bounds")
    ask_to_shrink(lab, app, 3)
    wait_until(lambda: len(lab.status(app)["tasks"]) == 3 and "last_resize" in lab.status(app), "three tasks")
    ask_to_shrink(lab, app, 1)  # as far as the bounds of the job allow
    wait_until(lambda: len(lab.status(app)["tasks"]) == 2 and lab.status(app).get("resizes") == 2, "two tasks")
    last = lab.status(app)["last_resize"]
    assert last["who"] == "the scheduler" and last["why"] == "others wait", last
    assert last["detail"] == "the scheduler asked for at most 1 container, but this job needs at least 2", last
    assert bounds_of(lab, app) == {"min": 2, "max": 6}
    lab.run("kill", app)
    lab.in_history(app)


def test_a_demand_outlives_the_master_while_the_gang_forms(make_lab):  # noqa: F811
    """The tasks of attempt n end only when the file `go-n` exists, so the gang stops until then. The pool's demand comes meanwhile,
    and the master dies after it has written that to the journal. The client follows its own resize: it does not wait for the tasks that
    leave because of the pool's demand, which the same event begins. (If their TERM comes before the shell has set its trap, they end
    without go-2.)"""
    lab = make_lab(site={"pool.memory": "400m"})
    role = {"memory": "40m", "resize": "restart", "min-instances": 2}
    go = lab.base / "go"
    command = f"trap 'stop=1' TERM; : > {lab.base}/up-$TASK_INDEX; until test -e {go}-$TONY_ATTEMPT; do sleep 0.1; done; until test \"$stop\"; do sleep 0.1; done"
    (lab.base / "go-3").touch()
    app = lab.submit(lab.workers(command, n=4, role=role, conf={"tony.task.kill-grace-ms": 120000}))
    wait_until(lambda: all((lab.base / f"up-{i}").exists() for i in range(4)), "four tasks have set their trap")
    waiting = lab.start("resize", app, "worker=3", "--wait")
    wait_until(lambda: lab.status(app).get("resize", {}).get("state") == "forming", "the gang stops")
    ask_to_shrink(lab, app, 2)
    journal = lab.home / "jobs" / app / "journal"
    wait_until(lambda: '"e":"shrink"' in journal.read_text(), "the demand is in the journal")
    now = lab.status(app)["resize"]
    assert now["state"] == "forming" and now["kept"]["containers"] == 2 and now["kept"]["why"] == "others wait", now
    assert "then the job shrinks: the scheduler asked for at most 2 containers: others wait" in lab.ok("status", app)
    kill9(*lab.pids("master", app))
    wait_until(lambda: lab.status(app).get("epoch") == 2, "the next master")
    now = lab.status(app)["resize"]
    assert now["state"] == "forming" and now["kept"]["containers"] == 2, now
    (lab.base / "go-1").touch()
    try:
        out, err = waiting.communicate(timeout=25)  # the tasks that leave later are killed after 45 s
    finally:
        (lab.base / "go-2").touch()
    assert waiting.returncode == 0 and "was resized: worker 4 to 3" in out, out + err
    wait_until(lambda: lab.status(app).get("resizes") == 2, "both resizes are done", 60)
    doc = lab.status(app)
    assert len(doc["tasks"]) == 2 and doc["last_resize"]["who"] == "the scheduler" and doc["epoch"] == 2, doc
    wait_until(lambda: all(t["state"] == "running" for t in lab.status(app)["tasks"]), "two tasks run")
    lab.run("kill", app)
    lab.in_history(app)
