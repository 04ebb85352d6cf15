"""The command line on a cluster: logs, uploads, the cache, killing, doctor."""

import http.server
import re
import shutil
import threading

from lib_cluster import wait_until
from lib_tony import APP

CACHE = "/user/root/.tony/cache"


# ---- logs ----

def test_logs_right_after_the_end(tony):
    """Also in the moment between the master's last word and the ResourceManager's."""
    job = tony.workers("echo hello from $TASK_INDEX", n=2)
    for _ in range(5):
        app = APP.search(tony.ok("run", job)).group()
        assert tony.ok("logs", app, "worker:1", "--stdout") == "hello from 1\n"
        assert tony.run("logs", app, "worker:2").returncode == 2


def test_logs_are_followed_to_the_end(tony, base):
    """Through the whole life: from before the start to what is written last."""
    app = tony.submit(tony.workers(f"for i in 1 2 3; do echo line $i; done; while [ ! -e {base}/go ]; do sleep 0.1; done; echo last"))
    with open(base / "out", "w") as out:
        follower = tony.start("logs", app, "-f", "--stdout", stdout=out)
        wait_until(lambda: (base / "out").read_text() == "line 1\nline 2\nline 3\n", "the first lines")
        (base / "go").touch()
        _, err = follower.communicate(timeout=60)
    assert follower.returncode == 0, err
    assert (base / "out").read_text() == "line 1\nline 2\nline 3\nlast\n"
    assert tony.run("wait", app).returncode == 0
    assert tony.ok("logs", app, "--stdout", "-n", "2") == "line 3\nlast\n"


class LogServer(http.server.BaseHTTPRequestHandler):
    """A history server: sends on once, then gives a file with its own head and foot."""

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
