# SPDX-License-Identifier: Apache-2.0
"""A policy divides the pool among jobs that run: they shrink and grow, and the queue is served as the policy decides."""

import json

import pytest
from conftest import wait_until
from lib_jobs import kill9, make_lab  # noqa: F401 (fixture)

EACH_MIB = 40
ROOM = 8  # containers in the pool
ELASTIC = {"memory": f"{EACH_MIB}m", "min-instances": 1, "max-instances": ROOM}


def policy_lab(make_lab, policy, **site):  # noqa: F811
    settings = {"pool.memory": f"{ROOM * EACH_MIB}m", "pool.policy": policy, "pool.policy.interval": 100, "pool.policy.loss-max": 0.2}
    settings.update({f"pool.policy.{k}": v for k, v in site.items()})
    return make_lab(site=settings)


def sleepers(lab, n, role=None, **top):
    """A job of n tasks that run until the test ends them."""
    return lab.submit(lab.workers("sleep 1000", n=n, role={**ELASTIC, **(role or {})}, **top))


def sizes(lab, *apps):
    """How many tasks of each job run; 0: it has no roles yet."""
    return [sum(r["running"] for r in lab.status(app).get("roles", [])) for app in apps]


def await_sizes(lab, wanted, limit=60):
    apps = list(wanted)
    def look():
        docs = [lab.status(app) for app in apps]
        return all(len([t for t in d.get("tasks", []) if t["state"] == "running"]) == n and "resize" not in d
                   for d, n in zip(docs, wanted.values()))
    wait_until(look, f"{list(wanted.values())} tasks of {apps}", limit, 0.05)


def used(lab):
    return lab.json("pool", "status")["used"]["memory_mib"]


def end_all(lab, *apps):
    for app in apps:
        lab.run("kill", app)
    for app in apps:
        lab.in_history(app)
    lab.quiet()


@pytest.mark.parametrize("policy", ["dorm", "drf"])
def test_two_jobs_share_the_pool(make_lab, policy):  # noqa: F811
    lab = policy_lab(make_lab, policy)
    first = sleepers(lab, 4)
    await_sizes(lab, {first: 8})  # growth needs nobody who waits
    second = sleepers(lab, 8)
    await_sizes(lab, {first: 4, second: 4})
    assert used(lab) == 8 * EACH_MIB
    doc = lab.status(first)
    assert doc["last_resize"]["who"] == "the scheduler" and f"policy '{policy}'" in doc["last_resize"]["why"], doc["last_resize"]
    assert doc["restarts"] == 0 and not doc.get("failures"), doc
    lab.run("kill", second)
    lab.in_history(second)
    await_sizes(lab, {first: 8})
    end_all(lab, first)
