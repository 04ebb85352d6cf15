# SPDX-License-Identifier: Apache-2.0
"""
tony.docker.* on the pool: podman or docker runs the commands. Tests of what a container can see, use and be.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import lib_images
import pytest
from conftest import app_of, wait_until
from lib_jobs import kill9, lab, make_lab  # noqa: F401 (fixtures)
from test_streams import Terminal, named

CONF = {"tony.docker.enabled": True, "tony.docker.containers.image": "library/usual:1"}


@pytest.fixture
def engine(lab):
    """A stand-in for podman that records its calls; it is first in PATH."""
    path = lab.base / "engine"
    path.mkdir()
    lab.env["PATH"] = f"{path}:{lab.env['PATH']}"
    return lib_images.fake(path)


def run_call(engine):
    return wait_until(lambda: [c for c in lib_images.calls(engine) if c[0] == "run"], "the engine is called")[0]


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
    assert command[:2] == ["sh", "-c"] and command[4] == "./job.sh a", "a file of the source is found without a path"
    assert ("--cgroups=disabled" in options) == (command[5] == ""), "a directory, if the container has a group of its own"
    here = lab.log(app, "worker:0").split()
    assert here[2:] == ["library/worker:3", "a", "b"] and f"--workdir={here[1]}" in options
    value = {o.split("=", 1)[0]: o.split("=", 1)[1] for o in options if "=" in o}
    assert {"--rm", "--network=host", "--ipc=host", "--entrypoint="} <= set(options)
    assert value["--user"] == f"{os.geteuid()}:{os.getegid()}" and value["--name"].startswith(app.replace("application", f"tony-{os.geteuid()}-container"))
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
    TERM goes to the processes of the command. Then the engine is told to kill, and has time to clean up.
    """
    app = lab.submit(lab.job_file({"soft": {"instances": 1, "command": "sleep 1000"},
                                   "hard": {"instances": 1, "command": "trap '' TERM; echo up; while :; do sleep 0.1; done"}},
                                  conf={**CONF, "tony.task.kill-grace-ms": 300}))
    wait_until(lambda: lab.n_running(app) == 2 and lab.log_so_far(app, "hard:0") == "up\n", "both run")
    lab.ok("kill", app)
    assert [t["result"] for t in lab.status(app)["tasks"]] == ["FINISHED", "FINISHED"]
    killed = [c[1] for c in lib_images.calls(engine) if c[0] == "kill"]
    hard = next(c for c in lib_images.calls(engine) if c[0] == "run" and "trap ''" in c[-3])
    assert next(o for o in hard if o.startswith("--name="))[7:] in killed
    lab.settled()


TRAP = "trap 'echo term; exit 0' TERM; echo up; while :; do sleep 0.1; done"
PATIENT = {**CONF, "tony.task.kill-grace-ms": 600000}
# "$@" becomes the container: `sh -c ...`, in a session of its own, as below the monitor of podman
CONTAINER = """#!/bin/bash
[ "$1" = run ] || {{ echo "$@" >> "$0.calls"; exit 0; }}
for (( i = 1; i <= $#; i++ )); do if [ "${{!i}}" = sh ]; then break; fi; done
{}
"""


def engine_that(engine, does):
    engine.write_text(CONTAINER.format(does))


def test_a_stop_while_the_engine_forwards_no_signals(lab, engine):
    """podman 4.3 forwards signals only some time after the start of the container. Before, TERM ends podman alone."""
    engine_that(engine, 'setsid "${@:i}" & trap "exit 0" TERM; wait $!')
    app = lab.submit(lab.workers(TRAP, conf=PATIENT))
    wait_until(lambda: "up" in lab.log_so_far(app, "worker:0") if lab.n_running(app) else False, "it runs")
    lab.ok("kill", app)
    assert lab.log(app, "worker:0") == "up\nterm\n"
    lab.settled()


def test_a_stop_before_the_container_starts(lab, engine):
    """The engine does not end by TERM, and starts the container after it."""
    engine_that(engine, 'trap "touch $0.term" TERM; touch "$0.ready"; until [ -e "$0.term" ]; do sleep 0.1; done; "${@:i}"')
    app = lab.submit(lab.workers(TRAP, conf=PATIENT))
    wait_until(lambda: pathlib.Path(f"{engine}.ready").exists(), "the engine runs")
    lab.ok("kill", app)
    assert lab.log(app, "worker:0") in ("", "term\n", "up\nterm\n"), "TERM may come before the trap"
    lab.settled()


