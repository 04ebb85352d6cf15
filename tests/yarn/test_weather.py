# SPDX-License-Identifier: Apache-2.0
"""Faults of a cluster, a job or a configuration: the message names the fault, and nothing is left behind."""

import contextlib
import http.server
import json
import re
import shutil
import subprocess
import threading

import pytest
from lib_cluster import wait_until
from lib_tony import BIN


@contextlib.contextmanager
def not_found():
    """A web server without any page. Yields its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(404)

        do_PUT = do_POST = do_DELETE = do_GET

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
@pytest.mark.takes(8)
def test_the_resourcemanager_is_down(tony, cluster):
    cluster.signal("rm")
    r = tony.run("run", tony.workers("true", conf={"tony.application.num-client-rm-connect-retries": 3}), timeout=300)
    at = f"127.0.0.1:{cluster.state['ports']['rm']}"
    assert r.returncode == 4 and at in r.stderr, r.stderr
    r = tony.run("doctor", "--json")
    found = {c["name"]: c for c in json.loads(r.stdout)["checks"]}
    assert r.returncode == 1 and found["YARN"]["state"] == "wrong" and found["HDFS"]["state"] != "wrong", found
    assert at in found["YARN"]["value"], found
    r = tony.run("list", "--json", env={"TONY_CONF_DIR": str(tony.base)})
    assert r.returncode == 4 and at in r.stderr and json.loads(r.stdout) == {"jobs": []}, r.stderr


def test_no_configuration(tony):
    del tony.env["HADOOP_CONF_DIR"]
    r = tony.run("run", tony.workers("true"))
    assert r.returncode == 2 and "HADOOP_CONF_DIR" in r.stderr, r.stderr


@pytest.mark.parametrize("address", ["", "0.0.0.0:8032"])
def test_no_address_of_the_resourcemanager(tony, cluster, base, address):
    shutil.copytree(cluster.dir / "conf", base / "conf")
    site = base / "conf" / "yarn-site.xml"
    lines = [x for x in site.read_text().splitlines() if "yarn.resourcemanager" not in x or "address" not in x and "hostname" not in x]
    if address:
        lines.insert(2, f"<property><name>yarn.resourcemanager.address</name><value>{address}</value></property>")
    site.write_text("\n".join(lines))
    r = tony.run("run", tony.workers("true"), env={"HADOOP_CONF_DIR": str(base / "conf")})
    assert r.returncode == 2 and "yarn.resourcemanager" in r.stderr and "yarn-site.xml" in r.stderr, r.stderr


def test_unknown_queue(tony, cluster):
    r = tony.run("run", tony.workers("true", conf={"tony.yarn.queue": "nowhere"}))
    assert r.returncode == 2 and "nowhere" in r.stderr, r.stderr


def test_more_than_the_largest_node(tony, cluster):
    r = tony.run("run", tony.workers("true", role={"memory": "100g"}))
    assert r.returncode == 2 and "worker" in r.stderr and re.search(r"8 GB|8192|8g", r.stderr), r.stderr
    assert not cluster.live_apps()


def test_no_checks_leaves_the_refusal_to_the_cluster(tony, cluster):
    job = tony.workers("true", role={"memory": "100g"})
    ours, theirs = tony.run("submit", job), tony.run("submit", job, "--no-checks")
    assert ours.returncode == 2 and "worker" in ours.stderr, ours.stderr
    assert theirs.returncode == 0, theirs.stderr  # the master learns that no container is as large
    done = tony.run("wait", theirs.stdout.strip())
    assert done.returncode == 1 and "102400 MiB" in tony.run("why", theirs.stdout.strip()).stdout


def test_safe_mode(tony, cluster):
    subprocess.run([str(cluster.dir / "bin" / "hdfs"), "dfsadmin", "-safemode", "enter"], check=True, capture_output=True)
    try:
        r = tony.run("run", tony.workers("true"), timeout=300)
        assert r.returncode == 4 and "safe mode" in r.stderr, r.stderr
    finally:
        subprocess.run([str(cluster.dir / "bin" / "hdfs"), "dfsadmin", "-safemode", "leave"], check=True, capture_output=True)



def test_no_permission_on_the_home_directory(tony, cluster):
    cluster.hdfs("MKDIRS", "/user/stranger", "PUT", permission="755")  # belongs to root
    try:
        r = tony.run("run", tony.workers("true"), env={"HADOOP_USER_NAME": "stranger"})
        assert r.returncode == 4 and "/user/stranger" in r.stderr and "stranger" in r.stderr, r.stderr
        assert re.search("ermission|denied|may not", r.stderr), r.stderr
    finally:
        cluster.remove("/user/stranger")


def test_a_master_that_cannot_start(tony, cluster, base):
    """The client shows its error message."""
    programs = base / "bin"
    shutil.copytree(BIN, programs, ignore=lambda d, names: [n for n in names if n.endswith(".p")])
    (programs / "tony-master").write_text("#!/bin/sh\necho the master is broken >&2\nexit 3\n")
    p = tony.start("run", tony.workers("true"), executable=str(programs / "tony"))
    out, err = p.communicate(timeout=300)
    # 1 and not 4: YARN has accepted the job and started its master
    assert p.returncode == 1 and "the master is broken" in err, out + err


@pytest.mark.slow
@pytest.mark.takes(10)
def test_the_namenode_is_down(tony, cluster):
    cluster.signal("nn")
    r = tony.run("run", tony.workers("true", conf={"tony.application.num-client-rm-connect-retries": 3}), timeout=300)
    cluster.up()
    assert r.returncode == 4 and re.search(rf"127.0.0.1:{cluster.state['ports']['nn_http']}\b", r.stderr), r.stderr


def test_webhdfs_is_disabled(tony, cluster, base):
    """Then the NameNode's port answers with 404 and an HTML page."""
    with not_found() as port:
        shutil.copytree(cluster.dir / "conf", base / "conf")
        site = base / "conf" / "hdfs-site.xml"
        site.write_text(site.read_text().replace(f"127.0.0.1:{cluster.state['ports']['nn_http']}", f"127.0.0.1:{port}"))
        r = tony.run("run", tony.workers("true"), env={"HADOOP_CONF_DIR": str(base / "conf")})
        assert r.returncode == 4 and "dfs.webhdfs.enabled" in r.stderr and not cluster.live_apps(), r.stderr


def test_killed_by_hadoops_own_client(tony, cluster):
    p, app, _ = tony.gated()
    subprocess.run([str(cluster.dir / "bin" / "yarn"), "application", "-kill", app], check=True, capture_output=True, timeout=300)
    out, err = p.communicate(timeout=300)
    assert p.returncode == 3 and re.search("[Kk]illed", out), out + err
