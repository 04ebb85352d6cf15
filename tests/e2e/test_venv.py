# SPDX-License-Identifier: Apache-2.0
"""
Python environments that were made elsewhere: they run where possible; otherwise they are refused with the
reason.
"""

import os
import pathlib
import re
import shutil
import subprocess
import zipapp

import pytest
from conftest import app_of
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)

PYTHON = os.path.realpath("/usr/bin/python3")
VERSION = re.search(r"3\.\d+$", PYTHON).group()
HELLO = "import sys\nprint(sys.executable, *sys.argv[1:])\n"


def script(path, first, text=HELLO):
    path.write_text(first + "\n" + text)
    path.chmod(0o755)


@pytest.fixture
def made(tmp_path):
    """A venv that was moved after it was made, with scripts of all kinds."""
    old = tmp_path / "made-here"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", old], check=True, timeout=100)
    script(old / "bin/hello", f"#!{old}/bin/python3")
    script(old / "bin/flags", f"#!{old}/bin/python3 -I")
    script(old / "bin/any", "#!/usr/bin/env python3")
    script(old / "bin/long", "#!/bin/sh", f"'''exec' {old}/bin/python \"$0\" \"$@\"\n' '''\n" + HELLO)
    script(old / "bin/system", f"#!{PYTHON}")
    script(old / "bin/shell", "#!/bin/sh", "echo shell\n")
    new = tmp_path / "env"
    old.rename(new)
    return new


COMMAND = "for x in hello flags any long; do venv/bin/$x 'a  b' || exit; done; ./venv/bin/system; venv/bin/shell; cd venv/bin; ./hello"


@pytest.mark.parametrize("kind", ["tar.gz", "zip", "nested"])
def test_an_archive(lab, made, tmp_path, kind):
    top = tmp_path
    command = COMMAND
    if kind == "nested":
        (tmp_path / "all").mkdir()
        made.rename(tmp_path / "all/conda")
        command = COMMAND.replace("venv/bin", "venv/conda/bin")
        made = tmp_path / "all"
    name = tmp_path / ("env." + ("zip" if kind == "zip" else "tar.gz"))
    if kind == "zip":  # as many people do it: links become files
        shutil.make_archive(str(tmp_path / "env"), "zip", made)
        subprocess.run([PYTHON, "-c", "import sys, zipfile, os\n"
                        "z = zipfile.ZipFile(sys.argv[1], 'w')\n"
                        "for d, _, names in os.walk('.'):\n for n in names: z.write(os.path.join(d, n))", name], cwd=made, check=True)
    else:
        subprocess.run(["tar", "czf", name, "-C", made, "."], check=True)
    shutil.rmtree(made)
    r = lab.run("run", lab.workers(command, venv=str(name)))
    app = app_of(r)
    assert r.returncode == 0, r.stderr
    out = lab.log(app, "worker:0").splitlines()
    store = str(lab.home / "store")
    assert len(out) == 7 and [o for o in out if o.startswith(store)] == out[:4] + out[6:], out
    assert all(o.endswith(" a  b") for o in out[:4]) and out[4].startswith(PYTHON) and out[5] == "shell"
    assert top.exists()


def test_a_directory_is_used_where_it_is(lab, made):
    script(made / "bin/hello", f"#!{made}/bin/python3")
    before = {p: (p.lstat().st_mtime_ns, p.lstat().st_mode) for p in made.rglob("*")}
    r = lab.run("run", lab.workers("venv/bin/hello", venv=str(made)))
    assert r.returncode == 0, r.stderr
    assert lab.log(app_of(r), "worker:0").splitlines() == [f"{made}/bin/python3"]
    assert before == {p: (p.lstat().st_mtime_ns, p.lstat().st_mode) for p in made.rglob("*")}, "it is not ours"


