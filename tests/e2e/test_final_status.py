# SPDX-License-Identifier: Apache-2.0
"""A finished job has its final status in status.json. `status`, `why`, `list` and `run` read it and not the journal."""

import json

import pytest

FAILS = "echo 'ValueError: no data' >&2; exit 7"


@pytest.fixture
def ended(own_tony):
    """Runs a job that fails. Returns (tony, the job's id, the job's directory in the history)."""
    t = own_tony()
    app = t.submit(t.workers(FAILS, n=2))
    t.run("wait", app)
    return t, app, t.in_history(app)


def said(t, app):
    out = {}
    for command in (["status", app], ["status", app, "--json"], ["why", app], ["why", app, "--json"], ["list"], ["list", "--json"]):
        r = t.run(*command)
        text = r.stdout
        if command == ["status", app, "--json"]:
            doc = json.loads(text)
            doc.pop("plan", None)  # no record of the journal has the digests of the plan
            for task in doc["tasks"]:
                task.pop("memory_limit_bytes", None)  # stands beside the metrics
                task.pop("metrics", None)  # no record of the journal has them; they are also in the file `metrics`
            text = json.dumps(doc)
        out[" ".join(command)] = (r.returncode, text)
    return out


def test_the_final_status_has_the_metrics(ended):
    t, app, _ = ended
    assert all("MAX_MEMORY_BYTES" in task["metrics"] for task in t.json("status", app)["tasks"])


def test_the_journal_is_not_read(ended):
    t, app, where = ended
    before = said(t, app)
    assert "exit code 7" in before[f"status {app}"][1] and "ValueError: no data" in before[f"why {app}"][1]
    (where / "journal").unlink()
    assert said(t, app) == before
    (where / "summary").unlink()
    assert t.json("list")["jobs"][0]["state"] == "FAILED"


def test_recorded_decisions_outlive_the_rules(ended):
    """
    Without status.json the journal is replayed. Its recorded decisions count, not the rules of the job file.
    """
    t, app, where = ended
    before = said(t, app)
    (where / "status.json").unlink()
    assert said(t, app) == before
    conf = where / "job.conf"
    text = conf.read_text()
    assert '"tony.worker.instances"' in text
    conf.write_text(text.replace('["tony.worker.instances"', '["tony.worker.max-restarts","3"],["tony.worker.restart","on-failure"],["tony.worker.instances"', 1))
    doc = t.json("status", app)
    assert doc["state"] == "FAILED" and doc["exit_code"] == 1 and doc["restarts"] == 0


def test_a_newer_format_is_refused(ended):
    t, app, where = ended
    doc = json.loads((where / "status.json").read_text())
    assert doc["format"] == 1 and doc["version"]
    (where / "status.json").write_text(json.dumps({**doc, "format": 2, "version": "9.0"}))
    for command in ("status", "why"):
        r = t.run(command, app)
        assert r.returncode == 4 and "format 2" in r.stderr and "version 9.0" in r.stderr, r.stderr


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_a_damaged_file(ended, text):
    """A power cut may leave an incomplete file: the journal has the same data."""
    t, app, where = ended
    before = said(t, app)
    (where / "status.json").write_text(text)
    assert said(t, app) == before
