# SPDX-License-Identifier: Apache-2.0
"""
The recorded series of a task with a tree of processes, beside what the test reads from /proc. At each mark the tree
stands still, so the values do not depend on when tony measures.
"""

import os
import pathlib
import time

import pytest
from conftest import wait_until
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)
from test_metrics import FAST
from test_progress import Talk

MIB = 1 << 20
MARKS, CPU_MS, HELD, WRITTEN = 3, 200, 20 * MIB, 8 * MIB
NAMES = ("cpu_ms", "memory_bytes", "read_bytes", "written_bytes", "threads")
TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")

# The first process has a child, which has one too. For each line from above a process passes it on and waits for the
# answer; then it does its part: CPU time, memory that it keeps, bytes to the disk. The first one also has a child do so
# that ends. Each waits in a read() for the next line.
TREE = f"""
import subprocess, tempfile
WORK = '''
import os, subprocess, sys, tempfile, time
held = []
def work():
    end = time.process_time() + {CPU_MS / 1000}
    while time.process_time() < end: pass
    held.append(bytearray(b"x" * {HELD}))
    with tempfile.TemporaryFile(dir="/var/tmp") as f:
        f.write(bytes({WRITTEN})); f.flush(); os.fsync(f.fileno())
'''
MAIN = '''
depth = int(sys.argv[1])
below = depth and subprocess.Popen([sys.executable, "-c", sys.argv[2], str(depth - 1), sys.argv[2]], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, bufsize=0)
while line := sys.stdin.buffer.readline():
    if below: below.stdin.write(line); below.stdout.readline()
    work()
    os.write(1, b"done\\\\n")
'''
exec(WORK)
code = WORK + MAIN
below = subprocess.Popen([sys.executable, "-c", code, "1", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
for mark in range({MARKS}):
    subprocess.run([sys.executable, "-c", WORK + "work()"], check=True)
    below.stdin.write(b"go\\n"); below.stdout.readline()
    work()
    print("mark", mark, flush=True)
    wait()
below.stdin.close(); below.wait()
"""


def tree(root):
    """The process and its descendants, by their parents in /proc."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents[int(entry)] = int(pathlib.Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    found = [root]
    for pid in found:
        found += [p for p, parent in parents.items() if parent == pid]
    return found


def of_proc(pids):
    """The figures of all processes from /proc, and whether all of them wait in a read()."""
    sums = dict.fromkeys(("cpu_ms", "memory_bytes", "anonymous", "read_bytes", "written_bytes", "threads", "awake"), 0)
    for pid in pids:
        d = pathlib.Path("/proc", str(pid))
        fields = (d / "stat").read_text().rsplit(")", 1)[1].split()
        status = dict(line.split(":", 1) for line in (d / "status").read_text().splitlines())
        io = dict(line.split(": ") for line in (d / "io").read_text().splitlines())
        sums["cpu_ms"] += sum(map(int, fields[11:15])) * TICK_MS
        # tony reads the same field. The kernel counts pages on each CPU, and only "status" and "statm" add all of them up.
        sums["memory_bytes"] += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        sums["anonymous"] += int(status["RssAnon"].split()[0]) * 1024
        sums["read_bytes"] += int(io["read_bytes"])
        sums["written_bytes"] += int(io["write_bytes"])
        sums["threads"] += int(status["Threads"])
        sums["awake"] += fields[0] != "S"
    return sums


def agrees(name, value, said, n, groups):
    if name == "cpu_ms":  # tony asks the scheduler or the group; /proc/<pid>/stat rounds four numbers of each process down
        return abs(value - said[name]) <= 4 * n * TICK_MS
    if name == "memory_bytes" and groups:  # a group counts each page once, and pages of files
        return said["anonymous"] <= value <= said[name] + 4 * MARKS * WRITTEN
    return value == said[name]


@pytest.mark.takes(10)
@pytest.mark.parametrize("groups", [True, False])
def test_at_each_mark_the_series_are_what_proc_says(make_lab, tmp_path, groups):
    lab = make_lab(**({} if groups else {"TONY_CGROUPS": "none"}))
    t = Talk(lab, tmp_path, TREE, role={"memory": "700m"}, conf=FAST)
    seen = []

    def at(when):
        """The value of each series at this time: the last recorded one, since an unchanged value is recorded once."""
        doc = lab.json("metrics", t.app, "worker:0", *(x for name in NAMES for x in ("--name", name)))
        return {s["name"]: next((v for ms, v in reversed(s["points"]) if ms <= when and v is not None), None) for s in doc["series"]}

    for mark in range(MARKS):
        wait_until(lambda: f"mark {mark}\n" in lab.run("logs", t.app, "--stdout").stdout, "the tree has done its part", pause=0.1)
        pids = tree(lab.status(t.app)["tasks"][0]["pid"])
        assert len(pids) >= 3
        wait_until(lambda: of_proc(pids)["awake"] == 0, "the tree stands still")
        said = of_proc(pids)
        assert said["cpu_ms"] >= 4 * (mark + 1) * CPU_MS - 4 * len(pids) * TICK_MS and said["anonymous"] >= 3 * (mark + 1) * HELD
        assert said["written_bytes"] >= 4 * (mark + 1) * WRITTEN

        def agree():
            got = at(time.time() * 1000)
            return all(got.get(name) is not None and agrees(name, got[name], said, len(pids), groups) for name in NAMES)
        wait_until(agree, f"the series say {said}", pause=0.1)
        assert of_proc(pids) == said, "the tree has stood still"
        seen.append((time.time() * 1000, len(pids), said))
        t.open()
    t.over()
    for when, n, said in seen:  # the history has the same
        got = at(when)
        assert all(agrees(name, got[name], said, n, groups) for name in NAMES), (got, said)
    lab.settled()
