# SPDX-License-Identifier: Apache-2.0
"""
Each exit is reported once, and no process outlives its task: short tasks, daemons, tasks that ignore TERM,
failures in a row.
"""

import json
import os
import signal

import pytest
from conftest import wait_until
from lib_jobs import Gated, alive, ended, lab, make_lab, stat_of  # noqa: F401 (fixtures)

FREE = {"memory": "8m", "vcores": 0}
GRACE_MS = 6000  # a busy machine may let a shell wait for several seconds


def pids_in(path, n):
    """n process ids from a file, once tasks have written them."""
    def look():
        try:
            found = path.read_text().split()
        except FileNotFoundError:
            return None
        return [int(x) for x in found] if len(found) >= n else None
    return wait_until(look, f"{n} processes have said their ids")


def test_instant_tasks_are_reported_once(lab):
    """Each of many tasks that end within a millisecond is reported once, with its own exit code."""
    command = "/bin/sh -c 'exit $(($TASK_INDEX%256))'"
    app = lab.submit(lab.workers(command, n=200, role=FREE))
    assert lab.run("wait", app).returncode == 0, "the chief succeeded"
    doc = lab.status(app)
    assert [t["exit_code"] for t in doc["tasks"]] == [i % 256 for i in range(200)]
    others = [t for t in doc["tasks"] if (t["reason"], t["attempt"]) != ("exited", 1)]
    assert not others, others
    lab.in_history(app)
    events = [r for r in lab.journal(app) if r["e"] == "attempt_ended"]
    assert len(events) == len({r["slot"] for r in events}) == 200
    exits = [json.loads(x) for x in (lab.dir(app) / "exits").read_text().splitlines()]
    codes = {x["slot"]: x["code"] for x in exits if "container" in x}
    assert codes == {i: i % 256 for i in range(200)}
    lab.settled()


def test_exit_codes_and_signals_are_reported(lab):
    codes = [*range(1, 256)]
    signals = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE,
               signal.SIGKILL, signal.SIGUSR1, signal.SIGSEGV, signal.SIGPIPE, signal.SIGALRM, signal.SIGTERM, signal.SIGXCPU, 34, 64]
    path = lab.job_file({
        "code": {**FREE, "instances": len(codes), "command": "/bin/sh -c 'exit $(($TASK_INDEX+1))'"},
        "signal": {**FREE, "instances": len(signals),
                   "command": "ulimit -c 0; set -- " + " ".join(str(int(s)) for s in signals) +
                              "; shift $TASK_INDEX; exec sh -c 'kill -$0 $$; sleep 9' $1"},
        "good": {**FREE, "instances": 1, "command": "true"}})
    app = lab.submit(path)
    assert lab.run("wait", app).returncode == 0, "one succeeded"
    tasks = lab.tasks(app)
    assert [tasks[f"code:{c - 1}"]["exit_code"] for c in codes] == codes
    assert all(tasks[f"code:{c - 1}"]["signal"] is None for c in codes)
    assert [tasks[f"signal:{i}"]["signal"] for i in range(len(signals))] == [int(s) for s in signals]
    assert all(tasks[f"signal:{i}"]["exit_code"] is None for i in range(len(signals)))
    lab.settled()


@pytest.mark.parametrize("leave", [
    "setsid sh -c 'echo $$ >> {f}; exec sleep 100' &",
    "(setsid sh -c 'echo $$ >> {f}; exec sleep 100' &) ; (setsid sh -c 'trap \"\" TERM HUP; echo $$ >> {f}; sleep 100' &)",
    "env -i setsid -f sh -c 'echo $$ >> {f}; exec sleep 100'",
    "for i in 1 2 3 4 5 6 7 8; do (setsid sh -c 'echo $$ >> {f}; while :; do sleep 0.01; done' &) ; done",
    "python3 -c \"import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nopen('{f}','a').write('%d ' % os.getpid())\ntime.sleep(100)\"",
])
def test_daemons_die_with_their_task(lab, leave):
    """Daemons that a task leaves die with it, also those in other sessions, without the job's environment, or with
    new children all the time. The task's own exit code counts."""
    f = lab.base / "left"
    n = 8 if "1 2 3" in leave else leave.count("{f}")
    job = Gated(lab, 1, before=leave.format(f=f) + "\n").running()
    left = pids_in(f, n)
    assert all(alive(pid) for pid in left)
    job.release(0, 5)
    doc = job.over("FAILED")
    assert doc["cause"]["exit_code"] == 5
    for pid in left:
        assert not alive(pid), "it was there still when the job was over"
    lab.settled()