def test_a_stop_leaves_no_container_that_was_made_and_not_started(lab, engine):
    """The engine ends by TERM between making and starting a container; the process of the container stays."""
    engine_that(engine, 'setsid sleep 1000 & trap "exit 0" TERM; touch "$0.ready"; wait $!')
    app = lab.submit(lab.workers(TRAP, conf=PATIENT))
    wait_until(lambda: pathlib.Path(f"{engine}.ready").exists(), "the engine runs")
    lab.ok("kill", app)
    assert f"rm --force tony-{os.geteuid()}-container" in pathlib.Path(f"{engine}.calls").read_text()
    lab.settled()


def test_files_have_the_mask_of_the_job(lab, engine):
    """podman and docker start a container with the mask 022, whatever that of their user is."""
    engine_that(engine, 'umask 022; "${@:i}"')
    r = lab.run("run", lab.workers("umask; touch made; ls -l made", conf={**CONF, "tony.task.umask": "027"}))
    assert r.returncode == 0, r.stderr
    assert lab.log(app_of(r), "worker:0").startswith("0027\n-rw-r----- ")
    lab.settled()


def test_signals_have_their_default_action(lab, engine):
    """This includes INT and QUIT, which a shell lets its background commands ignore. The shell around the command
    prints nothing."""
    command = "trap 'echo got INT' INT; trap 'echo got QUIT' QUIT; kill -INT $$; kill -QUIT $$; kill -9 $$"
    r = lab.run("run", lab.workers(command, conf=CONF))
    app = app_of(r)
    assert lab.log(app, "worker:0") == "got INT\ngot QUIT\n"
    assert lab.log(app, "worker:0", "stderr") == ""
    assert lab.status(app)["tasks"][0]["exit_code"] == 137
    lab.settled()


def removals(engine):
    try:
        return [c for c in pathlib.Path(f"{engine}.calls").read_text().splitlines() if c.startswith("rm ")]
    except FileNotFoundError:
        return []


@pytest.mark.parametrize("name", ["podman", "docker"])
@pytest.mark.parametrize("victims", [("executor",), ("keeper",), ("pool", "keeper", "master", "executor")], ids="-".join)
def test_containers_are_removed_after_their_executor_was_killed(lab, engine, victims, name):
    """The engine dies with the executor, so it cannot remove the container that it has made."""
    engine_that(engine, '"${@:i}"')
    if name == "docker":
        engine = engine.rename(engine.parent / name)
        for path in os.environ["PATH"].split(":"):
            for program in pathlib.Path(path).glob("*"):
                if program.name not in ("podman", "docker") and not (engine.parent / program.name).exists():
                    (engine.parent / program.name).symlink_to(program)
        lab.env["PATH"] = f"{engine.parent}:{lab.bin}"
    app = lab.submit(lab.workers("echo up; sleep 1000", conf={**CONF, "tony.task.restarts.node-lost": 0}))
    wait_until(lambda: "up" in lab.log_so_far(app, "worker:0") if lab.n_running(app) else False, "it runs")
    recorded = [p.name for p in (lab.home / "jobs" / app / "engines").iterdir()]
    assert len(recorded) == 1
    kill9(*[pid for kind in victims for pid in lab.pids(kind, None if kind == "pool" else app)])
    lab.json("pool", "start")
    lab.in_history(app)
    assert set(removals(engine)) == {f"rm --force --volumes {'--ignore ' if name == 'podman' else ''}{recorded[0]}"}
    assert not (lab.home / "history" / app / "engines").exists()
    lab.settled()


def test_a_container_is_removed_after_its_engine_was_killed(lab, engine):
    """The engine is killed together with the task, as the kernel does for its memory. The first calls that remove
    the container fail."""
    engine.write_text('#!/bin/bash\necho "$@" >> "$0.calls"\n[ "$1" = run ] && kill -9 $$\n[ $(grep -c ^rm "$0.calls") = 2 ]\n')
    r = lab.run("run", lab.workers("true", conf=CONF))
    assert r.returncode == 1
    assert len(removals(engine)) == 2
    lab.settled()


