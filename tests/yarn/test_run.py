# SPDX-License-Identifier: Apache-2.0
"""A job on a cluster, from its submission to its end, as the user of `tony` sees it."""

import contextlib
import html
import json
import os
import pathlib
import re
import signal
import urllib.parse
import zipfile

import pytest
from lib_cluster import ANSWER_S, wait_until
from lib_tony import APP, ROOT, Tony


def test_run_succeeds(tony, cluster):
    mark = cluster.mark()
    r = tony.run("run", tony.workers("echo out $JOB_NAME $TASK_INDEX; echo err >&2", n=2))
    assert r.returncode == 0, r.stderr
    app = APP.search(r.stdout).group()
    assert f"job {app} SUCCEEDED" in r.stdout
    report = cluster.await_app(app, "FINISHED")
    assert (report["state"], report["finalStatus"], report["applicationType"], report["user"]) == ("FINISHED", "SUCCEEDED", "TONY", "root")
    assert sorted(t for t in cluster.container_log(app, "stdout").values() if t) == ["out worker 0\n", "out worker 1\n"]
    assert sorted(t for t in cluster.container_log(app, "stderr").values() if t == "err\n") == ["err\n"] * 2
    assert not cluster.complaints(mark)


def test_a_history_of_a_newer_version_is_refused(tony, cluster):
    app = tony.submit(tony.workers("true"))
    tony.ok("wait", app)
    path = f"/user/root/.tony/history/{app}/status.json"
    cluster.await_app(app, "FINISHED")  # until then the master answers
    cluster.put(path, b'{"format":99,"version":"9.0","state":"SUCCEEDED"}')
    for command in ("status", "why"):
        r = tony.run(command, app)
        assert r.returncode == 4 and "format 99" in r.stderr and "9.0" in r.stderr, (r.returncode, r.stdout, r.stderr)


@pytest.mark.parametrize("command, code, cause", [
    ("exit 7", 1, {"exit_code": 7, "reason": "exited"}),
    ("kill -SEGV $$", 1, {"signal": signal.SIGSEGV}),
    ("exit 255", 1, {"exit_code": 255}),
])
def test_a_failure_has_its_cause(tony, cluster, command, code, cause):
    r = tony.run("run", tony.workers(f"echo why >&2; {command}"), "--json")
    assert r.returncode == code, r.stderr
    doc = json.loads(r.stdout)
    assert doc["state"] == "FAILED" and doc["cause"]["task"] == "worker:0"
    assert {k: doc["cause"][k] for k in cause} == cause
    assert "why" in doc["cause"]["stderr_tail"]
    report = cluster.await_app(doc["application_id"], "FINISHED")
    assert report["finalStatus"] == "FAILED" and "worker:0" in report["diagnostics"]


def test_the_resourcemanager_gets_queue_tags_and_resources(tony, cluster):
    path = tony.workers("sleep 600", conf={"tony.yarn.queue": "second", "tony.application.tags": "Red,blue",
                                          "tony.worker.vcores": 3}, role={"memory": "100m"})
    app = tony.submit(path)
    report = cluster.await_app(app, "RUNNING")
    assert (report["name"], report["queue"].rpartition(".")[2]) == ("test", "second")
    assert sorted(report["applicationTags"].split(",")) == ["blue", "red"]
    got = wait_until(lambda: [c for c in cluster.containers(app).values() if c["totalVCoresNeeded"] == 3], "the worker's container")
    assert got[0]["totalMemoryNeededMB"] == 128  # the scheduler rounds up
    assert tony.run("kill", app).returncode == 0
    assert cluster.await_app(app, "KILLED", "FINISHED")["finalStatus"] == "KILLED"


def test_other_commands_from_another_machine(tony, cluster, base):
    app = tony.submit(tony.workers("echo hello; sleep 600", n=2))
    assert tony.run("status", app).returncode == 0
    tony.await_state(app, "RUNNING")
    other_base = base / "other"
    other_base.mkdir()
    other = Tony(other_base, cluster)
    doc = other.status(app)
    assert doc["state"] == "RUNNING" and [x["running"] for x in doc["roles"]] == [2]
    assert sorted(other.tasks(app)) == ["worker:0", "worker:1"]
    wait_until(lambda: "hello" in other.ok("logs", app, "worker:1"), "the log")
    assert app in other.ok("list")
    assert other.run("kill", app).returncode == 0
    assert other.run("wait", app).returncode == 3
    assert other.status(app)["state"] == "KILLED"
    assert "hello" in other.ok("logs", app, "worker:1")


def test_wait(tony):
    app = tony.submit(tony.workers("sleep 1"))
    assert tony.run("wait", app).returncode == 0


def test_ctrl_c_stops_the_job(tony, cluster):
    p = tony.start("run", tony.workers("sleep 600"))
    wait_until(lambda: any("sleep 600" in x for x in cluster.processes().values()), "the task")
    app = cluster.live_apps()[0]
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=300)
    assert p.returncode == 3, err
    assert cluster.await_app(app, "FINISHED", "KILLED")["finalStatus"] == "KILLED"


