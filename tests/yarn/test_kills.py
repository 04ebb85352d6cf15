# SPDX-License-Identifier: Apache-2.0
"""
Any process of a job is killed: the job resumes from its last checkpoint and has the same result as without
the kill.
"""

import hashlib

from lib_cluster import wait_until
from lib_kills import KINDS, LIMIT_S, Victims, await_reported
from lib_tony import APP, ROOT

PYTHON = "/usr/bin/python3"
# The later steps are slow, so that on a slow machine, too, all kills happen before the end: see `quick`.
STEPS = 2000

# The result of each step depends on the one before. If two copies of a task run at the same time, the job
# ends. They use a lock: a process that is being killed releases it a moment later, a running one never does.
TRAINING = """
import fcntl, hashlib, json, os, signal, sys, time
sys.path.insert(0, {lib!r})
import tony_task
here, me = {here!r}, os.environ["TASK_INDEX"]
alone = open(f"{{here}}/lock-{{me}}", "w")
signal.signal(signal.SIGALRM, lambda *_: os._exit(99))
signal.alarm(10)
fcntl.flock(alone, fcntl.LOCK_EX)
signal.alarm(0)
task, path = tony_task.connect(), tony_task.resume_path()
state, step = json.load(open(path)) if path else ("", 0)
while step < {steps}:
    step += 1
    state = hashlib.sha256(f"{{state}}{{step}}{{me}}".encode()).hexdigest()
    task.progress(step, {steps})
    if step % 5 == 0:
        path = f"{{here}}/part-{{me}}-{{step}}"
        with open(path + ".tmp", "w") as f:
            json.dump([state, step], f)
        os.replace(path + ".tmp", path)
        task.checkpoint(step, path, parts=2)
    if not os.path.exists(f"{{here}}/quick"):
        time.sleep(0.03 if step < {steps} / 2 else 1)
print(state, flush=True)
"""


def result(me):
    state = ""
    for step in range(1, STEPS + 1):
        state = hashlib.sha256(f"{state}{step}{me}".encode()).hexdigest()
    return state


def test_a_training_has_the_same_result_after_kills(tony, cluster, base):
    (base / "train.py").write_text(TRAINING.format(lib=str(ROOT / "clients" / "python"), here=str(base), steps=STEPS))
    role = {"restart": "on-failure", "restart-scope": "job", "max-restarts": 9, "no-retry-on": "99"}
    app = tony.submit(tony.workers(f"{PYTHON} -S {base}/train.py", n=2, role=role))
    assert APP.fullmatch(app)
    victims, step = Victims(tony, app, "train.py"), 0
    for n, kind in enumerate(KINDS, 1):
        step = victims.past(2, step + 5)
        if kind == "master":
            await_reported(tony, app)
        victims.kill(kind)
        member, value = ("epoch", 2) if kind == "master" else ("generation", n + 1)
        wait_until(lambda m=member, v=value: tony.status(app).get(m) == v, f"the death of the {kind} is noticed", LIMIT_S)
    victims.past(2, step + 5)
    (base / "quick").write_text("")
    r = tony.run("wait", app)
    assert r.returncode == 0, r.stdout + r.stderr + tony.ok("why", app)
    said = {i: tony.ok("logs", app, f"worker:{i}", "--stdout").split()[-1] for i in range(2)}
    assert said == {i: result(i) for i in range(2)}
    assert len(cluster.attempts(app)) == 2
    assert [(f["reason"], f["done"]) for f in tony.status(app)["failures"]] == [("exited", "gang formed anew"), ("unknown", "gang formed anew")]
