# SPDX-License-Identifier: Apache-2.0
"""Control groups v2: for root, for an ordinary user with and without lingering, and in a container."""

import pytest
from conftest import Jobs

HOG = "cat /proc/self/cgroup; python3 -c 'bytearray(300 << 20)'"
LOOK = "G=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); cat $G/memory.max $G/cpu.weight $G/memory.oom.group"

# Holds 80 MB, uses CPU time itself and in a child that ends, and writes 20 MB. Then it prints what the kernel has counted:
# CPU time of the group in microseconds, the most memory of the group, and the bytes that it has written to the disk.
BUSY = """
import os, subprocess, sys
held = bytearray(80 << 20)
subprocess.run([sys.executable, "-c", "for i in range(5000000): pass"], check=True)
for i in range(5000000): pass
with open("/var/tmp/busy", "wb") as f:
    f.write(os.urandom(20 << 20))
    os.fsync(f.fileno())
os.remove("/var/tmp/busy")
group = "/sys/fs/cgroup" + open("/proc/self/cgroup").read().strip().split(":", 2)[2]
cpu = dict(line.split() for line in open(group + "/cpu.stat"))["usage_usec"]
peak = open(group + "/memory.peak").read().strip()
io = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())
print(cpu, peak, io["write_bytes"])
"""

# At the root of a cgroup namespace, as in a container; systemd cannot be seen.
CONTAINER = """
mkdir -p /sys/fs/cgroup/box; echo $$ > /sys/fs/cgroup/box/cgroup.procs
exec unshare -C -m sh -c 'umount -l /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; mount -t tmpfs none /run
export TONY_HOME=/root/box; cd /root
tony doctor --json; echo ---; tony run %s; echo "code $?"; tony logs last; tony run %s; tony logs last; tony pool stop'
"""


def cgroups(jobs):
    return next(c for c in jobs.json("doctor")["checks"] if c["name"] == "cgroups")


def enforced(jobs):
    """Checks that the kernel enforces the limits of a job, and that the groups are removed afterwards."""
    app = jobs.submit(HOG, memory="96m")
    assert jobs.over(app)["state"] == "FAILED"
    assert "ran out of memory" in jobs.tony("status", app)
    group = jobs.tony("logs", app)
    assert "/tony-" in group and ".scope/" in group
    app = jobs.submit(LOOK, roles={"worker": {"instances": 1, "memory": "64m", "vcores": 2, "command": LOOK}})
    assert jobs.over(app)["state"] == "SUCCEEDED"
    assert jobs.tony("logs", app).split("\n")[-3:] == [str(64 << 20), "200", "1"]
    jobs.wait_for(lambda: not jobs.machine.out("root", "find /sys/fs/cgroup -type d -name '[0-9]*_[0-9]*'"), "the groups are gone")


def test_a_user_who_lingers(user):
    user.machine.ssh("root", "loginctl enable-linger user")
    try:
        assert cgroups(user)["state"] == "ok"
        enforced(user)
        assert 'cgroup=v2' in user.sh("cat ~/.tony/pool/pool.log")
    finally:
        user.tony("pool", "stop")
        user.machine.ssh("root", "loginctl disable-linger user")


def test_a_user_without_lingering(user):
    """Memory is sampled: a task that exceeds its limit is killed all the same, and doctor says what to do."""
    found = cgroups(user)
    assert found["state"] == "note" and "loginctl enable-linger" in found["hint"]
    app = user.submit("python3 -c 'import time; x = bytearray(300 << 20); time.sleep(100)'", memory="96m")
    assert user.over(app)["state"] == "FAILED"
    assert "memory" in user.tony("status", app)


def measured(jobs):
    """Checks that the metrics at the end of a task are what the kernel has counted."""
    jobs.machine.write(jobs.user, "busy.py", BUSY)
    app = jobs.submit("python3 $HOME/busy.py", memory="256m", conf={"tony.task.metrics-interval-ms": 200})
    doc = jobs.over(app)
    assert doc["state"] == "SUCCEEDED", jobs.tony("logs", app)
    cpu_us, peak, written = map(int, jobs.tony("logs", app, "--stdout").split())
    found = doc["tasks"][0]["metrics"]
    # the program ends after its last look, which takes longer on a busy machine
    assert cpu_us / 1000 - 20 <= found["cpu_ms"] <= 1.1 * cpu_us / 1000 + 500
    assert 80 << 20 < found["memory_peak_bytes"] <= peak * 1.05
    assert 20 << 20 <= written <= found["written_bytes"] <= written + (4 << 20)


