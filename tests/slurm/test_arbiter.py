# SPDX-License-Identifier: Apache-2.0
"""tony arbiter on Slurm: it divides a partition of three nodes among jobs that train. A worker needs more than half of a node."""

import contextlib
import json
import os
import pathlib
import shlex
import signal
import textwrap

import pytest
from lib_slurm import wait_until
from test_further import further

SITE = """
conf:
  tony.pool.policy: drf
  tony.pool.policy.interval: 1000
  tony.pool.policy.resize-limit: 120000
"""
LIMIT_S = 240  # an allocation that was given back was free for 20 s before

# A training that counts steps until a file tells it to end. The first task saves a checkpoint each second.
TRAINING = r"""
import json, os, socket, sys, time
side = socket.socket(socket.AF_UNIX)
side.connect("\0" + os.environ["TONY_TASK_SOCKET"].lstrip("@"))
step = first = int(os.environ.get("TONY_CHECKPOINT_STEP") or 0)
leads = os.environ["TONY_TASK"] == "worker:0"
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
    step += 1
    if step == first + 1:
        print("begins at", first, flush=True)
    if leads and step % 20 == 0:
        side.sendall(json.dumps({"step": step, "checkpoint": f"/data/{step}"}).encode() + b"\n")
print("ends at", step, flush=True)
"""


class Job:
    """An elastic training whose gang restarts for each resize."""

    def __init__(self, tony, name, gpus=0, most=3, **conf):
        self.tony, self.stop = tony, tony.base / f"end-{name}"
        (tony.base / "train.py").write_text(textwrap.dedent(TRAINING))
        command = f"exec /usr/bin/python3 {shlex.quote(str(tony.base / 'train.py'))} {self.stop}"
        takes = {"gpus": gpus, "memory": "300m"} if gpus else {"memory": "2500m"}  # a node has room for one
        role = {"instances": 1, **takes, "vcores": 1, "command": command, "min-instances": 1, "max-instances": most,
                "restart": "on-failure", "max-restarts": 9}
        # The training handles no signal, so tony waits for this time before it stops the training.
        conf = {"tony.slurm.nodes": 1, "tony.task.checkpoint-grace": 3000, **conf}
        job = {"name": name, "cluster": "slurm", "framework": "pytorch", "roles": {"worker": role}, "conf": conf}
        (tony.base / f"{name}.yaml").write_text(json.dumps(job))
        self.id = tony("submit", tony.base / f"{name}.yaml").stdout.strip()

    def running(self):
        return [t["state"] for t in self.tony.status(self.id).get("tasks", [])].count("running")

    def nodes(self):
        """The nodes on which a process of the training lives now."""
        slurm = self.tony.slurm
        return [n for n in slurm.names for p in slurm.processes(n) if self.is_training(p)]

    def is_training(self, pid):
        try:
            argv = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return str(self.stop).encode() in argv and argv[0].endswith(b"python3")

    def end(self):
        self.stop.write_text("")
        wait_until(lambda: self.tony.status(self.id)["state"] == "SUCCEEDED", f"{self.id} succeeds", LIMIT_S)

    def first_steps(self):
        """The steps with which the attempts of the first task began."""
        lines = self.output()
        return [int(line.split()[-1]) for line in lines if line.startswith("begins")]

    def output(self):
        """The job may be moved into the history while its logs are read."""
        texts = []
        for d in ("jobs", "history"):
            with contextlib.suppress(FileNotFoundError):
                texts = texts or [p.read_text() for p in sorted((self.tony.home / d / self.id / "logs" / "worker-0").glob("*/stdout"))]
        return "".join(texts).splitlines()


class Arbiter:
    def __init__(self, tony):
        self.tony, self.process = tony, None

    def start(self):
        self.process = self.tony.start("arbiter", "run", "--cluster", "slurm", "--queue", "all")

    def kill(self):
        if self.process:
            os.kill(self.process.pid, signal.SIGKILL)
            text = self.process.communicate(timeout=20)[0]
            with open(self.tony.base / "arbiter.out", "a") as out:
                out.write(text)
        self.process = None

    def said(self):
        path = self.tony.base / "arbiter.out"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def arbiter(tony):
    (tony.base / "tony-site.yaml").write_text(SITE)
    a = Arbiter(tony)
    yield a
    with contextlib.suppress(ProcessLookupError):
        a.kill()
    print(a.said())
    for app in list((tony.home / "jobs").glob("application_*")):  # of a test that failed
        tony("stop", app.name, ok=False)


