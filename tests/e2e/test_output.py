# SPDX-License-Identifier: Apache-2.0
"""`tony run` shows what the tasks write, and `tony logs` of several tasks."""

import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import threading
import time

import pytest
from conftest import app_of, wait_until
from lib_jobs import kill9, lab, make_lab  # noqa: F401 (fixtures)

SHORT = "echo out $TASK_INDEX; echo err $TASK_INDEX >&2"


def the_job(lab):
    """The id of the only job, once its directory has its name."""
    return wait_until(lambda: next((x for x in lab.jobs_on_disk() if x.startswith("application_")), None), "the job")


def lines_of(text):
    return sorted(x for x in text.splitlines() if " | " in x)


def test_all_tasks_of_a_small_job_are_shown_with_their_names(lab):
    r = lab.run("run", lab.workers(SHORT, 2))
    assert r.returncode == 0
    assert lines_of(r.stdout) == ["worker:0 | out 0", "worker:1 | out 1"]
    assert lines_of(r.stderr) == ["worker:0 | err 0", "worker:1 | err 1"]
    assert "\033" not in r.stdout + r.stderr
    # what scripts read comes last
    assert re.search(r"^job application_\S+ SUCCEEDED in ", r.stdout.splitlines()[-3])


@pytest.mark.parametrize("options, shown", [
    ([], {"worker:0"}),
    (["--output", "chief"], {"worker:0"}),
    (["--output", "all"], {f"worker:{i}" for i in range(5)}),
    (["--output", "worker:3,worker:1"], {"worker:1", "worker:3"}),
    (["--output", "none"], set()),
    (["-q"], set()),
])
def test_output_chooses_the_tasks(lab, options, shown):
    r = lab.run("run", lab.workers(SHORT, 5), *options)
    assert {x.split(" ")[0] for x in lines_of(r.stdout)} == shown
    assert r.returncode == 0 and "SUCCEEDED" in r.stdout
    if options == ["-q"]:
        assert r.stderr == "" and r.stdout.startswith("job ")


def test_the_chief_may_be_of_another_role(lab):
    job = lab.job_file({"worker": {"instances": 4, "command": "echo no"}, "chief": {"instances": 1, "command": "echo yes"}},
                       framework="tensorflow")
    assert lines_of(lab.run("run", job).stdout) == ["chief:0 | yes"]


@pytest.mark.parametrize("word, why", [("worker:x", "task index"), (":3", "is not a task"), ("wroker", "no role 'wroker'"),
                                       ("al", "no role 'al'"), ("worker:0,ps", "no role 'ps'")])
def test_a_wrong_output_is_refused_before_the_job_starts(lab, word, why):
    r = lab.run("run", lab.workers(SHORT), "--output", word)
    assert r.returncode == 2 and why in r.stderr and lab.jobs_on_disk() == []


def test_the_output_of_a_task_that_is_not_there_yet(lab):
    r = lab.run("run", lab.workers(SHORT, 2), "--output", "worker:2")
    assert r.returncode == 0 and "role 'worker' has 2 tasks: the output of worker:2 is shown if the job grows" in r.stderr


def test_json_has_standard_output_for_itself(lab):
    r = lab.run("run", lab.workers(SHORT), "--json", "--output", "all")
    assert r.stdout.startswith("{") and "worker:0 | out 0" in r.stderr


def test_output_goes_on_through_a_restart_and_another_master(lab):
    """`tony run` shows each line once and in order, although the task fails once and the master is killed while
    the task writes."""
    job = lab.workers('i=0; while [ $i -lt 60 ]; do echo $TONY_RESTART_COUNT $i; i=$((i+1)); sleep 0.02; done; [ "$TONY_RESTART_COUNT" = 1 ]',
                      role={"restart": "on-failure", "max-restarts": 1})
    p = lab.start("run", job, env={"PYTHONUNBUFFERED": "1"})
    app = the_job(lab)
    wait_until(lambda: "10" in lab.log_so_far(app, "worker:0"), "the first attempt writes")
    kill9(lab.one("master", app))
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0, err
    want = [lab.log(app, "worker:0", "stdout", n).splitlines() for n in (1, 2)]
    assert [x.split(" | ")[1] for x in out.splitlines() if " | " in x] == want[0] + want[1]


FLOOD = r"""python3 -c "
import sys, time
text = b'x' * 99 + b'\n'
for i in range(300): sys.stdout.buffer.write(text * 10000); time.sleep(0.005)
"
"""