def test_daemons_die_with_a_killed_job(lab):
    f = lab.base / "left"
    job = Gated(lab, 2, before=f"(setsid sh -c 'trap \"\" TERM; echo $$ >> {f}; while :; do sleep 1; done' &) ;",
                conf={"tony.task.kill-grace-ms": 200}).running()
    left = pids_in(f, 2)
    lab.ok("kill", job.app)
    assert not [pid for pid in left if alive(pid)]
    job.over("KILLED")
    lab.settled()


@pytest.mark.takes(6)
def test_a_task_that_ignores_term(lab):
    """The task gets TERM, and KILL after the grace. Its end is reported as a stop, not as a failure."""
    job = Gated(lab, 3, before="trap 'echo TERM >> term$TASK_INDEX' TERM; trap '' HUP INT; "
                               "[ $TASK_INDEX = 0 ] || { echo up >> up; while :; do sleep 0.05; done; };",
                conf={"tony.task.kill-grace-ms": GRACE_MS}).running()
    wait_until(lambda: (job.dir / "up").exists() and (job.dir / "up").read_text().count("up") == 2, "their traps are set")
    job.release(0, 9)
    doc = job.over("FAILED")
    assert doc["cause"]["task"] == "worker:0" and doc["cause"]["exit_code"] == 9
    tasks = {t["task"]: t for t in doc["tasks"]}
    for i in (1, 2):
        t = tasks[f"worker:{i}"]
        assert (job.dir / f"term{i}").read_text().startswith("TERM"), "it was asked first"
        assert (t["result"], t["signal"], t["reason"]) == ("FINISHED", signal.SIGKILL, "killed_by_master")
        assert t["ended_ms"] - doc["times"]["started_ms"] >= GRACE_MS
    lab.settled()


def test_the_grace_period_covers_child_processes(lab):
    """TERM also reaches the children. They may finish their work after the first process has gone."""
    job = Gated(lab, 1, before="(trap 'sleep 0.2; echo saved > saved; exit 0' TERM; echo up > up; while :; do sleep 0.02; done) & "
                               "trap 'exit 0' TERM; wait;",
                conf={"tony.task.kill-grace-ms": 600000}).running()
    wait_until((job.dir / "up").exists, "the child's trap is set")
    lab.ok("kill", job.app)
    assert (job.dir / "saved").read_text() == "saved\n"
    job.over("KILLED")
    lab.settled()


def test_zombies_are_reaped_while_the_task_runs(lab):
    """Orphaned children become children of the executor, which reaps them."""
    job = Gated(lab, 1, before="for i in $(seq 50); do (sh -c 'true' &) ; done; (sh -c 'sleep 0.05; echo all > done_' &) ;").running()
    wait_until((job.dir / "done_").exists, "the last child")
    executor = lab.executor_of(job.pid(0))

    def zombies():
        return [e for e in os.listdir("/proc") if e.isdigit() and (stat_of(e) or ("", 0)) == ("Z", executor)]
    wait_until(lambda: not zombies(), "the executor has reaped what fell to it")
    job.release(0)
    job.over()
    lab.settled()


