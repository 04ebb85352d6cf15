# SPDX-License-Identifier: Apache-2.0
"""tony arbiter: it divides a queue among the jobs of one user while they run."""

import contextlib
import json

import pytest
from lib_cluster import wait_until

WAIT = "while :; do sleep 600; done"
POLICY = """
conf:
  tony.application.num-client-rm-connect-retries: 60
  tony.pool.policy: drf
  tony.pool.policy.interval: 200
  tony.pool.policy.resize-limit: 60000
"""


@pytest.fixture
def site(tony):
    (tony.base / "site" / "tony-site.yaml").write_text(POLICY)


def elastic(tony, n, low, high, **top):
    """Two nodes have 8 GiB each; a master takes 128 MiB, a worker 1 GiB."""
    role = {"memory": "1g", "min-instances": low, "max-instances": high, "resize": "live"}
    return tony.submit(tony.workers(WAIT, n=n, role=role, **top))


def running(tony, app):
    return sum(r["running"] for r in tony.status(app).get("roles", []))


@contextlib.contextmanager
def arbiter(tony, *args):
    p = tony.start("arbiter", "run", "--queue", "default", *args, stdout=open(tony.base / "arbiter.out", "a"),
                   stderr=open(tony.base / "arbiter.err", "a"))
    try:
        yield p
    finally:
        p.kill()
        p.wait(10)


def said(tony):
    return (tony.base / "arbiter.out").read_text() + (tony.base / "arbiter.err").read_text()


def until(tony, condition, what):
    try:
        wait_until(condition, what)
    except AssertionError as e:
        raise AssertionError(f"{e}; the arbiter said:\n{said(tony)[-3000:]}") from None


def test_two_jobs_share_a_queue(tony, site):
    """
    The first job has nearly all, and the second one waits for its containers. The arbiter lets the first one shrink; it
    is killed and started again; when the second job has ended, the first one has all again.
    """
    first = elastic(tony, 12, 2, 12)
    wait_until(lambda: running(tony, first) == 12, "the first job runs")
    second = elastic(tony, 6, 4, 12, conf={"tony.application.weight": 1})
    wait_until(lambda: tony.status(second)["state"] == "WAITING" and "tasks" in tony.status(second), "its master runs")
    assert running(tony, second) == 0
    with arbiter(tony):
        until(tony, lambda: running(tony, second) >= 4, "the second job runs")
        # Seven fit beside one master, eight on a node without any. Of 15 containers the first job gets 8, also if
        # one of the others then fits on no node.
        until(tony, lambda: sorted([running(tony, first), running(tony, second)]) in ([6, 8], [7, 7], [7, 8]), "each has half")
    doc = tony.status(first)
    assert doc["state"] == "RUNNING" and doc["restarts"] == 0
    assert "the arbiter of queue 'default', policy drf" in doc["last_resize"]["why"], doc["last_resize"]
    with arbiter(tony):
        tony.ok("kill", second)
        until(tony, lambda: running(tony, first) == 12, "the first job has all again")
    assert "->" in said(tony)
    tony.ok("kill", first)


def test_it_only_says(tony, site):
    """--dry-run asks no master; a job without bounds, one that may not be resized, and an unknown queue."""
    app = elastic(tony, 2, 1, 4)
    fixed = tony.submit(tony.workers(WAIT, n=2))
    wait_until(lambda: running(tony, app) == 2 and running(tony, fixed) == 2, "both run")
    doc = json.loads(tony.ok("arbiter", "run", "--queue", "default", "--once", "--dry-run", "--json"))
    assert doc["nodes"] == 2 and doc["policy"] == "drf" and doc["queue"] == "default"
    assert [(j["application_id"], j["has"], j["target"]) for j in doc["jobs"]] == [(app, 2, 4)]
    assert doc["jobs"][0]["why"]
    assert running(tony, app) == 2 and "resizes" not in tony.status(app)
    out = tony.ok("arbiter", "run", "--queue", "default", "--once")
    assert f"{app}  2 -> 4" in out, out
    wait_until(lambda: running(tony, app) == 4, "it grows")
    assert tony.status(fixed)["roles"][0]["instances"] == 2
    tony.ok("kill", app)
    tony.ok("kill", fixed)


@pytest.mark.parametrize("args,code,sentence", [
    (["run"], 2, "--queue"),
    (["walk", "--queue", "default"], 2, "no 'walk'"),
    (["run", "--queue", "nosuch", "--once"], 2, "no queue 'nosuch'"),
    (["run", "--queue", "default", "--policy", "fifo2"], 2, "fifo2"),
    (["run", "--queue", "default", "--policy", "srtf"], 2, "stops running jobs"),
    (["run", "--queue", "default", "--policy", "static"], 2, "never resizes"),
])
def test_what_is_refused(tony, args, code, sentence):
    r = tony.run("arbiter", *args)
    assert r.returncode == code and sentence in r.stderr, (r.returncode, r.stderr)

