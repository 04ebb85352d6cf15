# SPDX-License-Identifier: Apache-2.0
"""
Another user of a machine with control groups v2 tries to join, read, stop and confuse the job of an ordinary user who
lingers. The surroundings of that user's home are open to everybody: only tony itself protects the job.
"""

import pytest
from conftest import BIN, Jobs, machine_with
from lib_attack import ATTACK, CLAIM, FIRST_BYTES, LISTEN, OWN, plan_text, worked

NVML = BIN.parent / "tests/fixtures/libfake_nvml.so"  # a stand-in for NVIDIA's library
GATE = "while [ ! -e $HOME/gate ]; do sleep 0.3; done"
KEY = "correct-horse"

@pytest.fixture(scope="module")
def machine():
    yield from machine_with(files=[NVML])


@pytest.fixture
def victim(machine):
    machine.ssh("root", "loginctl enable-linger user; chmod 755 /home/user")
    jobs = Victim(machine, "user")
    yield jobs
    jobs.sh("tony pool stop --force; rm -rf ~/.tony ~/started* ~/job* ~/gate ~/port*; true")
    machine.ssh("root", "pkill -u other; loginctl disable-linger user; rm -rf /tmp/tony-*; true")


class Victim(Jobs):
    def attack(self, **plan):
        """Runs the attack of lib_attack.py. Returns a sentence for each attempt that has succeeded."""
        self.machine.write("other", "attack.py", ATTACK)
        self.machine.write("other", "plan", plan_text(**plan))
        return worked(self.machine.out("other", "python3 attack.py < plan", timeout=1200))

    def background(self, user, program, *args):
        """Start a Python program, and return its first line of output."""
        self.n += 1
        self.machine.write(user, f"program{self.n}.py", program)
        self.machine.ssh(user, f"setsid python3 program{self.n}.py {' '.join(map(str, args))} > out{self.n} 2>&1 < /dev/null &")
        return self.wait_for(lambda: self.machine.out(user, f"head -n 1 out{self.n}"), "the program runs"), f"out{self.n}"

    def gated(self, command="", **top):
        """A job of two tasks that run until `release`; each has written what `command` prints to ~/port<index>."""
        say = f"{{ {command or 'echo up'}; }} > $HOME/new$TASK_INDEX; mv $HOME/new$TASK_INDEX $HOME/port$TASK_INDEX; {GATE}"
        self.sh("rm -f gate port*")
        role = {"instances": 2, "memory": "32m", "command": say, **top.pop("role", {})}
        app = self.submit("", roles={"worker": role}, **top)
        self.wait_for(lambda: self.sh("ls | grep -c '^port[01]$' || true") == "2", "both tasks run", 300)
        return app

    def release(self, app):
        self.sh("touch gate")
        doc = self.over(app)
        assert doc["state"] == "SUCCEEDED" and doc["restarts"] == 0, doc

    def lines(self, command):
        return self.sh(command).split("\n")


def test_files_sockets_processes_and_groups(victim):
    """Includes the control groups of the tasks: a user who may write there could stop or freeze them, or lift
    their limits."""
    app = victim.gated(env={"PASSWORD": KEY})
    sockets = victim.lines("find /run/user/1000/tony -type s")
    assert len(sockets) == 3, sockets
    files = victim.lines("find ~/.tony -type f")
    assert {"job.conf", "key", "journal", "exits", "stdout", "stderr", "pool.log", "pool"} <= {f.rpartition("/")[2] for f in files}
    pids = victim.lines("pgrep -u user '^tony-'; pgrep -u user -f gate")
    groups = victim.lines(f"find /sys/fs/cgroup/user.slice -path '*tony*' -type f -name '*.*' -path '*/{app.partition('_')[2]}*'")
    names = {g.rpartition("/")[2] for g in groups}
    assert {"cgroup.procs", "cgroup.kill", "cgroup.freeze", "memory.max"} <= names, groups
    tony = ["env", "TONY_HOME=/home/user/.tony", "XDG_RUNTIME_DIR=/run/user/1000", "/tony/tony"]
    commands = [tony + argv for argv in (["list"], ["status", app], ["logs", app], ["why", app], ["kill", app], ["wait", app],
                                         ["pool", "status"], ["pool", "stop", "--force"], ["exec", app, "worker:0", "--", "id"])]
    commands += [["/tony/tony", "status", app], ["/tony/tony", "stop", app], ["systemctl", "--no-ask-password", "stop", "user@1000.service"],
                 ["loginctl", "--no-ask-password", "terminate-user", "user"], ["loginctl", "--no-ask-password", "disable-linger", "user"]]
    did = victim.attack(files=files, sockets=sockets, directories=victim.lines("find ~/.tony /run/user/1000/tony -type d"), pids=list(map(int, pids)),
                        writes=[g for g in groups if g.rpartition("/")[2] in ("cgroup.procs", "cgroup.kill", "cgroup.freeze", "memory.max")],
                        secrets=[KEY], commands=commands)
    assert not did, "\n".join(did)
    assert victim.state(app) == "RUNNING"
    victim.release(app)
    ended = victim.lines(f"find ~/.tony/history/{app} -type f")
    assert ended and not victim.attack(files=ended, directories=[f"/home/user/.tony/history/{app}"])


