# SPDX-License-Identifier: Apache-2.0
"""Texts name another job by its name and its number: "train (12)". The number is one that commands take. JSON has the whole id."""

import time

from conftest import wait_until
from lib_jobs import make_lab  # noqa: F401 (fixture)
from test_pool_policy import EACH_MIB, ROOM, policy_lab


def whole(lab, name, **top):  # noqa: F811
    """A job that takes the whole pool."""
    return lab.submit(lab.workers("sleep 1000", n=1, role={"memory": f"{ROOM * EACH_MIB}m"}, name=name, **top))


def words(lab, *command):  # noqa: F811
    return " ".join(lab.ok(*command).split())


def end(lab, *apps):  # noqa: F811
    for app in apps:
        lab.run("kill", app)
        lab.in_history(app)
    lab.quiet()


def test_two_jobs_of_one_name(make_lab):  # noqa: F811
    lab = policy_lab(make_lab, "fifo")
    first = whole(lab, "train")
    lab.await_state(first, "RUNNING")
    second, third = whole(lab, "train"), whole(lab, "train")
    wait_until(lambda: lab.status(third).get("waiting", {}).get("behind") == second, "the third job waits")
    for command in ("why", "status"):
        text = words(lab, command, third)
        assert "behind train (2)" in text or "behind train (2)" in text.replace("behind  ", "behind "), text
        assert first not in text and second not in text, text
        assert lab.json(command, third)["waiting"]["behind"] == second, "JSON has the whole id"
    assert "train (1) holds most" in words(lab, "why", second)
    head, *rows = lab.ok("pool", "status").partition("APPLICATION")[2].splitlines()
    assert head.endswith("WAITS BEHIND") and rows[1].endswith("  train (1)") and rows[2].endswith("  train (2)"), (head, rows)
    for number, app in (("1", first), ("2", second), ("3", third)):
        assert lab.json("why", number)["application_id"] == app
    end(lab, third, second, first)


def test_a_name_that_deceives(make_lab):  # noqa: F811
    """A name cannot feign another job, end its own quotation, or turn its number around (control characters are refused)."""
    lab = policy_lab(make_lab, "static")
    evil = "x' (7) starts; job 'y\u202e\u2067" + "z" * 100
    first = whole(lab, evil)
    lab.await_state(first, "RUNNING")
    second = whole(lab, "second")
    shown = "x? ?7? starts; job ?y??" + "z" * 17 + "..."
    for command in (("why", second), ("status", second), ("pool", "why")):
        wait_until(lambda: f"job '{shown}' (1) holds most of the memory" in words(lab, *command), "what it lacks")  # noqa: B023
        text = lab.ok(*command)
        assert "(7)" not in text and first not in text, text
    assert f"  {shown} (1)\n" in lab.ok("pool", "why")
    assert f"job '{first}' holds most" in lab.json("why", second)["waiting"]["policy"]["word"]["why"], "JSON has the whole id"
    end(lab, second, first)


def test_a_name_that_is_not_ascii(make_lab):  # noqa: F811
    """Lines are wrapped by characters, not by bytes, and a long name is cut between two characters."""
    lab = policy_lab(make_lab, "fifo")
    first = whole(lab, "\u0442\u0440" * 30)
    lab.await_state(first, "RUNNING")
    second = whole(lab, "second")
    cut = "\u0442\u0440" * 20 + "..."
    wait_until(lambda: f"; {cut} (1) holds most" in words(lab, "why", second), "what it lacks")
    assert f"lacks     320 MB; {cut} (1) holds most\n" in lab.ok("why", second)
    for command in (("list",), ("pool", "status")):  # else one long name makes the table too wide for all
        assert f"  {cut}  " in lab.ok(*command) and "\u0442\u0440" * 21 not in lab.ok(*command), command
    end(lab, second, first)


def test_a_number_that_means_another_job(make_lab):  # noqa: F811
    """The job that was submitted to another cluster later has the number, so texts name the first job by its whole id."""
    lab = policy_lab(make_lab, "fifo")
    first = whole(lab, "first")
    lab.await_state(first, "RUNNING")
    second = whole(lab, "second")
    wait_until(lambda: "; first (1) holds most" in words(lab, "why", second), "the number means the first job")
    record = (lab.home / "submitted").read_text()
    line = next(x for x in record.splitlines() if first in x).split()
    line[1:4] = [str(int(time.time() * 1000)), "yarn", "application_1700000000000_0001"]
    (lab.home / "submitted").write_text(record + " ".join(line) + "\n")
    assert f"; first ({first}) holds most" in words(lab, "why", second)
    (lab.home / "submitted").unlink()
    assert "; first (1) holds most" in words(lab, "why", second)
    end(lab, second, first)