# The first calls of rm hang; later ones wait for the file .works. Then they succeed.
HANGS = """#!/bin/bash
if [ "$1" = run ]; then
    for (( i = 1; i <= $#; i++ )); do if [ "${{!i}}" = sh ]; then break; fi; done
    "${{@:i}}"; exit
fi
echo "$@" >> "$0.calls"
[ $(grep -c ^rm "$0.calls") -gt {n} ] || exec sleep 1000
until [ -e "$0.works" ]; do sleep 0.1; done
"""


@pytest.mark.takes(100)
@pytest.mark.parametrize("victims,n_hangs", [(("executor",), 1), (("pool", "keeper", "master", "executor"), 2)], ids=["executor", "all"])
def test_an_engine_that_hangs_does_not_hold_the_verdict(lab, engine, victims, n_hangs):
    """The calls that remove the container hang, as when the service of docker does not answer. The status names
    the container until a later call has removed it."""
    engine.write_text(HANGS.format(n=n_hangs))
    app = lab.submit(lab.workers("echo up; sleep 1000", conf={**CONF, "tony.task.restarts.node-lost": 0}))
    wait_until(lambda: "up" in lab.log_so_far(app, "worker:0") if lab.n_running(app) else False, "it runs")
    name = next((lab.home / "jobs" / app / "engines").iterdir()).name
    kill9(*[pid for kind in victims for pid in lab.pids(kind, None if kind == "pool" else app)])
    lab.json("pool", "start")
    lab.in_history(app)
    assert lab.status(app)["state"] == "FAILED"
    gave_up = lab.home / "pool/pool.log"
    again = "the engine is called again after the end of the job"
    wait_until(lambda: len(removals(engine)) > n_hangs or "keeper.container_left" in gave_up.read_text(), again)
    if len(removals(engine)) == n_hangs:  # the pool has tried just before the job ended; it would try again in an hour
        lab.ok("pool", "stop")
        lab.json("pool", "start")
        wait_until(lambda: len(removals(engine)) > n_hangs, again)
    assert lab.status(app)["containers_left"] == [{"name": name, "engine": str(engine)}]
    for command in ("status", "why"):
        assert f"podman rm --force {name}" in " ".join(lab.ok(command, app).split())
    pathlib.Path(f"{engine}.works").touch()
    wait_until(lambda: not (lab.home / "history" / app / "engines").exists(), "the container was removed")
    assert "containers_left" not in lab.status(app)
    wait_until(lambda: not (lab.home / "pool/ended" / app).exists(), "nothing is to be done any more")
    lab.settled()


@pytest.mark.takes(35)
def test_an_engine_that_fails_does_not_hold_the_verdict(lab, engine):
    """The calls that remove the container fail, as when the service of docker is stopped: three calls by the
    keeper, and three by the pool. The next pool tries again."""
    engine.write_text('#!/bin/bash\necho "$@" >> "$0.calls"\n[ "$1" != run ] || kill -9 $$\nexit 1\n')
    r = lab.run("run", lab.workers("true", conf=CONF))
    assert r.returncode == 1
    app = app_of(r)
    wait_until(lambda: len(removals(engine)) == 6, "the pool has tried it, too")
    assert len(lab.status(app)["containers_left"]) == 1
    lab.ok("pool", "stop")
    engine.write_text("#!/bin/bash\nexit 0\n")
    lab.json("pool", "start")
    wait_until(lambda: "containers_left" not in lab.status(app), "the next pool has removed it")
    lab.settled()


def test_an_engine_that_exits_by_itself_has_removed_its_container(lab, engine):
    engine_that(engine, '"${@:i}"')
    lab.run("run", lab.workers("exit 3", conf=CONF, instances=2))
    assert not removals(engine)
    lab.settled()


def test_docker_when_there_is_no_podman(lab, engine):
    engine.rename(engine.parent / "docker")
    docker = engine.parent / "docker"
    for program in ("sh", "bash", "env"):
        (engine.parent / program).symlink_to(f"/bin/{program}")
    lab.env["PATH"] = f"{engine.parent}:{lab.bin}"
    if os.geteuid() == 0:
        lab.user["extra_groups"] = [54321]
    r = lab.run("run", lab.workers("exit 5", conf=CONF))
    assert r.returncode == 1 and "failed with exit code 5" in r.stdout, r.stdout + r.stderr
    options = run_call(docker)
    assert f"--memory={64 << 20}b" in options and "--log-driver=none" in options and "library/usual:1" in options
    assert [o for o in options if o.startswith("--group-add=")] == [f"--group-add={g}" for g in lab.user.get("extra_groups", os.getgroups()) if g != os.getegid()]
    swaps = len(pathlib.Path("/proc/swaps").read_text().splitlines()) > 1
    assert (f"--memory-swap={64 << 20}b" in options) == swaps, "the limit is that of memory and swap together"


