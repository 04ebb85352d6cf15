# SPDX-License-Identifier: Apache-2.0
"""
A crew: one process with the executors of up to 16 plain tasks. Each task is started, stopped, watched and ended on
its own; only the death of the process is common to all.
"""

import glob
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from conftest import wait_until
from lib_jobs import Gated, alive, ended, kill9, lab, make_lab  # noqa: F401 (fixtures)
from test_processes import pids_in
from test_restart import Runs

N = 20
FREE = {"memory": "16m", "vcores": 0}


@pytest.fixture
def crews(lab):
    """The keeper makes crews only where it can make control groups."""
    app = lab.submit(lab.workers("true"))
    lab.in_history(app)
    if "keeper.no_cgroups" in (lab.dir(app) / "keeper.log").read_text():
        pytest.skip("no control groups can be made here")
    return lab


def by_executor(lab, pids):
    """{executor: [numbers of its tasks]}"""
    found = {}
    for i, pid in enumerate(pids):
        found.setdefault(lab.executor_of(pid), []).append(i)
    return found


def test_twenty_tasks_have_two_executors_and_ends_of_their_own(crews):
    lab = crews
    job = Gated(lab, N, role=FREE).running()
    found = by_executor(lab, [job.pid(i) for i in range(N)])
    assert sorted(len(v) for v in found.values()) == [10, 10]
    assert set(lab.pids("executor", job.app)) == set(found)
    for executor, tasks in found.items():
        line = Path(f"/proc/{executor}/cmdline").read_text().rstrip("\0")
        assert line == f"tony-executor worker:{tasks[0]} and 9 others of {job.app}"[:len(line)] and "others" in line
    for i in range(N - 1, 0, -1):
        job.release(i, i % 2 * i)
    wait_until(lambda: job.recorded("attempt_ended") == N - 1, "each end is told while the chief still runs")
    job.release(0)
    job.over("SUCCEEDED")
    assert job.codes() == [i % 2 * i for i in range(N)]
    job.started_once()
    lab.settled()


def test_seven_tasks_have_an_executor_each(crews):
    job = Gated(crews, 7, role=FREE).running()
    assert len(by_executor(crews, [job.pid(i) for i in range(7)])) == 7
    job.release_all()
    job.over()


def test_the_death_of_a_crew_is_no_failure_of_its_tasks(crews):
    """
    No task may restart after a failure of its own. Those of the killed process were lost, so they restart;
    the others run on.
    """
    lab = crews
    job = Runs(lab, {"worker": {**FREE, "instances": N}}, conf={"tony.task.restarts.node-lost": 1})
    pids = [job.pid(f"worker:{i}") for i in range(N)]
    found = by_executor(lab, pids)
    victim = next(iter(found))
    kill9(victim)
    for i in found[victim]:
        ended(pids[i])
        job.env(f"worker:{i}", 2)
    others = [i for i in range(N) if i not in found[victim]]
    assert all(job.ran(f"worker:{i}") == [1] and alive(pids[i]) for i in others)
    for i in reversed(range(N)):
        job.ends(f"worker:{i}", 1 if i in others else 2, 0)
    doc = job.over()
    assert doc["restarts"] == len(found[victim])
    told = [e["detail"] for e in lab.journal(job.app) if "executors of 9 other tasks were in the same process" in e.get("detail", "")]
    assert len(told) == 10 and "killed by signal 9 (SIGKILL)" in told[0], told
    lab.settled()


def test_a_new_gang_of_a_crew_has_its_new_addresses(crews):
    """The executors of a crew share what they have read of the cluster spec. It changes with each generation."""
    lab = crews
    tasks = [f"worker:{i}" for i in range(N)]
    job = Runs(lab, {"worker": {**FREE, "instances": N, "restart": "on-failure", "restart-scope": "job"}})
    specs = []
    for generation in (1, 2, 3):
        envs = [job.env(t, generation) for t in tasks]
        specs.append(json.loads(envs[0]["CLUSTER_SPEC"])["worker"])
        assert {e["CLUSTER_SPEC"] for e in envs} == {Path(envs[0]["TONY_SPEC_FILE"]).read_text().strip()}
        assert [e["TONY_ADDRESS"] for e in envs] == specs[-1]
        if generation < 3:
            job.ends(f"worker:{N - 1}", generation, 1)
    assert not set(specs[0]) & set(specs[1]) and not set(specs[1]) & set(specs[2])
    for t in tasks:
        job.ends(t, 3, 0)
    job.over()
    lab.settled()