def test_shipped_files_and_archives(tony, base):
    src = base / "src"
    (src / "sub" / "empty").mkdir(parents=True)
    (src / "run.sh").write_text("#!/bin/bash\ntest -x run.sh && test -L link && test -d sub/empty && echo mine > written && cat link data.txt lib/in.txt\n")
    (src / "run.sh").chmod(0o750)
    (src / "file").write_text("linked\n")
    (src / "link").symlink_to("file")
    (base / "words.txt").write_text("words\n")
    with zipfile.ZipFile(base / "lib.zip", "w") as z:
        z.writestr("in.txt", "zipped\n")
    job = tony.workers("./run.sh", n=2, src=str(src), resources=[f"{base}/words.txt::data.txt", f"{base}/lib.zip::lib#archive"])
    r = tony.run("run", job)
    assert r.returncode == 0, r.stderr
    app = APP.search(r.stdout).group()
    assert [t for t in tony.cluster.container_log(app, "stdout").values() if t] == ["linked\nwords\nzipped\n"] * 2


def test_a_job_file_that_is_large(tony, cluster):
    """A job file that is too large to be sent with the tokens of the master's container is staged in HDFS."""
    p, app, _ = tony.gated(tail="; test ${#TEXT} = 100000", role={"env": {"TEXT": "x" * 100000}})
    assert {"job.conf", "yarn.json", "client.key"} <= set(cluster.tree(f"/user/root/.tony/{app}"))
    tony.let_go(p)


def test_a_second_submission_uses_the_cache(tony, cluster, base):
    (base / "big").write_bytes(os.urandom(1 << 20))
    job = tony.workers("true", n=2, resources=[str(base / "big")])
    assert tony.run("run", job).returncode == 0
    cache = {k: v["modificationTime"] for k, v in cluster.tree("/user/root/.tony/cache").items()}
    assert cache
    written = cluster.jmx("dn", "Hadoop:service=DataNode,name=DataNodeActivity*")[0]["BytesWritten"]
    assert tony.run("run", job).returncode == 0
    assert {k: v["modificationTime"] for k, v in cluster.tree("/user/root/.tony/cache").items()} == cache
    assert cluster.jmx("dn", "Hadoop:service=DataNode,name=DataNodeActivity*")[0]["BytesWritten"] - written < 100000


def test_keys_are_private_and_in_no_process(tony, cluster):
    app = tony.submit(tony.workers("env; sleep 600"))
    tony.await_state(app, "RUNNING")
    home = f"/user/root/.tony/{app}"
    assert cluster.exists(home)["permission"] == "700"
    key = cluster.read(home + "/client.key").strip()
    assert {s["permission"] for s in cluster.tree(home).values()} == {"600"}
    for pid in cluster.processes():
        for name in ("environ", "cmdline"):
            with contextlib.suppress(OSError):  # the process has ended meanwhile
                assert key.encode() not in pathlib.Path("/proc", str(pid), name).read_bytes()
    for folder, _, names in os.walk(cluster.dir / "nm"):
        for path in [pathlib.Path(folder, name) for name in names]:
            if path.name in ("launch_container.sh", "stdout", "stderr", "executor.log", "directory.info"):
                with contextlib.suppress(OSError):  # the files of this container are being deleted
                    assert key not in path.read_text(errors="replace"), path
    tony.ok("kill", app)


def test_the_page_is_served_through_the_proxy(tony, cluster):
    """The page and all its links work below the ResourceManager's /proxy/<application>/."""
    p, app, _ = tony.gated(2, role={"env": {"SECRET": "hunter2"}})
    url = cluster.app(app)["trackingUrl"]
    assert f"/proxy/{app}" in url, url
    with cluster.opener.open(url, timeout=ANSWER_S) as answer:
        page, url = answer.read().decode(), answer.url
    assert app in page and page.count("<td>worker:") == 2 and "RUNNING" in page and "hunter2" not in page, page
    links = {html.unescape(text): urllib.parse.urljoin(url, html.unescape(to))
             for to, text in re.findall(r'<a href="([^"]*)">([^<]*)</a>', page)}
    doc = json.loads(cluster.get(links["as JSON"]))
    assert f"/proxy/{app}/" in links["as JSON"] and [t["task"] for t in doc["tasks"]] == ["worker:0", "worker:1"], doc
    assert "yarn.registered" in cluster.get(links["the master's log"] + "/stderr?start=0") and "stdout" in cluster.get(links["all"])
    tony.let_go(p)


@pytest.mark.slow
def test_the_digits_are_learned(tony):
    r = tony.run("run", ROOT / "examples" / "digits" / "job.yaml")
    assert r.returncode == 0, r.stderr
    app = APP.search(r.stdout).group()
    assert re.search(r"accuracy\D*0\.9", tony.ok("logs", app, "worker:0")), tony.ok("logs", app, "worker:0")
