# SPDX-License-Identifier: Apache-2.0
"""Jobs that do not fit beside each other."""

from lib_cluster import wait_until

MIB = 1024  # a worker's memory; the cluster has 16 of them


def workers(tony, n, queue, command="true", **conf):
    return tony.workers(command, n=n, role={"memory": f"{MIB}m"}, conf={"tony.yarn.queue": queue, **conf})


def asking(cluster):
    """Running applications that wait for containers."""
    return [a["id"] for a in cluster.apps(states="RUNNING") if cluster.app(a["id"]).get("resourceRequests")]


def two_jobs_of_sixty_percent(tony):
    """Each needs 62 % of the cluster and gets half: from two queues, which are served in turn, and out of a cluster that a third job
    has filled until both have asked. Neither would ever get the rest if both held on to what they have. Both must end well; gives
    what they said."""
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
