# SPDX-License-Identifier: Apache-2.0
"""tony events, tony wait for several jobs, and the call at the end of a job."""

import hashlib
import hmac
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import threading

import pytest
from conftest import wait_until
from lib_jobs import Gated, kill9, lab, make_lab  # noqa: F401 (fixtures)


def events(lab, app, *args):
    return [json.loads(line) for line in lab.ok("events", app, *args).splitlines()]


def brief(event):
    if event["event"] == "task":
        return f'{event["task"]} {event["state"]}' + (f' {event["result"]}' if "result" in event else "")
    return f'{event["event"]} {event.get("state") or event.get("epoch") or event.get("generation") or event.get("step")}'


# ---- events ----


def test_of_a_finished_job(lab):
    app = lab.submit(lab.workers("test $TASK_INDEX = 0 || exit 3", n=2,
                                 conf={"tony.application.fail-on-worker-failure-enabled": True}))
    assert lab.run("wait", app).returncode == 1
    lab.in_history(app)
    got = events(lab, app)
    said = [brief(e) for e in got]
    assert said[0] == "job WAITING" and said[-1] == "job FAILED", said
    for one in ("master 1", "gang 1", "job RUNNING", "worker:0 running", "worker:1 ended FAILED"):
        assert one in said, said
    assert said.index("worker:1 running") < said.index("worker:1 ended FAILED")
    end = got[-1]
    assert end["exit_code"] == 1 and end["cause"] == "worker:1" and "exit code 3" in end["message"]
    failed = got[said.index("worker:1 ended FAILED")]
    assert failed["exit_code"] == 3 and failed["reason"] == "exited" and failed["attempt"] == 1
    numbers, times = [e["n"] for e in got], [e["at_ms"] for e in got]
    assert numbers == sorted(numbers) and times == sorted(times) and all(e["wall_ms"] > 1e12 for e in got)


def test_followed_across_the_death_of_the_master(lab):
    job = Gated(lab, n=2, role={"restart": "on-failure", "max-restarts": 3, "restart-scope": "task"}).running()
    p = lab.start("events", job.app, "-f")
    got = []
    reader = threading.Thread(target=lambda: got.extend(json.loads(line) for line in p.stdout))
    reader.start()
    wait_until(lambda: [brief(e) for e in got].count("worker:1 running") == 1, "both run")
    kill9(lab.one("master", job.app))
    wait_until(lambda: "master 2" in [brief(e) for e in got], "another master")
    job.release(1, 7)
    wait_until(lambda: [brief(e) for e in got].count("worker:1 running") == 2, "the second attempt")
    assert p.poll() is None
    job.release_all()
    assert p.wait(timeout=60) == 0
    reader.join()
    assert brief(got[-1]) == "job SUCCEEDED"
    lab.in_history(job.app)
    # no event comes twice and none is missing: they equal those from the history
    assert got == events(lab, job.app)
    lab.settled()


def test_of_a_waiting_job_and_of_none(make_lab):
    lab = make_lab(site={"pool.memory": "100m"})
    first = lab.submit(lab.workers("sleep 600", role={"memory": "90m"}))
    app = lab.submit(lab.workers("true", role={"memory": "90m"}))
    assert events(lab, app) == []
    p = lab.start("events", app, "--follow")
    lab.ok("kill", app)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and [brief(json.loads(x)) for x in out.splitlines()][-1] == "job KILLED", out + err
    lab.ok("kill", first)
    r = lab.run("events", "999")
    assert r.returncode == 2 and "999" in r.stderr


def test_a_size_and_a_checkpoint(lab):
    command = """python3 -c "
import json, os, socket, time
s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + os.environ['TONY_TASK_SOCKET'].lstrip('@'))
s.sendall(json.dumps({'checkpoint': '/tmp/c7', 'step': 7}).encode() + b'\\n')
while not os.path.exists(os.environ['HOME'] + '/go'): time.sleep(0.05)
" """
    app = lab.submit(lab.workers(command, n=1, role={"max-instances": 3, "resize": "live"},
                                 conf={"tony.application.distributed-mode": "FCFS"}))
    wait_until(lambda: "checkpoint 7" in [brief(e) for e in events(lab, app)], "the checkpoint")
    lab.ok("resize", app, "worker=2", "--wait")
    (lab.base / "go").touch()
    assert lab.run("wait", app).returncode == 0
    lab.in_history(app)
    size = [e for e in events(lab, app) if e["event"] == "size"]
    assert [(e["role"], e["from"], e["to"]) for e in size] == [("worker", 1, 2)]


# ---- wait ----