def left_out(text):
    return sum(int(n.replace(",", "")) for n in re.findall(r"\[([\d,]+) lines? \([^)]*\) left out", text))


def test_a_flood_of_output_is_counted(lab):
    """A task writes 300 MB. Most lines are left out, and the messages about that add up to exactly their number."""
    r = lab.run("run", lab.workers(FLOOD, role={"memory": "512m"}))
    shown = [x for x in lines_of(r.stdout) if "left out" not in x]
    assert r.returncode == 0 and "more than" not in r.stdout
    assert len(r.stdout) < 8 << 20 and len(shown) + left_out(r.stdout) == 3000000
    assert shown[-1] == "worker:0 | " + "x" * 99


def peak_kib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1))


@pytest.mark.takes(10)
@pytest.mark.parametrize("read", [True, False])
def test_a_flood_is_bounded_in_memory(lab, tmp_path, read):
    """A task writes 500 MB as fast as it can. Whether the output of the client is read or not, no process of tony
    keeps the text in memory."""
    job = lab.workers("head -c 500000000 /dev/zero | tr '\\0' x | fold -w 99; echo; while [ ! -e go ]; do sleep 0.1; done",
                      role={"memory": "1g"})
    p = lab.start("run", job)
    reader = threading.Thread(target=p.stdout.read) if read else None
    if reader:
        reader.start()
    app = the_job(lab)
    wait_until(lambda: lab.n_running(app), "the task runs")
    stdout = lab.home / "jobs" / app / "logs/worker-0/1/stdout"
    wait_until(lambda: stdout.exists() and stdout.stat().st_size > 505000000, "the task has written all", pause=0.1)
    peaks = {name: peak_kib(pid) for name, pid in (("client", p.pid), ("master", lab.one("master", app)), ("executor", lab.one("executor", app)),
                                                   ("keeper", lab.one("keeper", app)))}
    assert max(peaks.values()) < 32 << 10, peaks
    lab.ok("kill", app)
    if reader:
        reader.join()
        p.stdout.close()
        p.stdout = None
    p.communicate(timeout=60)


def test_nobody_who_reads_does_not_delay_the_job_nor_its_client(lab):
    """The output of the client goes to a pipe that no process reads. The job ends nevertheless, and Ctrl-C reaches
    the client."""
    job = lab.workers("while :; do echo a line of some length, so that the pipe is full soon; done")
    p = lab.start("run", job)
    app = the_job(lab)
    wait_until(lambda: len(lab.log_so_far(app, "worker:0")) > 4 << 20, "the task writes")
    p.send_signal(signal.SIGINT)
    lab.await_state(app, "KILLED")
    out, err = p.communicate(timeout=30)
    assert p.returncode == 3 and "KILLED" in out and left_out(out) > 0


def test_a_reader_that_goes_away_leaves_the_job_alone(lab):
    p = lab.start("run", lab.workers("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.05; done"))
    assert p.stdout.readline() == "worker:0 | 1\n"
    p.stdout.close()
    p.stdout = None
    p.wait(30)
    assert [lab.state(app) for app in lab.jobs_on_disk()] == ["SUCCEEDED"]


# 15 steps of a training that says that it has TOTAL, with PAUSE seconds between two
STEPS_OF = r"""python3 -c "
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX); path = os.environ['TONY_TASK_SOCKET']
s.connect(chr(0) + path[1:] if path[0] == '@' else path)
for i in range(1, 16):
    s.send(b'{\"step\": %d, \"total\": TOTAL}\n' % i)
    print('\033[31mred\033[0m \033[2Jstep', i, flush=True)
    sys.stderr.write('\rbar %d' % i); sys.stderr.flush(); time.sleep(PAUSE)
"
"""
STEPS = STEPS_OF.replace("TOTAL", "15").replace("PAUSE", "0.1")


def on_terminal(lab, *args, cols=100):
    """Runs `tony ARGS` on a terminal. Returns what it writes there."""
    master, slave = pty.openpty()
    subprocess.run(["stty", "cols", str(cols), "rows", "30"], stdin=slave, check=True)
    p = subprocess.Popen([lab.bin / "tony", *map(str, args)], env={**lab.env, "TERM": "xterm"}, cwd=lab.base, stdin=slave,
                         stdout=slave, stderr=slave)
    os.close(slave)
    text, until = b"", time.monotonic() + 60
    while time.monotonic() < until:
        if not select.select([master], [], [], 0.2)[0] and p.poll() is not None:
            break
        try:
            text += os.read(master, 65536)
        except OSError:
            break
    os.close(master)
    assert p.wait(10) == 0
    return text.decode().replace("\r\n", "\n")