@pytest.mark.parametrize("framework,variable", [("horovod", "HOROVOD_GLOO_RENDEZVOUS_PORT"), ("pytorch", "MASTER_PORT"), ("mpi", "PMI_PORT")])
def test_nobody_else_is_a_rank(victim, framework, variable):
    app = victim.gated(f"echo ${variable}", framework=framework)
    port = victim.sh("cat port1").rpartition(":")[2]
    assert port.isdigit(), port
    did = victim.attack(ports=[int(port)], texts=FIRST_BYTES)
    assert not did, did
    if framework == "horovod":
        victim.machine.write("user", "own.py", OWN)
        said = victim.sh(f"python3 own.py {port}")
        assert "200 OK" in said and said.endswith("right"), said
    assert "a process of user 1001 tried to connect" in victim.sh(f"cat $(find ~/.tony/jobs/{app} -name executor.log)")
    assert victim.state(app) == "RUNNING"
    victim.release(app)


def test_the_socket_of_a_task(victim):
    """Another user cannot use it, although it is an abstract socket, which has no mode."""
    app = victim.gated("echo $TONY_TASK_SOCKET")
    names = [victim.sh(f"cat port{i}").lstrip("@") for i in range(2)]
    assert all(names) and not victim.attack(abstract=names)
    assert all(t["step"] != 4711 for t in victim.json("status", app)["tasks"])
    victim.release(app)


def test_claims_on_gpus(victim):
    """A claim file that no process has locked is no claim. If a process of another user has locked it, the job's
    status names this process, and the job runs after its end."""
    victim.machine.ssh("other", "touch /tmp/tony-gpu-0-0 /tmp/tony-gpu-1-0; chmod 666 /tmp/tony-gpu-*; mkdir /tmp/tony-gpu-0-1; ln -s /etc/passwd /tmp/tony-gpu-1-2")
    victim.sh("TONY_NVML=/tony/libfake_nvml.so FAKE_GPUS=2 tony pool start")
    app = victim.gated("echo $CUDA_VISIBLE_DEVICES", role={"gpus": 1})
    assert sorted(victim.lines("cat port0 port1")) == ["0", "1"]
    claims = victim.lines("find /tmp -maxdepth 1 -name 'tony-gpu-*' -user user")
    assert len(claims) == 2, claims
    did = victim.attack(files=claims)
    assert not did, did
    victim.release(app)
    victim.wait_for(lambda: not victim.sh("find /tmp -maxdepth 1 -name 'tony-gpu-*' -user user"), "the claims are gone")
    pid, _ = victim.background("other", CLAIM, 1, "/tmp")
    app = victim.submit("", roles={"worker": {"instances": 2, "memory": "32m", "gpus": 1, "command": "true"}})

    text = f"GPU 1 is used by another job of this machine (user 1001, process {pid}, python3)"
    for command in ("status", "why"):
        victim.wait_for(lambda: text in " ".join(victim.tony(command, app).split()), f"tony {command} says who holds the GPU")
    assert victim.state(app) not in ("SUCCEEDED", "FAILED", "KILLED")
    victim.machine.ssh("other", f"kill -9 {pid}")
    assert victim.over(app)["state"] == "SUCCEEDED"


def test_a_port_that_was_reserved(victim):
    """The kernel lets another user listen at a port that is reserved for a task. tony does not take that for the task's TensorBoard."""
    app = victim.gated("echo ${TB_PORT:-none}", framework="tensorflow")
    ports = [p for p in victim.lines("cat port0 port1") if p.isdigit()]
    assert ports
    first, out = victim.background("other", LISTEN, ports[0])
    assert first == "bound"
    victim.wait_for(lambda: victim.machine.out("other", f"grep -c connected {out} || true") not in ("", "0", "1"), "tony does not believe it")
    assert victim.json("status", app)["tensorboard"] is None
    assert "connected b''" in victim.machine.out("other", f"cat {out}")
    victim.release(app)


def test_the_same_names(victim):
    """
    The other user owns the usual directory of sockets before the first job, gives the own processes the names of tony's,
    and runs a job with the id of the victim's. Each sees and stops only the own job.
    """
    machine = victim.machine
    machine.ssh("root", "rm -rf /tmp/tony-*")
    machine.ssh("other", "mkdir -m 777 /tmp/tony-1000; mkdir -m 777 /tmp/tony-1000/pool; touch /tmp/tony-1000/last-start")
    app = victim.gated()
    other = Jobs(machine, "other")
    start = victim.sh("cat ~/.tony/pool/start")
    other.sh(f"mkdir -p -m 700 .tony/pool; echo {start} > .tony/pool/start")
    try:
        same, pid = other.running()
        assert same == app, "the test makes the same id"
        other.sh(f"(exec -a 'tony-keeper {app}' sleep 100000) > /dev/null 2>&1 < /dev/null & "
                 f"TONY_APPLICATION_ID={app} setsid bash -c 'exec -a \"tony-master --epoch 1 {app}\" sleep 100000' > /dev/null 2>&1 < /dev/null & "
                 f"true")
        for jobs in (victim, other):
            found = jobs.json("list")["jobs"]
            assert [(j["application_id"], j["state"]) for j in found] == [(app, "RUNNING")], found
        assert len(victim.json("status", app)["tasks"]) == 2 and len(other.json("status", app)["tasks"]) == 1
        # the master of the victim dies: the pool looks for what is left of the job, and finds only the own processes
        old = victim.sh("pgrep -u user -x tony-master")
        victim.sh(f"kill -9 {old}")
        victim.wait_for(lambda: victim.sh("pgrep -u user -x tony-master || true") not in ("", old), "another master")
        victim.wait_for(lambda: victim.state(app) == "RUNNING", "it has taken over")
        assert other.state(app) == "RUNNING" and other.sh(f"ps -o pid= -p {pid}")
        other.tony("stop", app)
        assert other.over(app)["state"] == "KILLED"
        assert victim.state(app) == "RUNNING"
    finally:
        other.sh("tony pool stop --force; rm -rf ~/.tony ~/started* ~/job*; true")
    victim.release(app)