def test_the_service_of_docker_kills_a_process_for_its_memory(lab, engine):
    """The service of docker has made the control group, so only the first process of the container can see from it
    that memory was the reason (here the process reads a stand-in for the group's file)."""
    engine.write_text(lib_images.FAKE.replace('exec "$@"', 'exec "${@//\\/sys\\/fs\\/cgroup/$(dirname "$0")}"'))
    engine.rename(engine.parent / "docker")
    for program in ("sh", "bash", "env", "dirname"):
        (engine.parent / program).symlink_to(shutil.which(program))
    lab.env["PATH"] = f"{engine.parent}:{lab.bin}"
    for kills, reason in ((1, "out_of_memory"), (0, "exited")):
        (engine.parent / "memory.events").write_text(f"low 0\nhigh 0\nmax 4\noom 2\noom_kill {kills}\noom_group_kill 0\n")
        r = lab.run("run", lab.workers("exit 137", conf=CONF))
        app = app_of(r)
        assert lab.status(app)["tasks"][0]["reason"] == reason, r.stdout + r.stderr
        assert not list((lab.home / "history" / app).rglob("out-of-memory"))


# As the service of docker: the container is in a control group of its own. The client uses much memory and CPU time.
IN_A_GROUP = """#!/bin/bash
[ "$1" = run ] || exit 0
for (( i = 1; i <= $#; i++ )); do if [ "${{!i}}" = sh ]; then break; fi; done
mkdir {group}
(echo $BASHPID > {group}/cgroup.procs; exec unshare -m sh -c 'mount --bind {dir} /sys/fs/cgroup && exec "$@"' sh "${{@:i}}") &
python3 -c '{client}' &
wait %1; r=$?
wait; rmdir {group}; exit $r
"""


def uses(directory, mib, cpu_s, up, gate):
    return (f"import time; x = bytearray({mib} << 20)\nwhile time.process_time() < {cpu_s}: pass\n"
            f"open(\"{directory}/{up}\", \"w\"); open(\"{directory}/{gate}\").read()")


def places_of_groups():
    """Where root can make a group with a limit of memory, with either version."""
    if os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK):
        return pathlib.Path("/sys/fs/cgroup/memory")
    enabled = pathlib.Path("/sys/fs/cgroup/cgroup.subtree_control")
    return enabled.parent if os.access(enabled, os.W_OK) and "memory" in enabled.read_text() else None


def test_the_metrics_of_docker_are_those_of_the_container(lab, engine):
    """Not those of its client. The CPU time at the end is what the first process reads (here from a stand-in)."""
    place = places_of_groups()
    if place is None:
        pytest.skip("optional: no control groups can be made here")
    for name in ("gate", "gate of client"):
        os.mkfifo(engine.parent / name)
    (engine.parent / "cpuacct").mkdir()
    (engine.parent / "cpuacct/cpuacct.usage").write_text("7654321000\n")
    engine.write_text(IN_A_GROUP.format(group=place / f"tony-test-{os.getpid()}", dir=engine.parent,
                                        client=uses(engine.parent, 400, 3, "client", "gate of client")))
    engine.rename(engine.parent / "docker")
    hidden = engine.parent / "path"
    hidden.mkdir()
    for program in ("sh", "bash", "env", "mkdir", "rmdir", "unshare", "mount"):
        (hidden / program).symlink_to(shutil.which(program))
    (hidden / "python3").symlink_to(sys.executable)
    (engine.parent / "docker").rename(hidden / "docker")
    lab.env["PATH"] = f"{hidden}:{lab.bin}"
    app = lab.submit(lab.workers(f"python3 -c '{uses(engine.parent, 60, 1, 'up', 'gate')}'", role={"memory": "96m"},
                                 conf={**CONF, "tony.task.metrics-interval-ms": 200}))
    wait_until(lambda: (engine.parent / "up").exists() and (engine.parent / "client").exists(), "both have used their CPU time")

    def largest(name):
        points = [p for s in lab.json("metrics", app)["series"] if s["name"] == name for p in s["points"]]
        return max((value for _, value in points if value is not None), default=0)
    wait_until(lambda: largest("memory_bytes") > 60 << 20 and largest("cpu_ms") >= 900, "both were measured")
    assert largest("memory_bytes") < 90 << 20 and largest("memory_peak_bytes") < 90 << 20
    assert largest("cpu_ms") < 2000 and largest("threads") <= 3
    for name in ("gate", "gate of client"):
        (engine.parent / name).write_text("")
    lab.in_history(app)
    task = lab.status(app)["tasks"][0]
    assert task["exit_code"] == 0 and largest("cpu_ms") == 7654
    assert 60 << 20 < largest("memory_peak_bytes") < 90 << 20 and task["metrics"]["MAX_MEMORY_BYTES"] < 90 << 20
    assert not list((lab.home / "history" / app).rglob("cpu-*"))
    lab.settled()


