# SPDX-License-Identifier: Apache-2.0
"""The command line on a cluster: logs, uploads, the cache, waiting, killing, doctor."""

import contextlib
import http.server
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest
from lib_cluster import wait_until
from lib_relay import halting
from lib_tony import APP

CACHE = "/user/root/.tony/cache"


# ---- logs ----

def test_logs_right_after_the_end(tony):
    """
    Logs are available also in the moment between the master's end and the ResourceManager's report of it.
    """
    job = tony.workers("echo hello from $TASK_INDEX", n=2)
    for _ in range(3):
        app = APP.search(tony.ok("run", job)).group()
        assert tony.ok("logs", app, "worker:1", "--stdout") == "hello from 1\n"
        assert tony.run("logs", app, "worker:2").returncode == 2


def test_logs_are_followed_to_the_end(tony, base):
    """`tony logs -f` is started before the task, and shows its log to the last line."""
    app = tony.submit(tony.workers(f"for i in 1 2 3; do echo line $i; done; while [ ! -e {base}/go ]; do sleep 0.1; done; echo last"))
    with open(base / "out", "w") as out:
        follower = tony.start("logs", app, "-f", "--stdout", stdout=out)
        wait_until(lambda: (base / "out").read_text() == "line 1\nline 2\nline 3\n", "the first lines")
        (base / "go").touch()
        _, err = follower.communicate(timeout=300)
    assert follower.returncode == 0, err
    assert (base / "out").read_text() == "line 1\nline 2\nline 3\nlast\n"
    assert tony.run("wait", app).returncode == 0
    assert tony.ok("logs", app, "--stdout", "-n", "2") == "line 3\nlast\n"


class LogServer(http.server.BaseHTTPRequestHandler):
    """A history server: it redirects once, and then returns a file with a header and a footer."""

    asked = []

    def do_GET(self):
        self.asked.append(self.path)
        if self.path.startswith("/ws/v1/history/containers/"):
            self.send_response(307)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/there{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        name = self.path.rpartition("/")[2]
        text = (f"Container: c on n\nLogAggregationType: AGGREGATED\n====\nLogType:{name}\nLogLength:9\nLogContents:\nkept {name}\n\n"
                f"End of LogType:{name}\n****\n").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


def test_logs_of_the_sites_log_server(tony, cluster, base):
    app = APP.search(tony.ok("run", tony.workers("echo gone"))).group()
    for path in cluster.dir.glob(f"nm/nm*/logs/{app}"):
        shutil.rmtree(path)
    r = tony.run("logs", app, "worker:0", "--stdout")
    assert r.returncode == 0 and r.stdout == "", r.stdout
    assert len(r.stderr.splitlines()) == 1 and "/node/containerlogs/container_" in r.stderr, r.stderr
    shutil.copytree(cluster.dir / "conf", base / "conf")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), LogServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        site = base / "conf" / "yarn-site.xml"
        url = f"http://127.0.0.1:{server.server_port}/ws/v1/history/"
        site.write_text(site.read_text().replace(
            "</configuration>", f"<property><name>yarn.log.server.web-service.url</name><value>{url}</value></property></configuration>"))
        r = tony.run("logs", app, "worker:0", "--stdout", env={"HADOOP_CONF_DIR": str(base / "conf")})
    finally:
        server.shutdown()
        server.server_close()
    assert r.returncode == 0 and r.stdout.strip() == "kept stdout", r.stdout + r.stderr
    assert re.fullmatch(r"/ws/v1/history/containers/container_\w+/logs/stdout", LogServer.asked[0]), LogServer.asked


# ---- uploads and the cache ----

def on_terminal(tony, *args, timeout=300):
    """Runs a command on a terminal. Returns its output and its exit code."""
    master, slave = pty.openpty()
    p = tony.start(*args, stdout=subprocess.DEVNULL, stderr=slave, env={"TERM": "xterm"})
    os.close(slave)
    parts = []
    reader = threading.Thread(target=lambda: read_all(master, parts))
    reader.start()
    code = p.wait(timeout)
    reader.join(10)
    os.close(master)
    return b"".join(parts).decode(), code


