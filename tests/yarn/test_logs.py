# SPDX-License-Identifier: Apache-2.0
"""Jobs of tony cause no warnings in the logs of ResourceManager and NodeManagers."""

import re
import signal
import time

import pytest
from lib_cluster import wait_until
from lib_tony import APP, floor


@pytest.mark.slow
@pytest.mark.takes(10)
def test_jobs_cause_no_warnings_of_the_daemons(tony, cluster, base):
    """Jobs that succeed, fail or are killed. lib_cluster.py lists the allowed lines with their reasons."""
    (base / "src").mkdir()
    (base / "src" / "file").write_text("x")
    mark = cluster.mark()
    assert tony.run("run", tony.workers("test -e file", n=10, src=str(base / "src"))).returncode == 0
    # Runs in the master's container.
    assert tony.run("run", tony.job_file(None, command="true")).returncode == 0
    assert tony.run("run", tony.workers("exit 3", n=3)).returncode == 1
    assert tony.run("run", tony.workers("exit 3", n=3, conf={"tony.application.fail-on-worker-failure-enabled": "true"})).returncode == 1
    too_much = "exec python3 -c 'import time; x = b\"x\" * (300 << 20); time.sleep(60)'"
    assert tony.run("run", tony.workers(too_much)).returncode == 1
    p, app, _ = tony.gated(3)
    assert tony.run("kill", app).returncode == 0
    p.communicate(timeout=300)
    p, app, _ = tony.gated(3)
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=300)
    wait_until(lambda: not cluster.live_apps() and not cluster.processes(), "all is over", 180, 0.1)
    assert not cluster.complaints(mark)


def deleted_twice(cluster, mark, app):
    """Names of the application's files that the NodeManagers tried to delete twice, as they complain."""
    return {m[1] for nm in ("nm1", "nm2") for line in cluster.log_since(mark, nm)
            if (m := re.search(rf"delete returned false for path: \[.*/{app}/.*/([^/\]]+)\]", line))}


def test_a_nodemanager_deletes_twice_by_itself(tony, cluster):
    """
    The NodeManager deletes some files twice, and logs a warning, also for an application without tony. It
    does so some time after the end.
    """
    mark = cluster.mark()
    before = {a["id"] for a in cluster.apps()}
    assert floor(cluster, "/bin/true", 4).returncode == 0
    theirs, = {a["id"] for a in cluster.apps()} - before
    ours = APP.search(tony.ok("run", tony.workers("true", n=4))).group()
    deleted = {app: deleted_twice(cluster, mark, app) for app in (theirs, ours)}
    deadline = time.monotonic() + 180
    while not deleted[ours] or not deleted[ours] <= deleted[theirs] | {"tony-executor"}:
        assert time.monotonic() < deadline, deleted
        time.sleep(0.1)
        deleted = {app: deleted_twice(cluster, mark, app) for app in (theirs, ours)}


@pytest.mark.takes(15)
def test_a_large_log_of_a_finished_task(tony, cluster):
    """More than the client would keep in memory."""
    app = APP.search(tony.ok("run", tony.workers("head -c 75000000 /dev/zero | tr '\\0' 'x'; echo; echo last"))).group()
    assert tony.ok("logs", app, "worker:0", "-n", "1", "--stdout") == "last\n"
    assert len(tony.ok("logs", app, "worker:0", "--stdout")) == 75000000 + len("\nlast\n")