def test_without_an_engine_or_an_image(lab):
    r = lab.run("run", lab.workers("true", conf=CONF), env={"PATH": str(lab.bin)})
    assert r.returncode == 2 and "neither podman nor docker on the PATH" in r.stderr and not lab.jobs_on_disk(), r.stderr
    r = lab.run("run", lab.workers("true", conf={"tony.docker.enabled": True}))
    assert r.returncode == 0 and "role 'worker' has no image (tony.docker.worker.image): it runs without one" in r.stderr, r.stderr


def docker_that_says(lab, engine, says):
    """A stand-in for docker, as the only engine on the PATH. says: what `docker info` does, in shell."""
    engine.write_text(lib_images.FAKE.replace("\n", f"\nif [ \"$1\" = info ]; then {says}; fi\n", 1))
    engine.rename(engine.parent / "docker")
    for program in ("sh", "bash", "env"):
        (engine.parent / program).symlink_to(f"/bin/{program}")
    lab.env["PATH"] = f"{engine.parent}:{lab.bin}"


def images_check(lab):
    return next(c for c in json.loads(lab.run("doctor", "--json").stdout)["checks"] if c["name"] == "images")


ROOTLESS = """echo 'WARNING: something of no account' >&2; echo '{"Name":"m","SecurityOptions":["name=seccomp,profile=builtin","name=rootless","name=cgroupns"]}'; exit 0"""


def test_docker_in_its_rootless_mode(lab, engine):
    """A rootless docker is refused before anything starts: its containers could reach neither tony nor each other."""
    docker_that_says(lab, engine, ROOTLESS)
    job = lab.workers("true", conf=CONF)
    for command in ("submit", "run", "plan"):
        r = lab.run(command, job)
        text = " ".join(r.stderr.split())
        assert r.returncode == 2 and "tony.docker.enabled" in text and "rootless mode" in text, text
        assert "neither tony nor each other" in text and "install podman" in text and "docker context use default" in text, text
    assert not lab.jobs_on_disk()
    found = images_check(lab)
    assert found["state"] == "note" and "rootless mode" in found["value"] and "install podman" in found["hint"], found
    r = lab.run("run", lab.workers("true"))
    assert r.returncode == 0, "a job without images does not ask"
    lab.settled()


@pytest.mark.parametrize("says", [
    """echo '{"SecurityOptions":null,"ServerErrors":["permission denied, or no service"]}'; exit 0""",
    """echo '{"SecurityOptions":null,"ServerErrors":["permission denied, or no service"]}'; exit 1""",
    "echo Client:; echo 'permission denied, or no service' >&2; exit 1"], ids=["json", "json-and-1", "text"])
def test_the_service_of_docker_does_not_answer(lab, engine, says):
    """A client only warns: the service may run again when the job starts."""
    docker_that_says(lab, engine, says)
    r = lab.run("run", lab.workers("true", conf=CONF))
    text = " ".join(r.stderr.split())
    assert r.returncode == 0 and "does not answer: permission denied, or no service" in text and "group docker" in text, text
    found = images_check(lab)
    assert found["state"] == "note" and "does not answer: permission denied, or no service" in found["value"] and "systemctl start docker" in found["hint"], found
    lab.settled()


def test_what_doctor_says_of_other_engines(lab, engine):
    assert images_check(lab) == {"name": "images", "state": "ok", "value": f"run by {engine}", "hint": ""}
    lab.env["PATH"] = str(lab.bin)
    found = images_check(lab)
    assert found["state"] == "note" and "neither podman nor docker" in found["value"] and "podman" in found["hint"]


