# SPDX-License-Identifier: Apache-2.0
"""
The files that a job ships reach each working directory unchanged. They are stored once, and the source
directory is not written to.
"""

import json
import os
import stat
import tarfile
import zipfile

import pytest

from conftest import wait_until

LOOK = "/usr/bin/python3 -c 'import json,os,sys; print(json.dumps({p: [oct(os.lstat(p).st_mode), os.path.islink(p) and os.readlink(p)] for r,d,f in os.walk(\".\") for p in (os.path.join(r,x) for x in d+f)}))'"


def tree(path):
    """Everything below path: mode, and content or link target."""
    out = {}
    for p in sorted(path.rglob("*")):
        st = p.lstat()
        what = os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else None
        out[str(p.relative_to(path))] = (st.st_mode, what)
    return out


def run(tony, path, *args):
    app = tony.submit(path, *args)
    r = tony.run("wait", app)
    assert r.returncode == 0, r.stdout + r.stderr + tony.ok("logs", app)
    return app


def store_entries(tony, kind):
    return sorted(p.name for p in (tony.home / "store").glob(kind + "-*"))


@pytest.fixture
def source(tmp_path):
    src = tmp_path / "project"
    (src / "pkg" / "empty").mkdir(parents=True)
    (src / "train.py").write_text("print('hello from', __file__)\n")
    (src / "run.sh").write_text("#!/bin/sh\ncat data.txt\n")
    (src / "run.sh").chmod(0o755)
    (src / "data.txt").write_text("some data\n")
    (src / "data.txt").chmod(0o640)
    (src / "link").symlink_to("data.txt")
    (src / "dirlink").symlink_to("pkg")
    (src / "broken").symlink_to("nowhere")
    (src / "name with späce").write_text("x")
    return src


def test_src_is_shipped_unchanged(tony, source):
    before = tree(source)
    path = tony.workers(LOOK, n=2, directory=source.parent, src="project")
    app = run(tony, path)
    for task in ("worker:0", "worker:1"):
        seen = json.loads(tony.log(app, task))
        for name, (mode, what) in before.items():
            got_mode, target = seen["./" + name]
            assert stat.S_IFMT(int(got_mode, 8)) == stat.S_IFMT(mode), name
            if stat.S_ISLNK(mode):
                assert target == what
            elif stat.S_ISREG(mode):
                assert int(got_mode, 8) & 0o777 == mode & 0o777 | 0o200, name
    assert tree(source) == before, "something was written into the user's directory"


def test_commands_start_in_src(tony, source):
    app = run(tony, tony.workers("./run.sh", directory=source.parent, src="project"))
    assert tony.log(app, "worker:0") == "some data\n"


def test_a_script_that_is_not_executable_is_run(tony, source):
    (source / "run.sh").chmod(0o644)
    app = run(tony, tony.workers("./run.sh", directory=source.parent, src="project"))
    assert tony.log(app, "worker:0") == "some data\n"
    assert (source / "run.sh").stat().st_mode & 0o777 == 0o644


def test_writes_stay_in_the_tasks_own_copy(tony, source):
    before = tree(source)
    command = ("echo mine $TASK_INDEX > data.txt; echo x > pkg/new; rm train.py; sleep 0.3; "
               "cat data.txt; ls pkg")
    app = run(tony, tony.workers(command, n=3, directory=source.parent, src="project"))
    for i in range(3):
        assert tony.log(app, f"worker:{i}") == f"mine {i}\nempty\nnew\n"
    assert tree(source) == before
    app = run(tony, tony.workers("cat data.txt; ls train.py", directory=source.parent, src="project"))
    assert tony.log(app, "worker:0") == "some data\ntrain.py\n", "the stored copy was changed"


def test_identical_content_is_stored_once(own_tony, source):
    tony = own_tony()
    path = tony.workers("true", directory=source.parent, src="project")
    run(tony, path)
    first = store_entries(tony, "d")
    assert len(first) == 1
    run(tony, path)
    os.utime(source / "data.txt")
    run(tony, path)
    assert store_entries(tony, "d") == first
    (source / "data.txt").write_text("other data\n")
    run(tony, path)
    assert len(store_entries(tony, "d")) == 2
    assert [p.name for p in (tony.home / "store").glob(".tmp*")] == []


