# SPDX-License-Identifier: Apache-2.0
"""A policy divides the pool among jobs that run: they shrink and grow, and the queue is served as the policy decides."""

import json
import os
import re
import signal
import sys
import time
import urllib.request

import pytest
from conftest import ROOT, wait_until
from lib_jobs import kill9, make_lab  # noqa: F401 (fixture)

sys.path.insert(0, str(ROOT / "tests"))
from lib_notebook import STAND_IN, start  # noqa: E402

EACH_MIB = 40
ROOM = 8  # containers in the pool
LIMIT = "tony.application.timeout"
ELASTIC = {"memory": f"{EACH_MIB}m", "min-instances": 1, "max-instances": ROOM}


def policy_lab(make_lab, policy, **site):  # noqa: F811
    settings = {"pool.memory": f"{ROOM * EACH_MIB}m", "pool.policy": policy, "pool.policy.interval": 100, "pool.policy.loss-max": 0.2}
    settings.update({f"pool.policy.{k}": v for k, v in site.items()})
    return make_lab(site=settings)


def sleepers(lab, n, role=None, **top):
    """A job of n tasks that run until the test ends them."""
    return lab.submit(lab.workers("sleep 1000", n=n, role={**ELASTIC, **(role or {})}, **top))


def sizes(lab, *apps):
    """The number of running tasks of each job; 0 if its status has no roles yet."""
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
    await_sizes(lab, {first: 8})  # a job also grows if no other one waits
    second = sleepers(lab, 8)
    await_sizes(lab, {first: 4, second: 4})
    assert used(lab) == 8 * EACH_MIB
    doc = lab.status(first)
    assert doc["last_resize"]["who"] == "the scheduler" and f"policy '{policy}'" in doc["last_resize"]["why"], doc["last_resize"]
    assert doc["last_resize"]["why"].endswith(f"; {second} starts"), doc["last_resize"]
    assert doc["restarts"] == 0 and not doc.get("failures"), doc
    for command in ("why", "status"):
        text = " ".join(lab.ok(command, first).split())
        assert re.search(rf"4 containers for [0-9.ms ]+, fair: 4; policy '{policy}': ", text) and " changed by: " in text, text
        assert "worker 8 to 4: done" in text and "asked for by the scheduler: the pool's policy" in text, text
        assert f"; {lab.status(second)['name']} (2) starts" in text and second not in text, text
    assert lab.json("why", first)["policy"]["word"]["containers"] == 4
    decision, text = lab.json("pool", "why")["decision"], lab.ok("pool", "why")
    assert ("gap" in decision) == (policy == "dorm"), decision
    if policy == "dorm":
        said = "the best possible" if decision["gap"] == 0 else "% below the best possible"
        assert f"{said}), loss of fairness" in text, text
    else:
        assert "best possible" not in text, text
    lab.run("kill", second)
    lab.in_history(second)
    await_sizes(lab, {first: 8})
    end_all(lab, first)
    over = lab.ok("pool", "why", first)
    time.sleep(1.1)
    later = lab.ok("pool", "why", first)
    assert re.search(r"\n    8 containers for [0-9.ms ]+.*; fair: 8\n", over), over
    assert [x for x in later.splitlines() if not x.endswith(" ago")] == [x for x in over.splitlines() if not x.endswith(" ago")], \
        "the time for which a job had its size goes on after its end"