def read_all(fd, parts):
    with contextlib.suppress(OSError):
        while data := os.read(fd, 65536):
            parts.append(data)


def test_uploads_have_a_progress_bar(tony, base):
    for i in range(4):
        (base / f"big{i}").write_bytes(os.urandom(8 << 20))
    text, code = on_terminal(tony, "run", tony.workers("true", resources=[str(base / f"big{i}") for i in range(4)]))
    assert code == 0, text
    assert re.search(r"uploading \d+ files \[[# ]{24}\] \S+ ?\S* of ", text), text
    assert "\x1b[K" in text


def age(cluster, path, ms):
    """Sets the time of a path in HDFS back by `ms`, as if it had last been used then."""
    cluster.hdfs("SETTIMES", path, "PUT", modificationtime=int(time.time() * 1000) - ms, accesstime=-1)


@pytest.mark.slow
def test_the_cache_ages(tony, cluster, base):
    hour = 3600 * 1000
    (base / "old").write_text("old" + os.urandom(8).hex())
    before = set(cluster.ls(CACHE))
    assert tony.run("run", tony.workers("true", resources=[str(base / "old")])).returncode == 0
    old, = set(cluster.ls(CACHE)) - before - {name for name in cluster.ls(CACHE) if "old" not in cluster.ls(f"{CACHE}/{name}")}
    cluster.put(f"{CACHE}/_COPYING_.left-1-1", b"half")
    half = "_COPYING_.left-1-1"
    assert tony.run("run", tony.workers("true", conf={"tony.yarn.cache-age": 2 * hour})).returncode == 0
    assert {old, half} <= set(cluster.ls(CACHE))  # the file is young
    age(cluster, f"{CACHE}/{old}", 3 * hour)
    age(cluster, f"{CACHE}/{half}", 25 * hour)
    assert tony.run("run", tony.workers("true", conf={"tony.yarn.cache-age": 2 * hour})).returncode == 0
    assert not {old, half} & set(cluster.ls(CACHE))
    # a use after more than a day is recorded
    assert tony.run("run", tony.workers("true", resources=[str(base / "old")])).returncode == 0
    age(cluster, f"{CACHE}/{old}", 30 * hour)
    assert tony.run("run", tony.workers("true", resources=[str(base / "old")])).returncode == 0
    assert cluster.ls(CACHE)[old]["modificationTime"] > time.time() * 1000 - hour


def test_old_content_of_the_home_is_removed(tony, base):
    """The client keeps what it has shipped in TONY_HOME. No pool runs there, so a submission has it removed, once a day."""
    text = os.urandom(8)
    (base / "shipped").write_bytes(text)
    assert tony.run("run", tony.workers("true", resources=[str(base / "shipped")])).returncode == 0
    entry, = (p for p in (tony.home / "store").glob("f-*") if p.read_bytes() == text)
    for path, days in (entry, 60), (tony.home / "pool/tidied", 2):
        then = time.time() - days * 24 * 3600
        os.utime(path, (then, then))
    assert tony.run("run", tony.workers("true")).returncode == 0
    wait_until(lambda: not entry.exists(), "the content is removed")


def test_the_cache_of_a_live_job_stays(tony, cluster, base):
    """
    A job has run for longer than tony.yarn.cache-age. Its files stay until it is over: a node fetches them
    again for a task that restarts there.
    """
    hour = 3600 * 1000
    (base / "old").write_text("live" + os.urandom(8).hex())
    before = set(cluster.ls(CACHE))
    p, app, _ = tony.gated(resources=[str(base / "old")])
    try:
        used = wait_until(lambda: cluster.exists(f"/user/root/.tony/{app}/uses") and
                          cluster.read(f"/user/root/.tony/{app}/uses").split(), "the list of what the job uses")
        old, = {name for name in set(cluster.ls(CACHE)) - before if "old" in cluster.ls(f"{CACHE}/{name}")}
        assert old in used, used
        age(cluster, f"{CACHE}/{old}", 3 * hour)
        age(cluster, f"/user/root/.tony/{app}", hour)  # directories of jobs that are just submitted are not looked at
        assert tony.run("run", tony.workers("true", conf={"tony.yarn.cache-age": 2 * hour})).returncode == 0
        assert old in cluster.ls(CACHE)
    finally:
        tony.let_go(p)
    # The first of these may still be too early: the ResourceManager learns later than the client that a job is over.
    wait_until(lambda: tony.run("run", tony.workers("true", conf={"tony.yarn.cache-age": 2 * hour})).returncode == 0 and
               old not in cluster.ls(CACHE), "a later job removes it", 120)
    # an entry that is used often enough keeps its time up to date, also with a short age
    assert tony.run("run", tony.workers("true", resources=[str(base / "old")])).returncode == 0
    age(cluster, f"{CACHE}/{old}", hour)
    assert tony.run("run", tony.workers("true", resources=[str(base / "old")], conf={"tony.yarn.cache-age": 2 * hour})).returncode == 0
    assert cluster.ls(CACHE)[old]["modificationTime"] > time.time() * 1000 - hour / 2