def test_a_task_cannot_end_its_crew(crews):
    """worker:3 sends TERM to its parent. The signal ends no task."""
    lab = crews
    job = Gated(lab, 9, before="[ $TASK_INDEX != 3 ] || kill $PPID;", role=FREE).running()
    log = lab.dir(job.app) / "keeper.log"
    wait_until(lambda: "crew.signal_ignored signal=15" in log.read_text(), "the crew has ignored the signal")
    for i in range(8, 0, -1):
        job.release(i)
        assert alive(job.pid(0))
    job.release(0)
    job.over()
    job.started_once()
    lab.settled()


@pytest.mark.parametrize("leave", [
    "setsid sh -c 'echo $$ >> $0; exec sleep 100' $f &",
    "(setsid sh -c 'trap \"\" TERM HUP; echo $$ >> $0; while :; do sleep 0.05; done' $f &)",
    "env -i setsid -f sh -c 'echo $$ >> $0; exec sleep 100' $f",
    # in a control group that the task has made below its own
    """setsid sh -c 'm=$(sed -n "s/^[0-9]*:memory://p" /proc/self/cgroup); g=/sys/fs/cgroup/memory$m
[ "$m" ] || g=/sys/fs/cgroup$(sed -n "s/^0:://p" /proc/self/cgroup)
mkdir -p $g/own/deeper; echo $$ > $g/own/deeper/cgroup.procs; echo $$ >> $0; exec sleep 100' $f &""",
])
def test_daemons_die_with_their_task_and_only_they(crews, leave):
    """worker:1 to worker:9 each leave a process behind. The end of a task kills the process of this task, and no
    other one."""
    lab = crews
    f = lab.base / "left"
    f.mkdir()
    job = Gated(lab, 10, before=f"f={f}/$TASK_INDEX; if [ $TASK_INDEX != 0 ]; then\n{leave}\nfi\n", role=FREE).running()
    left = {i: pids_in(f / str(i), 1)[0] for i in range(1, 10)}
    for i in range(9, 0, -1):
        job.release(i, 0)
        ended(left[i], f"the process that worker:{i} left")
        assert all(alive(left[k]) for k in range(1, i)), "those of the other tasks run"
    job.release(0)
    job.over()
    lab.settled()


def test_a_stop_asks_the_processes_of_the_task_only(crews):
    """One task exceeds its time limit. TERM reaches this task and its child, and no other task."""
    lab = crews
    job = Gated(lab, 10, before="(trap 'echo TERM >> child$TASK_INDEX; exit' TERM; echo > ready$TASK_INDEX; "
                                "while :; do sleep 0.02; done) & trap 'echo TERM >> own$TASK_INDEX; wait; exit 3' TERM; "
                                "until [ -e ready$TASK_INDEX ]; do sleep 0.01; done; echo > both$TASK_INDEX;",
                role=FREE, conf={"tony.task.kill-grace-ms": 600000}).running()
    for i in range(10):
        wait_until((job.dir / f"both{i}").exists, "the traps are set")
    lab.ok("kill", job.app)
    job.over("KILLED")
    for i in range(10):
        assert (job.dir / f"child{i}").read_text() == "TERM\n", "each process got it once"
        assert (job.dir / f"own{i}").read_text() == "TERM\n"
    lab.settled()


