# SPDX-License-Identifier: Apache-2.0
"""
What a program writes and reports goes to the terminal of whoever looks at the job, perhaps of another user: it must
not control that terminal. The files of a job may be traps, too.
"""

import json
import os
import pty
import re
import subprocess
import time

import pytest
from conftest import NOBODY, wait_until

OTHER = NOBODY - 1

# A title, a question to the terminal, U+009B ("ESC [" in one character), a mode of the keyboard, a feigned line, and a
# sequence that ends with a character of two bytes.
EVIL = "\x1b]0;EVIL\x07\x1b[6n\u009b2J\x1b[>4;2m\x1b[\x0em\x7f\x08\x1b\u00e9"

PROGRAM = f"EVIL = {ascii(EVIL)}" + r'''
import json, os, socket, sys
tony = socket.socket(socket.AF_UNIX)
tony.connect("\0" + os.environ["TONY_TASK_SOCKET"][1:])
reports = tony.makefile("w", encoding="utf-8")
for report in {"step": 2, "checkpoint": "/c/\u009b2Jhere"}, {"tensorboard": "http://h:1/\u009b2Jthere"}:
    reports.write(json.dumps(report, ensure_ascii=False) + "\n")
reports.flush()
print("said", EVIL, "\x1b[31mred", flush=True)
sys.stderr.write(f"RuntimeError: CUDA out of memory {EVIL} end\n")
sys.stderr.flush()
input()
sys.exit(3)
'''


def on_terminal(tony, *args):
    """What the command writes to a terminal, which gets its standard output and its standard error."""
    ours, theirs = pty.openpty()
    p = subprocess.Popen([tony.bin / "tony", *args], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                         env={**tony.env, "TERM": "xterm"}, cwd=tony.base, **tony.user)
    os.close(theirs)
    out = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the command has ended
            break
        if not part:
            break
        out += part
    os.close(ours)
    p.wait(60)
    return out.decode()


def controls(text):
    """The sequences and characters that do more than colour, go to the start of a line, or draw tony's own progress."""
    text = re.sub(r"\x1b\[[0-9;]*m|\x1b\[[0-9]*[AJK]|\x1b\[\?25[lh]|[\r\n\t]", "", text)
    return re.findall(r"[\x00-\x1f\x7f\u0080-\u009f].{,9}", text)


def test_a_task_does_not_control_the_terminal(own_tony):
    tony = own_tony(as_nobody=True)
    program, gate = tony.base / "program.py", tony.base / "gate"
    program.write_text(PROGRAM)
    os.mkfifo(gate)
    tony.give(program, gate)
    app = tony.submit(tony.workers(f"exec python3 {program} < {gate}"))
    with open(gate, "w") as held:
        wait_until(lambda: tony.status(app).get("tensorboard"), "the task has reported its page")
        assert "\u009b" in tony.status(app)["checkpoint"]["path"], "programs that read JSON get the text as it is"
        for command in ("status", "tasks", "why", "events"):
            for options in ([], ["--json"]) if command != "events" else ([],):
                said = on_terminal(tony, command, app, *options)
                assert not controls(said), (command, options, said)
        said = on_terminal(tony, "status", app)
        assert "/c/2Jhere" in said and "http://h:1/2Jthere" in said, said
        held.write("\n")
    tony.in_history(app)
    for command in (["status", app], ["why", app], ["wait", app], ["logs", app], ["logs", app, "--grep", "e"], ["tasks", app], ["list"], ["why", app, "--json"]):
        said = on_terminal(tony, *command)
        assert not controls(said), (command, said)
    assert "CUDA out of memory 2Jm\u00e9 end" in on_terminal(tony, "why", app)
    said = on_terminal(tony, "logs", app)
    assert "said 2Jm\u00e9 \x1b[31mred\x1b[0m" in said and "==> worker:0 stderr <==" in said, said
    for command in ("status", "why"):
        assert not controls(tony.ok(command, app)), "in a pipe, too"
    assert EVIL in tony.ok("logs", app, "--stdout"), "a pipe gets the log as it is"
    again = tony.workers(f"python3 {program} < /dev/null")
    said = on_terminal(tony, "run", again)
    assert not controls(said) and "FAILED" in said, said


def test_a_job_file_does_not_control_the_terminal(tony, tmp_path):
    """A user who got the file from somebody else looks at it with tony plan."""
    path = tmp_path / "job.yaml"
    path.write_text('name: a\ncommand: "echo \\u009b2J \\e[6n\\necho two"\nenv: {A: "x\\e]0;E\\ay"}\nroles: {worker: {instances: 1, memory: 32m}}\n')
    said = tony.ok("plan", path)
    assert not controls(said) and "command  echo 2J \necho two\n" in said and "A=xy" in said, said
    assert not controls(tony.ok("plan", path, "--json")) and json.loads(tony.ok("plan", path, "--json"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")
def test_traps_in_the_home_of_another_user(own_tony):
    """A reader does not wait for the writer of a named pipe."""
    tony = own_tony(as_nobody=True)
    tony.base.chmod(0o755)
    tony.bin.chmod(0o755)
    app = tony.submit(tony.workers("exit 3"))
    tony.in_history(app)
    tony.ok("pool", "stop")
    subprocess.run(["chmod", "-R", "a+rX", tony.home], check=True)
    job = tony.home / "history" / app
    commands = (["list"], ["status", app], ["why", app], ["logs", app], ["events", app], ["metrics", app], ["open", app], ["wait", app],
                ["pool", "why", app])
    (tony.home / "pool/decisions").touch()  # only policies write it
    for path in (job / "summary", job / "status.json", job / "job.conf", job / "journal", job / "metrics", job / "logs/worker-0/1/stdout",
                 tony.home / "pool/runtime", tony.home / "pool/decisions"):
        kept = path.rename(path.with_name("kept"))
        os.mkfifo(path)
        path.chmod(0o644)
        for command in commands:
            began = time.monotonic()
            done = subprocess.run([tony.bin / "tony", *command], env=tony.env, capture_output=True, text=True, timeout=60, cwd="/",
                                  stdin=subprocess.DEVNULL, user=OTHER, group=OTHER, extra_groups=[])
            assert done.returncode in (0, 1, 2, 4), (path.name, command, done, time.monotonic() - began)
        path.unlink()
        kept.rename(path)
    tony.home.chmod(0o700)
