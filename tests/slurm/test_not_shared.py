# SPDX-License-Identifier: Apache-2.0
"""
Nodes that do not see TONY_HOME get what they need from the first node, which has to see it. Each node has its own mount namespace,
so a directory can be hidden there.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest
from lib_slurm import wait_until
from test_slurm import LONG, RESTARTS, app_of


@contextlib.contextmanager
def hidden(slurm, nodes, directory, options="mode=755"):
    """An empty directory is mounted over this one on the nodes. A node loses it with its power, too."""
    enter = [["nsenter", f"--target={slurm.processes(n)[0]}", "--pid", "--mount"] for n in nodes]
    for e in enter:
        subprocess.run([*e, "mount", "-t", "tmpfs", "-o", options, "none", directory], check=True)
    try:
        yield
    finally:
        for e in enter:
            subprocess.run([*e, "umount", "--lazy", directory], check=True)


def test_no_node_sees_the_home(tony, slurm):
    with hidden(slurm, slurm.names, tony.base):
        done = tony("run", tony.job_file("true"), ok=False, timeout=120)
    assert done.returncode not in (0, 3) and "the first node must see TONY_HOME" in done.stdout + done.stderr, done.stdout + done.stderr
    wait_until(lambda: not slurm.jobs(), "nothing is left in Slurm's queue")


def test_plan_and_submission_doubt_a_home_of_this_machine(tony, slurm):
    """Mounted after the nodes have started, so that they do not see it."""
    def planned():
        return tony("plan", path).stdout
    path = tony.job_file("true")
    tony.home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=700", "none", tony.home], check=True)
    try:
        shutil.chown(tony.home, tony.user)
        assert f"# TONY_HOME '{tony.home}' is on tmpfs, a file system of this machine. If the first node" in planned(), planned()
        done = tony("run", path, ok=False, timeout=120)
        said = done.stdout + done.stderr
        assert done.returncode not in (0, 3) and "if the first node of the job does not see it, the job fails: set TONY_HOME to" in said, said
        assert "the first node must see TONY_HOME" in said, said
    finally:
        subprocess.run(["umount", "--lazy", tony.home], check=True)
    shutil.chown(tony.home, tony.user)
    tony("run", path)  # the nodes see this one
    assert "file system of this machine" not in planned(), planned()


def test_doctor_says_which_nodes_see_the_home(tony, slurm):
    """Doctor asks the idle nodes."""
    def said():
        wait_until(slurm.is_idle, "all nodes are idle")
        checks = json.loads(tony("doctor", "--cluster", "slurm", "--json", ok=False).stdout)["checks"]
        return next((c["state"], c["value"]) for c in checks if c["name"] == "slurm nodes")
    assert said() == ("ok", "3 idle nodes can use TONY_HOME")
    with hidden(slurm, slurm.names[:1], tony.base):
        state, value = said()
        assert state == "note" and value.endswith("one of them: n1"), (state, value)
    with hidden(slurm, slurm.names, tony.base):
        state, value = said()
        assert state == "wrong" and all(n in value for n in slurm.names), (state, value)


def test_only_the_first_node_sees_the_home(tony, slurm):
    """Programs and shipped files arrive; logs are there when the job has ended."""
    (tony.base / "src").mkdir()
    (tony.base / "src/word").write_text("shipped\n")
    (tony.base / "table.csv").write_text("1,2\n")
    subprocess.run(["tar", "czf", tony.base / "data.tar.gz", "-C", tony.base / "src", "word"], check=True)
    subprocess.run(["chown", "-R", tony.user, tony.base], check=True)
    conf = {"tony.containers.resources": f"{tony.base}/table.csv,{tony.base}/data.tar.gz::data#archive"}
    with hidden(slurm, slurm.names[1:], tony.base):
        done = tony("run", "--src_dir", tony.base / "src", tony.job_file("cat word table.csv data/word; pwd", conf=conf))
        app = app_of(done)
        texts = [tony("logs", app, f"worker:{i}", "--stdout").stdout for i in range(3)]
    assert [text.splitlines()[:3] for text in texts] == [["shipped", "1,2", "shipped"]] * 3, texts
    places = [text.splitlines()[3] for text in texts]
    assert sorted(p.startswith("/tmp/tony-slurm-") for p in places) == [False, True, True], places
    on_nodes = [pathlib.Path(*pathlib.Path(p).parts[:3]) for p in places if p.startswith("/tmp/tony-slurm-")]
    wait_until(lambda: not any(d.exists() for d in on_nodes), "the directories are removed, with what is read-only in them")
    assert {p.name for p in (tony.history(app) / "nodes").glob("?.log")} == {"0.log", "1.log", "2.log"}


def test_processes_die_on_nodes_that_do_not_see_the_home(tony, slurm):
    """The next master has other ports: the nodes get its address, and their tasks run on."""
    with hidden(slurm, slurm.names[1:], tony.base):
        app = tony.submit(f"echo begins; {LONG}", conf=RESTARTS)
        tony.await_running(app, 3)
        os.kill(tony.processes("tony-master", "--cluster")[0], signal.SIGKILL)
        wait_until(lambda: tony.status(app)["epoch"] == 2, "the next master answers")
        assert [t["attempt"] for t in tony.await_running(app, 3)["tasks"]] == [1, 1, 1]
        keeper = next(p for p in tony.processes("tony-keeper") if p in slurm.processes(slurm.names[1]))
        os.kill(keeper, signal.SIGKILL)
        wait_until(lambda: tony.status(app)["restarts"] >= 1, "the task of this node is restarted")
        doc = tony.await_running(app, 3)
        assert sorted(t["attempt"] for t in doc["tasks"]) == [1, 1, 2], f"{doc}{tony.logs()}"
        tony("stop", app)
        again = next(t["task"] for t in doc["tasks"] if t["attempt"] == 2)
        assert "begins" in tony("logs", app, again, "--stdout").stdout


def test_logs_while_the_job_runs(tony, slurm):
    """The master passes on those of nodes that do not see the home, of all attempts and with --since, and to those who follow."""
    with hidden(slurm, slurm.names[1:], tony.base):
        app = tony.submit(f"echo begins $TASK_INDEX; echo bad >&2; {LONG}", conf=RESTARTS)
        tony.await_running(app, 3)
        wait_until(lambda: tony("logs", app).stdout.count("begins") == 3, "all logs are there")
        for i in range(3):
            assert tony("logs", app, f"worker:{i}", "--stdout").stdout == f"begins {i}\n"
            assert tony("logs", app, f"worker:{i}", "--stderr", "-n", "1", "--since", "1h").stdout == "bad\n"
        client = tony.start("logs", app, "--stdout", "--follow")
        assert {client.stdout.readline().split("|")[1].strip() for _ in range(3)} == {"begins 0", "begins 1", "begins 2"}
        os.kill(tony.processes("sleep 5.5")[0], signal.SIGKILL)
        assert "begins" in client.stdout.readline(), "the next attempt"
        tony("stop", app)
        assert client.wait(60) == 0


@contextlib.contextmanager
def no_room_in_tmp(slurm, nodes, *kept):
    """/tmp of the nodes has only these directories, and no inode for another one."""
    binds = "".join(f"mkdir /mnt/{d.name}; mount --rbind {d} /mnt/{d.name}; " for d in kept)
    enter = [["nsenter", f"--target={slurm.processes(n)[0]}", "--pid", "--mount"] for n in nodes]
    for e in enter:
        subprocess.run([*e, "sh", "-ec", f"mount -t tmpfs -o mode=1777,nr_inodes=20 none /mnt; {binds} mount --rbind /mnt /tmp; "
                        "i=0; while mkdir /tmp/full$i 2> /dev/null; do i=$((i + 1)); done"], check=True)
    try:
        yield
    finally:
        for e in enter:
            subprocess.run([*e, "sh", "-c", "umount --lazy /tmp; umount --lazy /mnt"], check=True)


def test_a_first_node_without_room_in_tmp_is_told(tony, slurm):
    with no_room_in_tmp(slurm, slurm.names, slurm.dir.parent, tony.base):
        done = tony("run", tony.job_file("true"), ok=False)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "cannot make a directory for sockets in /tmp" in said and "journal" not in said, said


@pytest.mark.slow
def test_a_node_without_room_in_tmp_is_named(tony, slurm):
    with no_room_in_tmp(slurm, ["n2"], slurm.dir.parent, tony.base):
        done = tony("run", tony.job_file("true", conf={"tony.slurm.nodelist": "n1"}), ok=False)
    assert done.returncode == 1, done.stdout
    assert "1 of the 3 nodes of the allocation have never connected (n2)" in done.stdout, done.stdout
    assert "node n2: cannot make a directory for sockets in /tmp" in done.stdout, done.stdout


@pytest.mark.slow
def test_nodes_that_can_get_nothing_are_told(tony, slurm):
    """They neither see TONY_HOME nor have room for what the first node would send. Slurm's own files stay in their /tmp."""
    with no_room_in_tmp(slurm, slurm.names[1:], slurm.dir.parent):
        app = tony.submit("true", conf={"tony.slurm.nodelist": slurm.names[0]})
        doc = wait_until(lambda: (d := tony.status(app)) and not d["live"] and d, "the job has failed", limit=180)
        wait_until(lambda: not slurm.jobs(), "nothing is left")
    assert doc["state"] == "FAILED" and "2 of the 3 nodes of the allocation have never connected (n2, n3)" in doc["message"], doc
    assert "those without TONY_HOME need tar and room in /tmp" in doc["message"], doc
    said = "".join(p.read_text() for p in (tony.history(app) / "nodes").glob("step-*.err"))
    assert "/tmp/tony-slurm-" in said and "No space left on device" in said, said