def test_a_task_of_a_crew_can_be_killed_alone(crews):
    """kill -9 of one task restarts it in its container, and no other."""
    job = Runs(crews, {"worker": {**FREE, "instances": 9, "restart": "on-failure"}})
    pids = [job.pid(f"worker:{i}") for i in range(9)]
    box = job.env("worker:4")["TONY_CONTAINER_ID"]
    kill9(pids[4])
    assert job.env("worker:4", 2)["TONY_CONTAINER_ID"] == box
    assert crews.executor_of(job.pid("worker:4", 2)) == crews.executor_of(pids[5])
    for i in reversed(range(9)):
        job.ends(f"worker:{i}", 2 if i == 4 else 1, 0)
    assert job.over()["restarts"] == 1
    assert all(job.ran(f"worker:{i}") == [1] for i in range(9) if i != 4)
    crews.settled()


def test_a_crew_survives_the_master_and_dies_with_the_keeper(crews):
    lab = crews
    job = Gated(lab, N, role=FREE, conf={"tony.task.restarts.node-lost": 3}).running()
    pids = [job.pid(i) for i in range(N)]
    master = job.kill("master")
    lab.one("master", job.app, other_than=master)
    assert all(alive(pid) for pid in pids)
    job.release(5, wait=False)
    wait_until(lambda: job.recorded("attempt_ended") == 1, "the next master hears of an end")
    assert all(alive(pid) for i, pid in enumerate(pids) if i != 5)
    keeper = job.kill("keeper")
    for pid in pids:
        ended(pid)
    lab.one("keeper", job.app, other_than=keeper)
    for i in range(N):
        if i != 5:
            wait_until(lambda: len(job.starts(i)) == 2, f"worker:{i} runs again")  # noqa: B023
    for i in reversed(range(N)):
        if i != 5:
            job.release(i)
    job.over()
    lab.settled()


def test_a_stopped_crew_is_lost(crews):
    """A crew that hangs sends no heartbeats: its tasks run again elsewhere, and it is killed."""
    lab = crews
    job = Runs(lab, {"worker": {**FREE, "instances": 10}},
               conf={"tony.task.heartbeat-interval-ms": 200, "tony.task.max-missed-heartbeats": 10, "tony.task.kill-grace-ms": 200})
    pids = [job.pid(f"worker:{i}") for i in range(10)]
    executor = lab.executor_of(pids[0])
    os.kill(executor, signal.SIGSTOP)
    for i in range(10):
        job.env(f"worker:{i}", 2)
    ended(executor)
    for pid in pids:
        ended(pid)
    for i in reversed(range(10)):
        job.ends(f"worker:{i}", max(job.ran(f"worker:{i}")), 0)
    job.over()
    lab.settled()


def test_streams_of_a_crew(crews):
    """`tony exec` in one task of a crew; its processes end with that task, and those in another task do not."""
    lab = crews
    job = Gated(lab, 9, role=FREE).running()
    out = lab.ok("exec", job.app, "worker:3", "--", "sh", "-c", "echo $TASK_INDEX; cat /proc/self/cgroup")
    assert out.splitlines()[0] == "3"
    own = Path(f"/proc/{job.pid(3)}/cgroup").read_text().splitlines()
    assert set(x for x in own if "memory" in x or x.startswith("0::")) <= set(out.splitlines())
    f = lab.base / "in_exec"
    f.mkdir()
    clients = {i: lab.start("exec", job.app, f"worker:{i}", "--", "sh", "-c", f"echo $$ > {f}/{i}; exec sleep 1000") for i in (3, 4)}
    inner = {i: pids_in(f / str(i), 1)[0] for i in (3, 4)}
    job.release(3)
    ended(inner[3])
    assert alive(inner[4]) and alive(job.pid(4))
    job.release(4)
    ended(inner[4])
    for client in clients.values():
        client.wait(timeout=60)
    for i in (8, 7, 6, 5, 2, 1, 0):
        job.release(i)
    job.over()
    lab.settled()


def test_a_stream_of_a_crew_hears_of_the_stop(crews):
    lab = crews
    job = Gated(lab, 9, role=FREE, conf={"tony.task.kill-grace-ms": 600000}).running()
    f = lab.base / "in_exec"
    client = lab.start("exec", job.app, "worker:3", "--", "sh", "-c", f"echo $$ > {f}; exec sleep 1000")
    pids_in(f, 1)
    lab.ok("kill", job.app)
    assert client.wait(timeout=60) == 4, "not the exit code of the command, which was stopped as well"
    job.over("KILLED")
    lab.settled()


