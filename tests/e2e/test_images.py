# SPDX-License-Identifier: Apache-2.0
"""
tony.docker.* on the pool: podman or docker runs the commands. Tests of what a container can see, use and be.
"""

import os
import pathlib

import lib_images
import pytest
from conftest import app_of, wait_until
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)

CONF = {"tony.docker.enabled": True, "tony.docker.containers.image": "library/usual:1"}


@pytest.fixture
def engine(lab):
    """A stand-in for podman that records its calls; it is first in PATH."""
    path = lab.base / "engine"
    path.mkdir()
    lab.env["PATH"] = f"{path}:{lab.env['PATH']}"
    return lib_images.fake(path)


def run_call(engine):
    return next(c for c in lib_images.calls(engine) if c[0] == "run")


def test_arguments_of_the_engine(lab, engine, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/job.sh").write_text("#!/bin/sh\necho here $PWD $FAKE_IMAGE $MINE; env > env.txt; cp env.txt /tmp/x 2>/dev/null; exit 0\n")
    (tmp_path / "data").write_text("data\n")
    r = lab.run("run", lab.workers("job.sh a", role={"vcores": 2, "env": {"MINE": "a b"}}, src=str(tmp_path / "src"),
                                   resources=[str(tmp_path / "data")],
                                   conf={**CONF, "tony.docker.worker.image": "library/worker:3", "tony.docker.containers.mount": "/etc/a:/b:ro, /c:/d:rw"}))
    assert r.returncode == 0, r.stderr
    app = app_of(r)
    call = run_call(engine)
    end = call.index("library/worker:3")
    options, command = call[1:end], call[end + 1:]
    assert command[:2] == ["sh", "-c"] and command[3:] == ["./job.sh a"], "a file of the source is found without a path"
    here = lab.log(app, "worker:0").split()
    assert here[2:] == ["library/worker:3", "a", "b"] and f"--workdir={here[1]}" in options
    value = {o.split("=", 1)[0]: o.split("=", 1)[1] for o in options if "=" in o}
    assert {"--rm", "--network=host", "--ipc=host", "--entrypoint="} <= set(options)
    assert value["--user"] == f"{os.geteuid()}:{os.getegid()}" and app.replace("application", "tony-container") in value["--name"]
    assert any(o.startswith("--ulimit=nofile=") for o in options)
    assert "--cgroups=disabled" in options or f"--memory={64 << 20}b" in options
    volumes = [o.split("=", 1)[1] for o in options if o.startswith("--volume=")]
    assert {"/etc/a:/b:ro", "/c:/d:rw"} <= set(volumes)
    shipped = [v for v in volumes if v.startswith(f"{lab.home}/store") and v.endswith(":ro")]
    assert len(shipped) == 1 and any(v.split(":")[0] == os.path.dirname(here[1]) for v in volumes)
    names = {o.split("=", 1)[1] for o in options if o.startswith("--env=")}
    assert {"MINE", "JOB_NAME", "TASK_INDEX", "TONY_TASK_SOCKET"} <= names and not names & {"PATH", "HOME", "XDG_RUNTIME_DIR"}
    assert not any("a b" in o for o in options), "values are in no command line"
    lab.settled()


def test_a_stop_goes_through_the_engine(lab, engine):
    """
    TERM goes to the engine, which forwards it. Then the engine is told to kill, and has time to clean up.
    """
    app = lab.submit(lab.job_file({"soft": {"instances": 1, "command": "sleep 1000"},
                                   "hard": {"instances": 1, "command": "trap '' TERM; echo up; while :; do sleep 0.1; done"}},
                                  conf={**CONF, "tony.task.kill-grace-ms": 300}))
    wait_until(lambda: lab.n_running(app) == 2 and lab.log_so_far(app, "hard:0") == "up\n", "both run")
    lab.ok("kill", app)
    assert [t["result"] for t in lab.status(app)["tasks"]] == ["FINISHED", "FINISHED"]
    killed = [c[1] for c in lib_images.calls(engine) if c[0] == "kill"]
    hard = next(c for c in lib_images.calls(engine) if c[0] == "run" and "trap ''" in c[-1])
    assert next(o for o in hard if o.startswith("--name="))[7:] in killed
    lab.settled()


def test_docker_when_there_is_no_podman(lab, engine):
    engine.rename(engine.parent / "docker")
    docker = engine.parent / "docker"
    for program in ("sh", "bash", "env"):
        (engine.parent / program).symlink_to(f"/bin/{program}")
    lab.env["PATH"] = f"{engine.parent}:{lab.bin}"
    r = lab.run("run", lab.workers("exit 5", conf=CONF))
    assert r.returncode == 1 and "failed with exit code 5" in r.stdout, r.stdout + r.stderr
    options = run_call(docker)
    assert f"--memory={64 << 20}b" in options and "--log-driver=none" in options and "library/usual:1" in options


def test_without_an_engine_or_an_image(lab):
    r = lab.run("run", lab.workers("true", conf=CONF), env={"PATH": str(lab.bin)})
    assert r.returncode == 2 and "neither podman nor docker on the PATH" in r.stderr and not lab.jobs_on_disk(), r.stderr
    r = lab.run("run", lab.workers("true", conf={"tony.docker.enabled": True}))
    assert r.returncode == 0 and "role 'worker' has no image (tony.docker.worker.image): it runs without" in r.stderr, r.stderr


def test_in_a_real_container(lab):
    """An image made of this machine's programs."""
    base, why = lib_images.real()
    if not base:
        pytest.skip(why)
    try:
        env = ",".join(f"{k}={v}" for k, v in why.items())
        path = lab.workers("cat /etc/mark; id -u; echo mine > mine; trap 'echo term; exit 0' TERM; echo up; while :; do sleep 0.1; done",
                           conf={**CONF, "tony.task.kill-grace-ms": 600000, "tony.docker.containers.image": lib_images.IMAGE, "tony.containers.envs": env})
        app = lab.submit(path)
        wait_until(lambda: "up" in lab.log_so_far(app, "worker:0") if lab.n_running(app) else False, "it runs")
        lab.ok("kill", app)
        assert lab.log(app, "worker:0").split("\n")[:4] == ["of the image", str(os.geteuid()), "up", "term"]
        lab.settled()
    finally:
        lib_images.remove(base)