def until(condition, what, *jobs):
    """Meanwhile no node has two trainings."""
    def holds():
        used = [n for j in jobs for n in j.nodes()]
        assert len(used) == len(set(used)), f"a node is used twice: {used}"
        return condition()
    return wait_until(holds, what, LIMIT_S, pause=0.3)


def kill_master(tony, job):
    epoch = tony.status(job.id)["epoch"]
    os.kill(tony.processes("tony-master", job.id)[0], signal.SIGKILL)
    wait_until(lambda: tony.status(job.id).get("epoch", 0) > epoch, "the next master answers", LIMIT_S)


def exchange(tony, slurm, arbiter, on_step=lambda name, first, second: None, policy="drf", gpus=0):
    """A second job comes: the first one shrinks after a checkpoint and gives nodes back, and gets them again in the end."""
    (tony.base / "tony-site.yaml").write_text(SITE.replace("drf", policy))
    first = Job(tony, "first", gpus)
    arbiter.start()
    until(lambda: first.running() == 3, "the first job has all nodes", first)
    on_step("grown", first, None)
    second = Job(tony, "second", gpus)
    both = (first, second)
    until(lambda: first.running() < 3, "the first job was asked to shrink", *both)
    on_step("asked", *both)
    until(lambda: second.running() >= 1, "the second job runs", *both)
    on_step("started", *both)
    until(lambda: first.running() + second.running() == 3 and min(first.running(), second.running()) >= 1, "they have all nodes", *both)
    assert len(further(slurm, first.id)) + len(further(slurm, second.id)) == 1
    second.end()
    until(lambda: first.running() == 3, "the first job has all nodes again", first)
    words = wait_until(lambda: (w := " ".join(tony("why", first.id).stdout.split())) and "done" in w and w, "the resize is done", LIMIT_S)
    assert f"the arbiter of partition 'all', policy {policy}: it grows from" in words, words
    first.end()
    assert first.first_steps()[0] == 0 and all(n > 0 for n in first.first_steps()[1:]) and len(first.first_steps()) >= 3, first.output()
    wait_until(lambda: not slurm.jobs(), "nothing is left in Slurm's queue", LIMIT_S)
    return both


@pytest.mark.slow
@pytest.mark.parametrize("policy, gpus", [("drf", 0), ("dorm", 0), ("drf", 2), ("dorm", 2)])
def test_two_jobs_share_a_partition(tony, slurm, arbiter, policy, gpus):
    exchange(tony, slurm, arbiter, policy=policy, gpus=gpus)
    arbiter.kill()
    assert f"partition 'all', policy '{policy}': utilization " in arbiter.said(), arbiter.said()
    assert ("best possible" in arbiter.said()) == (policy == "dorm"), arbiter.said()
    assert "starts with 1  " in arbiter.said() and "1 -> 3  it grows" in arbiter.said() and "did not follow" not in arbiter.said(), arbiter.said()


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["arbiter", "first", "second"])
def test_deaths_in_an_exchange(tony, slurm, arbiter, victim):
    """The arbiter dies at each step, or a master in the middle."""
    def strike(name, first, second):
        if victim == "arbiter":
            arbiter.kill()
            arbiter.start()
        elif name == ("asked" if victim == "first" else "started"):
            kill_master(tony, first if victim == "first" else second)
    exchange(tony, slurm, arbiter, strike)


