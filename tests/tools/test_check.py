# SPDX-License-Identifier: Apache-2.0
"""tools/check counts what the programs of a meson run and the tests of pytest said, and counts nothing as passed that went wrong."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def check():
    loader = importlib.machinery.SourceFileLoader("check", str(ROOT / "tools" / "check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
    loader.exec_module(module)
    return module


def counted(tally):
    return tally.total("passed"), tally.total("skipped"), tally.failures


# ---- programs of meson ----

PROGRAMS = {
    # what the program wrote, its exit status, what meson says: passed, skipped, failed
    "all pass": ("1..2\nok 1 - x\nok 2 - y\n", 0, "OK", 2, 0, []),
    "one fails": ("1..2\nok 1 - x\nnot ok 2 - y\n# why\n", 1, "FAIL", 1, 0, ["u: p: y"]),
    "cmocka skips": ("1..2\nok 1 - x\nnot ok 2 # SKIP y\n", 0, "FAIL", 1, 1, []),
    "it crashes": ("1..3\nok 1 - x\n", -11, "ERROR", 1, 0, ["u: p"]),
    "a test is missing": ("1..2\nok 1 - x\n", 0, "OK", 1, 0, ["u: p"]),
    "no test at all": ("1..0\n", 0, "SKIP", 0, 0, ["u: p"]),
    "leaks after the end": ("1..1\nok 1 - x\n", 99, "ERROR", 1, 0, ["u: p"]),
    "no TAP": ("", 0, "OK", 1, 0, []),
    "no TAP, fails": ("boo\n", 1, "FAIL", 0, 0, ["u: p"]),
    "no TAP, skipped": ("", 77, "SKIP", 0, 1, []),
    "too long": ("1..2\nok 1 - x\n", -9, "TIMEOUT", 1, 0, ["u: p"]),
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_program(check, case, capsys):
    out, code, result, passed, skipped, failed = PROGRAMS[case]
    tally = check.Tally()
    check.read_program({"name": "tony:u / p", "stdout": out, "returncode": code, "result": result}, "u", tally)
    assert counted(tally) == (passed, skipped, failed)
    assert ("# why" in capsys.readouterr().out) == ("# why" in out)


# ---- tests of pytest ----

GOOD = """
import os
import pytest
@pytest.mark.takes(1)
@pytest.mark.parametrize("n", range(4))
def test_many(n):
    assert os.environ["PYTEST_XDIST_WORKER"]
@pytest.mark.xdist_group("pair")
def test_one():
    pass
@pytest.mark.alone("it wants to")
def test_alone():
    assert "PYTEST_XDIST_WORKER" not in os.environ