@pytest.mark.parametrize("policy", ["dorm", "drf"])
def test_a_notebook_is_never_adjusted(make_lab, tmp_path, policy):  # noqa: F811
    """`tony notebook` names no size, so it keeps its container while the jobs beside it are resized, and it is not restarted."""
    lab = policy_lab(make_lab, policy)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(STAND_IN)
    (tmp_path / "bin" / "python").chmod(0o755)
    beside = sleepers(lab, ROOM)
    await_sizes(lab, {beside: ROOM})
    notebook, url = start(lab, "--memory", f"{2 * EACH_MIB}m", "--python_venv", tmp_path)  # the other job shrinks for it
    try:
        await_sizes(lab, {beside: ROOM - 2})
        [app] = [j["application_id"] for j in lab.json("list")["jobs"] if j["application_id"] != beside]
        third = sleepers(lab, ROOM)  # wants all of it, and is given what the job beside it gives back
        await_sizes(lab, {beside: 3, third: 3})
        [result] = lab.json("pool", "why", app)["decision"]["jobs"]
        assert result["verdict"] == "keeps" and not result["elastic"] and result["had"] == result["containers"] == 1, result
        assert result["why"].startswith("it keeps what it has: "), result
        doc = lab.status(app)
        assert doc["state"] == "RUNNING" and doc["restarts"] == 0 and "resize" not in doc and "last_resize" not in doc, doc
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert answer.status == 200
    finally:
        notebook.send_signal(signal.SIGINT)
        _, errors = notebook.communicate(timeout=60)
    assert notebook.returncode == 0, errors
    await_sizes(lab, {beside: 4, third: 4})
    end_all(lab, beside, third)


# ---- settings ----

def test_set(make_lab):  # noqa: F811
    lab = policy_lab(make_lab, "fifo")
    doc = lab.json("pool", "set")
    assert doc["policy"] == "fifo" and {s["key"]: s["value"] for s in doc["settings"]}["tony.pool.policy.theta1"] == "0.1", doc
    doc = lab.json("pool", "set", "policy=DORM", "theta1=0.25", "tony.pool.policy.adjust-max=3", "loss-max=")
    values = {s["key"]: (s["value"], s["origin"]) for s in doc["settings"]}
    assert doc["policy"] == "dorm" and values["tony.pool.policy.theta1"] == ("0.25", "tony pool set"), doc
    assert values["tony.pool.policy.loss-max"][0] == "0.2" and "tony-site.yaml" in values["tony.pool.policy.loss-max"][1], doc
    kill9(*lab.pids("pool"))
    wait_until(lambda: not lab.pids("pool"), "the pool is dead")
    assert lab.json("pool", "set") == doc  # the next pool has read the file
    assert lab.json("pool", "set", "policy=", "theta1=", "adjust-max=")["policy"] == "fifo"
    assert json.loads((lab.home / "pool" / "policy").read_text()) == {}


def test_times_have_units(make_lab):  # noqa: F811
    """`tony pool set`, the site file and the job file read the same forms of times."""
    lab = policy_lab(make_lab, "fifo", **{"resize-cost": "3s"})
    doc = lab.json("pool", "set", "payback=1h", "interval=500ms", "resize-limit=2M", "time-limit=200")
    values = {s["key"].rpartition(".")[2]: s["value"] for s in doc["settings"]}
    wanted = {"payback": "3600000", "interval": "500", "resize-limit": "120000", "time-limit": "200", "resize-cost": "3000"}
    assert {k: values[k] for k in wanted} == wanted, doc
    lines = [line.split() for line in lab.ok("pool", "set").splitlines()]
    shown = {words[0]: words[1] for words in lines if len(words) > 1}
    assert {k: shown[k] for k in wanted} == {"payback": "1h", "interval": "500ms", "resize-limit": "2m", "time-limit": "200ms", "resize-cost": "3s"}
    assert "500ms, 90s, 10m, 2h, 1d" in lab.ok("pool", "set") and "500ms, 90s, 10m, 2h, 1d" in " ".join(lab.ok("pool", "--help").split())
    kill9(*lab.pids("pool"))
    wait_until(lambda: not lab.pids("pool"), "the pool is dead")
    assert lab.json("pool", "set") == doc  # the next pool has read the file
    job = lab.workers("true", n=1, role={"restart-delay": "2s"}, conf={LIMIT: "10m"})
    assert lab.run("run", job, "--conf", "tony.task.kill-grace-ms=1s").returncode == 0