def test_memory_is_that_of_the_task(crews):
    """A task that exceeds its memory is killed; the other tasks of its crew are not."""
    lab = crews
    job = Gated(lab, 9, before="[ $TASK_INDEX != 2 ] || python3 -c \"x = bytearray(200 << 20)\";", role=FREE)
    wait_until(lambda: job.recorded("attempt_ended") == 1, "worker:2 is killed")
    tasks = lab.tasks(job.app)
    assert tasks["worker:2"]["reason"] == "out_of_memory", tasks["worker:2"]
    for i in (8, 7, 6, 5, 4, 3, 1, 0):
        job.release(i)
    job.over("SUCCEEDED", "FAILED")
    lab.settled()


def test_a_source_directory_is_copied_by_executors_of_their_own(crews, tmp_path):
    """A task whose source directory must be copied is in no crew: the other tasks of a crew would wait for the
    copy."""
    (tmp_path / "hello").write_text("hello\n")
    job = Gated(crews, 9, role=FREE, src=str(tmp_path)).running()
    assert len(by_executor(crews, [job.pid(i) for i in range(9)])) == 9
    job.release_all()
    job.over()


def test_a_checkpoint_directory_is_watched_by_executors_of_their_own(crews):
    """Such a task is in no crew: its executor reads the directory twice a second, which takes long for a large
    directory or on a slow disk."""
    job = Gated(crews, 9, role=FREE, conf={"tony.task.checkpoint-dir": "saved", "tony.task.checkpoint-pattern": "step-([0-9]+)"}).running()
    assert len(by_executor(crews, [job.pid(i) for i in range(9)])) == 9
    job.release_all()
    job.over()


def test_a_warning_is_not_in_the_log_of_another_task(crews):
    """worker:3 warns into its executor.log. Then worker:5, whose log directory cannot be made, warns as well."""
    lab = crews
    job = Runs(lab, {"worker": {**FREE, "instances": 9, "restart": "on-failure"}}, conf={"tony.task.restarts.node-lost": 20})
    pids = [job.pid(f"worker:{i}") for i in range(9)]
    assert len(by_executor(lab, pids)) == 1
    logs = lab.dir(job.app) / "logs"
    leave_group(job, pids[3], job.env("worker:3")["TONY_CONTAINER_ID"])
    job.ends("worker:3", 1, 1)
    log = logs / "worker-3" / "2" / "executor.log"
    wait_until(lambda: log.exists() and "task.no_cgroup" in log.read_text(), "worker:3 warns that its control group is gone")
    shutil.rmtree(logs / "worker-5")
    (logs / "worker-5").touch()
    job.ends("worker:5", 1, 1)
    wait_until(lambda: "cannot make the log files" in (lab.dir(job.app) / "keeper.log").read_text() + log.read_text(), "worker:5 warns")
    assert "worker-5" not in log.read_text()
    lab.ok("kill", job.app)
    job.over("KILLED")
    lab.settled()


def leave_group(job, pid, container):
    """Move the processes of a task out of its control group, and remove the group."""
    number = "_".join(container.split("_")[-2:])
    group = Path(next(iter(glob.glob(f"/sys/fs/cgroup/**/{job.app.removeprefix('application_')}/{number}", recursive=True))))
    root = Path("/sys/fs/cgroup/memory" if str(group).startswith("/sys/fs/cgroup/memory/") else "/sys/fs/cgroup")

    def removed():
        try:
            for one in {pid, *map(int, (group / "cgroup.procs").read_text().split())}:
                (root / "cgroup.procs").write_text(str(one))
            group.rmdir()
        except PermissionError:
            pytest.skip("processes cannot be moved out of the group here")
        except OSError:  # a process has ended, or was started meanwhile
            return False
        return True
    wait_until(removed, "the group is removed")
