# SPDX-License-Identifier: Apache-2.0
"""
Tasks in container images, run by Debian's podman and docker with control groups v2. Whatever happens to a job, the
engine knows none of its containers afterwards.
"""

import json

import pytest
from conftest import BIN, Jobs, machine_with
from lib_vm import ENGINES

IMAGE = "localhost/vm-test:1"
# An image of a few programs of the machine, with the libraries that they need.
MAKE_IMAGE = """set -e
cd $(mktemp -d)
for p in sh bash cat sleep tr head id ls; do mkdir -p root/bin; cp -L /bin/$p root/bin/; ldd /bin/$p; done |
    grep -o '/[^ ]*' | sort -u | while read f; do mkdir -p root/${f%%/*}; cp -L $f root/$f; done
mkdir -p root/etc root/tmp; echo of the image > root/etc/mark
tar c -C root . | %s import - %s
"""
HOG = "x=$(cat /dev/zero | tr '\\0' x | head -c 300000000); echo ${#x}"
TRAP = "trap 'echo term; exit 0' TERM; echo up; while :; do sleep 0.2; done"
# engine, user, lingers
CASES = {"podman-of-root": ("podman", "root", False), "podman-of-a-user": ("podman", "user", True),
         "podman-without-lingering": ("podman", "user", False), "docker-of-root": ("docker", "root", False),
         "docker-of-a-user": ("docker", "user", True)}


# A stand-in for NVIDIA's library, and for the devices of its driver.
NVML = BIN.parent / "tests/fixtures/libfake_nvml.so"
DEVICES = "cd /dev; mknod -m 666 nvidia0 c 195 0; mknod -m 666 nvidia1 c 195 1; mknod -m 666 nvidiactl c 195 255"


@pytest.fixture(scope="module")
def machine():
    yield from machine_with(packages=ENGINES, memory_mib=2048, files=[NVML])


class InImages(Jobs):
    def __init__(self, machine, user, engine):
        super().__init__(machine, user)
        self.engine = engine

    def submit(self, command, memory="64m", conf=None, **top):
        conf = {"tony.docker.enabled": True, "tony.docker.containers.image": IMAGE, "tony.task.restarts.node-lost": 0,
                "tony.task.kill-grace-ms": 600000, **(conf or {})}
        return super().submit(command, memory, conf=conf, **top)

    def up(self, command=TRAP):
        app = self.submit(command)
        self.wait_for(lambda: self.state(app) == "RUNNING" and "up" in self.tony("logs", app, "--stdout", check=False).split(), "the task runs", 300)
        assert self.listed()
        return app

    def over(self, app):
        self.wait_for(lambda: self.state(app) in ("SUCCEEDED", "FAILED", "KILLED"), f"{app} is over", 300)
        return self.json("status", app)

    def listed(self):
        """Containers that the engine knows, also dead ones."""
        return self.sh(f"{self.engine} ps --all --format '{{{{.Names}}}} {{{{.Status}}}}'", timeout=300)

    def clean(self):
        self.wait_for(lambda: not self.sh("ls ~/.tony/jobs ~/.tony/pool/ended | grep application || true"), "the job was put away")
        assert self.listed() == ""


@pytest.fixture(scope="module", params=CASES, ids=CASES)
def on_engine(machine, request):
    engine, user, lingers = CASES[request.param]
    root = lambda command: machine.ssh("root", command, timeout=600)  # noqa: E731
    if engine == "docker":  # tony takes podman if both are installed
        root("chmod -x /usr/bin/podman; systemctl start docker; usermod -a -G docker user")
    root(f"loginctl {'enable' if lingers else 'disable'}-linger user")
    jobs = InImages(machine, user, engine)
    jobs.limits = engine == "docker" or lingers or user == "root"
    jobs.sh(MAKE_IMAGE % (engine, IMAGE), timeout=600)
    yield jobs
    jobs.sh("tony pool stop --force; rm -rf ~/.tony ~/job*; true")
    root("loginctl disable-linger user; chmod +x /usr/bin/podman; systemctl stop docker.service docker.socket containerd")