def test_a_change_of_the_same_size_and_second_is_seen(own_tony, source):
    tony = own_tony()
    path = tony.workers("cat data.txt", directory=source.parent, src="project")
    run(tony, path)
    (source / "data.txt").write_text("SOME DATA\n")
    app = run(tony, path)
    assert tony.log(app, "worker:0") == "SOME DATA\n"


def test_src_dir_of_the_original_client(tony, source):
    r = tony.run("run", "-executes", "train.py", "-src_dir", "project", "-python_binary_path", "/usr/bin/python3",
                 "-conf", "tony.worker.instances=1", "-conf", "tony.worker.memory=64m", "-conf",
                 "tony.application.framework=generic", cwd=source.parent)
    assert r.returncode == 0, r.stderr
    assert "hello from" in tony.ok("logs", "last", "--stdout")


def test_resources(tony, tmp_path):
    (tmp_path / "plain.txt").write_text("plain\n")
    (tmp_path / "other.txt").write_text("other\n")
    (tmp_path / "dir" / "sub").mkdir(parents=True)
    (tmp_path / "dir" / "sub" / "f").write_text("deep\n")
    (tmp_path / "tool").write_text("#!/bin/sh\necho tool\n")
    (tmp_path / "tool").chmod(0o755)
    path = tony.job_file({"worker": {"instances": 1, "command": "cat plain.txt renamed d/sub/f; ./tool; ls", "resources": ["dir::d", "tool"]},
                          "side": {"instances": 1, "command": "ls"}},
                         directory=tmp_path, resources=["plain.txt", "other.txt::renamed"])
    app = run(tony, path)
    out = tony.log(app, "worker:0").splitlines()
    assert out[:4] == ["plain", "other", "deep", "tool"]
    assert sorted(out[4:]) == ["d", "plain.txt", "renamed", "tool"]
    assert sorted(tony.log(app, "side:0").split()) == ["plain.txt", "renamed"]


def test_a_long_copy_prints_its_source(tony, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "small").write_text("x")
    path = tony.workers("true", directory=tmp_path, src="src")
    assert tony.run("submit", path).stderr == ""
    with open(tmp_path / "src" / "large", "wb") as f:
        f.truncate(128 << 20)
    r = tony.run("submit", path)
    assert r.stderr == f"tony: storing '{tmp_path}/src', 128 MB\n"
    assert tony.run("wait", r.stdout.strip()).returncode == 0


def test_a_resource_listed_twice_is_shipped_once(tony, tmp_path):
    (tmp_path / "f").write_text("x")
    path = tony.workers("ls", directory=tmp_path, role={"resources": ["f", "f::g"]}, resources=["f", "f", "f::h"])
    assert tony.log(run(tony, path), "worker:0").split() == ["f", "g", "h"]


def make_zip(path):
    with zipfile.ZipFile(path, "w") as z:
        info = zipfile.ZipInfo("bin/tool")
        info.external_attr = 0o100755 << 16
        z.writestr(info, "#!/bin/sh\necho unpacked\n")
        link = zipfile.ZipInfo("current")
        link.external_attr = 0o120777 << 16
        z.writestr(link, "bin/tool")


def make_tar(path, mode):
    with tarfile.open(path, mode) as t:
        import io
        data = b"#!/bin/sh\necho unpacked\n"
        info = tarfile.TarInfo("bin/tool")
        info.size, info.mode = len(data), 0o755
        t.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("current")
        link.type, link.linkname = tarfile.SYMTYPE, "bin/tool"
        t.addfile(link)


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tgz", "a.tar.bz2", "a.tar.xz"])
def test_archives_are_unpacked(tony, tmp_path, name):
    if name.endswith("zip"):
        make_zip(tmp_path / name)
    else:
        make_tar(tmp_path / name, {"tar": "w", "gz": "w:gz", "tgz": "w:gz", "bz2": "w:bz2", "xz": "w:xz"}[name.split(".")[-1]])
    path = tony.workers("unpacked/bin/tool && unpacked/current", directory=tmp_path, resources=[f"{name}::unpacked#archive"])
    app = run(tony, path)
    assert tony.log(app, "worker:0") == "unpacked\nunpacked\n"


def test_a_venv_that_is_an_archive(tony, tmp_path):
    make_zip(tmp_path / "env.zip")
    path = tony.workers("venv/bin/tool", directory=tmp_path, venv="env.zip")
    assert tony.log(run(tony, path), "worker:0") == "unpacked\n"


