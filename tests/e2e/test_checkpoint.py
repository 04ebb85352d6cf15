# SPDX-License-Identifier: Apache-2.0
"""
Checkpoints: which ones are known, which one a restarted task gets, a last one before a stop, and an unchanged
model.
"""

import json
import os
import re
import signal
import textwrap

import pytest
from conftest import ROOT, wait_until
from test_progress import Talk, program

PYTHON = "/usr/bin/python3"

# ---- a stop that waits for a last checkpoint ----

SAVES = """
    import signal
    signal.signal(signal.{signal}, lambda *_: [say('{{"step": 9, "checkpoint": "/data/step-9"}}'), os._exit({code})])
    say('{{"step": 8, "checkpoint": "/data/step-8"}}')
    time.sleep(600)
"""


def is_known(doc):
    return doc.get("checkpoint")


def stop(tony, app, *args):
    tony.ok("stop", app, *args)
    return tony.status(app)


def submitted(tony, text, shell=False, **conf):
    command = program(text)
    conf = {"checkpoint-grace": 600000, **conf}
    path = tony.workers(f"true; {command}; true" if shell else command, conf={f"tony.task.{k}": v for k, v in conf.items()})
    app = tony.submit(path)
    wait_until(lambda: is_known(tony.status(app)), "a first checkpoint is known", pause=0.05)
    return app


@pytest.mark.parametrize("shell", [False, True])
@pytest.mark.parametrize("signo", ["SIGTERM", "SIGUSR1"])
def test_a_stop_lets_save(tony, signo, shell):
    """
    The signal must reach the program. A shell around it would die of the signal, and the program with the
    shell.
    """
    app = submitted(tony, SAVES.format(signal=signo, code=0), shell=shell,
                    **({} if signo == "SIGTERM" else {"checkpoint-signal": signo[3:]}))
    doc = stop(tony, app, "--checkpoint")
    assert doc["state"] == "KILLED" and doc["checkpoint"] == {"step": 9, "path": "/data/step-9"}
    assert doc["tasks"][0]["result"] == "FINISHED"
    assert "step 9" in tony.ok("status", app)


def test_a_plain_stop_does_not_wait(tony):
    app = submitted(tony, SAVES.format(signal="SIGUSR1", code=0))
    doc = stop(tony, app)
    assert doc["state"] == "KILLED" and doc["checkpoint"]["step"] == 8


def test_a_stop_does_not_wait_for_a_task_that_cannot_save(tony):
    app = tony.submit(tony.workers("sleep 600", conf={"tony.task.checkpoint-grace": 600000}))
    wait_until(lambda: tony.status(app)["roles"][0]["running"] == 1, "it runs", pause=0.05)
    doc = stop(tony, app, "--checkpoint")  # without --checkpoint it would take ten minutes
    assert doc["state"] == "KILLED"


def test_a_stop_is_sent_over_the_socket(tony):
    """The program does not handle the signal, but it is connected to the socket."""
    app = submitted(tony, """
        say('{"step": 1, "checkpoint": "/data/step-1"}')
        word = json.loads(heard())
        assert word["stop"] and word["within_ms"] == 500000, word
        say('{"step": 2, "checkpoint": "/data/step-2"}')""", **{"checkpoint-grace": 500000})
    doc = stop(tony, app, "--checkpoint")
    assert doc["checkpoint"]["step"] == 2, doc


def test_the_grace_ends(tony):
    app = submitted(tony, """
        import signal
        signal.signal(signal.SIGTERM, lambda *_: None)
        say('{"step": 1, "checkpoint": "/data/step-1"}')
        while True: time.sleep(600)""", **{"checkpoint-grace": 300, "kill-grace-ms": 300})
    doc = stop(tony, app, "--checkpoint")
    assert doc["state"] == "KILLED" and doc["tasks"][0]["signal"] == 9