def test_root(machine):
    root = Jobs(machine, "root")
    try:
        assert cgroups(root)["state"] == "ok"
        enforced(root)
        measured(root)
    finally:
        root.sh("tony pool stop; rm -rf ~/.tony")


def test_a_crew(machine):
    """One process has the executors of ten tasks. What a task leaves dies with it, and only that."""
    root = Jobs(machine, "root")
    command = ("setsid sleep 7321 & echo $PPID > $HOME/up.new$TASK_INDEX; mv $HOME/up.new$TASK_INDEX $HOME/up$TASK_INDEX; "
               "until [ -e $HOME/go$TASK_INDEX ]; do sleep 0.1; done")

    def left():
        return len(root.sh("pgrep -f '^sleep 7321' || true").split())
    try:
        app = root.submit(command, roles={"worker": {"instances": 10, "memory": "16m", "vcores": 0, "command": command}})
        root.wait_for(lambda: root.sh("ls | grep -c '^up[0-9]' || true").strip() == "10", "the tasks run")
        assert len(set(root.sh("cat up[0-9]").split())) == 1, "they have one executor process"
        root.wait_for(lambda: left() == 10, "the processes that they leave")
        root.sh("touch go7")
        root.wait_for(lambda: left() < 10, "worker:7 is over")
        assert left() == 9
        root.sh("for i in 9 8 6 5 4 3 2 1 0; do touch go$i; done")
        assert root.over(app)["state"] == "SUCCEEDED"
        root.wait_for(lambda: left() == 0, "no process is left")
    finally:
        root.sh("tony pool stop --force; rm -rf ~/.tony ~/up* ~/go*")


@pytest.mark.parametrize("n", [1, 10], ids=["one", "a_crew"])
def test_a_restart(machine, n):
    """Each attempt leaves a process, which is killed before the next attempt starts in the same group."""
    root = Jobs(machine, "root")
    command = "setsid sleep 7322 & grep -c tony- /proc/self/cgroup >> $HOME/ran$TASK_INDEX; [ $TONY_ATTEMPT = 3 ]"
    role = {"instances": n, "memory": "16m", "vcores": 0, "command": command, "restart": "on-failure", "max-restarts": 2}
    try:
        doc = root.over(root.submit(command, roles={"worker": role}))
        assert doc["state"] == "SUCCEEDED", doc
        assert [t["attempt"] for t in doc["tasks"]] == [3] * n
        assert root.sh("cat ran*").split() == ["1"] * 3 * n, "each attempt ran once, in a group of tony's"
    finally:
        root.sh("tony pool stop --force; rm -rf ~/.tony ~/ran*")


OWN_GROUP = """g=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup); mkdir -p $g/own/deeper
setsid sh -c "echo \\$\\$ > $g/own/deeper/cgroup.procs; exec sleep 7323" &
until grep -q . $g/own/deeper/cgroup.procs; do sleep 0.1; done; echo $g >> $HOME/ran$TASK_INDEX"""


@pytest.mark.parametrize("n", [1, 10], ids=["one", "a_crew"])
def test_groups_that_a_task_makes(user, n):
    """The user of the task may make groups below its own. The process that it leaves there dies with it, and the groups go."""
    user.machine.ssh("root", "loginctl enable-linger user")
    try:
        role = {"instances": n, "memory": "16m", "vcores": 0, "command": OWN_GROUP}
        doc = user.over(user.submit("", roles={"worker": role}))
        assert doc["state"] == "SUCCEEDED", doc
        groups = user.sh("cat ran*").split()
        assert len(groups) == n and all("/tony-" in g for g in groups), groups
        assert user.sh("pgrep -f '^sleep 7323' || true") == ""
        user.wait_for(lambda: not user.machine.out("root", "find /sys/fs/cgroup -type d -name own"), "the groups are gone")
    finally:
        user.sh("tony pool stop --force; rm -f ~/ran*; true")
        user.machine.ssh("root", "loginctl disable-linger user")


@pytest.mark.usefixtures("machine")
def test_a_container(machine):
    root = Jobs(machine, "root")
    hog, look = (machine_job(root, command) for command in (HOG, LOOK))
    out = root.sh(CONTAINER % (hog, look))
    assert '"state": "ok"' in out.partition("---")[0] and "code 1" in out
    assert "0::/tony-0/" in out and f"{64 << 20}\n" in out


def machine_job(jobs, command):
    """Writes a job file, and returns its name."""
    jobs.n += 1
    text = f"name: test\nframework: generic\nroles:\n  worker: {{instances: 1, memory: 64m, command: {command!r}}}\n"
    jobs.machine.write(jobs.user, f"box{jobs.n}.yaml", text)
    return f"box{jobs.n}.yaml"
