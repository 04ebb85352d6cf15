"""The tally counts what the programs of a meson run said, and nothing that went wrong is counted as passed."""

import importlib.machinery
import importlib.util
import pathlib

import pytest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check"


@pytest.fixture(scope="module")
def check():
    loader = importlib.machinery.SourceFileLoader("check", str(CHECK))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
    loader.exec_module(module)
    return module


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
    assert (tally.passed, tally.skipped, tally.failures) == (passed, skipped, failed)
    if "# why" in out:
        assert "# why" in capsys.readouterr().out
