# SPDX-License-Identifier: Apache-2.0
"""
Preemption by another queue. The scheduler's notice lets the tasks save. They resume from there when there is
room again.
"""

import shlex
import textwrap

import pytest
from lib_cluster import wait_until

PYTHON = "/usr/bin/python3"
WAIT_MS = 20000  # between the ResourceManager's notice and its kill
PREEMPTION = ["yarn:yarn.resourcemanager.scheduler.monitor.enable=true",
              *[f"capacity:yarn.resourcemanager.monitor.capacity.preemption.{k}={v}" for k, v in {
                  "monitoring_interval": 300, "max_wait_before_kill": WAIT_MS, "total_preemption_per_round": "1.0",
                  "natural_termination_factor": "1.0", "max_ignored_over_capacity": "0.0"}.items()]]

# Saves only when it is told to end; resumes from the checkpoint.
TASK = """
    import json, os, signal, socket, sys, time
    s = socket.socket(socket.AF_UNIX)
    s.connect("\\0" + os.environ["TONY_TASK_SOCKET"][1:])
    def say(**w):
        s.sendall(json.dumps(w).encode() + b"\\n")
    step = int(os.environ.get("TONY_CHECKPOINT_STEP", 0))
    print("begins at", step, os.environ.get("TONY_CHECKPOINT"), flush=True)
    def save(*_):
        say(step=step, checkpoint=f"/data/{os.environ['TONY_TASK']}/step-{step}")
        print("saved", step, flush=True)
        os._exit(0)
    signal.signal(signal.SIGTERM, save)
    while not os.path.exists(os.environ["GATE"]):
        step += 1
        say(step=step)
        time.sleep(0.1)
"""


def saved_by(doc):
    return {t["task"]: t["checkpoint"]["step"] for t in doc["tasks"] if "checkpoint" in t}


@pytest.mark.slow
@pytest.mark.takes(22)
@pytest.mark.parametrize("scope", ["task", "job"])
def test_tasks_save_after_the_schedulers_notice(tony, cluster, scope):
    """The tasks in the preempted containers save; if the gang forms again because of that, all tasks save."""
    n_saved = 3 if scope == "job" else 1
    gate, other_gate = tony.base / "gate", tony.base / "other-gate"
    command = f"{PYTHON} -c {shlex.quote(textwrap.dedent(TASK).strip())}"
    with cluster.changed(*PREEMPTION, restart=["rm"]):
        p = tony.start("run", tony.workers(command, n=3, role={"memory": "4g", "restart-scope": scope}, env={"GATE": str(gate)},
                                           conf={"tony.task.restarts.node-lost": 0, "tony.task.checkpoint-grace": 12000}))
        try:
            wait_until(lambda: cluster.live_apps() or p.poll() is not None, "the submission")
            app, = cluster.live_apps()
            wait_until(lambda: (lambda s: s.get("roles") and s["roles"][0]["running"] == 3 and s["roles"][0]["step"] > 3)(tony.status(app)),
                       "all run", 300, 0.5)
            other = tony.start("run", tony.workers(f"while [ ! -e {other_gate} ]; do sleep 0.1; done", n=1, role={"memory": "4g"},
                                                   conf={"tony.yarn.queue": "second"}))
            # The preempted tasks have saved their current steps, and wait for room.
            doc = wait_until(lambda: (lambda s: s["restarts"] and s["roles"][0]["waiting"] and len(saved_by(s)) >= n_saved and s)(tony.status(app)),
                             "some had to go", 300, 0.5)
            assert doc["last_restart"]["reason"] == "preempted", doc["last_restart"]
            assert doc["state"] == "RUNNING"
            wait_until(lambda: (lambda text: "preempted" in text and "granted" in text)(tony.ok("why", app)),
                       "the reason, and that no other container was granted yet", 300, 0.5)
            saved = saved_by(doc)
            assert len(saved) == n_saved and all(step > 0 for step in saved.values()), doc["tasks"]
            other_gate.write_text("")
            out, err = other.communicate(timeout=300)
            assert other.returncode == 0, out + err
            doc = wait_until(lambda: (lambda s: s["roles"][0]["running"] == 3 and s)(tony.status(app)), "all run again", 300, 0.5)
        finally:
            gate.write_text("")
            other_gate.write_text("")
        out, err = p.communicate(timeout=300)
        assert p.returncode == 0, out + err
        assert "the scheduler took its container" in err and ("gang formed anew" if scope == "job" else "restarted") in err, err
        again = [t["task"] for t in tony.status(app)["tasks"] if t["attempt"] > 1]
        assert again == list(saved)
        if scope == "task":
            assert tony.ok("logs", app, again[0], "--stdout").startswith(f"begins at {saved[again[0]]} /data/{again[0]}/")
        assert {f["reason"] for f in tony.json("why", app)["failures"]} == {"preempted"}