@pytest.fixture
def case(on_engine, request):
    """A case of the table on the machine. If the test fails, its job is ended and its containers are removed, so
    that the next test does not find them."""
    failed = request.session.testsfailed
    yield on_engine
    if request.session.testsfailed > failed:
        remove = f"for c in $({on_engine.engine} ps --all --quiet); do {on_engine.engine} rm --force $c; done"
        on_engine.machine.ssh(on_engine.user, f"tony pool stop --force; rm -rf ~/.tony ~/job*; {remove}", check=False, timeout=300)


def test_a_job_in_an_image(case):
    case.sh("mkdir -p ~/in; echo from outside > ~/in/file")
    home = case.sh("echo ~")
    case.machine.ssh("root", "groupadd -f shared; usermod -a -G shared user; mkdir -p -m 750 /srv/shared; echo for the group > /srv/shared/file; chgrp shared /srv/shared")
    case.tony("pool", "stop")  # the next pool gets the new group of the user
    app = case.submit("cat /etc/mark /in/file /shared/file; id -u; echo no > /in/no || echo refused; umask; trap 'echo trapped' INT; kill -INT $$; "
                      "ls /home /root || echo hidden",
                      conf={"tony.docker.containers.mount": f"{home}/in:/in:ro,/srv/shared:/shared:ro", "tony.task.umask": "027"})
    doc = case.over(app)
    out = case.tony("logs", app, "--stdout").split("\n")
    uid = case.sh("id -u")
    assert out[:7] == ["of the image", "from outside", "for the group", uid, "refused", "0027", "trapped"] and out[-1] == "hidden", out
    assert doc["state"] == "SUCCEEDED", out
    case.clean()


def nothing_sleeps(case, seconds):
    case.wait_for(lambda: not case.sh(f"ps -ef | grep '[s]leep {seconds}' || true"), "nothing of the command is left")


def test_exec(case):
    """A command in the container of a task; what it leaves in the background ends with it, and the task goes on."""
    app = case.up()
    out = case.tony("exec", app, "worker:0", "--", "sh", "-c", "'sleep 7537 & cat /etc/mark; id -u; umask; echo $TASK_INDEX; pwd'", timeout=300)
    *said, cwd = out.split("\n")
    assert said == ["of the image", case.sh("id -u"), case.sh("umask"), "0"] and "/containers/container_" in cwd
    nothing_sleeps(case, 7537)
    here = case.sh(f"echo by tony > input; sha256sum < input; tony exec {app} worker:0 -i -- sh -c 'cat > given; exit 7' < input || echo $?; sha256sum < {cwd}/given",
                   timeout=300).split("\n")
    assert here[1] == "7" and here[0] == here[2], "input and the exit code"
    assert case.sh(f"tony exec {app} worker:0 -- sh -c 'kill -9 $$' || echo $?", timeout=300) == "137"
    assert case.sh(f"tony exec {app} worker:0 -- no-such-program 2> why || echo $?", timeout=300).splitlines()[-1] == "127"
    case.sh(f"tony exec {app} worker:0 -- sleep 7538 & p=$!; until ps -ef | grep '[0-9] sleep 7538'; do sleep 1; done; kill -9 $p", timeout=300)
    nothing_sleeps(case, 7538)
    assert case.state(app) == "RUNNING"
    case.tony("stop", app, timeout=300)
    case.over(app)
    case.clean()


def test_cp(case):
    app = case.up()
    case.sh("rm -rf there; mkdir -p there/sub; echo from outside > there/sub/file; head -c 3000000 /dev/urandom > there/large")
    case.tony("cp", app, "there", "worker:0:put", timeout=300)
    assert case.tony("exec", app, "worker:0", "--", "cat", "put/sub/file", timeout=300) == "from outside"
    case.sh(f"rm -rf back; tony cp {app} worker:0:put back; cmp there/large back/large; cmp there/sub/file back/sub/file", timeout=300)
    case.tony("stop", app, timeout=300)
    case.over(app)
    case.clean()