def test_on_a_terminal_lines_scroll_above_a_progress_bar(lab):
    text = on_terminal(lab, "run", lab.workers(STEPS))
    assert re.search(r"worker +1 running  \[#+\.*\] +\d+ %  \d+/15  [\d.]+/s  [\d.]+ s left", text), text
    prefix = re.search(r"\033\[\d+mworker:0 \|\033\[0m ", text).group()
    for i in range(1, 16):  # colours stay, and nothing that moves the cursor
        assert f"{prefix}\033[31mred\033[0m step {i}\033[0m\n" in text
    bars = re.findall(re.escape(prefix) + r"bar (\d+)\n", text)
    assert bars[-1] == "15" and len(bars) < 10, "a progress bar is shown once a second"
    assert "\033[2J" not in text


# ---- tony logs ----

@pytest.mark.parametrize("cols, bar", [(80, r" \[[#.]{9,20}\] "), (74, r" \[[#.]{4,10}\] "), (66, " ")])
def test_the_time_left_fits_into_a_narrow_terminal(lab, cols, bar):
    steps = STEPS_OF.replace("TOTAL", "1500").replace("PAUSE", "0.2")
    text = on_terminal(lab, "run", lab.workers(steps), cols=cols)
    figures = r" running " + bar + r" *\d+ %  \d+/1500  [\d.]+/s  [\d.]+ (ms|s|m)( \d+ s)? left\x1b"
    assert re.search(figures, text), text


def test_logs_of_several_tasks(lab):
    app = app_of(lab.run("run", lab.job_file({"worker": {"instances": 3, "command": SHORT}, "helper": {"instances": 1, "command": SHORT}})))
    text = lab.ok("logs", app, "worker:2", "helper", "--stdout")
    assert text == "==> helper:0 stdout <==\nout 0\n\n==> worker:2 stdout <==\nout 2\n"
    r = lab.run("logs", app, "worker:0", "worker:9")
    assert r.returncode == 2 and "has no task 'worker:9'" in r.stderr and r.stdout == ""


def test_logs_since(lab):
    """The file `times` says how long the logs were at which time. What was written later is shown, also with --grep and -n."""
    app = app_of(lab.run("run", lab.workers("echo old; echo new 1; echo new 2; echo bad >&2")))
    times = lab.home / "history" / app / "logs/worker-0/1/times"  # a task that ran for less than 10 s has none
    times.write_text(f"{int(time.time() * 1000) - 3600000} 4 0\n")

    def shown(*options):
        return lab.ok("logs", app, "worker:0", "--stdout", *options).splitlines()
    assert shown("--since", "10m")[-2:] == ["new 1", "new 2"] and "old" not in shown("--since", "10m")
    assert shown("--since", "2h")[-3:] == ["old", "new 1", "new 2"]
    assert shown("--since", "10m", "--grep", "o|1") == ["new 1"]
    assert shown("--since", "10m", "-n", "1")[-1:] == ["new 2"] and "new 1" not in shown("--since", "10m", "-n", "1")
    assert "bad" in lab.ok("logs", app, "worker:0", "--stderr", "--since", "10m")
    r = lab.run("logs", app, "--since", "soon")
    assert r.returncode == 2 and "--since" in r.stderr


def test_logs_grep(lab):
    app = app_of(lab.run("run", lab.workers("for i in 1 2 3; do echo line $i; done; printf end", 2)))
    assert lab.ok("logs", app, "worker:1", "--stdout", "--grep", "line [13]|end") == "line 1\nline 3\nend\n"
    assert lines_of(lab.ok("logs", app, "--grep", "2$")) == ["worker:0 | line 2", "worker:1 | line 2"]
    assert lab.ok("logs", app, "--grep", "nothing") == ""
    r = lab.run("logs", app, "--grep", "(")
    assert r.returncode == 2 and "is not a regular expression" in r.stderr


def test_following_several_tasks_never_mixes_their_lines(lab):
    app = lab.submit(lab.workers("for i in 1 2 3; do printf 'first half,'; sleep 0.05; echo second half $i; done", 3))
    lines = lab.ok("logs", app, "-f", "--stdout").splitlines()
    assert sorted(lines) == sorted(f"worker:{t} | first half,second half {i}" for t in range(3) for i in (1, 2, 3))