def test_staging_of_ended_jobs_is_removed(tony, cluster):
    """The next submission removes staging directories that a killed client or a killed master has left."""
    app = APP.search(tony.ok("run", tony.workers("true"))).group()
    never = app[:-4] + "9876"
    for name, old in ((app, 10 * 1000), (never, 3600 * 1000)):
        cluster.hdfs("MKDIRS", f"/user/root/.tony/{name}", "PUT")
        age(cluster, f"/user/root/.tony/{name}", old)
    assert tony.run("run", tony.workers("true")).returncode == 0
    assert not {app, never} & set(cluster.ls("/user/root/.tony"))


@pytest.mark.slow
@pytest.mark.takes(13)
def test_many_clients_at_once(tony, cluster, base):
    """Ten machines submit jobs with the same new content at the same time."""
    (base / "shared.bin").write_bytes(os.urandom(2 << 20))
    job = tony.workers("cksum < shared.bin", role={"memory": "64m"}, conf={"tony.am.memory": "64m"}, resources=[str(base / "shared.bin")])
    before = set(cluster.ls(CACHE))
    clients = [tony.start("run", job, "--json", env={"TONY_HOME": str(base / f"home{i}")}) for i in range(10)]
    for p in clients:
        out, err = p.communicate(timeout=300)
        assert p.returncode == 0, err
    new = [name for name in set(cluster.ls(CACHE)) - before if "shared.bin" in cluster.ls(f"{CACHE}/{name}")]
    assert len(new) == 1
    # Files of killed clients stay longer.
    assert not [name for name in set(cluster.ls(CACHE)) - before if name.startswith("_COPYING_")]


def test_a_client_killed_while_it_stages(tony, cluster, base):
    """A half uploaded file is never used, and no job runs."""
    (base / "big").write_bytes(os.urandom(4 << 20))
    job = tony.workers("cksum < big", resources=[str(base / "big")])
    before = set(cluster.ls(CACHE))
    with halting(cluster, base / "conf") as conf:
        p = tony.start("run", job, env={"HADOOP_CONF_DIR": str(conf)})
        wait_until(lambda: any(name.startswith("_COPYING_") for name in set(cluster.ls(CACHE)) - before), "an upload")
        p.kill()
        p.communicate()
    assert not cluster.live_apps()
    assert not [n for n in set(cluster.ls(CACHE)) - before if not n.startswith("_COPYING_") and "big" in cluster.ls(f"{CACHE}/{n}")]
    app = APP.search(tony.ok("run", job)).group()
    sum_ = subprocess.run(["cksum"], stdin=open(base / "big", "rb"), capture_output=True, check=True).stdout.decode()
    assert [t for t in cluster.container_log(app, "stdout").values() if t] == [sum_]


# ---- waiting and killing ----

