# SPDX-License-Identifier: Apache-2.0
"""The installed C library: a program of a stranger is compiled against it, and runs jobs."""

import os
import pathlib
import re
import subprocess

import pytest
from conftest import BIN
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests/fixtures/libtony/jobs.c"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A directory in which `make install` with DESTDIR has put everything."""
    if not (BIN.parent / "src/libtony/libtony.a").exists():
        pytest.skip("build: without libtony")
    where = tmp_path_factory.mktemp("installed")
    subprocess.run(["meson", "install", "-C", str(BIN.parent), "--no-rebuild", "--quiet"], env={**os.environ, "DESTDIR": str(where)},
                   check=True, timeout=240)
    pc, = where.glob("**/tony.pc")
    prefix = next(where.glob("**/bin/tony")).parent.parent
    # the installed files do not name DESTDIR, so pkg-config gets the prefix, as from a packager
    text = pc.read_text()
    pc.write_text(re.sub(r"^prefix=.*$", f"prefix={prefix}", text, flags=re.M))
    return prefix, pc.parent


def flags(installed, *args):
    out = subprocess.run(["pkg-config", *args, "tony"], env={**os.environ, "PKG_CONFIG_PATH": str(installed[1])}, check=True,
                         capture_output=True, text=True)
    return out.stdout.split()


def compile_it(installed, out, kind):
    words = flags(installed, "--cflags", "--libs", *(["--static"] if kind == "static" else []))
    if kind == "static":
        archive, = installed[0].glob("**/libtony.a")
        words = [str(archive) if w == "-ltony" else w for w in words]
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", str(PROGRAM), "-o", str(out), *words], check=True, timeout=120)


@pytest.mark.takes(10)
@pytest.mark.parametrize("kind", ["shared", "static"])
def test_a_program_runs_jobs(installed, lab, kind):
    program = lab.base / "jobs"
    compile_it(installed, program, kind)
    job = lab.workers("echo I am $TASK_INDEX; test $TASK_INDEX = 1 || exit 3", role={"max-instances": 4, "resize": "live"},
                      conf={"tony.application.distributed-mode": "FCFS", "tony.ghost.memory": "1g"})
    lib, = {p.parent for p in installed[0].glob("**/libtony.so.0")}
    env = {**lab.env, "PATH": f"{installed[0]}/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": str(lib) if kind == "shared" else ""}
    r = subprocess.run([str(program), str(job)], env=env, cwd=lab.base, capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stdout + r.stderr
    said = r.stdout.splitlines()
    app = next(x for x in said if x.startswith("id ")).split()[1]
    for line in ("code 1 FAILED", "log worker:0 stdout: I am 0", "metrics 1", "resize 1", "stopped: code 3"):
        assert line in said, r.stdout
    assert any(x.endswith(", stopped 1, notes 1") for x in said), r.stdout
    assert any(x.startswith("note: ") and "ghost" in x for x in said) and any("999" in x for x in said if x.startswith("no job: "))
    assert any("tony.nosuch.thing" in x for x in said if x.startswith("wrong: "))
    assert r.stderr == "", "the library prints nothing"
    assert lab.status(app)["state"] == "FAILED"
    lab.settled()


def test_only_the_names_of_the_header_are_visible(installed):
    text = (ROOT / "src/libtony/tony.h").read_text()
    header = {n for n in re.findall(r"\b(tony_[a-z_]+)\(", text) if not n.endswith("_fn")}
    library, = [p for p in installed[0].glob("**/libtony.so.*") if not p.is_symlink()]
    lines = subprocess.run(["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True).stdout.splitlines()
    names = {line.split()[-1] for line in lines}
    assert {n.split("@@")[0] for n in names if n.split("@@")[0] != "TONY_1"} == header and all("@@TONY_1" in n for n in names if n != "TONY_1"), names
    archive, = installed[0].glob("**/libtony.a")
    lines = subprocess.run(["nm", "-g", "--defined-only", str(archive)], check=True, capture_output=True, text=True).stdout.splitlines()
    assert {line.split()[-1] for line in lines if len(line.split()) == 3} == header
