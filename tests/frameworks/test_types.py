# SPDX-License-Identifier: Apache-2.0
"""The types of the Python package, checked by mypy: tools/install-frameworks types."""

import shutil
import subprocess
import sys

import pytest
from lib_frameworks import ROOT, environment

PACKAGE = ROOT / "clients/python"
# Two programs of a user: the types of the first are right, and mypy must complain about the second.
PROGRAM = """\
import asyncio

import tony
import tony.aio


def train(rate: float) -> dict[str, float]:
    return {"loss": 1 - rate}


job: tony.Job = tony.submit("job.yaml", conf={"tony.worker.instances": 2})
status: tony.Status = job.wait(timeout=60)
first: str = status.tasks[0].name
results: list[dict[str, float]] = tony.run(train, (0.1,), workers=2)
for event in job.events():
    print(event.kind, event.step or 0)


async def main() -> tony.Status:
    other: tony.aio.Job = await tony.aio.submit({"command": "true"})
    async for event in other.events():
        print(event.kind)
    text: str = await other.logs("worker:0", lines=3)
    more: list[dict[str, float]] = await tony.aio.run(train, (0.1,))
    print(text, more)
    await other.kill()
    return await other.status()

asyncio.run(main())
"""
WRONG = """\
import tony
import tony.aio


def one() -> int:
    return 1


job = tony.submit(7)
n: str = job.status().tasks[0].index
text: list[str] = tony.run(one)


async def main() -> None:
    code: int = await (await tony.aio.submit("job.yaml")).status()
"""


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """A function that runs `mypy --strict`; returns its exit code and what it printed."""
    program, cache = environment("types") / "mypy", tmp_path_factory.mktemp("cache")

    def run(*args):
        r = subprocess.run([program, "--strict", "--cache-dir", cache, *args], cwd=PACKAGE, capture_output=True, text=True, timeout=600)
        return r.returncode, r.stdout + r.stderr
    return run


@pytest.mark.parametrize("version", ["3.10", "3.14"])  # this mypy knows none before 3.10
def test_the_package_is_typed(mypy, version):
    code, said = mypy("--python-version", version, "tony", "tony_task.py")
    assert code == 0, said


def test_a_program_that_uses_the_installed_package(mypy, tmp_path):
    """mypy uses the types of an installed package only if it has `py.typed`."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=300)
    [site] = venv.glob("lib/*/site-packages")
    source = shutil.copytree(PACKAGE, tmp_path / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    subprocess.run([environment("types") / "python3", "-m", "pip", "-q", "install", "--no-build-isolation", "--no-deps", "--no-index",
                    "--target", site, source], check=True, timeout=300)
    (tmp_path / "user.py").write_text(PROGRAM)
    code, said = mypy("--python-executable", venv / "bin/python3", tmp_path / "user.py")
    assert code == 0, said
    (tmp_path / "wrong.py").write_text(WRONG)
    code, said = mypy("--python-executable", venv / "bin/python3", tmp_path / "wrong.py")
    assert code == 1 and [line.split(":")[1] for line in said.splitlines() if ": error:" in line] == ["9", "10", "11", "15"], said