def test_it_only_says(tony, slurm, arbiter):
    """A dry run changes nothing. What another job has taken is gone, and a job that cannot get further nodes is left alone."""
    job = Job(tony, "first")
    rigid = Job(tony, "rigid", **{"tony.slurm.further-allocations": "false"})
    wait_until(lambda: job.running() == 1 and rigid.running() == 1, "both run", LIMIT_S)
    def looks():
        done = tony("arbiter", "run", "--cluster", "slurm", "--queue", "all", "--once", "--dry-run", "--json")
        doc = json.loads(done.stdout)
        return doc if [j["runs"] for j in doc["jobs"]] == [True] else None
    doc = wait_until(looks, "the job is seen to run", LIMIT_S)
    assert (doc["queue"], doc["policy"], doc["nodes"]) == ("all", "drf", 3), doc
    assert [(j["application_id"], j["has"], j["target"]) for j in doc["jobs"]] == [(job.id, 1, 2)], doc
    assert "2 nodes" in doc["jobs"][0]["why"], doc
    for policy in ("drf", "dorm"):  # each decision of dorm says how good it is
        at = ("arbiter", "run", "--cluster", "slurm", "--queue", "all", "--once", "--dry-run", "--policy", policy)
        [figures] = [line for line in tony(*at).stdout.splitlines() if line.startswith(f"partition 'all', policy '{policy}': utilization ")]
        assert "best possible" in figures if policy == "dorm" else "best possible" not in figures, figures
        gap = json.loads(tony(*at, "--json").stdout).get("gap")
        assert gap is None if policy == "drf" else 0 <= gap <= 1, (policy, gap)
    assert job.running() == 1 and not further(slurm, job.id)
    free = next(n for n in slurm.names if n not in (*job.nodes(), *rigid.nodes()))
    holder = slurm.run("sbatch", "--parsable", "-w", free, "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600", cwd="/").stdout.strip()
    wait_until(lambda: slurm.job(holder) == "RUNNING", "another user has the third node", LIMIT_S)
    doc = looks()
    assert [(j["has"], j["target"]) for j in doc["jobs"]] == [(1, 1)], doc
    slurm.run("scancel", "--signal=KILL", holder)
    job.end()
    rigid.end()


def once(tony):
    """What a dry run says about the targets of jobs, and its sentences."""
    at = ("arbiter", "run", "--cluster", "slurm", "--queue", "all", "--once", "--dry-run")
    jobs = json.loads(tony(*at, "--json").stdout)["jobs"]
    return {j["application_id"]: (j["has"], j["target"]) for j in jobs}, tony(*at).stdout


