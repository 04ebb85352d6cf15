# SPDX-License-Identifier: Apache-2.0
"""A policy resizes jobs whose gang has to restart: they save a checkpoint first, or keep their size."""

import signal

import pytest
from conftest import wait_until
from lib_digits import PYTHON, Training, pauser, result, undisturbed_accuracy
from lib_jobs import make_lab  # noqa: F401 (fixture)
from test_pool_policy import EACH_MIB, ELASTIC, ROOM, await_sizes, end_all, policy_lab, sleepers
from test_resize_digits import ONE_IMAGE, set_pause

# Task 0 saves a checkpoint for each number that the test writes into the file `save`. It does not hear a request to
# stop, so it saves nothing then.
SAVER = """last=; trap : TERM
while :; do
  [ ! -e {base}/save ] || read -r n < {base}/save
  if [ "$n" != "$last" ] && [ $TASK_INDEX = 0 ]; then : > {base}/saved/.tmp; mv {base}/saved/.tmp {base}/saved/step-$n; last=$n; fi
  sleep 0.05
done"""


def saver(lab, n, **role):
    """A job of a framework whose gang restarts for a resize."""
    (lab.base / "saved").mkdir(exist_ok=True)
    path = lab.workers(SAVER.format(base=lab.base), n=n, role={**ELASTIC, **role}, framework="pytorch",
                       conf={"tony.task.checkpoint-dir": str(lab.base / "saved"), "tony.task.checkpoint-pattern": "step-([0-9]+)",
                             "tony.task.kill-grace-ms": 300, "tony.task.checkpoint-grace": 300})
    return lab.submit(path)


def save(lab, n):
    (lab.base / "save.new").write_text(f"{n}\n")
    (lab.base / "save.new").rename(lab.base / "save")


def test_a_job_shrinks_when_it_has_saved(make_lab):  # noqa: F811
    lab = policy_lab(make_lab, "drf")
    first = saver(lab, 8)
    await_sizes(lab, {first: 8})
    second = sleepers(lab, 8)
    wait_until(lambda: lab.status(first).get("resize", {}).get("awaits_checkpoint"), "the job waits for its checkpoint")
    assert "waits until the job has saved its next checkpoint" in lab.ok("status", first)
    assert lab.status(first)["generation"] == 1 and lab.status(second)["state"] == "WAITING"
    # The start of the second job is decided, but it depends on the checkpoint of the first one.
    for text in (" ".join(lab.ok(*words).split()) for words in (("why", second), ("pool", "why", second))):
        words = f"it waits until job '{lab.status(first)['name']}' (1) has become smaller"
        assert "it starts with 4 containers" in text and words in text and "at once" not in text, text
    told = " ".join(lab.ok("why", second).split())
    assert "in at most " in told and "if other jobs become smaller in time" in told, told
    assert " 0 ms" not in lab.ok("list") and "\n  ran " not in lab.ok("status", second), "a waiting job has not run yet"
    # A job behind it waits for the running job too: the second one has no containers yet.
    third = sleepers(lab, 8)
    wait_until(lambda: lab.status(third).get("waiting", {}).get("behind") == second, "the third job waits")
    assert lab.status(third)["waiting"]["expected"]["holder"] == first, lab.status(third)
    told = wait_until(lambda: (lambda t: t if "reserved this" in t else None)(" ".join(lab.ok("why", second).split())), "a further decision")
    assert "at most it starts when the room is free" in told, told
    lab.run("kill", third)
    lab.in_history(third)
    save(lab, 100)
    await_sizes(lab, {first: 4, second: 4})
    doc = lab.status(first)
    assert doc["generation"] == 2 and doc["restarts"] == 0 and doc["checkpoint"]["step"] == 100, doc
    end_all(lab, first, second)