@pytest.mark.parametrize("word, says", [
    ("policy=las", "cannot put a running job back into the queue"),
    ("policy=dormouse", "must be one of fifo, backfill, static, drf, dorm, market"),
    ("theta1=1.5", "'tony.pool.policy.theta1' must be between 0 and 1, not 1.5"),
    ("theta1=nan", "'tony.pool.policy.theta1' must be a number, not 'nan'"),
    ("theta2=0x1", "'tony.pool.policy.theta2' must be a number, not '0x1'"),
    ("theta1=1e999", "'tony.pool.policy.theta1' must be between 0 and 1"),
    ("loss-max=-1", "'tony.pool.policy.loss-max' must be between 0 and 1000"),
    ("levels=9,3", "the numbers of 'tony.pool.policy.levels' must rise, but 3 is not above 9"),
    ("interval=ten", "'tony.pool.policy.interval' must be a time, not 'ten'"),
    ("payback=1hour", "'tony.pool.policy.payback' must be a time, not '1hour'"),
    ("payback=400d", "'tony.pool.policy.payback' must be between 0 ms and 365 days, not '400d'"),
    ("resize-limit=10", "'tony.pool.policy.resize-limit' must be at least 1000"),
    ("theta3=1", "no setting 'theta3'"),
    ("theta1", "'theta1' is not KEY=VALUE"),
    ("=1", "no setting ''"),
])
def test_what_cannot_be_is_refused(make_lab, word, says):  # noqa: F811
    lab = policy_lab(make_lab, "fifo")
    r = lab.run("pool", "set", "policy=drf", word)
    assert r.returncode == 2 and says in r.stderr, r.stderr
    assert lab.json("pool", "set")["policy"] == "fifo"  # all settings are changed, or none


def test_a_damaged_file_of_settings(make_lab):  # noqa: F811
    lab = policy_lab(make_lab, "drf")
    (lab.home / "pool").mkdir(parents=True, mode=0o700)
    for text in ("", "{", "[]", '{"tony.pool.policy":"nothing"}', '{"tony.pool.policy.theta1":"7"}', "x" * 70000):
        (lab.home / "pool" / "policy").write_text(text)
        assert lab.json("pool", "set")["policy"] == "drf", text
        lab.ok("pool", "stop")


def test_a_final_value_of_the_site_stays(make_lab):  # noqa: F811
    lab = make_lab(site={})
    conf = lab.base / "conf"
    conf.mkdir()
    (conf / "tony-site.xml").write_text("<configuration><property><name>tony.pool.policy</name><value>drf</value>"
                                        "<final>true</final></property></configuration>")
    lab.env["TONY_CONF_DIR"] = str(conf)
    r = lab.run("pool", "set", "policy=dorm")
    assert r.returncode == 2 and "final" in r.stderr, r.stderr
    assert lab.json("pool", "set")["policy"] == "drf"


# ---- who is resized, and who is not ----

def test_who_does_not_say_so_is_not_touched(make_lab):  # noqa: F811
    """Jobs with one bound, with `resize: never`, with two elastic roles, and without roles: none of them is resized."""
    lab = policy_lab(make_lab, "drf", **{"loss-max": 1})
    only_max = lab.submit(
        lab.workers("sleep 1000", n=2, role={"memory": "40m", "max-instances": 8}))
    never = sleepers(lab, 2, role={"resize": "never"})
    two = lab.submit(lab.job_file({name: {"instances": 1, "command": "sleep 1000", "memory": "20m", "min-instances": 1,
                                          "max-instances": 4} for name in ("a", "b")}))
    alone = lab.submit(lab.job_file(command="sleep 1000", conf={"tony.am.memory": "40m"}))
    elastic = sleepers(lab, 1)
    await_sizes(lab, {elastic: 2})
    for app in (only_max, never, two, alone):
        doc = lab.status(app)
        assert doc.get("resizes", 0) == 0 and doc["restarts"] == 0, doc
    assert sizes(lab, only_max, never, two) == [2, 2, 2]
    assert used(lab) == ROOM * EACH_MIB
    end_all(lab, only_max, never, two, alone, elastic)