def test_a_shell(case):
    """On a terminal: Ctrl-C reaches the command in the container, and the exit code is that of the shell."""
    app = case.up()
    with case.machine.on_terminal(case.user, f"tony shell {app} worker:0; echo ended with $?") as t:
        t.say("PS1=; cat /etc/mark; test -t 0 && echo is''atty; echo \"term<$TERM>\"; id -u")
        t.expect(rb"of the image\r\n.*isatty\r\n.*term<[\w-]+>\r\n" + case.sh("id -u").encode())
        t.say("echo sle''eps; sleep 7539")
        t.expect(rb"sleeps\r\n")
        case.wait_for(lambda: case.sh("ps -ef | grep '[0-9] sleep 7539' || true"), "it sleeps")
        t.send(b"\x03")
        t.say("echo aft''er $?")
        t.expect(rb"after 130")
        t.say("exit 3")
        t.expect(rb"ended with 3")
    nothing_sleeps(case, 7539)
    assert case.state(app) == "RUNNING"
    case.tony("stop", app, timeout=300)
    case.over(app)
    case.clean()


def test_memory(case):
    app = case.submit(HOG)
    assert case.over(app)["state"] == "FAILED"
    assert "ran out of memory" in case.tony("status", app), case.tony("status", app)
    case.clean()


def groups_of(case, words):
    """The directories of the control groups of the processes with these words in their command lines."""
    pids = case.wait_for(lambda: (p := case.machine.out("root", f"pgrep -f '^{words}' || true").split()) and p, f"'{words}' runs", 300)
    return [case.machine.out("root", f"echo /sys/fs/cgroup$(cut -d: -f3 /proc/{pid}/cgroup)") for pid in pids]


def test_cores(case):
    """vcores are a share: the kernel gives a task with four of them four times as much as a task with one. A user without
    lingering has no control groups, so all tasks have the same share."""
    role = lambda n: {"instances": 1, "memory": "64m", "vcores": n, "command": f"sleep {4000 + n}"}  # noqa: E731
    app = case.submit("", roles={"one": role(1), "four": role(4)})
    weights = [int(case.machine.out("root", f"cat {groups_of(case, f'sleep {4000 + n}')[0]}/cpu.weight")) for n in (1, 4)]
    assert 3.5 <= weights[1] / weights[0] <= 4.5 if case.limits else weights[0] == weights[1], weights
    case.tony("stop", app, timeout=300)
    case.over(app)
    case.clean()


def test_metrics(case):
    """The metrics are those of the container's control group, also if docker's service has made this group."""
    app = case.submit("x=$(head -c 20000000 /dev/zero | tr '\\0' x); echo ${#x}; sleep 7650; sleep 1", memory="256m",
                      conf={"tony.task.metrics-interval-ms": 1000})
    group = groups_of(case, "sleep 7650")[0]

    def newest():
        r = case.machine.ssh(case.user, f"tony metrics {app} --json", check=False)
        series = json.loads(r.stdout)["series"] if r.returncode == 0 else []
        return {s["name"]: s["points"][-1][1] for s in series if s["points"][-1][1] is not None}
    case.wait_for(lambda: newest().get("memory_bytes", 0) > 20000000, "its memory was measured")
    values = newest()
    if case.limits:
        current = int(case.machine.out("root", f"cat {group}/memory.current"))
        stat = dict(line.split() for line in case.machine.out("root", f"cat {group}/memory.stat").split("\n"))
        cpu = dict(line.split() for line in case.machine.out("root", f"cat {group}/cpu.stat").split("\n"))
        assert abs(values["memory_bytes"] - (current - int(stat["inactive_file"]))) < 8 << 20, (values, current, stat)
        assert 0.8 * int(cpu["usage_usec"]) / 1000 < values["cpu_ms"] <= int(cpu["usage_usec"]) / 1000, (values, cpu)
    case.machine.ssh("root", "pkill -f '^sleep 7650'")
    doc = case.over(app)
    assert doc["state"] == "SUCCEEDED" and newest() == {}, doc
    if case.limits:
        series = {s["name"]: s["points"] for s in case.json("metrics", app)["series"]}
        assert [v for _, v in series["cpu_ms"] if v][-1] >= int(cpu["usage_usec"]) / 1000
    case.clean()