def test_wait_for_all_and_for_any(lab):
    good, bad, long = (lab.submit(lab.workers(c)) for c in ("true", "exit 5", "sleep 600"))
    r = lab.run("wait", good, bad)
    assert r.returncode == 1 and [x.split()[:2] for x in r.stdout.splitlines()] == [[good, "SUCCEEDED:"], [bad, "FAILED:"]], r.stdout
    docs = json.loads(lab.run("wait", good, bad, "--all", "--json").stdout)["jobs"]
    assert [d["state"] for d in docs] == ["SUCCEEDED", "FAILED"]
    assert json.loads(lab.run("wait", long, good, "--any", "--json").stdout)["application_id"] == good
    other = Gated(lab).running()
    p = lab.start("wait", long, other.app, "--any", "--json")
    other.release(0)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and json.loads(out)["application_id"] == other.app, err
    r = lab.run("wait", long, good, "--any", "--all")
    assert r.returncode == 2 and "only one of" in r.stderr
    assert lab.run("wait", good, "999").returncode == 2
    lab.ok("kill", long)


# ---- on-end ----


class Receiver:
    """A web server that fails as often as it is told."""

    def __init__(self, failures=0):
        self.got, self.failures = [], failures
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, dict(self.headers), body))
                receiver.failures -= 1
                self.send_response(503 if receiver.failures >= 0 else 204)
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook?token=tk-9917"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def await_calls(self, n):
        wait_until(lambda: len(self.got) >= n, f"{n} calls, not {len(self.got)}")
        return self.got


@pytest.fixture
def receiver():
    made = []

    def make(failures=0):
        made.append(Receiver(failures))
        return made[-1]

    yield make
    for r in made:
        r.server.shutdown()
        r.server.server_close()


def requests(lab):
    return sorted(p.name for p in (lab.home / "pool/on-end").glob("*")) if (lab.home / "pool/on-end").is_dir() else []


def no_request_left(lab):
    wait_until(lambda: not requests(lab) and not [q for q in lab.processes_all() if "--on-end" in q.line], "all calls are made")


def test_a_url_is_called_with_a_signature(lab, receiver):
    to = receiver()
    path = lab.workers("exit 4", **{"on-end": "secret:URL", "on-end-secret": "KEY",
                                    "secrets": {"URL": {"env": "U"}, "KEY": {"env": "K"}}})
    app = lab.ok("submit", path, env={"U": to.url, "K": "k3y-5551"}).strip()
    path_called, headers, body = to.await_calls(1)[0]
    doc = json.loads(body)
    assert path_called == "/hook?token=tk-9917" and doc["application_id"] == app and doc["state"] == "FAILED" and doc["exit_code"] == 1
    assert doc["delivery"] == headers["X-Tony-Delivery"] == f"{app}.end" and doc["tasks"][0]["exit_code"] == 4
    assert headers["X-Tony-Signature"] == "sha256=" + hmac.new(b"k3y-5551", body, hashlib.sha256).hexdigest()
    assert headers["Content-Type"] == "application/json"
    no_request_left(lab)
    assert len(to.got) == 1
    history = lab.in_history(app)
    assert "done, attempt 1" in (history / "on-end.log").read_text()
    for top, _, names in os.walk(lab.home):
        for name in names:
            text = pathlib.Path(top, name).read_bytes()
            assert b"tk-9917" not in text and b"k3y-5551" not in text, (top, name)
    lab.settled()


def test_a_failed_call_is_repeated_and_delays_no_verdict(lab, receiver):
    to = receiver(failures=2)
    app = lab.ok("run", "--json", lab.workers("true", **{"on-end": to.url}))
    app = json.loads(app)["application_id"]  # the command has returned
    calls = to.await_calls(3)
    assert [c[1]["X-Tony-Attempt"] for c in calls] == ["1", "2", "3"]
    assert len({c[1]["X-Tony-Delivery"] for c in calls}) == 1
    no_request_left(lab)
    log = (lab.home / "history" / app / "on-end.log").read_text()
    assert log.count("the answer was 503") == 2 and "done, attempt 3" in log and "token" not in log
    assert "tk-9917" not in (lab.home / "history" / app / "job.conf").read_text()


def test_a_command_gets_the_document(lab):
    command = f'pwd > {lab.base}/where; cat > {lab.base}/doc; echo "$TONY_APPLICATION_ID $TONY_STATE $TONY_EXIT_CODE $TONY_DELIVERY" >> {lab.base}/said; test -e {lab.base}/ok'
    app = lab.submit(lab.workers("true", **{"on-end": command}))
    wait_until(lambda: (lab.base / "said").exists(), "the first run")
    (lab.base / "ok").touch()
    no_request_left(lab)
    assert (lab.base / "where").read_text().strip() == lab.env.get("HOME", os.environ["HOME"])
    assert json.loads((lab.base / "doc").read_text())["state"] == "SUCCEEDED"
    lines = set((lab.base / "said").read_text().splitlines())
    assert lines == {f"{app} SUCCEEDED 0 {app}.end"}
    assert "exit code 1" in (lab.home / "history" / app / "on-end.log").read_text()


