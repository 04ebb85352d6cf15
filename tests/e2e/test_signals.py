# SPDX-License-Identifier: Apache-2.0
"""
Every command of `tony`, while it waits for something, and its three signals; and a reader of its output that goes away.
test_interrupt.py has Ctrl-C on a terminal.
"""

import os
import signal
import socket
import subprocess

import pytest
from conftest import wait_until
from test_interrupt import master_of, of_session, scene  # noqa: F401
from test_streams import marked, stream_processes

FIFO = "TMP/fifo.yaml"  # nobody writes to it: a command that reads it waits
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DIES = "the signal ends it"
# command: its arguments; what makes it wait (a file or its input, to which nobody writes; the master, the pool or a deaf
# ResourceManager, which does not answer; text that it shows while it waits; "": nothing, so it may end by itself); its exit
# code after a signal
COMMANDS = {
    "run": (["run", "JOB", "--output", "all"], b"ready", 3),
    "submit": (["submit", FIFO], "fifo", DIES),
    "list": (["list"], "", DIES),
    "status": (["status", "APP"], "master", DIES),
    "tasks": (["tasks", "APP"], "master", DIES),
    "metrics": (["metrics", "APP"], "master", DIES),
    "top": (["top", "APP"], "", DIES),
    "why": (["why", "APP"], "master", DIES),
    "logs": (["logs", "APP", "-f"], b"ready", DIES),
    "wait": (["wait", "APP"], "", DIES),
    "events": (["events", "APP", "-f"], b'"event":', DIES),
    "stop": (["stop", "APP"], "master", DIES),
    "kill": (["kill", "APP"], "master", DIES),
    "resize": (["resize", "APP", "worker=2"], "master", DIES),
    # not `echo ready; sleep`: dash loses an INT that comes while it starts a program
    "exec": (["exec", "APP", "worker:0", "--", "sh", "-c", "sleep 7541 & echo rea''dy; wait"], b"ready", DIES),
    "shell": (["shell", "APP", "worker:0"], "", DIES),
    "forward": (["forward", "APP", "worker:0", "0:9"], b"127.0.0.1:", 0),
    "open": (["open", "APP", "--no-browser"], b"http://127.0.0.1:", 0),
    "cp": (["cp", "APP", "TMP/big", "worker:0:whole"], "", DIES),
    "notebook": (["notebook", "--memory", "64m", "--src_dir", "TMP/src", "--python_venv", "TMP/v"], b"http://127.0.0.1:", 0),
    "init": (["init"], "", DIES),
    "azkaban": (["azkaban"], "fifo", DIES),
    "plan": (["plan", FIFO], "fifo", DIES),
    "pool": (["pool", "status"], "pool", DIES),
    "allocate": (["allocate"], "input", DIES),
    "simulate": (["simulate", FIFO], "fifo", DIES),
    "arbiter": (["arbiter", "status", "--queue", "q", "--cluster", "yarn"], "deaf", DIES),
    "doctor": (["doctor"], "", DIES),
    "version": (["version"], "", DIES),
    "completion": (["completion", "bash"], "", DIES),
    "help": (["help"], "", DIES),
}


def test_each_command_is_in_the_table(tony):
    commands = [line.split()[0] for line in tony.ok("help").partition("\nCommands\n")[2].partition("\n\n")[0].splitlines()]
    assert sorted(commands) == sorted(COMMANDS)


CHATTY = "echo ready; while sleep 0.05; do echo more; done"
# These end only with the job or by a signal, whether somebody reads what they print or not; `run` is in test_output.py.
GOES_ON = ("run", "wait", "forward", "open", "notebook", "shell")