def test_the_queue_is_served_by_the_policy(make_lab):  # noqa: F811
    """A job that does not fit waits with a reason, and starts when there is room; the others are not touched."""
    lab = policy_lab(make_lab, "dorm")
    fixed = lab.submit(lab.workers("sleep 1000", n=5, role={"memory": "40m"}))
    lab.await_state(fixed, "RUNNING")
    first_decision = json.loads((lab.home / "pool" / "decisions").read_text().splitlines()[0])
    assert [(j["verdict"], j["would_change"]) for j in first_decision["jobs"]] == [("starts", "")], first_decision
    large = lab.submit(lab.workers("sleep 1000", n=4, role={"memory": "40m"}))
    def word():
        return lab.status(large).get("waiting", {}).get("policy", {}).get("word")
    wait_until(word, "the policy says why it waits")
    assert word()["verdict"] == "waits" and "no room" in word()["why"], word()
    text = lab.ok("why", large)
    assert "policy 'dorm'" in text and "no room" in text, text
    assert "policy 'dorm'" in lab.ok("status", large) and "no room" in lab.ok("list")
    assert "it can start when running jobs have ended" in " ".join(lab.ok("why", large).split()) and "changed by: it" not in text, text
    text = lab.ok("pool", "why")
    assert "is over" not in text and "    it can start when running jobs have ended" in text, text
    assert f"{lab.status(large)['name']} (2)\n" in text and f"{lab.status(fixed)['name']} (1)\n" in text and "its job file allows no other size" in text, text
    assert json.loads(lab.ok("pool", "why", large, "--json"))["decision"]["jobs"][0]["application_id"] == large
    lab.run("kill", fixed)
    lab.await_state(large, "RUNNING")
    end_all(lab, large)
    # Both jobs are over. The last decision about each is still known, also without a pool.
    for pool in ("it runs", "it was stopped"):
        doc = lab.json("pool", "why", large)
        [job] = doc["decision"]["jobs"]
        assert (job["application_id"], job["verdict"]) in ((large, "starts"), (large, "keeps")), (pool, doc)
        assert lab.ok("pool", "why", fixed).startswith("test (1) is over; this is the last decision about it\npolicy 'dorm', decision "), pool
        assert "  test (1)\n" in lab.ok("pool", "why", fixed) and "test (2)" not in lab.ok("pool", "why", fixed), pool
        lab.ok("pool", "stop")
    r = lab.run("pool", "why", "application_1_0001")
    assert "no decision" in r.stdout or r.returncode == 2, r.stdout + r.stderr
    lines = [json.loads(line) for line in (lab.home / "pool" / "decisions").read_text().splitlines()]
    assert lines and lines[0]["policy"] == "dorm" and lines[0]["jobs"][0]["verdict"] == "starts", lines
    assert "policy.decided" in (lab.home / "pool" / "pool.log").read_text()


def test_a_new_pool_knows_since_when(make_lab):  # noqa: F811
    """The time since which a job has its size, or waits for the same reason, does not begin anew with another pool."""
    lab = policy_lab(make_lab, "dorm")
    first = sleepers(lab, 4, role={"max-instances": 4})
    await_sizes(lab, {first: 4})
    large = lab.submit(lab.workers("sleep 1000", n=ROOM, role={"memory": f"{EACH_MIB}m"}))
    def said():
        decision = lab.json("pool", "why")["decision"]
        jobs = {j["application_id"]: j for j in decision["jobs"]} if decision else {}
        # At first the new pool has not heard from the master which sizes the job accepts.
        return jobs if {first, large} <= set(jobs) and jobs[first]["why"].endswith("this is its largest size") else None
    before = wait_until(said, "a decision about both")
    kill9(*lab.pids("pool"))
    lab.ok("pool", "start")
    after = wait_until(said, "the new pool has decided about both")
    assert [after[app]["since_ms"] for app in (first, large)] == [before[app]["since_ms"] for app in (first, large)], (before, after)
    end_all(lab, large, first)