def test_following_goes_on_through_restarts(lab):
    app = lab.submit(lab.workers('echo run $TONY_RESTART_COUNT; sleep 0.3; [ "$TONY_RESTART_COUNT" = 2 ]', role={"restart": "on-failure", "max-restarts": 2}))
    assert lab.ok("logs", app, "worker:0", "-f", "--stdout") == "run 0\nrun 1\nrun 2\n"


def test_following_a_log_that_is_truncated(lab):
    """A log is truncated while `tony logs -f` reads it, as logrotate does with copytruncate."""
    app = lab.submit(lab.workers("echo before; while [ ! -e go ]; do sleep 0.02; done; echo after"))
    p = lab.start("logs", app, "worker:0", "-f", "--stdout")
    assert p.stdout.readline() == "before\n"
    os.truncate(lab.dir(app) / "logs/worker-0/1/stdout", 0)
    next((lab.dir(app) / "containers").glob("container_*")).joinpath("go").touch()
    assert p.communicate(timeout=30)[0] == "after\n"


# Writes ten lines for each file `go-N`, and then the file `done-N`. With a word it opens its log again first.
WRITER = """\
log=$(readlink /proc/$$/fd/1); n=0
for turn in 1 2 3 4; do
    while [ ! -e go-$turn ]; do sleep 0.02; done
    if [ -n "$REOPENS" ] && [ $turn != 1 ]; then exec >> "$log"; fi
    for i in 1 2 3 4 5 6 7 8 9 10; do n=$((n + 1)); echo "line $n of turn $turn"; done
    if [ $turn = 3 ]; then for i in $(seq 200); do echo "turn 3 has more lines, such as $i"; done; fi
    touch done-$turn
done
"""
WRITTEN = [f"line {n + 1} of turn {n // 10 + 1}" for n in range(40)]
WRITTEN[30:30] = [f"turn 3 has more lines, such as {i + 1}" for i in range(200)]


def rotate(log, how):
    """Rotates the log as logrotate does with its settings copytruncate, nocreate and create."""
    for n in (3, 2, 1):
        old = log.with_name(f"{log.name}.{n}")
        if old.exists():
            old.rename(log.with_name(f"{log.name}.{n + 1}"))
    if how == "copytruncate":
        log.with_name(f"{log.name}.1").write_bytes(log.read_bytes())
        os.truncate(log, 0)
    elif log.exists():
        log.rename(log.with_name(f"{log.name}.1"))
        if how == "create":
            log.touch(0o600)


@pytest.mark.parametrize("follow", ["logs", "run"])  # the client reads the files; the executors send
@pytest.mark.parametrize("how, reopens", [("copytruncate", ""), ("nocreate", ""), ("create", ""), ("create", "yes"), ("nocreate", "yes")])
def test_following_logs_that_are_rotated(lab, how, reopens, follow):
    """No line is lost, none comes twice, and none as that of another rank: `stdout.1` is also the name of the log of rank 1."""
    job = lab.workers(WRITER, env={"REOPENS": reopens})
    if follow == "run":
        p = lab.start("run", job, "--output", "all")
        app = wait_until(lambda: next((x.name for x in (lab.home / "jobs").glob("application_*")), None), "the job")
    else:
        app = lab.submit(job)
        wait_until(lambda: lab.n_running(app) == 1, "it runs")
        p = lab.start("logs", app, "-f", "worker:0", "--stdout")
    place = wait_until(lambda: next((lab.dir(app) / "containers").glob("container_*"), None), "the working directory")
    log = lab.dir(app) / "logs/worker-0/1/stdout"
    seen = []
    for turn in (1, 2, 3, 4):
        (place / f"go-{turn}").touch()
        last = f"line {turn * 10} of turn {turn}" if turn != 3 else "turn 3 has more lines, such as 200"
        while not seen or last not in seen[-1]:
            line = p.stdout.readline()
            assert line, seen
            seen.append(line.rstrip("\n"))
        if turn != 4:
            wait_until(lambda: (place / f"done-{turn}").exists(), "the turn is over")  # pylint: disable=cell-var-from-loop
            rotate(log, how)
    out, err = p.communicate(timeout=60)
    lines = seen + out.splitlines()
    if follow == "run":
        lines = [line.removeprefix("worker:0 | ") for line in lines if line.startswith("worker:0")]
    assert lines == WRITTEN, err