@pytest.mark.takes(12)
def test_a_silent_master(tony, cluster):
    """
    The client shows what is known about the job. The master does not react to Ctrl-C, so the client asks the
    ResourceManager.
    """
    p, app, _ = tony.gated()
    pid = next(pid for pid, line in cluster.processes().items() if line.startswith("./tony-master"))
    os.kill(pid, signal.SIGSTOP)
    try:
        logs = tony.start("logs", app)
        doc = tony.json("status", app)
        assert doc["state"] == doc["yarn_state"] == "RUNNING" and "does not answer" in doc["message"], doc
        r = tony.run("tasks", app)
        assert r.returncode == 0 and not r.stdout and "does not answer" in r.stderr, r.stdout + r.stderr
        os.kill(pid, signal.SIGCONT)
        out, err = logs.communicate(timeout=300)  # it has waited and not reported "no logs"; or it has waited its full time
        assert (logs.returncode, out, err) == (0, "", "") or logs.returncode == 4 and "does not answer" in err, out + err
        os.kill(pid, signal.SIGSTOP)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=300)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    assert p.returncode == 3, out + err
    assert cluster.await_app(app, "KILLED")["finalStatus"] == "KILLED"


@pytest.mark.takes(12)
def test_kill_while_the_master_does_not_answer(tony, cluster):
    first = tony.submit(tony.workers("sleep 600"))
    tony.await_state(first, "RUNNING")
    pid = next(pid for pid, line in cluster.processes().items() if line.startswith("./tony-master"))
    os.kill(pid, signal.SIGSTOP)
    try:
        r = tony.run("kill", first)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    assert r.returncode == 0, r.stderr
    assert cluster.await_app(first, "KILLED", "FINISHED")["finalStatus"] == "KILLED"


# ---- configuration ----

def test_a_job_file_in_hdfs(tony, cluster, base):
    path = tony.xml_file(**{"tony.worker.instances": "1", "tony.worker.memory": "64m", "tony.worker.command": "echo from hdfs",
                            "tony.application.framework": "standalone"})
    cluster.put("/user/root/tony.xml", path.read_bytes())
    fs = f"hdfs://127.0.0.1:{cluster.state['ports']['nn']}"
    try:
        app = APP.search(tony.ok("run", "--conf_file", fs + "/user/root/tony.xml", cwd=base)).group()
        r = tony.run("run", "--conf_file", "hdfs:///user/root/none.xml")
        assert r.returncode == 2 and "/user/root/none.xml" in r.stderr, r.stderr
    finally:
        cluster.remove("/user/root/tony.xml")
    assert tony.ok("logs", app, "worker:0", "--stdout") == "from hdfs\n"


def test_plan_when(tony):
    """Only the scheduler knows when a job on YARN will start. So `tony plan --when` says that, and shows the plan."""
    job = tony.workers("true", n=2)
    doc = tony.json("plan", job, "--when")
    assert list(doc["when"]) == ["unknown"] and "the ResourceManager's scheduler decides" in doc["when"]["unknown"], doc["when"]
    assert len(doc["tasks"]) == 2, doc
    assert "When it would start is unknown: on YARN the ResourceManager's scheduler decides" in tony.ok("plan", job, "--when")
    assert "when" not in tony.json("plan", job)


def test_doctor(tony, cluster):
    cluster.make_home("root")
    found = {c["name"]: c for c in tony.json("doctor")["checks"]}
    assert f"127.0.0.1:{cluster.state['ports']['rm']}" in found["YARN"]["value"] and found["YARN"]["state"] == "ok", found
    assert f"127.0.0.1:{cluster.state['ports']['nn_http']}" in found["HDFS"]["value"] and found["HDFS"]["state"] == "ok", found
    assert "no Kerberos" in found["isolation"]["value"]


# ---- decisions of the ResourceManager ----

def test_a_master_that_never_starts(tony, cluster):
    """No node takes it: the job fails after tony.am.startup-timeout, and no file is left."""
    for nm in ("nm1", "nm2"):
        cluster.signal(nm, "STOP")
    try:
        r = tony.run("run", tony.workers("true", conf={"tony.am.startup-timeout": 1000}))
    finally:
        for nm in ("nm1", "nm2"):
            cluster.signal(nm, "CONT")
    assert r.returncode == 1, r.stdout + r.stderr
    assert "FAILED" in r.stdout and "tony.am.startup-timeout" in r.stdout and "hdfs:" not in r.stdout, r.stdout
    assert cluster.await_app(APP.search(r.stderr).group(), "KILLED")