def test_decisions_are_an_interval_apart(make_lab):  # noqa: F811
    """Jobs are submitted at shorter intervals, so one decision covers several of them."""
    lab = policy_lab(make_lab, "drf", interval=1500)
    jobs = [sleepers(lab, 1) for _ in range(6)]
    for app in jobs:
        lab.await_state(app, "RUNNING")
    end_all(lab, *jobs)
    lines = [json.loads(line) for line in (lab.home / "pool" / "decisions").read_text().splitlines()]
    begun = [d["at_ms"] - d["took_ms"] for d in lines]
    assert len(begun) >= 2 and min(b - a for a, b in zip(begun, begun[1:])) >= 1300, lines


@pytest.mark.parametrize("policy", ["fifo", "drf"])
def test_the_machine_changes(make_lab, tmp_path, policy):  # noqa: F811
    """The machine gets more memory: the waiting job starts, and under a policy the first job grows. Then the
    machine gets less memory: no job ends."""
    meminfo = tmp_path / "meminfo"
    def machine(mib):
        new = tmp_path / "new"
        new.write_text(f"MemTotal: {mib * 1024} kB\n")
        new.replace(meminfo)
        for pid in lab.pids("pool"):
            os.kill(pid, signal.SIGHUP)  # it looks at once, not only every 30 s
    lab = make_lab(site={"pool.memory-reserve": "0", "pool.policy": policy, "pool.policy.interval": 100}, TONY_TEST_MEMINFO=str(meminfo))
    machine(4 * EACH_MIB)
    first = sleepers(lab, 4)
    lab.await_state(first, "RUNNING")
    assert lab.json("pool", "status")["capacity"]["memory_mib"] == 4 * EACH_MIB
    second = lab.submit(lab.workers("sleep 1000", n=4, role={"memory": f"{EACH_MIB}m", "max-instances": 4}))
    wait_until(lambda: lab.status(second)["state"] == "WAITING", "the second job waits")
    machine(10 * EACH_MIB)
    lab.await_state(second, "RUNNING")
    await_sizes(lab, {first: 4 if policy == "fifo" else 6, second: 4})
    machine(2 * EACH_MIB)
    wait_until(lambda: lab.json("pool", "status")["capacity"]["memory_mib"] == 2 * EACH_MIB, "the pool has seen it")
    await_sizes(lab, {first: 4 if policy == "fifo" else 6, second: 4})
    end_all(lab, first, second)


def test_a_fixed_part_counts(make_lab):  # noqa: F811
    """ps: one task of 60 MiB besides the workers."""
    lab = policy_lab(make_lab, "drf")
    roles = {"ps": {"instances": 1, "memory": "60m", "command": "sleep 1000", "resize": "never"}, "worker": {"instances": 2, "command": "sleep 1000", **ELASTIC}}
    app = lab.submit(lab.job_file(roles))
    await_sizes(lab, {app: 7})  # (320 - 60) / 40 = 6 workers, and ps
    assert used(lab) == 300
    other = sleepers(lab, 1)
    wait_until(lambda: used(lab) <= 320 and sizes(lab, other)[0] >= 3, "the other job has its share")
    await_sizes(lab, {app: 1 + 3, other: 3})
    end_all(lab, app, other)