def test_a_kill_ends_the_wait_for_a_checkpoint(tony):
    app = submitted(tony, """
        import signal
        signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
        say('{"step": 1, "checkpoint": "/data/step-1"}')
        while True: time.sleep(600)""", **{"checkpoint-grace": 600000, "kill-grace-ms": 100})
    tony.ok("stop", app, "--checkpoint", "--no-wait")
    wait_until(lambda: "asked" in tony.log_so_far(app, "worker:0"), "it was asked")
    assert tony.state(app) == "STOPPING"
    tony.ok("kill", app, timeout=60)
    assert tony.state(app) == "KILLED"


# ---- found in a directory ----


def test_found_by_name(tony, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    t = Talk(tony, tmp_path, """
        wait()""", conf={"tony.task.checkpoint-dir": str(data), "tony.task.checkpoint-pattern": r"step-([0-9]+)\.pt"})
    (data / "step-5.pt").write_text("x")
    (data / "step-7.pt.tmp").write_text("x")  # an incomplete checkpoint
    (data / "last.pt").write_text("x")
    doc = t.until(lambda d: is_known(d) and d, "a checkpoint is found")
    assert doc["checkpoint"] == {"step": 5, "path": str(data / "step-5.pt")}
    (data / "step-7.pt.tmp").rename(data / "step-7.pt")
    t.until(lambda d: d["checkpoint"]["step"] == 7, "the next one is found")
    (data / "step-12.pt").write_text("x")
    t.open()  # the task may end before the executor looks again
    assert t.over()["checkpoint"]["step"] == 12


def test_a_directory_counts_once_its_marker_exists(tony, tmp_path):
    data = tmp_path / "data"
    (data / "step-3").mkdir(parents=True)
    (data / "step-8").mkdir()
    (data / "step-3" / "DONE").write_text("")
    t = Talk(tony, tmp_path, """
        wait()""", conf={"tony.task.checkpoint-dir": str(data), "tony.task.checkpoint-pattern": "step-([0-9]+)",
                         "tony.task.checkpoint-marker": "DONE"})
    t.until(lambda d: is_known(d) and d["checkpoint"]["step"] == 3, "the complete one is found")
    (data / "step-8" / "DONE").write_text("")
    t.until(lambda d: d["checkpoint"]["step"] == 8, "it is complete")
    t.open()
    t.over()


@pytest.mark.parametrize("conf, words", [
    ({"tony.task.checkpoint-dir": "x"}, "needs a pattern"),
    ({"tony.task.checkpoint-pattern": "x"}, "no group"),
    ({"tony.task.checkpoint-pattern": "x("}, "regular expression"),
    ({"tony.worker.progress-pattern": "(a)\\1"}, "refer to its own groups"),
    ({"tony.worker.progress-pattern": "(" + "a" * 300 + ")"}, "longer than 256 bytes"),
    ({"tony.task.checkpoint-signal": "KILL"}, "TERM"),
])
def test_wrong_checkpoint_keys_are_refused(tony, conf, words):
    r = tony.run("submit", tony.workers("true", conf=conf))
    assert r.returncode == 2 and words in r.stderr, r.stderr


# ---- resuming ----


def test_a_restarted_task_gets_the_newest_common_step(tony, tmp_path):
    """A restarted task gets the newest step that all tasks have. worker:1 was faster, but worker:0 has no step 30."""
    app = tony.submit(tony.workers(program("""
        me = os.environ["TASK_INDEX"]
        print(os.environ.get("TONY_CHECKPOINT"), os.environ.get("TONY_CHECKPOINT_STEP"), flush=True)
        if "TONY_CHECKPOINT" in os.environ:
            sys.exit(0)
        for step in (10, 20) if me == "0" else (10, 20, 30):
            say(json.dumps({"step": step, "checkpoint": f"/data/{me}/step-{step}", "parts": 2}))
        say('{"ask": "stop"}'); heard()         # all was read
        said = os.path.join(os.environ["HERE"], "said")
        if me == "0":
            open(said, "w").close()
        while me == "1":
            if os.path.exists(said):
                os.kill(os.getpid(), 9)
            time.sleep(0.01)
        time.sleep(600)"""), n=2, role={"restart": "on-failure", "restart-scope": "job"}, env={"HERE": str(tmp_path)}))
    r = tony.run("wait", app, timeout=90)
    assert r.returncode == 0, r.stdout + r.stderr
    for i in (0, 1):
        assert tony.log(app, f"worker:{i}", attempt=1) == "None None\n"
        step = tony.log(app, f"worker:{i}", attempt=2).split()[1]
        assert tony.log(app, f"worker:{i}", attempt=2) == f"/data/{i}/step-{step} {step}\n"
    steps = {tony.log(app, f"worker:{i}", attempt=2).split()[1] for i in (0, 1)}
    assert steps <= {"10", "20"} and len(steps) == 1
    assert "in its attempt" not in tony.ok("why", app) and "before" in tony.ok("why", app)


@pytest.mark.parametrize("parts", [2, None])
def test_parts_of_two_generations_are_no_checkpoint(tony, tmp_path, parts):
    """
    The example in docs/task-socket.md: worker:0 saved its part of step 110 in generation 1, worker:1 in
    generation 2.
    """
    app = tony.submit(tony.workers(program("""
        import tony_task
        me, attempt = os.environ["TASK_INDEX"], int(os.environ["TONY_ATTEMPT"])
        here, parts = os.environ["HERE"], int(os.environ["PARTS"]) or None
        task = tony_task.connect()
        print(tony_task.resume_path(), tony_task.resume_step(), flush=True)
        if attempt == 3:
            sys.exit(0)
        for step in {"10": (100, 110), "11": (100,), "20": (), "21": (110,)}[f"{attempt}{me}"]:
            while (step, attempt) == (110, 1) and not os.path.exists(f"{here}/go"):
                time.sleep(0.05)
            task.checkpoint(step, f"/data/{me}/{attempt}/{step}", parts)
        while not task.should_stop():       # its executor has read all of that when it answers
            s.send(b'{"ask": "stop"}\\n'); heard()
            open(f"{here}/said-{attempt}{me}", "w").close()
            if f"{attempt}{me}" in ("11", "20") and os.path.exists(f"{here}/said-{attempt}{1 - int(me)}"):   # worker:1, then worker:0
                os.kill(os.getpid(), 9)
            time.sleep(0.05)"""), n=2, role={"restart": "on-failure", "restart-scope": "job"},
        env={"HERE": str(tmp_path), "PARTS": str(parts or 0)}))
    wait_until(lambda: all(t.get("checkpoint", {}).get("step") == 100 for t in tony.status(app)["tasks"]), "both are known as savers")
    (tmp_path / "go").write_text("")
    r = tony.run("wait", app, timeout=90)
    assert r.returncode == 0, r.stdout + r.stderr
    for i in (0, 1):
        assert [tony.log(app, f"worker:{i}", attempt=a) for a in (1, 2, 3)] == \
            ["None 0\n", f"/data/{i}/1/100 100\n", f"/data/{i}/1/100 100\n"]
    assert tony.status(app)["checkpoint"] == {"step": 100, "path": "/data/0/1/100"}


def test_a_command_for_those_that_resume(tony):
    app = tony.submit(tony.workers(program("""
        say('{"step": 7, "checkpoint": "/data/step-7"}')
        say('{"ask": "stop"}'); heard()         # all was read
        sys.exit(3)"""), role={"restart": "on-failure", "resume-command": "echo resumed from $TONY_CHECKPOINT_STEP"}))
    r = tony.run("wait", app, timeout=90)
    assert r.returncode == 0, r.stdout + r.stderr
    assert tony.log(app, "worker:0", attempt=2) == "resumed from 7\n"


def test_nothing_to_resume_from(tony, tmp_path):
    """If no checkpoint was saved, the next attempt begins the command from its start."""
    seen = tmp_path / "seen"
    app = tony.submit(tony.workers(f"[ -e {seen} ] && echo again && exit 0; touch {seen}; exit 3",
                                   role={"restart": "on-failure", "resume-command": "exit 9"}))
    r = tony.run("wait", app, timeout=90)
    assert r.returncode == 0, r.stdout + r.stderr
    assert tony.log(app, "worker:0", attempt=2) == "again\n"


def test_plan_shows_the_resume_command(tony):
    path = tony.workers("train --init", role={"resume-command": "train --resume"})
    out = tony.ok("plan", path)
    assert "  command  train --init\n  resumes  train --resume\n" in out
    assert tony.json("plan", path)["tasks"][0]["resume_command"] == "train --resume"
    plain = tony.workers("train")
    assert "resumes" not in tony.ok("plan", plain) and "resume_command" not in tony.json("plan", plain)["tasks"][0]


# Kills the process at the moments in the file PLAN, each once. "before 17": rank 1 after step 17. "half 20":
# rank 0 while the checkpoint of step 20 is half written. "unnamed 30": after it is written and before it is
# renamed.
KILLER = """
import os, signal, socket
plan, rank = os.environ.get("PLAN"), os.environ.get("RANK")
def die(what):
    try:
        os.rename(os.path.join(plan, what), os.path.join(plan, what + ".done"))
    except OSError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
if plan and rank is not None:
    import json
    send, replace = socket.socket.send, os.replace
    class Socket(socket.socket):
        def send(self, data, *args):
            n = super().send(data, *args)
            if data[:1] == b"{":
                step = json.loads(data).get("step")
                die(f"rank{rank}-{step}")
            return n
    socket.socket = Socket
    def replaced(src, dst, **kw):
        name = os.path.basename(dst)
        if os.path.exists(os.path.join(plan, "half-" + name)):
            os.truncate(src, os.path.getsize(src) // 2)
            die("half-" + name)
        die("unnamed-" + name)
        return replace(src, dst, **kw)
    os.replace = replaced
"""


def final(tony, app, attempt):
    line = tony.log(app, "worker:0", attempt=attempt).strip().splitlines()[-1]
    return json.loads(line)


@pytest.mark.slow
@pytest.mark.xdist_group("training")  # each uses all cores
@pytest.mark.takes(12)
def test_the_digits_are_the_same(own_tony, tmp_path):
    """
    Killed before any checkpoint, at some steps, in the middle of a write and before its rename: the model is
    the same, bit by bit.
    """
    signal.alarm(540)  # the test imports PyTorch a dozen times
    t = own_tony()
    killer = tmp_path / "killer"
    killer.mkdir()
    (killer / "sitecustomize.py").write_text(textwrap.dedent(KILLER))
    job = ROOT / "examples/digits/job.yaml"
    args = ["--conf", f"tony.containers.command={PYTHON} train.py --epochs 2 --save-every 10"]
    plain = t.submit(job, *args)
    assert t.run("wait", plain, timeout=200).returncode == 0
    expected = final(t, plain, 1)["model"]

    plan = tmp_path / "plan"
    plan.mkdir()
    for what in ("rank1-3", "rank0-17", "half-step-00000020.pt", "unnamed-step-00000030.pt"):
        (plan / what).write_text("")
    app = t.submit(job, *args, "--conf", "tony.worker.restart=on-failure", "--conf", "tony.worker.restart-scope=job",
                   "--conf", "tony.worker.max-restarts=9", "--shell_env", f"PLAN={plan}", "--shell_env", f"PYTHONPATH={killer}")
    assert t.run("wait", app, timeout=500).returncode == 0, t.ok("why", app)
    assert sorted(p.name for p in plan.iterdir() if p.suffix != ".done") == []
    attempts = t.tasks(app)["worker:0"]["attempt"]
    assert attempts == 5
    assert final(t, app, attempts)["model"] == expected
    begun = [int(m.group(1)) for a in range(1, 6) for m in [re.search(r"going on from step (\d+)", t.log(app, "worker:0", attempt=a))] if m]
    assert begun == [10, 10, 20], begun
    assert t.status(app)["checkpoint"]["path"].endswith("step-00000040.pt")
