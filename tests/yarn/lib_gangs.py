# SPDX-License-Identifier: Apache-2.0
"""Jobs that do not fit into the cluster together."""

from lib_cluster import wait_until

MIB = 1024  # memory of a worker; the cluster has room for 16


def workers(tony, n, queue, command="true", **conf):
    return tony.workers(command, n=n, role={"memory": f"{MIB}m"}, conf={"tony.yarn.queue": queue, **conf})


def asking(cluster):
    """Running applications that wait for containers."""
    return [a["id"] for a in cluster.apps(states="RUNNING") if cluster.app(a["id"]).get("resourceRequests")]


def two_jobs_of_sixty_percent(tony):
    """
    Each job needs 62 % of the cluster and gets half of it. They are in two queues, which YARN serves in turn,
    and a third job fills the cluster until both have asked. If both kept their containers, neither would ever
    get the rest. Both must succeed. Returns their output.
    """
    filling, _, _ = tony.gated(15, role={"memory": f"{MIB}m"})
    pair = [tony.start("run", workers(tony, 10, queue)) for queue in ("default", "second")]
    wait_until(lambda: len(asking(tony.cluster)) == 2 or any(p.poll() is not None for p in pair), "both jobs wait", 180, 0.1)
    tony.let_go(filling)
    said = ""
    for p in pair:
        out, err = p.communicate(timeout=300)
        assert p.returncode == 0, out + err
        said += err
    return said