def test_a_user_resizes_under_a_policy(make_lab):  # noqa: F811
    """A user resizes a job that the policy may not resize. The policy makes room for it by shrinking another job."""
    lab = policy_lab(make_lab, "drf", **{"loss-max": 1})
    fixed = lab.submit(lab.workers("sleep 1000", n=2, role={"memory": "40m"}))
    await_sizes(lab, {fixed: 2})
    elastic = sleepers(lab, 1)
    await_sizes(lab, {elastic: 6})
    lab.ok("resize", fixed, "worker=4", "--wait")
    await_sizes(lab, {fixed: 4, elastic: 4})
    end_all(lab, fixed, elastic)


def test_switching_the_policy(make_lab):  # noqa: F811
    lab = policy_lab(make_lab, "fifo")
    first = sleepers(lab, 8)
    await_sizes(lab, {first: 8})
    second = sleepers(lab, 2)
    wait_until(lambda: lab.status(second).get("waiting", {}).get("behind") == first, "it waits in the queue")
    assert "policy" not in lab.ok("pool", "status")
    lab.ok("pool", "set", "policy=drf")
    assert "policy  drf" in lab.ok("pool", "status")
    await_sizes(lab, {first: 4, second: 4})
    lab.ok("pool", "set", "policy=fifo")
    lab.run("kill", first)
    lab.in_history(first)
    third = sleepers(lab, 4)
    await_sizes(lab, {second: 4, third: 4})
    assert "no decision" in lab.ok("pool", "why")
    end_all(lab, second, third)


def test_weight_and_budget(make_lab):  # noqa: F811
    lab = policy_lab(make_lab, "drf")
    heavy = sleepers(lab, 8, weight=3)
    await_sizes(lab, {heavy: 8})
    light = sleepers(lab, 8)
    await_sizes(lab, {heavy: 6, light: 2})
    end_all(lab, heavy, light)
    for bad, says in (({"weight": 0}, "at least 1"), ({"weight": 10001}, "at most 10000"), ({"weight": 1.5}, "whole number"),
                      ({"budget": 0}, "must be more than 0"), ({"budget": -1}, "between 0 and"), ({"budget": "x"}, "must be a number")):
        r = lab.run("submit", lab.workers("true", **bad))
        assert r.returncode == 2 and says in r.stderr and f"tony.application.{next(iter(bad))}" in r.stderr, r.stderr


def test_market(make_lab):  # noqa: F811
    lab = policy_lab(make_lab, "market")
    rich = sleepers(lab, 8, budget=3)
    await_sizes(lab, {rich: 8})
    poor = sleepers(lab, 8, budget=1)
    await_sizes(lab, {rich: 6, poor: 2})
    end_all(lab, rich, poor)


def test_the_shortest_job_has_most(make_lab):  # noqa: F811
    """The time limit says which job ends first. The other one keeps its least number, and is not stopped."""
    lab = policy_lab(make_lab, "srtf-elastic")
    endless = sleepers(lab, 8)
    await_sizes(lab, {endless: 8})
    short = sleepers(lab, 4, conf={"tony.application.timeout": 3600000})
    await_sizes(lab, {endless: 1, short: 7})
    assert lab.status(endless)["restarts"] == 0
    lab.ok("kill", short)
    await_sizes(lab, {endless: 8})
    end_all(lab, endless)


def attained_s(lab, app):
    """The service that the job has attained, as the file of the pool says."""
    try:
        doc = json.loads((lab.home / "pool/service").read_text()).get(app)
    except FileNotFoundError:
        doc = None
    return doc["attained_s"] + doc["share"] * (time.monotonic() - doc["at_ms"] / 1000) if doc else 0


def decided(lab, app):
    """The number of containers that each decision gave the job."""
    lines = (lab.home / "pool/decisions").read_text().splitlines()
    return [job["containers"] for line in lines for job in json.loads(line)["jobs"] if job["application_id"] == app]


