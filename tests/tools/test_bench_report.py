# SPDX-License-Identifier: Apache-2.0
"""A benchmark that misses a goal exits with 1, and names the goal in its last line."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def report():
    spec = importlib.util.spec_from_file_location("report", ROOT / "bench" / "report.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(what, value, goal):
    return {"what": what, "value": value, "unit": "x", "goal": goal, "met": None if goal is None else value <= goal}


def test_exit_status_0_if_all_goals_are_met(capsys):
    assert report().exit_status("bench/x", [row("first", 1, 2), row("second", 5, None)]) == 0
    assert capsys.readouterr().err == ""


def test_exit_status_1_and_the_name_of_a_missed_goal(capsys):
    assert report().exit_status("bench/x", [row("first", 1, 2), row("second", 3, 2), row("third", 1, 2)]) == 1
    assert capsys.readouterr().err == "bench/x: goal missed: second: 3.00 x, the goal is 2.00 x\n"


def test_the_benchmarks_use_it():
    for name in ("long", "scale"):
        assert f'return exit_status("bench/{name}", rows)' in (ROOT / "bench" / name).read_text()