def refusal(lab, venv, *args, archive=True):
    if archive and pathlib.Path(venv).is_dir():
        name = lab.base / "bad.tar.gz"
        subprocess.run(["tar", "czf", name, "-C", venv, "."], check=True)
        venv = name
    n = len(lab.jobs_on_disk())
    r = lab.run("run", lab.workers("venv/bin/python x.py", venv=str(venv)), *args)
    assert r.returncode == 2 and len(lab.jobs_on_disk()) == n, r.stderr
    return r.stderr


def test_no_such_interpreter(lab, made):
    (made / "bin/python3").unlink()
    (made / "bin/python3").symlink_to("/opt/python/bin/python3.7")
    for archive in (True, False):
        said = refusal(lab, made, archive=archive)
        assert "its interpreter 'bin/python3' leads to '/opt/python/bin/python3.7', which is not on this machine" in said, said
    assert "it has no 'bin/pyhton'" in refusal(lab, made, "--python_binary_path", "bin/pyhton", "--executes", "x.py")


def test_an_interpreter_for_another_processor(lab, made):
    program = bytearray(pathlib.Path(PYTHON).read_bytes())
    other, name = (0xB7, "aarch64") if os.uname().machine == "x86_64" else (0x3E, "x86_64")
    program[18] = other
    (made / "bin/python3").unlink()
    (made / "bin/python3").write_bytes(program)
    assert f"its interpreter 'bin/python3' is for {name}, and this machine is {os.uname().machine}" in refusal(lab, made)
    (made / "bin/python3").write_bytes(b"\xcf\xfa\xed\xfe" + bytes(100))
    assert "is a program of macOS" in refusal(lab, made)


def test_an_interpreter_for_another_libc(lab, made):
    program = pathlib.Path(PYTHON).read_bytes()
    loader = re.search(rb"/lib[\w/.-]*/ld-linux[\w.-]*", program).group()
    (made / "bin/python3").unlink()
    (made / "bin/python3").write_bytes(program.replace(loader, b"/lib/ld-musl.so.1".ljust(len(loader), b"\0"), 1))
    assert "is for another kind of Linux: there is no '/lib/ld-musl.so.1' here" in refusal(lab, made)


def test_another_version(lab, made):
    (made / f"lib/python{VERSION}").rename(made / "lib/python3.6")
    said = refusal(lab, made)
    assert f"its modules are for Python 3.6, and its interpreter '{PYTHON}' is Python {VERSION}" in said, said


def test_an_archive_without_an_interpreter_is_not_checked(lab, tmp_path):
    (tmp_path / "e").mkdir()
    (tmp_path / "e/123.xml").touch()
    subprocess.run(["tar", "czf", tmp_path / "e.tar.gz", "-C", tmp_path / "e", "."], check=True)
    assert lab.run("run", lab.workers("test -e venv/123.xml", venv=str(tmp_path / "e.tar.gz"))).returncode == 0


def test_a_pex_runs_as_it_is(lab, tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app/__main__.py").write_text("import helper, sys\nhelper.hello(sys.argv)\n")
    (tmp_path / "app/helper.py").write_text("def hello(argv):\n    print('hello', *argv[1:])\n")
    pex = tmp_path / "app.pex"
    zipapp.create_archive(tmp_path / "app", pex, interpreter="/usr/bin/env python3")
    r = lab.run("run", lab.workers("./app.pex 1", resources=[str(pex)]))
    assert r.returncode == 0, r.stderr
    assert lab.log(app_of(r), "worker:0") == "hello 1\n"
    (tmp_path / "src").mkdir()
    shutil.copy2(pex, tmp_path / "src/app.pex")
    r = lab.run("run", "--executes", "app.pex", "--task_params", "2", "--src_dir", tmp_path / "src", "--python_binary_path", PYTHON,
                "--conf", "tony.worker.instances=1", "--conf", "tony.worker.memory=64m", "--conf", "tony.application.framework=generic")
    assert r.returncode == 0, r.stderr
    assert lab.log(app_of(r), "worker:0") == "hello 2\n"
    assert "is a program, not an environment" in refusal(lab, pex)