"""


@pytest.fixture
def tree(check, tmp_path, monkeypatch):
    """A source tree with the group e2e, whose tests a test writes, and an empty build directory. A factory of runs."""
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "WORKERS", {"e2e": (2, 2)})
    monkeypatch.delenv("TONY_CHECK_FD", raising=False)
    folder = tmp_path / "tests" / "e2e"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "conftest.py", folder.parent)
    (tmp_path / "build").mkdir()

    def run(text, verbose=False, strict=False, serial=False, repeat=False):
        (folder / "test_x.py").write_text(text)
        tally = check.Tally(verbose, strict)
        whole = check.Run(tmp_path / "build", tally, serial)
        whole.all(["e2e"])
        if repeat:
            whole.repeat()
        return tally
    return run


def test_side_by_side_and_alone(tree, capsys):
    tally = tree(GOOD)
    assert counted(tally) == (6, 0, [])
    assert tally.end() == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:-2] for line in lines[:-1]] == [["e2e", "5", "passed,"], ["e2e", "(alone)", "1", "passed,"]]
    assert lines[-1] == "6 passed, 0 failed".split()


def test_a_serial_run(tree):
    tally = tree(GOOD.replace('os.environ["PYTEST_XDIST_WORKER"]', '"PYTEST_XDIST_WORKER" not in os.environ'), serial=True)
    assert counted(tally) == (6, 0, []) and list(tally.counts) == ["e2e"]


def test_verbose_names_each_test(tree, capsys):
    tree(GOOD.replace('os.environ["PYTEST_XDIST_WORKER"]', "True"), verbose=True, serial=True)
    out = capsys.readouterr().out
    assert all(f"passed  e2e: test_x.py::{name} (" in out for name in ("test_many[3]", "test_one", "test_alone"))


BAD = {
    # a file of tests: passed, skipped, failed, what is said of it
    "it fails": ("def test_a():\n    print('what it wrote')\n    assert 1 == 2\ndef test_b():\n    pass\n", 1, 0, ["e2e: test_x.py::test_a"],
                 ("assert 1 == 2", "what it wrote")),
    "its fixture leaves something": ("import pytest\n@pytest.fixture\ndef f():\n    yield\n    assert not 'left over'\ndef test_a(f):\n    pass\n",
                                     0, 0, ["e2e: test_x.py::test_a"], ("left over",)),
    "it is no Python": ("def\n", 0, 0, ["e2e: test_x.py"], ("SyntaxError",)),
    "there is no test": ("x = 1\n", 0, 0, ["e2e: the group as a whole"], ("pytest ended with 5",)),
    "its process is killed": ("import os\ndef test_a():\n    os.kill(os.getpid(), 9)\n", 0, 0, ["e2e: test_x.py::test_a"], ("crashed",)),
    "it has no reason to be alone": ("import pytest\n@pytest.mark.alone\ndef test_a():\n    pass\n", 0, 0, ["e2e: the group as a whole"],
                                     ("needs the reason",)),
    "it is skipped": ("import pytest\ndef test_a():\n    pytest.skip('not root')\ndef test_b():\n    pass\n", 1, 1, [], ()),
}


@pytest.mark.parametrize("case", BAD)
def test_failures_are_counted_and_printed(tree, case, capsys):
    text, passed, skipped, failed, said = BAD[case]
    tally = tree(text, serial="killed" not in case)  # only pytest-xdist outlives a killed test
    assert (tally.total("passed"), tally.total("skipped"), sorted(set(tally.failures))) == (passed, skipped, failed)
    assert (tally.end() == 0) == (not failed)
    out = capsys.readouterr().out
    assert all(words in out for words in said), out
    assert all(f"failed: {name}\n" in out for name in failed)
    assert all(words in out.partition("\nthe end of ")[2] for words in said if failed), out


RACES = """
import pathlib
import pytest
def test_good():
    pass
@pytest.mark.parametrize("x", ["a/b[c]", "d"])
def test_races(x):
    seen = pathlib.Path(__file__).with_name("seen" + x[0])
    assert seen.exists() or seen.touch(), "only the first time"
def test_bad():
    assert not "bad"
"""


@pytest.mark.parametrize("serial", [False, True])
def test_failed_tests_are_repeated(tree, capsys, serial):
    """Those that pass the second time are passed, and are listed with what they said the first time."""
    tally = tree(RACES, serial=serial, repeat=True)
    assert counted(tally) == (3, 0, ["e2e: test_x.py::test_bad"])
    capsys.readouterr()
    assert tally.end() == 1
    out = capsys.readouterr().out
    for x in ("a/b[c]", "d"):
        assert f"failed once, and passed when repeated: e2e: test_x.py::test_races[{x}]\n    AssertionError: only the first time\n" in out, out
    assert "\nfailed: e2e: test_x.py::test_bad\n" in out and out.splitlines()[-1] == "3 passed, 1 failed"


def test_many_failures_are_not_repeated(tree):
    tally = tree("import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_a(n, tmp_path_factory):\n"
                 "    import pathlib\n    seen = pathlib.Path(__file__).with_name(f'seen{n}')\n    assert seen.exists() or seen.touch()\n",
                 serial=True, repeat=True)
    assert tally.total("failed") == 6 and not tally.repeated


def test_a_program_is_repeated(check, tmp_path, monkeypatch):
    """A failure names the program, and the program runs again, alone."""
    asked = []

    def programs(run, group, part, which, jobs, tally):
        asked.append((group, which, jobs))
        check.read_program({"name": "tony:unit / p", "stdout": "1..1\nok 1 - x\n", "returncode": 0, "result": "OK"}, part, tally)
    monkeypatch.setattr(check.Run, "programs", programs)
    tally = check.Tally()
    check.read_program({"name": "tony:unit / p", "stdout": "1..1\nnot ok 1 - x\n", "returncode": 1, "result": "FAIL"}, "unit (alone)", tally)
    check.Run(tmp_path, tally).repeat()
    assert asked == [("unit", ["--suite", "unit", "p"], 1)]
    assert counted(tally) == (1, 0, []) and [f.name for f in tally.repeated] == ["unit: p: x"]


LONG = """
def test_a():
    try:
        assert 1 == 2, "why it failed"
    except AssertionError as e:
        raise AssertionError(f"{e}\\n" + "\\n".join(f"line {i} of a log" for i in range(1000)))