def test_the_least_memory(case):
    """A task with a tiny limit runs: the limit holds for the task, and not for docker's client, which needs more
    than that."""
    if case.engine == "podman":
        pytest.skip("optional: the memory of podman counts as that of the task")
    app = case.submit("echo small", memory="16m")
    assert case.over(app)["state"] == "SUCCEEDED" and case.tony("logs", app, "--stdout") == "small"
    case.clean()


def test_gpus(case):
    """Each task finds its own device, as number 0, and not that of the other task."""
    case.tony("pool", "stop", timeout=300)
    case.machine.ssh("root", f"test -e /dev/nvidia0 || ({DEVICES})")
    case.sh("TONY_NVML=/tony/libfake_nvml.so FAKE_GPUS=2 tony pool start")
    assert case.json("pool", "status")["capacity"]["gpus"] == 2
    say = "echo $CUDA_VISIBLE_DEVICES /dev/nvidia*; sleep 3"
    app = case.submit("", roles={"worker": {"instances": 2, "memory": "64m", "gpus": 1, "command": say}})
    doc = case.over(app)
    out = [case.tony("logs", app, f"worker:{i}", "--stdout") for i in range(2)]
    assert doc["state"] == "SUCCEEDED", out
    assert sorted(out) == [f"0 /dev/nvidia{i} /dev/nvidiactl" for i in range(2)]
    assert sorted(t["gpus"] for t in doc["tasks"]) == ["0", "1"]
    case.clean()
    case.tony("pool", "stop", timeout=300)


def test_the_user_logs_out(case):
    """
    podman keeps what it knows of its containers in the runtime directory of the user. Without lingering this directory,
    and the user's manager, live as long as a process of the session does that has started the pool. The containers of
    docker are below its service, with lingering and without.
    """
    if case.user == "root":
        pytest.skip("optional: the runtime directory of root has no part in this")
    logs_out(case)
    if case.engine == "docker":
        case.tony("pool", "stop", timeout=300)
        case.machine.ssh("root", "loginctl disable-linger user")
        try:
            logs_out(case)
            case.tony("pool", "stop", timeout=300)
        finally:
            case.machine.ssh("root", "loginctl enable-linger user")


def logs_out(case):
    root = lambda command: case.machine.out("root", command)  # noqa: E731
    app = case.up("echo up; sleep 7642")
    case.wait_for(lambda: root("loginctl show-user user --property=State --value") in ("closing", "lingering"), "the user has no session any more")
    case.machine.ssh("other", "true")  # the session manager looks for what it can clean up
    assert root("pgrep -f '^sleep 7642'") and root("systemctl is-active user@1000.service") == "active"
    assert root("ls -d /run/user/1000")
    assert case.state(app) == "RUNNING"
    case.tony("stop", app, timeout=300)
    assert case.over(app)["restarts"] == 0
    case.clean()


def test_stop(case):
    app = case.up()
    case.tony("stop", app, timeout=300)
    assert case.over(app)["state"] == "KILLED"
    assert case.tony("logs", app, "--stdout").split() == ["up", "term"]
    case.clean()


@pytest.mark.parametrize("victims", [("executor",), ("keeper",), ("pool", "keeper", "master", "executor")], ids="-".join)
def test_processes_die(case, victims):
    app = case.up()
    case.sh("kill -9 " + " ".join(f"$(pgrep -u $(id -u) -x tony-{name})" for name in victims))
    case.tony("pool", "start")
    assert case.over(app)["state"] == "FAILED"
    case.clean()


