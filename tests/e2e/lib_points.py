# SPDX-License-Identifier: Apache-2.0
"""
Programs that die at a point that the test names; tests/points/points.c defines points. One small job runs for
each point. Then the tasks' notes, the journal and the logs show whether anything was lost or done twice.
"""

import json
import os
import pathlib
import shutil
import signal

import pytest
from conftest import BIN, make_base, wait_until
from lib_jobs import Lab, kill9, replay_one, stat_of

POINTS = BIN.parent / "tests" / "points"
N = 3

# Each run prints its name, records that it began, and looks for another live run of the same task. Worker 1
# fails in its first run, once all tasks are there. The others end when its second run is there, or restart
# with it.
TASK = r"""
echo "out $TONY_INDEX $TONY_ATTEMPT"
exec 9>> $DIR/lock$TONY_INDEX
flock -n 9; [ $? != 1 ] || echo "$TONY_INDEX $TONY_ATTEMPT" >> $DIR/double
echo "$TONY_ATTEMPT $TONY_GENERATION $$" >> $DIR/began$TONY_INDEX
there() { for i in 0 1 2; do [ -s $DIR/began$i ] || return 1; done; }
until there; do sleep 0.01; done
if [ $TONY_INDEX = 1 ] && ! [ -e $DIR/failed ]; then : > $DIR/failed; echo "err 1" >&2; exit 3; fi
until [ $(wc -l < $DIR/began1) -gt 1 ]; do sleep 0.01; done
echo "$TONY_ATTEMPT" >> $DIR/done$TONY_INDEX
"""


def have_points():
    return (POINTS / "tony-master").exists()


class PointsLab(Lab):
    """A home whose pool, masters, keepers and executors die at points that the test chooses."""

    def __init__(self, base, **extra):
        base = pathlib.Path(base)
        self.points = base / "points"
        self.points.mkdir()
        super().__init__(base, copy=True, TONY_TEST_POINTS=str(self.points), TONY_TEST_WALL=str(base / "wall"),
                         TONY_TEST_SYNC=str(base / "sync"), **extra)
        for name in ("tony-pool", "tony-master", "tony-executor"):
            (self.bin / name).unlink()
            shutil.copy2(POINTS / name, self.bin / name)

    def arm(self, program, number, action="kill", filter="call ", life=1, after=""):
        """Arms the life-th process of this program that reaches a point from now on."""
        (self.points / "new").write_text(f"{number} {action} {filter}\n{after}\n")
        (self.points / "new").rename(self.points / f"{program}.{life}")

    def disarm(self):
        for path in self.points.iterdir():
            path.unlink()

    def struck(self, program, life=1):
        """The point at which the process died, or None."""
        path = self.points / f"{program}.{life}.struck"
        try:
            return path.read_text().strip() or None
        except FileNotFoundError:
            return None

    def wall_is_wrong_by(self, ms):
        (self.base / "wall.new").write_text(str(ms))
        (self.base / "wall.new").rename(self.base / "wall")

    def sync_fails(self, num):
        """Each fdatasync() of a journal fails with this errno; 0: none fails."""
        path = self.base / "sync"
        if num:
            (self.base / "sync.new").write_text(str(num))
            (self.base / "sync.new").rename(path)
        else:
            path.unlink()

    def end_pool(self):
        self.run("pool", "stop", "--force")
        self.quiet()


@pytest.fixture
def make_points_lab(own_tony):
    if not have_points():
        pytest.skip("the programs of tests/points were not built")

    def make(**kw):
        lab = PointsLab(make_base(), **kw)
        own_tony.made.append(lab)
        return lab
    return make