def test_a_job_that_does_not_save_keeps_its_size(make_lab):  # noqa: F811
    """A job that does not save in time keeps its size and runs on. The policy asks it again later."""
    lab = policy_lab(make_lab, "drf", **{"resize-limit": 1500})
    first = saver(lab, 8)
    await_sizes(lab, {first: 8})
    second = sleepers(lab, 8)
    def given_up():
        last = lab.status(first).get("last_resize", {})
        return last if last.get("outcome") == "timed_out" else None
    last = wait_until(given_up, "the resize is given up")
    assert last["detail"].startswith("no checkpoint was saved within"), last
    doc = lab.status(first)
    assert len(doc["tasks"]) == 8 and doc["generation"] == 1 and all(t["attempt"] == 1 for t in doc["tasks"]), doc
    assert "policy.gave_up" in (lab.home / "pool" / "pool.log").read_text()
    wait_until(lambda: "no room" in lab.ok("why", second), "the reason why the other one waits")
    waiting = lab.status(second)["waiting"]
    assert waiting["needs"]["memory_mib"] > waiting["least"]["memory_mib"] == EACH_MIB, waiting
    assert f", at least {EACH_MIB} MB; free: 0 B" in lab.ok("why", second) and f"0 GPUs, at least {EACH_MIB} MB" in lab.ok("status", second)
    text = " ".join(lab.ok("why", first).split())
    assert "it did not take the size of an earlier decision within resize-limit" in text or lab.status(first).get("resize"), text
    wait_until(lambda: lab.status(first).get("resize", {}).get("awaits_checkpoint"), "the job is asked again")
    save(lab, 1)
    await_sizes(lab, {first: 4, second: 4})
    end_all(lab, first, second)


def test_a_job_that_says_so_need_not_save(make_lab):  # noqa: F811
    lab = policy_lab(make_lab, "drf")
    first = saver(lab, 8, resize="restart")
    await_sizes(lab, {first: 8})
    second = sleepers(lab, 8)
    await_sizes(lab, {first: 4, second: 4})
    assert lab.status(first)["generation"] == 2 and "checkpoint" not in lab.status(first)
    end_all(lab, first, second)


def test_growing_waits_for_a_checkpoint_too(make_lab):  # noqa: F811
    lab = policy_lab(make_lab, "drf", interval=0)
    fixed = lab.submit(lab.workers("sleep 1000", n=4, role={"memory": f"{EACH_MIB}m"}))
    await_sizes(lab, {fixed: 4})
    first = saver(lab, 4)
    await_sizes(lab, {first: 4})
    lab.run("kill", fixed)
    lab.in_history(fixed)
    wait_until(lambda: lab.status(first).get("resize", {}).get("awaits_checkpoint"), "its new containers are there")
    assert lab.status(first)["generation"] == 1
    save(lab, 7)
    await_sizes(lab, {first: 8})
    assert lab.status(first)["checkpoint"]["step"] == 7
    end_all(lab, first)


@pytest.mark.slow
@pytest.mark.xdist_group("training")  # each uses all cores
@pytest.mark.takes(60)
def test_two_trainings_share_the_pool(make_lab):  # noqa: F811
    """Both trainings end as if they had never been resized."""
    signal.alarm(900)  # the test starts PyTorch 14 times
    epochs = 6
    # The trainings are short: with a payback, no resize of them would pay.
    lab = make_lab(site={"pool.memory": "2g", "pool.policy": "drf", "pool.policy.interval": 200, "pool.policy.payback": 0})
    def training(pause):
        set_pause(pause, 20)
        return Training(lab, 1, epochs, 5, "--conf", "tony.worker.memory=512m", "--conf", "tony.worker.min-instances=1", "--conf",
                        "tony.worker.max-instances=4", *pauser(lab, pause))
    def tasks(t):
        doc = t.doc() or {}
        return len(doc.get("tasks", ())) if doc.get("state") == "RUNNING" and "resize" not in doc else 0
    pauses = [lab.base / "pause1", lab.base / "pause2"]
    first = training(pauses[0])
    wait_until(lambda: tasks(first) == 4, "the first training has the whole pool", 200, 0.05)
    second = training(pauses[1])
    wait_until(lambda: "resize" in (first.doc() or {}), "the first one is asked to shrink", 200, 0.05)
    set_pause(pauses[0], 40)  # it saves before this step
    wait_until(lambda: tasks(first) == 2 and tasks(second) == 2, "both train with two workers", 200, 0.05)
    assert second.await_step(20) >= 20
    pauses[0].unlink()
    one = result(lab, first.app, epochs)
    wait_until(lambda: "resize" in (second.doc() or {}), "the second one is offered the rest", 200, 0.05)
    set_pause(pauses[1], 40)
    wait_until(lambda: tasks(second) == 4, "the second one has grown", 200, 0.05)
    pauses[1].unlink()
    two = result(lab, second.app, epochs)
    for t in (first, second):
        doc = lab.status(t.app)
        assert doc["restarts"] == 0 and doc["generation"] == 2 and doc["resizes"] == 1, doc
    accuracy = undisturbed_accuracy(lab, epochs)
    assert abs(one["accuracy"] - accuracy) < 1.5 * ONE_IMAGE and abs(two["accuracy"] - accuracy) < 1.5 * ONE_IMAGE, (one, two, accuracy)
    lab.settled()