@pytest.mark.parametrize("victim", ["master", "keeper", "pool", "caller"])
def test_whatever_dies_it_is_called(lab, receiver, victim):
    """The call is made at least once, whichever process of tony is killed, also the one that makes the call."""
    to = receiver(failures=1000 if victim in ("caller", "pool") else 0)  # so that the caller lives until it is killed
    job = Gated(lab, **{"on-end": to.url}).running()
    if victim in ("master", "keeper"):
        pid = lab.one(victim, job.app)
        os.kill(pid, signal.SIGSTOP)
        job.release(0, wait=False)
        kill9(pid)
    else:
        job.release(0)
        to.await_calls(1)
        found = wait_until(lambda: [q.pid for q in lab.processes_all() if "--on-end" in q.line], "the process that makes the call")
        kill9(*found)
        if victim == "pool":
            kill9(lab.one("pool"))
            lab.ok("list")
            lab.ok("pool", "start")
        to.failures = 0
    to.await_calls(1)
    no_request_left(lab)
    assert {json.loads(body)["application_id"] for _, _, body in to.got} == {job.app}
    assert {h["X-Tony-Delivery"] for _, h, _ in to.got} == {f"{job.app}.end"}


def test_a_closed_port_is_one_line_of_the_log(lab):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))  # no process listens at this port
        app = lab.submit(lab.workers("true", **{"on-end": f"http://127.0.0.1:{s.getsockname()[1]}/"}))
        log = lab.in_history(app) / "on-end.log"
        wait_until(lambda: log.exists() and "again in 2 s" in log.read_text(), "two attempts")
        for line in log.read_text().splitlines():
            assert re.search(r" attempt \d+ failed: curl: \(7\) .*; again in \d+ s$", line), line
        os.kill(wait_until(lambda: callers(lab), "the caller")[0], signal.SIGTERM)
        wait_until(lambda: not callers(lab), "the end of the caller")


def callers(lab):
    return [q.pid for q in lab.processes_all() if "--on-end" in q.line]


def test_a_pending_call_ends_with_its_home(lab, receiver):
    """The call fails; the caller outlives the pool, and ends when TONY_HOME is deleted."""
    to = receiver(failures=1000)
    lab.submit(lab.workers("true", **{"on-end": to.url}))
    to.await_calls(3)
    lab.ok("pool", "stop")
    assert callers(lab)
    lab.home.rename(lab.base / "gone")
    wait_until(lambda: not callers(lab), "the caller ends")
    (lab.base / "gone").rename(lab.home)
    assert requests(lab)
    shutil.rmtree(lab.home / "pool/on-end")


def test_sigterm_ends_a_call_at_once(lab):
    """SIGTERM ends the process that makes the call, and the command that it runs. The next pool makes the call again."""
    command = f"echo $$ >> {lab.base}/pids; test -e {lab.base}/ok || exec sleep 600"
    app = lab.submit(lab.workers("true", **{"on-end": command}))
    pids = lambda: (lab.base / "pids").read_text().split() if (lab.base / "pids").exists() else []
    wait_until(pids, "the command runs")
    lab.in_history(app)
    os.kill(wait_until(lambda: callers(lab), "the caller")[0], signal.SIGTERM)
    wait_until(lambda: not callers(lab) and not pathlib.Path("/proc", pids()[0]).exists(), "both end")
    assert requests(lab) == [app] and len(pids()) == 1
    assert "stopped by a signal" in (lab.home / "history" / app / "on-end.log").read_text()
    (lab.base / "ok").touch()
    lab.ok("pool", "stop")
    lab.ok("pool", "start")
    no_request_left(lab)
    assert len(pids()) == 2


def test_of_a_job_that_never_ran(make_lab, receiver):
    lab, to = make_lab(site={"pool.memory": "100m"}), receiver()
    first = lab.submit(lab.workers("sleep 600", role={"memory": "90m"}))
    app = lab.submit(lab.workers("true", role={"memory": "90m"}, **{"on-end": to.url}))
    lab.ok("kill", app)
    doc = json.loads(to.await_calls(1)[0][2])
    assert doc["application_id"] == app and doc["state"] == "KILLED"
    no_request_left(lab)
    lab.ok("kill", first)


def test_what_cannot_be_is_refused(lab):
    for top, words in (({"on-end": "secret:NONE"}, "no secret of the job"), ({"on-end": "true", "on-end-secret": "NONE"}, "no secret of the job"),
                       ({"on-end": "HTTPS://x/"}, "begins with http"), ({"on-end": "ftp://user:pw@x/"}, "begins with http"),
                       ({"on-end-secret": "K"}, "needs tony.application.on-end")):
        r = lab.run("submit", lab.workers("true", **top))
        assert r.returncode == 2 and words in r.stderr, r.stderr
