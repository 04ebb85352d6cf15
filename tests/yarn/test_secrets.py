# SPDX-License-Identifier: Apache-2.0
"""Secrets, events and the call at the end of a job, on YARN."""

import base64
import http.server
import json
import os
import pathlib
import signal
import threading

import pytest
from lib_cluster import daemons, wait_until

VALUE = "Zk3-from-a-variable-7713"
CHECK = f'test "$A" = "$(echo {base64.b64encode(VALUE.encode()).decode()} | base64 -d)" || exit 8; '
PASSWORD = "Yx9-in-the-job-file-4402"  # the value of an ordinary variable whose name contains `password`


def found_in_files(root, value=VALUE):
    """The files that have the value: HDFS, the stores of the daemons, their logs, and the directories of containers."""
    found = []
    for top, _, names in os.walk(root):
        for name in names:
            path = pathlib.Path(top, name)
            try:
                if path.is_file() and value.encode() in path.read_bytes():
                    found.append(path)
            except OSError:  # the file was removed meanwhile
                continue
    return found


def staged(cluster, app, name):
    """The mode of this file in the staging directory of an application; None: it is not there."""
    found = [cluster.ls(f"/user/{user}/.tony/{app}").get(name) for user in cluster.ls("/user")]
    return next((f["permission"] for f in found if f), None)


def pages(cluster, app):
    """What the daemons and the master show of the application."""
    rm = daemons.rm_web(cluster.state)
    yield from (cluster.get(f"{rm}/{path}/{app}") for path in ("ws/v1/cluster/apps", "cluster/app", "proxy"))
    yield json.dumps(cluster.attempts(app))
    for nm in cluster.names()[3:]:
        yield json.dumps([cluster.nm(nm, "apps"), cluster.nm(nm, "containers")])


def masters(cluster):
    return [pid for pid, line in cluster.processes().items() if line.startswith("./tony-master")]


def test_secrets_reach_the_tasks_and_nothing_else(tony, cluster, base):
    """
    No file of the cluster has them, those of the stores of the daemons included. A password in the environment of a
    job reaches no store either, and its file has the mode 0600.
    """
    job = tony.workers(CHECK + f"echo $TONY_ATTEMPT >> {base}/ran-$TASK_INDEX; while [ ! -e {base}/go ]; do sleep 0.1; done", n=2,
                       secrets={"A": {"env": "SOURCE"}}, env={"MY_PASSWORD": PASSWORD}, role={"restart": "on-failure", "max-restarts": 3, "restart-scope": "task"})
    app = tony.ok("submit", job, env={"SOURCE": VALUE}).strip()
    ran = lambda i: (base / f"ran-{i}").read_text().split() if (base / f"ran-{i}").exists() else []  # noqa: E731
    wait_until(lambda: ran(0) and ran(1), "both tasks have checked their secrets")

    def look():
        assert not found_in_files(cluster.dir)
        for path in found_in_files(cluster.dir, PASSWORD):
            assert path.name == "job.conf" or path.relative_to(cluster.dir).parts[:2] == ("hdfs", "data"), path
        assert staged(cluster, app, "secrets.sealed") == staged(cluster, app, "job.conf") == "600"
        for pid, line in cluster.processes().items():
            for name in ("cmdline", "environ"):
                try:
                    data = pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
                except OSError:
                    continue
                assert VALUE.encode() not in data or (name == "environ" and ("bash -c" in line or line.startswith("sleep"))), line
        for args in (("status", app, "--json"), ("tasks", app), ("list", "--json"), ("why", app), ("logs", app), ("events", app)):
            r = tony.run(*args)
            assert VALUE not in r.stdout + r.stderr, args
        for page in (cluster.get(cluster.app(app)["trackingUrl"]), *pages(cluster, app)):
            assert VALUE not in page and PASSWORD not in page

    look()
    pid, = masters(cluster)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: tony.status(app).get("epoch") == 2, "the second master", 300)
    task = next(p for p, line in cluster.processes().items() if "ran-$TASK_INDEX" in line and cluster.environ(p).get("TASK_INDEX") == "1")
    os.kill(task, signal.SIGKILL)
    wait_until(lambda: ran(1) == ["1", "2"], "the second attempt has its secrets from the second master", 300)
    look()
    (base / "go").touch()
    assert tony.run("wait", app).returncode == 0
    cluster.await_app(app, "FINISHED")
    assert not found_in_files(cluster.dir)
    wait_until(lambda: not staged(cluster, app, "secrets.sealed"), "the staging directory is removed", 60)
    said = [json.loads(line) for line in tony.ok("events", app).splitlines()]
    assert said[-1]["event"] == "job" and said[-1]["state"] == "SUCCEEDED" and {"epoch": 2} in [
        {"epoch": e["epoch"]} for e in said if e["event"] == "master"]


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), json.loads(body)))
        self.server.failures -= 1
        self.send_response(503 if self.server.failures >= 0 else 200)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def receiver():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.got, server.failures = [], 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_the_call_at_the_end(tony, cluster, receiver):
    receiver.failures = 1
    url = f"http://127.0.0.1:{receiver.server_address[1]}/"
    p, app, _ = tony.gated(**{"on-end": url})
    events = tony.start("events", app, "-f")
    tony.let_go(p)  # the client has the verdict
    wait_until(lambda: len(receiver.got) == 2, "two calls")
    cluster.await_app(app, "FINISHED")
    assert {h["X-Tony-Delivery"] for h, _ in receiver.got} == {f"{app}.end"}
    assert [d["state"] for _, d in receiver.got] == ["SUCCEEDED"] * 2
    out, err = events.communicate(timeout=60)
    assert events.returncode == 0 and json.loads(out.splitlines()[-1])["state"] == "SUCCEEDED", out + err


def test_a_killed_master_has_the_call_made_by_the_next_one(tony, cluster, receiver):
    """The master dies while the receiver does not answer well, before the report to YARN."""
    receiver.failures = 1
    p, app, _ = tony.gated(**{"on-end": f"http://127.0.0.1:{receiver.server_address[1]}/"})
    tony.let_go(p)
    wait_until(lambda: receiver.got, "the first call")
    for pid in masters(cluster):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(receiver.got) >= 2, "another call", 300)
    cluster.await_app(app, "FINISHED")
    assert {h["X-Tony-Delivery"] for h, _ in receiver.got} == {f"{app}.end"}
