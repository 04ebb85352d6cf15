# SPDX-License-Identifier: Apache-2.0
"""What works on the pool works on Slurm, too: archives, virtual environments, notebooks, measurements. Images are refused."""

import json
import os
import re
import subprocess

from lib_notebook import STAND_IN, URL
from lib_slurm import as_user, wait_until
from test_slurm import app_of

PYTHON = os.path.realpath("/usr/bin/python3")


def own(tony, path):
    subprocess.run(["chown", "-R", tony.user, path], check=True)
    return path


def test_sources_and_a_virtual_environment_are_shipped(tony):
    """As archives, on all nodes."""
    made = tony.base / "made-here"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", made], check=True, timeout=100)
    hello = made / "bin/hello"
    hello.write_text(f"#!{made}/bin/python3\nimport sys\nprint(sys.prefix != sys.base_prefix, *sys.argv[1:])\n")
    hello.chmod(0o755)
    (tony.base / "src").mkdir()
    (tony.base / "src/word").write_text("shipped\n")
    subprocess.run(["tar", "czf", tony.base / "env.tar.gz", "-C", made, "."], check=True)
    subprocess.run(["rm", "-r", made], check=True)
    own(tony, tony.base)
    path = tony.job_file("venv/bin/hello $(cat word)", conf={"tony.slurm.nodes": 3})
    app = app_of(tony("run", "--src_dir", tony.base / "src", "--python_venv", tony.base / "env.tar.gz", path))
    for task in ("worker:0", "worker:1", "worker:2"):
        assert tony("logs", app, task, "--stdout").stdout == "True shipped\n"
    assert len({t["node"] for t in tony.status(app)["tasks"]}) == 3


def test_an_image_is_refused(tony, slurm):
    """No task may run outside of the image that its job names."""
    conf = {"tony.docker.enabled": True, "tony.docker.containers.image": "lab/train:1"}
    for command in ("submit", "plan"):
        done = tony(command, tony.job_file("true", conf=conf), ok=False)
        assert done.returncode == 2 and "container images are not supported on Slurm" in done.stdout + done.stderr, done.stdout + done.stderr
    assert not slurm.jobs()


def get(tony, url):
    """As the user of the job: a notebook lets nobody else in. None: it does not listen yet."""
    read = f"import urllib.request; print(urllib.request.urlopen({url!r}, timeout=30).read().decode())"
    done = subprocess.run([*as_user(tony.user), PYTHON, "-c", read], capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout) if done.returncode == 0 else None


def test_a_notebook(tony):
    venv = tony.base / "v"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").write_text(STAND_IN)
    (venv / "bin/python").chmod(0o755)
    own(tony, venv)
    p = subprocess.Popen([*as_user(tony.user), str(tony.program), "notebook", "--cluster", "slurm", "--memory", "100m", "--python_venv", str(venv)],
                         env={**tony.slurm.environment(), **tony.env}, cwd=tony.base, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    try:
        url = p.stdout.readline().strip()
        assert URL.fullmatch(url), url + tony.logs()
        args, token, _ = wait_until(lambda: get(tony, url), "the notebook answers")
        assert url.endswith(token) and args[:2] == ["-m", "jupyterlab"]
    finally:
        p.terminate()
        err = p.communicate(timeout=60)[1]
    app = re.search(r"application_\d+_\d+", err).group()
    wait_until(lambda: not tony.status(app)["live"], "the notebook ends with its client")


def test_measurements(tony):
    command = f"exec {PYTHON} -c 'b = bytearray(60 << 20); import time; time.sleep(600)'"
    app = tony.submit(command, instances=2, memory="200m", conf={"tony.slurm.nodes": 2})
    tony.await_running(app, 2)

    def measured():
        tasks = tony.status(app)["tasks"]
        return all(t.get("metrics", {}).get("memory_bytes", 0) > 50 << 20 for t in tasks)
    wait_until(measured, "both tasks are measured")
    lines = tony("top", app).stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["TASK", "worker:0", "worker:1"] and "running" in lines[1]
    shown = tony("metrics", app).stdout
    assert "worker:0" in shown and "worker:1" in shown, shown
    tony("stop", app)
    assert "worker:0" in tony("metrics", app).stdout, "also of a finished job"
