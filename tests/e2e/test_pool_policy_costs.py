# SPDX-License-Identifier: Apache-2.0
"""A policy resizes no running job if that costs more than it gains. What it costs is measured by each job."""

import json

from conftest import wait_until
from lib_jobs import make_lab  # noqa: F401 (fixture)
from test_pool_policy import EACH_MIB, await_sizes, end_all, policy_lab, sleepers
from test_pool_policy_saves import save, saver

KILL_GRACE_MS = 300  # of the jobs that saver() makes: their tasks ignore the stop and end only when they are killed


def test_an_expensive_resize_is_not_made(make_lab):  # noqa: F811
    """Both jobs could grow. The one that has measured that a resize costs more than the time in which it must pay keeps
    its size; the other one, whose tasks run on during a resize, grows."""
    lab = policy_lab(make_lab, "drf", payback=100, **{"resize-cost": 0})
    fixed = lab.submit(lab.workers("sleep 1000", n=4, role={"memory": f"{EACH_MIB}m"}))
    await_sizes(lab, {fixed: 4})
    cheap = sleepers(lab, 2)
    await_sizes(lab, {cheap: 4})
    first = saver(lab, 2, resize="restart")
    await_sizes(lab, {first: 2, cheap: 2})

    # the policy lets the job grow again, because the cost of a resize is still unknown
    lab.ok("resize", first, "worker=1")
    wait_until(lambda: lab.status(first).get("resizes") == 2, "the job was resized twice")
    await_sizes(lab, {first: 2, cheap: 2})
    assert "resize_cost" not in lab.status(first)
    save(lab, 1)  # the job makes progress again, so the cost of the second resize can be measured
    cost = wait_until(lambda: lab.status(first).get("resize_cost"), "the job knows what a resize costs")
    assert cost["measured"] == 1 and cost["stop_ms"] >= KILL_GRACE_MS and cost["last"]["by"] == "resize", cost
    assert cost["total_ms"] == sum(cost[f"{part}_ms"] for part in ("save", "stop", "start", "warm", "redone")), cost
    assert "a resize costs this job about" in lab.ok("status", first)
    bounds = {j["application_id"]: j["bounds"] for j in lab.json("pool", "status")["jobs"] if "bounds" in j}
    wait_until(lambda: cost["total_ms"] in json.loads((lab.home / "pool" / "costs").read_text()).values(), "the pool has noted it")
    assert bounds[cheap]["cost_ms"] == 0, bounds

    generation = lab.status(first)["generation"]
    lab.run("kill", fixed)
    lab.in_history(fixed)
    await_sizes(lab, {first: 2, cheap: 4})
    why = wait_until(lambda: "a resize would cost" in (t := " ".join(lab.ok("why", first).split())) and t, "the reason")
    assert "and gain 0 s" in why, why
    assert "payback" in why, why
    assert lab.status(first)["generation"] == generation
    lab.ok("pool", "set", "payback=0")  # costs do not count any more
    await_sizes(lab, {first: 4, cheap: 4})
    end_all(lab, first, cheap)


def test_a_job_that_was_held_back_starts(make_lab):  # noqa: F811
    """No job has measured anything: resize-cost counts. The new job has no room unless the running one shrinks. It waits
    until its waiting time outweighs the cost."""
    lab = policy_lab(make_lab, "drf", payback=1, **{"resize-cost": 3000})
    first = saver(lab, 8, resize="restart")
    await_sizes(lab, {first: 8})
    second = sleepers(lab, 8)
    seen = wait_until(lambda: next((j["why"] for j in (lab.json("pool", "why")["decision"] or {"jobs": []})["jobs"]
                                    if j["application_id"] == second and "would cost running jobs" in j["why"]), None), "the reason why it waits", 60, 0.02)
    assert "as much as 3 s of its work" in seen, seen
    await_sizes(lab, {first: 4, second: 4})
    end_all(lab, first, second)