def test_a_venv_that_is_a_directory_is_used_in_place(tony, tmp_path):
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").write_text("#!/bin/sh\necho interpreter \"$@\"\n")
    (tmp_path / "env" / "bin" / "python").chmod(0o755)
    before = tree(tmp_path / "env")
    (tmp_path / "src").mkdir()
    r = tony.run("run", "--executes", "train.py", "--task_params", "--lr 1", "--python_venv", "env", "--python_binary_path", "bin/python",
                 "--src_dir", "src", "--conf", "tony.worker.instances=1", "--conf", "tony.worker.memory=64m", "--conf",
                 "tony.application.framework=generic", cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    assert tony.ok("logs", "last", "--stdout") == "interpreter train.py --lr 1\n"
    assert tree(tmp_path / "env") == before


@pytest.mark.parametrize("name", ["venv", ".venv", "envs/one", "venv.zip"])
def test_a_venv_in_src_is_no_part_of_src(own_tony, tmp_path, name):
    """The venv is shipped on its own: its gigabytes are not stored and copied with src."""
    tony = own_tony()
    env = tmp_path / name
    if name.endswith(".zip"):
        make_zip(env)
    else:
        (env / "bin").mkdir(parents=True)
        (env / "bin" / "tool").write_text("#!/bin/sh\necho unpacked\n")
        (env / "bin" / "tool").chmod(0o755)
    (tmp_path / "train.py").write_text("x")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "venv").write_text("of src, by chance of that name")
    path = tony.workers("venv/bin/tool; find . | sort", directory=tmp_path, src=".", venv=name)
    src = next(s for s in tony.json("plan", path)["ship"] if s["kind"] == "src")
    assert src["files"] == 3
    out = tony.log(run(tony, path), "worker:0").split()
    expected = {".", f"./{path.name}", "./sub", "./sub/venv", "./train.py", "./venv"} | ({"./envs"} if "/" in name else set())
    assert out[0] == "unpacked" and set(out[1:]) == expected
    assert not list((tony.home / "store").glob(f"d-*/{name}"))


def test_a_link_in_src_to_a_venv_in_src(tony, tmp_path):
    (tmp_path / "env-3" / "bin").mkdir(parents=True)
    (tmp_path / "env-3" / "bin" / "tool").write_text("#!/bin/sh\necho linked\n")
    (tmp_path / "env-3" / "bin" / "tool").chmod(0o755)
    (tmp_path / "venv").symlink_to("env-3")
    path = tony.workers("venv/bin/tool; ls -A", directory=tmp_path, src=".", venv="venv")
    assert tony.log(run(tony, path), "worker:0").split() == ["linked", path.name, "venv"]


@pytest.mark.parametrize("member", ["../escape", "/abs", "a/../../escape"])
def test_archives_that_leave_their_directory_are_refused(tony, tmp_path, member):
    with tarfile.open(tmp_path / "evil.tar", "w") as t:
        import io
        info = tarfile.TarInfo(member)
        info.size = 1
        t.addfile(info, io.BytesIO(b"x"))
    before = tony.jobs_on_disk()
    r = tony.run("run", tony.workers("true", directory=tmp_path, resources=["evil.tar#archive"]))
    assert r.returncode == 2, r.stderr
    assert "evil.tar" in r.stderr
    assert tony.jobs_on_disk() == before


def test_pipes_devices_and_tony_home_are_not_shipped(tony, source):
    os.mkfifo(source / "pipe")
    for what in "project", "project/pipe", "/dev/null", tony.home:
        r = tony.run("run", tony.workers("true", directory=source.parent, src=str(what)))
        assert r.returncode == 2 and str(what) in r.stderr and ".yaml:" in r.stderr and "\n  hint: " in r.stderr


def test_two_resources_with_the_same_name_are_refused(tony, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "f").write_text("a")
    (tmp_path / "b" / "f").write_text("b")
    r = tony.run("run", tony.workers("true", directory=tmp_path, resources=["a/f", "b/f"]))
    assert r.returncode == 2 and "::" in r.stderr


def test_the_working_directory_goes_with_the_job(tony, source):
    app = run(tony, tony.workers("true", directory=source.parent, src="project"))
    wait_until(lambda: (tony.home / "history" / app).is_dir(), "in the history")
    assert not list((tony.home / "history" / app).glob("containers/*"))