# ---- with podman ----


@pytest.fixture(scope="module")
def podman():
    base, why = lib_images.real()
    if not base:
        pytest.skip(why)
    yield why
    lib_images.remove(base)


@pytest.fixture
def real(lab, podman):
    """in_image(command): a job file whose command runs in an image made of this machine's programs."""
    lab.env.update({**podman, "PATH": f"{lab.bin}:{podman['PATH']}"})
    env = ",".join(f"{k}={v}" for k, v in podman.items() if k != "PATH")

    def in_image(command, conf=None, **role):
        return lab.workers(command, role=role, conf={**CONF, "tony.docker.containers.image": lib_images.IMAGE,
                                                     "tony.containers.envs": env, **(conf or {})})
    return in_image


def containers_alive(app):
    """Processes of the job's containers, also those that are not below its executors."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if re.search(rf"tony-\d+-{app.replace('application', 'container')}".encode(), path.read_bytes()):
                found.append(path.parent.name)
        except OSError:
            pass
    return found


def containers_listed(lab, app):
    """Containers that podman knows, also dead ones."""
    out = subprocess.run(["podman", "ps", "--all", "--format={{.Names}}"], env=lab.env, cwd=lab.base, capture_output=True, text=True, check=True, **lab.user)
    return [name for name in out.stdout.split() if app.replace("application", "container") in name]


def test_in_a_real_container(lab, real):
    app = lab.submit(real("cat /etc/mark; id -u; echo mine > mine; trap 'echo term; exit 0' TERM; echo up; while :; do sleep 0.1; done",
                          {"tony.task.kill-grace-ms": 600000}))
    wait_until(lambda: "up" in lab.log_so_far(app, "worker:0") if lab.n_running(app) else False, "it runs")
    lab.ok("kill", app)
    uid = lab.user.get("user", os.geteuid())
    assert lab.log(app, "worker:0").split("\n")[:4] == ["of the image", str(uid), "up", "term"]
    lab.settled()


def test_mounts_of_a_real_container(lab, real, tmp_path):
    for name in ("read", "write"):
        (tmp_path / name).mkdir()
    (tmp_path / "read/in").write_text("from outside\n")
    tmp_path.chmod(0o755)
    tmp_path.parent.chmod(0o755)
    tmp_path.parent.parent.chmod(0o755)
    lab.give(tmp_path / "write")
    command = "cat /in/in; echo out > /out/out; echo no > /in/no || echo refused; test -e /root/.profile || echo hidden; echo $MINE"
    r = lab.run("run", real(command, {"tony.docker.containers.mount": f"{tmp_path}/read:/in:ro,{tmp_path}/write:/out"}, env={"MINE": "a b"}))
    assert r.returncode == 0, r.stderr
    assert lab.log(app_of(r), "worker:0") == "from outside\nrefused\nhidden\na b\n"
    assert (tmp_path / "write/out").read_text() == "out\n"
    lab.settled()


def test_exit_codes_and_a_missing_image(lab, real):
    assert lab.run("run", real("exit 7")).returncode == 1
    app = max(p.name for p in (lab.home / "history").iterdir())
    assert lab.status(app)["tasks"][0]["exit_code"] == 7
    r = lab.run("run", real("true", {"tony.docker.containers.image": "localhost/no-such-image:1"}))
    assert r.returncode == 1 and "no-such-image" in r.stdout + r.stderr, r.stdout + r.stderr
    lab.settled()


def test_memory_of_a_real_container(lab, real):
    """The limit holds, and the verdict is the same as without an image."""
    r = lab.run("run", real("x=$(cat /dev/zero | tr '\\0' x | head -c 300000000); echo ${#x}", memory="64m"))
    assert r.returncode == 1
    app = max(p.name for p in (lab.home / "history").iterdir())
    assert lab.status(app)["tasks"][0]["reason"] == "out_of_memory", lab.ok("status", app)
    assert not containers_listed(lab, app), "the kernel has killed podman, too"
    lab.settled()


@pytest.mark.slow
@pytest.mark.parametrize("victims", [("executor",), ("keeper",), ("master",), ("pool", "keeper", "master", "executor")], ids="-".join)
def test_processes_die_around_a_real_container(lab, real, victims):
    """Whatever is killed, no process of a container is left when the job is over."""
    app = lab.submit(real("echo up; while :; do sleep 0.1; done", {"tony.task.restarts.node-lost": 0}))
    wait_until(lambda: "up" in lab.log_so_far(app, "worker:0") if lab.n_running(app) else False, "it runs")
    assert containers_alive(app)
    kill9(*[pid for kind in victims for pid in lab.pids(kind, None if kind == "pool" else app)])
    lab.json("pool", "start")
    if victims == ("master",):
        wait_until(lambda: lab.state(app) == "RUNNING", "a master has taken over")
        assert containers_alive(app)
        lab.ok("kill", app)
    lab.in_history(app)
    wait_until(lambda: not containers_alive(app), "all processes of the container are dead")
    assert not containers_listed(lab, app)
    lab.settled()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can prepare a namespace for podman of an ordinary user")
def test_podman_of_an_ordinary_user(tmp_path):
    lacks = [name for name in ("podman", "newuidmap", "unshare") if not shutil.which(name)]
    if lacks:
        pytest.skip(f"optional: not installed: {', '.join(lacks)} (tools/install-deps images)")
    inner = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "rootless_cases.py"]
    r = subprocess.run(["unshare", "-m", "sh", "-c", lib_images.ROOTLESS, "sh", tmp_path / "ids", *inner],
                       cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, timeout=280)
    assert r.returncode == 0 and "skipped" not in r.stdout, r.stdout[-20000:] + r.stderr[-2000:]


# ---- tony exec, shell and cp in an image ----


def in_task(lab, app, *command, data=None, options=()):
    r = subprocess.run([lab.bin / "tony", "exec", app, "worker:0", *options, "--", *command], env=lab.env, input=data or b"",
                       capture_output=True, timeout=120)
    return r.returncode, r.stdout.decode(), r.stderr.decode()


def up(lab, job):
    app = lab.submit(job)
    wait_until(lambda: "up" in lab.log_so_far(app, "worker:0") if lab.n_running(app) else False, "it runs")
    return app


# A process writes its process id of the container to `mine`, and ends with TERM.
WAITS = "echo $$ > mine; trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"


def test_arguments_of_the_engine_for_exec(lab, engine):
    """The engine gets a terminal and input only if they are wanted; a shell is what the image has."""
    app = lab.submit(lab.workers("sleep 600", conf=CONF))
    wait_until(lambda: lab.n_running(app), "it runs")
    name = next(o for o in run_call(engine) if o.startswith("--name="))[7:]
    here = next(o for o in run_call(engine) if o.startswith("--workdir="))
    for options, wanted in ((), []), (("-i",), ["--interactive"]), (("-t",), ["--interactive", "--tty", "--env=TERM=vt100"]):
        subprocess.run([lab.bin / "tony", "exec", app, "worker:0", *options, "--", "prog", "a b"], env={**lab.env, "TERM": "vt100"},
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=True)
        call = [c for c in lib_images.calls(engine) if c[0] == "exec"][-1]
        mark = next(o for o in call if o.startswith("--env=TONY_STREAM="))
        assert call[:-4] == ["exec", *wanted, mark, here, name, "sh", "-c"] and call[-2:] == ["prog", "a b"], call
    t = Terminal(lab, "shell", app, "worker:0")
    try:
        assert t.p.wait(60) == 0
    finally:
        t.close()
    call = [c for c in lib_images.calls(engine) if c[0] == "exec"][-1]
    assert call[-4:-2] == ["sh", "-c"] and "bash" in call[-2]
    lab.ok("kill", app)
    lab.settled()


def test_exec_in_a_real_container(lab, real):
    """The command runs in the task's image, working directory and control group, with its environment and as its
    user."""
    app = up(lab, real(WAITS, {"tony.task.umask": "027"}, env={"MINE": "a b"}))
    code, out, err = in_task(lab, app, "sh", "-c", 'cat /etc/mark; pwd; cat mine > /dev/null && echo here; echo "$MINE|$TASK_INDEX|$TONY_TASK"; '
                             'id -u; umask; cat /proc/$(cat mine)/cgroup; echo --; cat /proc/self/cgroup; echo bad >&2; exit 7')
    assert (code, err) == (7, "bad\n"), err
    mark, cwd, here, env, uid, mask, *groups = out.splitlines()
    assert (mark, here, env, uid, mask) == ("of the image", "here", "a b|0|worker:0", str(lab.user.get("user", os.geteuid())), "0027")
    assert "/containers/container_" in cwd
    at = groups.index("--")
    assert groups[:at] == groups[at + 1:] and len(groups[:at]) > 0
    data = os.urandom(1 << 20)
    r = subprocess.run([lab.bin / "tony", "exec", app, "worker:0", "-i", "--", "cat"], env=lab.env, input=data, capture_output=True, timeout=120)
    assert r.returncode == 0 and r.stdout == data
    assert in_task(lab, app, "sh", "-c", "kill -9 $$")[0] == 128 + 9
    p = subprocess.Popen([lab.bin / "tony", "exec", app, "worker:0", "--", "sh", "-c", "trap 'echo got it; exit 5' INT; echo waits; "
                          "while :; do sleep 0.1; done"], env=lab.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"waits\n"
    p.send_signal(signal.SIGINT)  # Ctrl-C without a terminal reaches the command in the container
    assert p.communicate(timeout=60) == (b"got it\n", None) and p.returncode == 5
    code, _, err = in_task(lab, app, "no-such-program")
    assert code == 127 and "no-such-program" in err, "the shell says so"
    lab.ok("kill", app)
    lab.settled()


def test_cp_in_a_real_container(lab, real, tmp_path):
    app = up(lab, real(WAITS))
    (tmp_path / "in").write_text("from outside\n")
    lab.ok("cp", app, tmp_path / "in", "worker:0:there")
    assert in_task(lab, app, "cat", "there") == (0, "from outside\n", "")
    lab.ok("cp", app, "worker:0:mine", tmp_path / "out")
    assert (tmp_path / "out").read_text().strip().isdigit()
    lab.ok("kill", app)
    lab.settled()


def test_a_shell_in_a_real_container(lab, real):
    """A terminal, whose size follows; Ctrl-C reaches the command; `exit 3` ends with 3, and the task goes on."""
    app = up(lab, real(WAITS))
    t = Terminal(lab, "shell", app, "worker:0")
    try:
        t.send(b"PS1=\n")
        t.send(b"cat /etc/mark; test -t 0 && echo is''atty; echo $TERM\n")
        t.expect(rb"of the image\r\nisatty\r\nvt100")
        t.send(b"sleep 1000\n")
        wait_until(lambda: in_task(lab, app, "sh", "-c", "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; done")[1].count("sleep 1000"),
                   "it sleeps")
        t.send(b"\x03")
        t.send(b"echo aft''er $?\n")
        t.expect(rb"after 130")
        t.send(b"exit 3\n")
        assert t.p.wait(60) == 3 and t.is_restored()
    finally:
        t.close()
    assert lab.tasks(app)["worker:0"]["state"] == "running"
    lab.ok("kill", app)
    lab.settled()


def sleepers(word):
    """Processes of this machine, in any container, whose arguments have this word."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


