# SPDX-License-Identifier: Apache-2.0
"""Waiting is explained: the place in the queue, what is missing, who holds it, and when the job will start."""

import re
import time

import pytest
from conftest import wait_until
from lib_jobs import make_lab  # noqa: F401 (fixture)
from test_pool_policy import EACH_MIB, ROOM, await_sizes, end_all, policy_lab, sleepers
from test_progress import program

HOUR_MS = 3600 * 1000
LIMIT = "tony.application.timeout"


def expected(lab, app):  # noqa: F811
    wait_until(lambda: "expected" in lab.status(app).get("waiting", {}), f"what is expected of {app}")
    return lab.status(app)["waiting"]["expected"]


def whole(lab, **top):  # noqa: F811
    """Submits a job that takes the whole pool until the test ends it."""
    return sleepers(lab, ROOM, role={"min-instances": ROOM}, **top)


def small(lab, n=1, **top):  # noqa: F811
    return lab.submit(lab.job_file({"worker": {"instances": n, "command": "sleep 1000", "memory": f"{EACH_MIB}m"}}, **top))


def label(lab, app):  # noqa: F811
    """How texts name a job: its name, and the number that commands take."""
    return f"{lab.status(app)['name']} ({int(app.rpartition('_')[2])})"


def gone(lab, *apps):  # noqa: F811
    for app in apps:
        lab.run("kill", app)
        lab.in_history(app)


def test_the_queue(make_lab):  # noqa: F811
    """The estimated start follows from time limits and priorities. If a running job has no known end, the start is
    "unknown"."""
    lab = policy_lab(make_lab, "fifo")
    first = whole(lab, name="first", conf={LIMIT: HOUR_MS})
    lab.await_state(first, "RUNNING")
    low = whole(lab, name="low", conf={LIMIT: 2 * HOUR_MS})
    high = whole(lab, name="high", conf={"tony.application.priority": 5})
    x = expected(lab, high)
    assert x["place"] == 1 and x["holder"] == first and x["holder_name"] == "first", x
    assert x["missing"] == {"memory_mib": ROOM * EACH_MIB, "gpus": 0}, x
    assert x["early_ms"] == 0 and x["likely_ms"] is None and HOUR_MS / 2 < x["late_ms"] <= HOUR_MS, x
    assert x["rests_on"] == {"progress": 0, "history": 0, "limit": 1, "unknown": 0}, x
    x = expected(lab, low)
    assert x["place"] == 2 and x["holder"] == first and x["late_ms"] is None, x
    assert x["rests_on"]["unknown_id"] == high, x
    for command in ("status", "why"):
        text = " ".join(lab.ok(command, high).split())
        assert "place 1 in the queue" in text and "; first (1) holds most" in text and first not in text and "in at most 59 m" in text and "the time limit of 1 job" in text, text
    text = lab.ok("list")
    assert "place 1 in the queue; starts: in at most 59 m" in text and "place 2 in the queue; starts: unknown" in text, text
    assert "the time limit" not in text and "it is unknown when" not in text, "what the estimate rests on makes the table too wide"
    assert label(lab, high) == "high (3)" and "it is unknown when high (3) ends" in " ".join(lab.ok("why", low).split())
    assert lab.json("why", "3")["application_id"] == high, "the number in the text is one that commands take"
    assert "  high (3)\n    waits, place 1 in the queue\n" in lab.ok("pool", "why")
    jobs = {j["application_id"]: j for j in lab.json("list")["jobs"]}
    assert jobs[low]["expected"]["place"] == 2 and "expected" not in jobs[first], jobs
    text = lab.ok("pool", "why")
    assert "waits, place 1 in the queue" in text and "expected start: in at most 59 m" in text, text
    assert [j["application_id"] for j in lab.json("pool", "why")["waiting"]] == [high, low]
    gone(lab, first)
    lab.await_state(high, "RUNNING")  # within the hour that the estimate named
    x = expected(lab, low)
    assert x["place"] == 1 and x["holder"] == high, x
    gone(lab, high)
    lab.await_state(low, "RUNNING")
    gone(lab, low)
    lab.quiet()