@pytest.mark.parametrize("dies", [False, True], ids=["one pool", "two pools"])
def test_the_job_with_least_service_has_most(make_lab, dies):  # noqa: F811
    """
    When the first job has held the whole pool for 2 s, the second one has precedence, also if another pool decides. When
    the second one has attained as much, the first one is before it again.
    """
    lab = policy_lab(make_lab, "las-elastic", levels='"2"')
    first = sleepers(lab, 8, role={"resize": "live"})
    await_sizes(lab, {first: 8})
    wait_until(lambda: attained_s(lab, first) > 2.1, "the first job is above the threshold")
    if dies:
        kill9(*lab.pids("pool"))  # the next command, or the keeper, starts another one
    second = sleepers(lab, 8, role={"resize": "live"})
    await_sizes(lab, {first: 7, second: 1})
    assert 7 in decided(lab, second) and attained_s(lab, second) >= 2, (decided(lab, second), attained_s(lab, second))
    assert lab.status(first)["restarts"] == lab.status(second)["restarts"] == 0
    end_all(lab, first, second)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"%s": 7}', '{"%s": {"attained_s": -1, "share": "x", "at_ms": 1e300}}',
                                  '{"%s": {"attained_s": 1, "share": 0.5, "at_ms": 9000000000000000000}}'])
def test_a_damaged_file_of_service(make_lab, text):  # noqa: F811
    lab = policy_lab(make_lab, "las-elastic")
    first = sleepers(lab, 8)
    await_sizes(lab, {first: 8})
    wait_until(lambda: (lab.home / "pool/service").exists(), "the pool has stored the service")
    (lab.home / "pool/service").write_text(text.replace("%s", first))
    kill9(*lab.pids("pool"))  # the next command, or the keeper, starts another one
    second = sleepers(lab, 1)
    await_sizes(lab, {first: 7, second: 1})
    assert 0 <= attained_s(lab, first) < 1000
    end_all(lab, first, second)


def test_no_old_service_is_left(make_lab):  # noqa: F811
    """Under another policy nothing keeps the file up to date, so a later pool must not count on from it."""
    lab = policy_lab(make_lab, "fifo")
    file = lab.home / "pool/service"
    lab.ok("pool", "set", "policy=las-elastic")
    first = sleepers(lab, 8)
    await_sizes(lab, {first: 8})
    wait_until(file.exists, "the pool has stored the service")
    lab.ok("pool", "set", "policy=drf")
    wait_until(lambda: not file.exists(), "the file is gone")
    lab.ok("pool", "set", "policy=las-elastic")
    wait_until(lambda: attained_s(lab, first) > 0, "the pool has counted meanwhile, and stores it again")
    end_all(lab, first)


def test_a_new_pool_goes_on(make_lab):  # noqa: F811
    lab = policy_lab(make_lab, "fifo")
    lab.ok("pool", "set", "policy=drf")
    first = sleepers(lab, 8)
    await_sizes(lab, {first: 8})
    kill9(*lab.pids("pool"))
    second = sleepers(lab, 1)
    await_sizes(lab, {first: 4, second: 4})
    os.rename(lab.home / "pool/decisions", lab.home / "pool/decisions.1")
    numbers = [json.loads(line)["number"] for line in (lab.home / "pool/decisions.1").read_text().splitlines()]
    assert numbers == list(range(1, len(numbers) + 1)), "the second pool counts on"
    with open(lab.home / "pool/decisions.1", "a", encoding="utf-8") as old:
        old.write('{"number":1\n')  # the disk was full
    kill9(*lab.pids("pool"))
    lab.ok("kill", second)
    await_sizes(lab, {first: 8})
    assert json.loads((lab.home / "pool/decisions").read_text().splitlines()[0])["number"] == numbers[-1] + 1
    waits = lab.submit(lab.workers("true", role={"memory": f"{ROOM * EACH_MIB}m"}))
    name = lab.status(first)["name"]
    wait_until(lambda: f"job '{name}' (1) holds most of the memory" in " ".join(lab.ok("why", waits).split()), "what it lacks")
    end_all(lab, waits, first)
