# SPDX-License-Identifier: Apache-2.0
"""`tony notebook`: with a stand-in for Jupyter, and slowly with the real one."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from conftest import BIN, ROOT, wait_until

sys.path.insert(0, str(ROOT / "tests"))
from lib_notebook import STAND_IN, environment, need_browser, start, use  # noqa: E402


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


@pytest.fixture
def venv(tmp_path):
    (tmp_path / "v" / "bin").mkdir(parents=True)
    (tmp_path / "v" / "bin" / "python").write_text(STAND_IN)
    (tmp_path / "v" / "bin" / "python").chmod(0o755)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "work.ipynb").touch()
    return tmp_path


@pytest.mark.parametrize("how", ["int", "stop"])
def test_a_notebook(tony, venv, how):
    p, url = start(tony, "--memory", "64m", "--src_dir", venv / "src", "--python_venv", venv / "v", "--idle", "30m")
    args, token, files = json.loads(get(url))
    assert url.endswith(token) and "work.ipynb" in files
    assert args[:2] == ["-m", "jupyterlab"] and "--ip=127.0.0.1" in args
    assert "--ServerApp.shutdown_no_activity_timeout=1800" in args and "--MappingKernelManager.cull_idle_timeout=1800" in args
    if how == "int":
        p.send_signal(signal.SIGINT)
    else:
        with contextlib.suppress(OSError):  # the stream ends with the task, perhaps before the answer has passed
            get(url.split("/lab")[0] + "/stop")
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and "worker" not in err, err
    app = re.search(r"application_\d+_\d+", err).group()
    assert tony.state(app) == ("KILLED" if how == "int" else "SUCCEEDED")


def test_ctrl_c_while_the_url_is_printed(tony, venv):
    """The client blocks in the write of the URL, since its output is a full pipe."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(theirs, b"\n" * 4096)
    os.set_blocking(theirs, True)
    p = subprocess.Popen([BIN / "tony", "notebook", "--memory", "64m", "--src_dir", venv / "src", "--python_venv", venv / "v"],
                         env=tony.env, stdout=theirs, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    number = {"x86_64": "1 0x1 ", "aarch64": "64 0x1 "}[os.uname().machine]  # of write(), and the descriptor
    wait_until(lambda: pathlib.Path(f"/proc/{p.pid}/syscall").read_text().startswith(number), "the client writes the URL")
    p.send_signal(signal.SIGINT)
    with os.fdopen(ours) as pipe:
        assert "http://127.0.0.1:" in pipe.read()
    _, err = p.communicate(timeout=60)
    assert p.returncode == 0, (p.returncode, err)
    assert tony.state(re.search(r"application_\d+_\d+", err).group()) == "KILLED"


def test_without_jupyter_the_user_is_told(tony):
    r = tony.run("notebook", "--memory", "64m")
    assert r.returncode == 1 and "pip install jupyterlab" in r.stderr
    r = tony.run("notebook", "--idle", "soon")
    assert r.returncode == 2 and "--idle" in r.stderr


def test_options_of_the_notebook_submitter(tony, venv):
    """A command of the user gets the port and the token; so does that of a job file without roles."""
    (venv / "src" / "serve").write_text(STAND_IN)
    conf = venv / "notebook.xml"
    conf.write_text("<configuration><property><name>tony.am.memory</name><value>64m</value></property></configuration>")
    (venv / "tony.xml").write_text("<configuration><property><name>tony.worker.instances</name><value>1</value></property></configuration>")
    p, url = start(tony, "--src_dir", venv / "src", "--executes", "serve", "--python_binary_path", "/usr/bin/python3", "--task_params", "'--a b'",
                   "--shell_env", "COLOR=blue", "--conf_file", conf, cwd=venv)
    try:
        args, token, files = json.loads(get(url))
        assert args == ["--a b"] and url.endswith("/?token=" + token) and "work.ipynb" in files
    finally:
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=60)
    assert p.returncode == 0, err
    r = tony.run("notebook", "--conf_file", venv / "tony.xml", "--executes", "true")
    assert r.returncode == 2 and "this job has roles" in r.stderr


@pytest.mark.slow
@pytest.mark.takes(60)
def test_a_real_jupyter(tony):
    """A kernel computes, and the notebook ends by itself when it is idle."""
    p, url = start(tony, "--memory", "1g", "--idle", "10s", *environment())
    assert b"JupyterLab" in get(url)
    assert use("kernel", url, "print(6 * 7)") == "42\n"
    with pytest.raises(urllib.error.HTTPError):
        get(url.split("/lab")[0] + "/api/kernels?token=wrong")
    out, err = p.communicate(timeout=300)
    assert p.returncode == 0, err
    app = re.search(r"application_\d+_\d+", err).group()
    assert tony.state(app) == "SUCCEEDED"


@pytest.mark.slow
@pytest.mark.takes(60)
def test_a_real_browser(tony):
    """A browser opens the printed URL, runs a cell and shows the result. Then Ctrl-C ends the notebook."""
    need_browser()
    p, url = start(tony, "--memory", "1g", *environment())
    assert use("browser", url, "print(6 * 7)").strip() == "42"
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=120)
    assert p.returncode == 0, err
    assert tony.state(re.search(r"application_\d+_\d+", err).group()) == "KILLED"