@pytest.mark.parametrize("ends", ["command", "client", "stream", "task"])
def test_nothing_is_left_of_a_command_in_a_real_container(lab, real, ends):
    """The command ends, the client or the stream's process is killed, the task ends: what the command has started ends, too."""
    app = up(lab, real(WAITS))
    word = f"7536.{os.getpid()}"
    tail = "while [ ! -e go ]; do sleep 0.1; done" if ends == "command" else "sleep 1000"
    p = subprocess.Popen([lab.bin / "tony", "exec", app, "worker:0", "-i", "--", "sh", "-c",
                          f"trap '' HUP TERM INT; sh -c 'sleep {word} & sleep {word}' & echo ready; {tail}"],
                         env=lab.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert p.stdout.readline() == b"ready\n"
        wait_until(lambda: len(sleepers(word)) == 2, "its processes run")
        if ends == "command":
            assert in_task(lab, app, "touch", "go")[0] == 0
        elif ends == "task":
            lab.ok("kill", app)
        else:
            kill9(*([p.pid] if ends == "client" else named(lab, "tony-stream")))
        assert p.wait(60) == {"command": 0, "client": -9, "stream": 4}.get(ends, p.returncode)
        wait_until(lambda: not sleepers(word), "nothing of the command is left")
    finally:
        p.kill()
        p.communicate()
    if ends != "task":
        assert lab.tasks(app)["worker:0"]["state"] == "running" and in_task(lab, app, "sh", "-c", "echo again")[1] == "again\n"
        lab.ok("kill", app)
    lab.settled()