def test_the_master_dies(case):
    app = case.up()
    old = case.sh("pgrep -u $(id -u) -x tony-master")
    case.sh(f"kill -9 {old}")
    case.wait_for(lambda: case.sh("pgrep -u $(id -u) -x tony-master || true") not in ("", old), "another master")
    case.wait_for(lambda: case.state(app) == "RUNNING", "it has taken over")
    assert "Up" in case.listed()
    case.tony("stop", app, timeout=300)
    assert case.over(app)["restarts"] == 0
    case.clean()


def test_the_machine_loses_its_power(case):
    app = case.up()
    case.sh("sync")
    case.machine.lose_power()
    case.machine.boot()
    if case.engine == "docker":
        case.machine.ssh("root", "systemctl start docker", timeout=600)
    case.tony("pool", "start")
    assert case.over(app)["state"] == "FAILED"
    case.clean()


ROOTLESS = "/usr/share/docker.io/contrib/dockerd-rootless.sh"
SOCKET = "/run/user/1000/docker.sock"


@pytest.fixture
def rootless(machine):
    """Debian's docker in its rootless mode, as its own scripts start it; and no podman."""
    machine.ssh("root", "chmod -x /usr/bin/podman; loginctl enable-linger user")
    jobs = InImages(machine, "user", f"docker --host=unix://{SOCKET}")
    jobs.sh(f"systemd-run --user --unit=rootless -p Delegate=yes -p KillMode=mixed {ROOTLESS}; "
            f"docker context create rootless --docker host=unix://{SOCKET}; docker context use rootless")
    try:
        jobs.wait_for(lambda: jobs.sh(f"{jobs.engine} version --format '{{{{.Server.Version}}}}' || true"), "its service answers", 600)
        jobs.sh(MAKE_IMAGE % (jobs.engine, IMAGE), timeout=600)
        yield jobs
    finally:
        jobs.sh("tony pool stop --force; rm -rf ~/.tony ~/job* ~/out; docker context use default; docker context rm rootless; systemctl --user stop rootless; true",
                timeout=600)
        machine.ssh("root", "chmod +x /usr/bin/podman; loginctl disable-linger user")


def test_docker_in_its_rootless_mode(rootless):
    """A job is refused. The two reasons that the message gives are true: the network is another one, and the files
    of a task would not belong to the user."""
    in_words = "runs in its rootless mode"
    job = {"name": "test", "framework": "generic", "roles": {"worker": {"instances": 1, "memory": "64m", "command": "true"}},
           "conf": {"tony.docker.enabled": True, "tony.docker.containers.image": IMAGE}}
    rootless.machine.write("user", "job.yaml", json.dumps(job))
    r = rootless.machine.ssh("user", "tony submit job.yaml", check=False)
    assert r.returncode == 2 and in_words in " ".join(r.stderr.split()) and "install podman" in " ".join(r.stderr.split()), r
    found = next(c for c in rootless.json("doctor")["checks"] if c["name"] == "images")
    assert found["state"] == "note" and in_words in found["value"], found
    run = f"{rootless.engine} run --rm --network=host"
    inside = rootless.sh(f"{run} {IMAGE} ls -l /proc/self/ns/net", timeout=300).rpartition(" ")[2]
    assert inside.startswith("net:[") and inside != rootless.sh("readlink /proc/self/ns/net")
    rootless.sh("mkdir -p -m 755 out")
    assert rootless.machine.ssh("user", f"{run} --user=1000:1000 --volume=/home/user/out:/out {IMAGE} sh -c 'echo x > /out/file'", check=False, timeout=300).returncode
    # the hint
    rootless.sh("docker context use default")
    found = next(c for c in rootless.json("doctor")["checks"] if c["name"] == "images")
    assert in_words not in found["value"], found