def of_another_user(slurm, *args):
    done = slurm.run("sbatch", "--parsable", *args, "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600", cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.takes(25)
def test_no_job_grows_into_what_others_wait_for(tony, slurm, arbiter):
    """Two nodes are wanted, and one is free. It stays free, and the job of another user starts as soon as a second one is."""
    job = Job(tony, "first")
    wait_until(lambda: job.running() == 1, "the job runs", LIMIT_S)
    wait_until(lambda: once(tony)[0] == {job.id: (1, 3)}, "it may have all nodes", LIMIT_S)
    holder = of_another_user(slurm, "-w", next(n for n in slurm.names if n not in job.nodes()))
    wait_until(lambda: slurm.job(holder) == "RUNNING", "a node is taken")
    waits = of_another_user(slurm, "-N2")
    wait_until(lambda: slurm.job(waits, "%r") in ("Resources", "Priority"), "a job waits for two nodes")
    targets, said = once(tony)
    assert targets == {job.id: (1, 1)} and "stay free, since other jobs wait for them" in said, (targets, said)
    arbiter.start()
    slurm.run("scancel", "--signal=KILL", holder)
    wait_until(lambda: slurm.job(waits) == "RUNNING", "the other job runs", LIMIT_S)
    assert job.running() == 1 and not further(slurm, job.id)
    slurm.run("scancel", "--signal=KILL", waits)
    until(lambda: job.running() == 3, "the job grows when nobody waits", job)
    job.end()


@pytest.mark.takes(15)
def test_a_dry_run_while_a_job_changes(tony, slurm, arbiter):
    """Its further node is taken, so the change lasts until the test frees the node."""
    job = Job(tony, "first")
    wait_until(lambda: job.running() == 1, "the job runs", LIMIT_S)
    holder = of_another_user(slurm, "-N2")
    wait_until(lambda: slurm.job(holder) == "RUNNING", "the other nodes are taken")
    tony.start("resize", job.id, "worker=2")
    wait_until(lambda: further(slurm, job.id), "the job asks for a further node")
    targets, said = once(tony)
    assert targets == {} and f"{job.id}  changes its size now" in said and "no job that can be resized" not in said, (targets, said)
    slurm.run("scancel", "--signal=KILL", holder)
    until(lambda: job.running() == 2, "the job has grown", job)
    job.end()


@pytest.mark.takes(20)
def test_no_job_grows_into_what_another_waits_for_to_grow(tony, slurm, arbiter):
    """An arbiter that starts while a job waits for a further node, which is free, leaves it to this job."""
    first, second = Job(tony, "first"), Job(tony, "second")
    wait_until(lambda: first.running() == 1 and second.running() == 1, "both run", LIMIT_S)
    wait_until(lambda: 2 in [t for _, t in once(tony)[0].values()], "one of them may have the third node", LIMIT_S)
    holder = of_another_user(slurm, "-w", next(n for n in slurm.names if n not in (*first.nodes(), *second.nodes())))
    wait_until(lambda: slurm.job(holder) == "RUNNING", "the third node is taken")
    tony.start("resize", first.id, "worker=2")
    (waits,) = wait_until(lambda: further(slurm, first.id), "the job asks for a further node")
    # The further allocation waits on, for a node that is not free.
    assert slurm.run("scontrol", "update", f"JobId={waits}", f"ReqNodeList={second.nodes()[0]}").returncode == 0
    slurm.run("scancel", "--signal=KILL", holder)
    wait_until(lambda: slurm.job(holder) not in ("RUNNING", "COMPLETING"), "the third node is free")
    targets, said = once(tony)
    assert targets == {second.id: (1, 1)} and "stay free, since other jobs wait for them" in said, (targets, said)
    tony("arbiter", "run", "--cluster", "slurm", "--queue", "all", "--once")
    assert not further(slurm, second.id) and "resize" not in tony.status(second.id), tony("why", second.id).stdout
    for job in (second, first):
        tony("stop", job.id)
    wait_until(lambda: not slurm.jobs(), "nothing is left in Slurm's queue")


@pytest.mark.parametrize("args, words", [
    (("run", "--queue", "none", "--once"), "Slurm has no partition 'none'"),
    (("key", "--queue", "all"), "it resizes only jobs of its own user"),
    (("run", "--queue", "all", "--once", "--policy", "las"), "stops running jobs"),
    (("start", "--queue", "all", "--policy", "las-elastic"), "only the pool counts"),
    (("run", "--once"), "no --queue is given"),
    (("start", "--queue", "all;x"), "the name may only have letters"),
])
def test_what_is_refused(tony, args, words):
    done = tony("arbiter", *args, "--cluster", "slurm", ok=False)
    assert done.returncode == 2 and words in done.stderr, done.stderr


@pytest.mark.slow
def test_an_application_of_its_own(tony, slurm, arbiter):
    """A job of one task, beside the jobs that it resizes. kill -9 of its master and of the task: both come back."""
    at = ("--cluster", "slurm", "--queue", "all")
    app = tony("arbiter", "start", *at).stdout.strip()
    tony.await_running(app, 1)
    doc = json.loads(tony("arbiter", "status", *at, "--json").stdout)
    assert (doc["application_id"], doc["state"], doc["attempt"]) == (app, "RUNNING", 1), doc
    done = tony("arbiter", "start", *at, ok=False)
    assert done.returncode == 2 and "you already have an arbiter" in done.stderr, done.stderr
    first = Job(tony, "first")
    until(lambda: first.running() == 3, "the job has all nodes", first)
    os.kill(tony.processes("arbiter run --cluster slurm")[0], signal.SIGKILL)
    os.kill(tony.processes("tony-master", app)[0], signal.SIGKILL)
    second = Job(tony, "second")
    until(lambda: first.running() + second.running() == 3 and second.running() >= 1, "they share the nodes", first, second)
    assert tony.status(app)["state"] == "RUNNING"
    second.end()
    first.end()
    tony("arbiter", "stop", *at)
    assert tony("arbiter", "status", *at, ok=False).returncode == 1
    wait_until(lambda: not slurm.jobs(), "nothing is left in Slurm's queue", LIMIT_S)