"""


def test_the_last_lines_say_why(tree, capsys):
    """The last lines of the output say why a test failed, however much else the failure prints."""
    tally = tree(LONG, serial=True)
    capsys.readouterr()
    tally.end()
    lines = capsys.readouterr().out.splitlines()
    assert any("why it failed" in line for line in lines[-9:]) and "line 999 of a log" in "\n".join(lines), lines[-9:]
    assert len(lines) < 60


def test_pytest_itself_is_killed(check, capsys):
    """pytest is killed during a test, and while it writes a line about it."""
    ours, theirs = os.pipe()
    phase = {"test": "tests/e2e/test_x.py::test_a[x/y]@group", "when": "setup", "outcome": "passed", "seconds": 0, "text": ""}
    os.write(theirs, (json.dumps(phase) + "\n" + json.dumps(phase)[:20]).encode())
    os.close(theirs)
    tally = check.Tally()
    assert check.read_pytest(ours, "e2e", tally) == 1
    assert counted(tally) == (0, 0, ["e2e: test_x.py::test_a[x/y]"])
    assert "did not come to its end" in capsys.readouterr().out


# ---- what may be skipped ----

@pytest.mark.parametrize("reason, may", [("hardware: one core", True), ("optional: 5 GB", True), ("build: sanitized", True), ("not root", False),
                                         ("", False)])
@pytest.mark.parametrize("strict", [False, True])
def test_a_skip_where_ci_is_set(check, capsys, reason, may, strict):
    tally = check.Tally(strict=strict)
    tally.add("e2e", "x", "passed")
    tally.add("e2e", "y", "skipped", reason)
    fails = strict and not may
    assert counted(tally) == (1, 0 if fails else 1, ["e2e: y"] if fails else [])
    assert tally.end() == (1 if fails else 0)
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == ("1 passed, 1 failed" if fails else "1 passed, 0 failed, 1 skipped")
    assert reason in out and ("CI is set" in out) == fails


def test_a_skip_by_mark_has_its_reason(tree, capsys):
    tally = tree("import pytest\n@pytest.mark.skipif(True, reason='hardware: none')\ndef test_a():\n    pass\ndef test_b():\n    pass\n", strict=True, serial=True)
    assert counted(tally) == (1, 1, [])
    tally.end()
    assert "skipped: e2e: test_x.py::test_a: hardware: none\n" in capsys.readouterr().out


def test_ci_is_taken_from_the_environment(check, monkeypatch, tmp_path):
    made = []

    class NoRun:
        def __init__(self, build, tally, serial):
            made.append(tally.strict)
            tally.add("e2e", "x", "passed")

        def all(self, groups):
            pass

    (tmp_path / "build.ninja").touch()
    monkeypatch.setattr(check, "Run", NoRun)
    monkeypatch.setattr("sys.argv", ["check", "--build", str(tmp_path)])
    monkeypatch.delenv("CI", raising=False)
    assert check.main() == 0
    monkeypatch.setitem(os.environ, "CI", "true")
    assert check.main() == 0
    assert made == [False, True]