@pytest.mark.alone("two ends in the same millisecond: which the master hears of first depends on who gets a core")
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_the_first_of_three_failures_is_named(lab, order):
    """
    Each task waits until the process of the one before has been reaped, and then fails. So the order is
    certain on any machine, and the failures are a few milliseconds apart.
    """
    d = lab.base / "chain"
    d.mkdir()
    place = " ".join(str(order.index(i)) for i in range(3))
    command = (f"set -- {place}; shift $TASK_INDEX; place=$1; cd {d}; "
               "echo $$ > tmp$place; mv tmp$place pid$place; "
               "for i in 0 1 2; do while [ ! -e pid$i ]; do sleep 0.01; done; done; "
               "if [ $place -gt 0 ]; then read before < pid$((place-1)); "
               "while [ -e /proc/$before ]; do :; done; fi; "
               "exit $((20+TASK_INDEX))")
    path = lab.job_file({"place": {"instances": 3, "command": command}},
                        conf={"tony.application.fail-on-worker-failure-enabled": True, "tony.task.kill-grace-ms": 0})
    app = lab.submit(path)
    assert lab.run("wait", app).returncode == 1
    cause = lab.status(app)["cause"]
    assert (cause["task"], cause["exit_code"]) == (f"place:{order[0]}", 20 + order[0])
    lab.settled()


def test_a_stopped_task_is_not_the_first_cause(lab):
    """A task that ends because the job is stopped is not the first cause, whatever its exit code."""
    job = Gated(lab, 6, before="trap 'exit 77' TERM; ", conf={"tony.application.fail-on-worker-failure-enabled": True})
    job.running()
    job.release(4, 44)
    doc = job.over("FAILED")
    assert (doc["cause"]["task"], doc["cause"]["exit_code"]) == ("worker:4", 44)
    others = [t for t in doc["tasks"] if t["task"] != "worker:4"]
    assert all(t["result"] == "FINISHED" for t in others), others
    assert "77" not in doc["message"]
    lab.settled()


def test_a_command_that_forks_without_end(lab):
    """
    A small fork bomb ends with its task. It doubles four times; after that each process is replaced by
    another one for ever. It may run for seconds, and must not take so much of the machine that tony cannot
    end it.
    """
    job = Gated(lab, 1, before="b() { sleep 0.1; [ $1 = 0 ] || b $(($1 - 1)) & b $(($1 > 0 ? $1 - 1 : 0)) & sleep 0.2; }; "
                               "(for i in 1 2 3; do b 4 & done) 2>/dev/null;", role={"memory": "1g"},
                conf={"tony.task.kill-grace-ms": 0}).running()
    lab.ok("kill", job.app)
    job.over("KILLED")
    lab.settled()


def test_stopped_tasks_are_killed_too(lab):
    job = Gated(lab, 1, conf={"tony.task.kill-grace-ms": 200}).running()
    os.kill(job.pid(0), signal.SIGSTOP)
    lab.ok("kill", job.app)
    job.over("KILLED")
    lab.settled()


def test_output_of_a_task_is_whole(lab):
    """Output goes to files, not pipes: text that was written stays, whichever process dies."""
    command = "seq 200000; echo end >&2; kill -9 $$"
    app = lab.submit(lab.workers(command))
    assert lab.run("wait", app).returncode == 1
    lab.in_history(app)
    assert lab.log(app, "worker:0").splitlines()[-1] == "200000"
    assert lab.log(app, "worker:0", "stderr") == "end\n"
    lab.settled()


def test_file_descriptors_and_signals_of_a_task_are_clean(lab):
    app = lab.submit(lab.workers("ls -l /proc/self/fd; cat /proc/self/status"))
    lab.run("wait", app)
    text = lab.log(app, "worker:0")
    fds = [line.split()[8] for line in text.splitlines() if "->" in line]
    assert set(fds) <= {"0", "1", "2", "3"}, "3 is the directory that ls reads"
    assert "0 -> /dev/null" in text
    status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    named = (1 << 31) - 1  # signals 32 and 33 belong to the C library
    assert int(status["SigBlk"], 16) == 0 and int(status["SigIgn"], 16) & named == 0
    lab.settled()