class PointJob:
    """The job above, and the checks of what happened to it."""

    def __init__(self, lab, scope, spares=0, conf=None):
        self.lab, self.scope = lab, scope
        self.dir = lab.base / f"p{lab.n_files}"
        self.dir.mkdir()
        script = self.dir / "task.sh"
        script.write_text(TASK)
        role = {"instances": N, "command": f"bash {script}", "env": {"DIR": str(self.dir)}, "memory": "16m", "restart": "on-failure",
                "restart-scope": scope, "max-restarts": 3}
        if spares:
            role["spares"] = spares
        self.path = lab.job_file({"worker": role}, conf={"tony.task.kill-grace-ms": 2000, "tony.task.heartbeat-interval-ms": 200,
                                                         "tony.task.max-missed-heartbeats": 1000, **(conf or {})})
        self.app = None

    def submit(self):
        """
        If the pool dies during the submission, the client must report it and leave no job behind; then submit
        again.
        """
        for _ in range(3):
            r = self.lab.run("submit", self.path)
            if r.returncode == 0:
                self.app = r.stdout.strip()
                return self
            assert r.stderr.strip()
            assert not (self.dir / "began0").exists(), "a job runs that nobody was told of"
        raise AssertionError(f"three submissions failed: {r.stderr}")

    def lines(self, name):
        try:
            return (self.dir / name).read_text().splitlines()
        except FileNotFoundError:
            return []

    def over(self, harmless=True):
        """Waits for the end of the job and checks it. harmless: the processes that died are such that no task may
        notice."""
        self.lab.run("wait", self.app)  # If the pool died first, the clean-up goes on only when a command needs it.
        self.lab.in_history(self.app)
        doc = self.lab.status(self.app)
        assert doc["state"] == "SUCCEEDED", json.dumps(doc)
        assert not self.lines("double"), f"two runs of one task lived at once: {self.lines('double')}"
        tasks = {t["index"]: t for t in doc["tasks"]}
        for i in range(N):
            began = [tuple(map(int, line.split())) for line in self.lines(f"began{i}")]
            runs = [a for a, _, _ in began]
            assert len(set(runs)) == len(runs), f"worker:{i} was started twice as one run: {began}"
            assert runs == sorted(runs), began
            assert [g for _, g, _ in began] == sorted(g for _, g, _ in began), f"an older generation came back: {began}"
            assert tasks[i]["attempt"] == runs[-1] and tasks[i]["exit_code"] == 0, (tasks[i], began)
            assert self.lines(f"done{i}")[-1] == str(runs[-1]), "its last run did not come to its end"
            for run in runs:
                out = self.lab.log(self.app, f"worker:{i}", "stdout", run)
                assert out == f"out {i} {run}\n", f"log of worker:{i} run {run}: {out!r}"
            if harmless:
                expected = 2 if i == 1 or self.scope != "task" else 1
                assert runs == list(range(1, expected + 1)), f"worker:{i} ran {runs}"
        if harmless:
            self._nothing_forgotten(doc)
        self._one_journal()
        replay_one(self.lab.home / "history" / self.app)
        return doc

    def _one_journal(self):
        """Checks that no file of an unfinished segment is left."""
        names = [p.name for p in self.lab.dir(self.app).glob("journal*")]
        assert names == ["journal"], names

    def _nothing_forgotten(self, doc):
        assert doc["restarts"] == 1, doc["restarts"]
        journal = self.lab.journal(self.app)
        assert [(f["task"], f["attempt"], f["exit_code"]) for f in doc["failures"]] == [("worker:1", 1, 3)], doc["failures"]
        if self.lab.env.get("TONY_TEST_SEGMENT") == "0":
            assert journal[0]["n"] > 1 and journal[0]["snapshot"] > 0, journal[0]
        assert self.lab.log(self.app, "worker:1", "stderr", 1) == "err 1\n"
        if journal[0].get("snapshot"):  # the snapshot contains the record
            return
        ends = [r for r in journal if r["e"] == "attempt_ended" and r["slot"] == 1 and r["attempt"] == 1]
        ends += [r for r in journal if r["e"] == "completed" and r["slot"] == 1 and r.get("exit_code") == 3]
        assert ends and ends[0]["exit_code"] == 3, "the failure is not in the journal"


def one_point(lab, program, number, scope, filter="call ", action="kill", spares=0, harmless=True, second=None, victim=None, after=""):
    """
    Runs one job with one death. Returns the point, or None if the program does not reach that many points.
    second: (number, filter) for the next process of the program. victim: a function that tells which
    processes die while `program` is stopped at the point. after: points are counted from the first one that
    contains this text.
    """
    lab.disarm()
    if program == "pool":
        lab.end_pool()
    lab.arm(program, number, "stop" if victim else action, filter, after=after)
    if second:
        lab.arm(program, second[0], "kill", second[1], life=2)
    job = PointJob(lab, scope, spares)
    what = None
    try:
        job.submit()
        if victim:
            _stopped(lab, job, program, victim)
        job.over(harmless)
        what = lab.struck(program)
        lab.quiet()
    except BaseException as e:
        raise AssertionError(f"{program} {action} at {number} {filter!r} ({lab.struck(program)}; second {second}: "
                             f"{lab.struck(program, 2)}), scope {scope}: {e}\n{scene(lab, job)}") from e
    return what


def go_on(lab, app, program="master"):
    """Continues the processes that are stopped at their point."""
    for pid in lab.pids(program, app):
        if (stat_of(pid) or "?")[0] == "T":
            os.kill(pid, signal.SIGCONT)


def _stopped(lab, job, program, victim):
    """Waits until the program is stopped at its point, kills the victims, and continues the program."""
    def look():
        if lab.struck(program):
            return "struck"
        return (lab.home / "history" / job.app).is_dir() and "over"
    if wait_until(look, f"{program} comes to its point, or the job to its end") == "over":
        return
    found = lab.pids(program.split("-")[0], None if program == "pool" else job.app)
    stopped = [p for p in found if (stat_of(p) or "?")[0] == "T"]
    if not stopped and program == "master":
        stopped = wait_until(lambda: [p for p in lab.pids("master", job.app) if (stat_of(p) or "?")[0] == "T"] or None, "it is stopped")
    kill9(*victim(lab, job))
    for pid in stopped:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


def scene(lab, job):
    parts = [str(p) for p in lab.processes_all()] + lab.litter()
    for path in sorted(job.dir.iterdir()):
        parts.append(f"---- {path}\n{path.read_text()}")
    for where in ("jobs", "history"):
        for name in ("keeper.log", "master.log", "exits", "journal"):
            path = lab.home / where / str(job.app) / name
            if path.exists():
                parts.append(f"---- {path}\n{path.read_text(errors='replace')[-8000:]}")
    log = lab.home / "pool" / "pool.log"
    parts.append(log.read_text()[-4000:] if log.exists() else "no pool.log")
    return "\n".join(parts)