def test_progress_and_history(make_lab):  # noqa: F811
    """The end of a running job is estimated from the progress of its tasks, the run time of a waiting job from
    earlier runs."""
    lab = policy_lab(make_lab, "fifo")
    past = lab.submit(lab.workers("true", name="known"))
    lab.in_history(past)
    text = """
        say('{"step": 1, "total": 1000000}')
        for k in range(2, 200):
            time.sleep(0.01)
            say('{"step": %d, "total": 1000000}' % k)
        time.sleep(1000)
    """
    first = lab.submit(lab.workers(program(text), name="first", role={"memory": f"{ROOM * EACH_MIB}m"}))
    lab.await_state(first, "RUNNING")
    known = whole(lab, name="known")
    last = whole(lab, name="last")
    wait_until(lambda: expected(lab, known)["rests_on"]["progress"] == 1, "the progress is known")
    jobs = {j["application_id"]: j for j in lab.json("list")["jobs"]}
    x, y = jobs[known]["expected"], jobs[last]["expected"]
    assert 600000 < x["early_ms"] <= x["likely_ms"] <= x["late_ms"] and "unknown_id" not in x["rests_on"], x
    assert y["rests_on"] == {"progress": 1, "history": 1, "limit": 0, "unknown": 0}, y
    assert y["likely_ms"] >= x["likely_ms"] and y["late_ms"] is not None, (x, y)
    assert "by the progress of 1 job, earlier runs of 1 job" in " ".join(lab.ok("why", last).split())
    gone(lab, last, known, first)
    # If the time limit comes before the progress is done, the job ends then: one time instead of a range.
    first = lab.submit(lab.workers(program(text), name="first", role={"memory": f"{ROOM * EACH_MIB}m"}, conf={LIMIT: HOUR_MS // 2}))
    lab.await_state(first, "RUNNING")
    last = whole(lab, name="last")
    wait_until(lambda: expected(lab, last)["likely_ms"], "the progress is known")
    x, text = expected(lab, last), " ".join(lab.ok("why", last).split())
    assert x["rests_on"] == {"progress": 0, "history": 0, "limit": 1, "unknown": 0} and x["early_ms"] == x["late_ms"], x
    assert re.search(r"starts in (29|30) m [0-9]+ s; by the time limit of 1 job", text), text
    gone(lab, last, first)
    lab.quiet()


def test_backfill(make_lab):  # noqa: F811
    """A job that ends before the larger one can start passes it; a longer one starts after it."""
    lab = policy_lab(make_lab, "backfill")
    first = small(lab, ROOM - 2, name="first", conf={LIMIT: HOUR_MS})
    lab.await_state(first, "RUNNING")
    large = small(lab, ROOM, name="large", conf={LIMIT: HOUR_MS})
    long = small(lab, 2, name="long", conf={LIMIT: 5 * HOUR_MS})
    x, y = expected(lab, large), expected(lab, long)
    assert 0.9 * HOUR_MS < x["late_ms"] <= HOUR_MS and x["holder"] == first, x
    assert 1.9 * HOUR_MS < y["late_ms"] <= 2 * HOUR_MS, y
    text = wait_until(lambda: (lambda t: t if "long (3)" in t else None)(lab.ok("pool", "why")), "a decision about all three")
    assert "  large (2)\n    waits, place 1 in the queue, for " in text and "    lacks: 240 MB; first (1) holds most\n" in text, text
    assert "  long (3)\n    waits, place 2 in the queue, for " in text and "    lacks: 0" not in text, text
    short = small(lab, 2, name="short", conf={LIMIT: HOUR_MS // 4})
    lab.await_state(short, "RUNNING")
    assert expected(lab, large)["late_ms"] <= HOUR_MS
    gone(lab, first, short)
    lab.await_state(large, "RUNNING")
    gone(lab, large, long)
    lab.quiet()


def test_the_next_decision(make_lab):  # noqa: F811
    """A job that waits for the next decision does not start at once, and for the longest time if others have to shrink for it."""
    lab = policy_lab(make_lab, "drf", interval=HOUR_MS, **{"resize-limit": HOUR_MS})
    for most, x in ((ROOM // 2, {"late_ms": 0}), (ROOM, {"late_ms": 2 * HOUR_MS, "if_shrunk": True})):
        first = sleepers(lab, 2, role={"max-instances": most})
        await_sizes(lab, {first: most})
        second = sleepers(lab, 1)
        assert {key: expected(lab, second).get(key) for key in x} == x, expected(lab, second)
        said = "in at most 2 h 00 m if other jobs become smaller in time" if most == ROOM else "by the pool's next decision"
        for command in (("why", second), ("status", second), ("list",)):
            text = " ".join(lab.ok(*command).split())
            assert "at once" not in text and said in text, text
        end_all(lab, second, first)
        lab.ok("pool", "stop")  # the next pool decides without waiting for the interval


@pytest.mark.parametrize("policy", ["fifo", "dorm"])
def test_plan_when(make_lab, policy):  # noqa: F811
    """`tony plan --when` says "at once" in an empty pool. Otherwise it lists the jobs that would shrink, and those
    that would start later."""
    lab = policy_lab(make_lab, policy)
    elastic = {"memory": f"{EACH_MIB}m", "min-instances": 1, "max-instances": ROOM}
    plan = lab.workers("sleep 1000", n=4, role=elastic, conf={"tony.application.priority": 5})
    when = lab.json("plan", plan, "--when")["when"]
    assert when["late_ms"] == 0 and when["shrinks"] == [] and when["delays"] == [] and when["policy"] == policy, when
    text = lab.ok("plan", plan, "--when")
    size = {"fifo": 4, "dorm": ROOM}[policy]
    assert "expected start: at once" in text and f"  size at its start: {size} containers, of 1 to {ROOM}\n" in text, text
    assert when["containers"] == {"start": size, "min": 1, "max": ROOM}, when
    huge = lab.workers("sleep 1000", n=ROOM + 1, role={"memory": f"{EACH_MIB}m"})
    text = lab.run("plan", huge, "--when").stdout
    assert "never: it does not fit into the empty machine" in text and "lacks" not in text, text
    if policy == "dorm":
        first = sleepers(lab, 4, name="first")
        await_sizes(lab, {first: 8})
        when = lab.json("plan", plan, "--when")["when"]
        assert [(j["application_id"], j["from"]) for j in when["shrinks"]] == [(first, 8)], when
        text = lab.ok("plan", plan, "--when")
        assert when["late_ms"] == 0 and "  first (1) would shrink from 8 to" in text, when
        assert "expected start: when the jobs below have become smaller" in text and text.index("Digest") < text.index("expected start"), text
        end_all(lab, first)
        return
    first = whole(lab, name="first", conf={LIMIT: HOUR_MS})
    lab.await_state(first, "RUNNING")
    second = whole(lab, name="second", conf={LIMIT: HOUR_MS})
    when = lab.json("plan", plan, "--when")["when"]
    assert 0 < when["late_ms"] <= HOUR_MS and [j["application_id"] for j in when["delays"]] == [second], when
    assert "  second (2) would start later" in lab.ok("plan", plan, "--when")
    assert "when" not in lab.json("plan", plan)
    gone(lab, second, first)
    lab.quiet()


@pytest.mark.slow
@pytest.mark.alone("a run must not take twice as long as the one before it")
@pytest.mark.parametrize("policy", ["fifo", "static", "dorm", "backfill", "drf", "market", "srtf-elastic", "las-elastic"])
def test_starts_are_in_the_range(make_lab, policy):  # noqa: F811
    """No further job is submitted, and the run times differ by less than a factor of 2. So each job must start
    within its estimated range."""
    lab = policy_lab(make_lab, policy)
    role = {"memory": f"{ROOM * EACH_MIB}m"}
    lab.in_history(lab.submit(lab.workers("sleep 3", name="known", role=role)))
    first = lab.submit(lab.workers("sleep 3", name="known", role=role))
    lab.await_state(first, "RUNNING")
    second, third = (lab.submit(lab.workers("sleep 3", name="known", role=role)) for _ in range(2))
    from_ms = time.time() * 1000
    jobs = {j["application_id"]: j for j in lab.json("list")["jobs"]}
    to_ms = time.time() * 1000
    x = {app: jobs[app]["expected"] for app in (second, third)}
    assert [x[app]["place"] for app in x] == [1, 2], x
    assert x[second]["rests_on"]["history"] == 1 and x[third]["rests_on"]["history"] == 2, x
    assert x[third]["early_ms"] > x[second]["early_ms"], x
    for app in (first, second, third):
        lab.in_history(app)
    jobs = {j["application_id"]: j for j in lab.json("list")["jobs"]}
    for app in x:
        began_ms = jobs[app]["started_ms"]
        assert from_ms + x[app]["early_ms"] <= began_ms <= to_ms + x[app]["late_ms"], (from_ms, to_ms, x[app], jobs[app])
    lab.quiet()
