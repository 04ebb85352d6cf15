"""A node that has nothing: the containers run in a root directory without a libc. See lib_bare.py for how, and for what is there."""

import shutil
import subprocess

from lib_bare import bare_root
from lib_tony import BUILD


def floor(cluster, command, n=2):
    p = cluster.state["ports"]
    at = "127.0.0.1:{}".format
    return subprocess.run([str(BUILD / "bench" / "yarn-floor"), "--rm", at(p["rm"]), "--scheduler", at(p["rm_sched"]), "--namenode",
                           at(p["nn"]), "--webhdfs", f"http://{at(p['nn_http'])}/webhdfs/v1", str(n), command],
                          capture_output=True, text=True, timeout=90)


def test_the_root_is_bare(cluster, base):
    """Without this the other tests here would prove nothing: a static program runs, a dynamic one cannot."""
    with bare_root(cluster, base) as root:
        assert sorted(p.name for p in root.iterdir()) == sorted(["bin", "proc", "tmp", "dev"])
        done = floor(cluster, "/bin/ls /")
        assert done.returncode == 0, done.stderr
        listings = [text for app in cluster.apps() for text in cluster.container_log(app["id"], "stdout").values() if text]
        assert listings and all(text.split() == ["bin", "dev", "proc", "tmp"] for text in listings[-2:]), listings
        shutil.copy("/bin/true", root / "bin" / "dynamic")
        done = floor(cluster, "/bin/dynamic")
        assert done.returncode == 1 and "ended with 127" in done.stderr