@pytest.fixture
def deaf(tmp_path):
    """A configuration of Hadoop whose ResourceManager accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        (tmp_path / "hadoop").mkdir()
        address = f"127.0.0.1:{s.getsockname()[1]}"
        words = "".join(PROPERTY % (f"yarn.resourcemanager.{name}", address) for name in ("address", "scheduler.address"))
        (tmp_path / "hadoop/core-site.xml").write_text(XML % (PROPERTY % ("fs.defaultFS", f"hdfs://{address}")))
        (tmp_path / "hadoop/yarn-site.xml").write_text(XML % words)
        yield


PROPERTY = "<property><name>%s</name><value>%s</value></property>"
XML = "<configuration>%s</configuration>\n"


def start(lab, tmp_path, args, stdout, stderr=subprocess.STDOUT):
    words = {"APP": lab.app, "JOB": str(lab.workers(CHATTY))}
    args = [words.get(a, a.replace("TMP", str(tmp_path))) for a in args]
    env = {**lab.env, "JOB_PROP_FILE": str(tmp_path / "fifo.yaml")}
    if args[0] == "arbiter":
        env["HADOOP_CONF_DIR"] = str(tmp_path / "hadoop")
    (tmp_path / "empty").mkdir(exist_ok=True)
    return subprocess.Popen([lab.bin / "tony", *args], env=env, cwd=tmp_path / "empty", stdin=subprocess.PIPE, stdout=stdout, stderr=stderr,
                            start_new_session=True)


class Held:
    """Stops the process for whose answer the command waits, for the duration of the block."""

    def __init__(self, lab, name):
        waits = COMMANDS[name][1]
        self.pid = master_of(lab) if waits == "master" else lab.pool_pid() if waits == "pool" else None

    def __enter__(self):
        if self.pid:
            os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *_):
        if self.pid:
            os.kill(self.pid, signal.SIGCONT)


def nothing_is_left(lab, p, before, tmp_path, name):
    wait_until(lambda: not of_session(p.pid), "no process of the client is left")
    wait_until(lambda: not stream_processes(lab) and not marked(lab, lab.app, "7541"), "no stream is left")
    for app in set(lab.jobs_on_disk()) - before:
        lab.await_state(app, "KILLED")
    if name in ("stop", "kill"):  # the master may have received the request before it was stopped
        lab.run("kill", lab.app)
    elif name != "resize":
        task = lab.tasks(lab.app)["worker:0"]
        assert (task["state"], task["attempt"]) == ("running", 1), "the job goes on"
    assert not list(tmp_path.glob("**/.tony-*")) and not list(tmp_path.glob("*.new"))


@pytest.mark.takes(20)
@pytest.mark.parametrize("name", COMMANDS)
def test_signals(scene, deaf, tmp_path, name):
    args, waits, code = COMMANDS[name]
    for signo in SIGNALS:
        if name in ("stop", "kill"):
            scene.run("kill", scene.app)
            scene.app = scene.submit(scene.workers("echo ready; exec sleep 600"))
            wait_until(lambda: scene.status(scene.app)["state"] == "RUNNING", "it runs")
        before = set(scene.jobs_on_disk())
        with Held(scene, name):
            p = start(scene, tmp_path, args, subprocess.PIPE)
            said = b""
            while isinstance(waits, bytes) and waits not in said:
                more = os.read(p.stdout.fileno(), 65536)
                assert more, said
                said += more
            p.send_signal(signo)
            said += p.communicate(timeout=120)[0]
        if name == "init":
            (tmp_path / "empty/job.yaml").unlink(missing_ok=True)
        wanted = {-signo, 128 + signo} if code == DIES else {code}
        assert p.returncode in wanted or (waits == "" and p.returncode == 0), (signo, p.returncode, said)
        assert not list((tmp_path / "empty").iterdir())
        nothing_is_left(scene, p, before, tmp_path, name)


# Other arguments for some commands of the table, so that they print something.
PRINTS = {"plan": ["plan", "JOB"], "submit": ["submit", "JOB"], "exec": ["exec", "APP", "worker:0", "--", "sh", "-c", CHATTY + "; # 7541"],
          "logs": ["logs", "APP"], "events": ["events", "APP"]}


@pytest.mark.parametrize("name", [n for n in COMMANDS if n not in GOES_ON and COMMANDS[n][1] != "deaf"])
def test_a_reader_that_goes_away(scene, tmp_path, name):
    """As in `tony ... | head -1`: the command ends, without a crash."""
    args = PRINTS.get(name, COMMANDS[name][0])
    if COMMANDS[name][1] in ("fifo", "input") and name not in PRINTS:
        args = [name, "--help"]
    if name == "metrics":
        wait_until(lambda: scene.run("metrics", scene.app).returncode == 0, "the task was measured")
    before = set(scene.jobs_on_disk())
    r, w = os.pipe()
    os.close(r)  # before it starts, so that each of its writes fails
    p = start(scene, tmp_path, args, w, stderr=subprocess.PIPE)
    os.close(w)
    _, err = p.communicate(timeout=120)
    assert p.returncode in (0, 128 + signal.SIGPIPE, -signal.SIGPIPE) and b"Broken pipe" not in err, (p.returncode, err)
    for app in set(scene.jobs_on_disk()) - before:
        scene.run("kill", app)
    if name not in ("stop", "kill"):
        nothing_is_left(scene, p, before, tmp_path, name)
