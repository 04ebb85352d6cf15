# SPDX-License-Identifier: Apache-2.0
"""
tony inside a container, with control groups v2: its pool, and tasks without an image. The engine starts the container
with a group of its own that may be written (--privileged), as Kubernetes does for a privileged pod, or without one.
"""

import json

import pytest
from conftest import Jobs, machine_with
from lib_vm import ENGINES, PROGRAMS

IMAGE = "localhost/vm-tony:1"
# An image with tony, a few programs of the machine, and the libraries that they need.
MAKE_IMAGE = """set -e
cd $(mktemp -d)
mkdir -p root/bin root/etc root/tmp root/root root/usr
for p in /bin/sh /bin/bash /bin/cat /bin/sleep /bin/tr /bin/head /bin/id /bin/cut /bin/ls /bin/grep /bin/sed %s; do
    cp -L $p root/bin/; ldd $p || true
done | grep -o '/[^ ]*' | sort -u | while read f; do mkdir -p root/${f%%/*}; cp -L $f root/$f; done
echo root:x:0:0::/root:/bin/sh > root/etc/passwd
tar c -C root . | %s import - %s
"""
HOG = "x=$(cat /dev/zero | tr '\\0' x | head -c 300000000); echo ${#x}"
LOOK = "cat /proc/self/cgroup; G=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); cat $G/memory.max; umask"
# The first process of the container. What each command prints goes to a file.
SCRIPT = """cd /jobs
tony doctor --json > doctor
tony run hog.json > hog 2>&1; echo $? > hog-code
tony why last > why 2>&1
tony run look.json > look 2>&1; echo $? > look-code
tony logs last --stdout > look-said
tony pool status --json > pool
ls /sys/fs/cgroup > groups
tony pool stop; tony pool start; tony run look.json > again 2>&1; echo $? > again-code
tony pool stop
true
"""
# engine, user, options; may the groups be written?
CASES = {
    "docker-privileged": ("docker", "root", "--privileged", True),
    "docker": ("docker", "root", "", False),
    # The groups of the machine, and not only those of the container.
    "docker-host-groups": ("docker", "root", "--privileged --volume /sys/fs/cgroup:/sys/fs/cgroup:rw", False),
    "podman-privileged": ("podman", "root", "--privileged", True),
    "podman-of-a-user-privileged": ("podman", "user", "--privileged", True),
}


@pytest.fixture(scope="module")
def machine():
    for machine in machine_with(packages=ENGINES, memory_mib=2048):
        machine.ssh("root", "loginctl enable-linger user; systemctl start docker", timeout=600)
        yield machine


def make_image(jobs, engine):
    if jobs.sh(f"{engine} images --quiet {IMAGE}", timeout=600):
        return
    jobs.sh(MAKE_IMAGE % (" ".join(f"/tony/{p}" for p in PROGRAMS), engine, IMAGE), timeout=600)


@pytest.mark.parametrize("name", CASES)
def test_the_pool_in_a_container(machine, name):
    engine, user, options, writable = CASES[name]
    jobs = Jobs(machine, user)
    make_image(jobs, engine)
    jobs.sh("rm -rf jobs; mkdir jobs")
    for job, command in (("hog", HOG), ("look", LOOK)):
        doc = {"name": job, "framework": "generic", "roles": {"worker": {"instances": 1, "memory": "64m", "command": command}}}
        machine.write(user, f"jobs/{job}.json", json.dumps(doc))
    machine.write(user, "jobs/script", SCRIPT)
    jobs.sh(f"{engine} run --rm --network none {options} --volume ~/jobs:/jobs {IMAGE} /bin/sh /jobs/script", timeout=900)
    said = lambda what: jobs.sh(f"cat jobs/{what}")  # noqa: E731
    found = next(c for c in json.loads(said("doctor"))["checks"] if c["name"] == "cgroups")
    assert (found["state"] == "ok") == writable, found
    assert said("hog-code") == "1" and "memory" in said("why"), said("hog") + said("why")
    assert said("look-code") == "0" and said("again-code") == "0", said("look") + said("again")
    group, *rest = said("look-said").split("\n")
    if writable:
        assert group.startswith("0::/tony-0/") and rest[0] == str(64 << 20), said("look-said")
        assert "out of memory" in said("why"), said("why")
    else:
        assert "tony-" not in group and "--privileged" in found["hint"], found
        assert "tony-0" not in said("groups").split()
    jobs.wait_for(lambda: not machine.out("root", "find /sys/fs/cgroup -type d -name 'tony-0'"), "no group is left")
    assert jobs.sh(f"{engine} ps --all --quiet", timeout=300) == ""
