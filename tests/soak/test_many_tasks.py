# SPDX-License-Identifier: Apache-2.0
"""Eight thousand tasks on one machine: their cluster spec does not fit into an environment variable."""

import json
import re

from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)

N = 8000


def test_eight_thousand_tasks(make_lab):
    lab = make_lab(site={"pool.memory": "64g"})
    command = 'test -z "$CLUSTER_SPEC" && test $TONY_INDEX != 7999 || cat $TONY_SPEC_FILE'
    r = lab.run("run", lab.workers(command, n=N, role={"memory": "1m", "vcores": 0}, conf={"tony.task.heartbeat-interval-ms": 10000}),
                timeout=300)
    assert r.returncode == 0, r.stderr[-2000:]
    app = re.search(r"application_\d+_\d+", r.stdout).group()
    doc = lab.status(app)
    assert doc["roles"][0]["succeeded"] == N and doc["epoch"] == 1 and doc["restarts"] == 0
    spec = json.loads((lab.dir(app) / "logs/worker-7999/1/stdout").read_text())
    assert len(set(spec["worker"])) == N
    lab.settled()
