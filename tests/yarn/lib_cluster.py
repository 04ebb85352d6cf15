# SPDX-License-Identifier: Apache-2.0
"""The cluster of tests/fixtures/hadoop as an object: its state through REST, its daemons, its logs."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

FIXTURE = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "hadoop"
sys.path.insert(0, str(FIXTURE))
from hdcluster import daemons, procs  # noqa: E402

MASTERS = 30  # limit for one job; some tests kill many masters
ANSWER_S = 60  # on a busy machine a JVM may stop for seconds
FINAL = ("FINISHED", "FAILED", "KILLED")
LIVE = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")

# Lines that the daemons log without an application, or for any application; test_logs.py compares tony with
# an application that is not tony's.
ALLOWED = {
    r"AuthenticationFilter: Unable to initialize FileSignerSecretProvider": "this cluster has no file for it",
    r"NMLogAggregationStatusTracker": "log aggregation is off",
    r"out of sync with ResourceManager|Node not found resyncing": "a ResourceManager was restarted",
    r"MetricsConfig: Cannot locate configuration": "there is none",
    r"Exit code from container \S+ is : |Exception from container-launch .* and exit code": "a command failed, or was stopped",
    r"ContainerLaunch: Container launch failed : Container exited with a non-zero exit code": "the same",
    r"NMAuditLogger: .*OPERATION=Container Finished - (Failed|Killed)": "the same",
    r"RMAuditLogger: .*OPERATION=(AM Released Container|Application Finished - (Failed|Killed))": "surplus grants go back; jobs fail",
    r"DefaultContainerExecutor: delete returned false for path": "the NodeManager deletes the files of a container twice, anybody's",
    r"ContainersMonitorImpl: (Process tree for container|Container .* memory limit)": "a task uses too much memory, and is killed for it",
    r"Event EventType: KILL_CONTAINER sent to absent container \S+_000001$": "the ResourceManager has a master ended that has ended, anybody's",
    # The daemon may still log about an earlier test when the next one has begun.
    r"No application Attempt for application : \S+ started on this NM|RecoveredContainerLaunch: (Recovered container exited|Unable to locate pid)|"
    r"RMNodeImpl: Container \S+ was running but not reported from": "a NodeManager was restarted",
    r"couldn't find app \S+ while processing FINISH_CONTAINERS": "a grant went back unused, and the node has nothing else of the application",
    r"couldn't find container \S+ while processing FINISH_CONTAINERS": "the ResourceManager confirms an end to a node that has forgotten it",
    # A container's files were already fetched for another container, and this one ended before its own
    # localizer: that is interrupted.
    r"AsyncDispatcher thread interrupted|YarnUncaughtExceptionHandler: Thread Thread\[LocalizerRunner|"
    r"Can't handle this event at current state: Current: \[(EXITED_WITH_\w+|DONE)\], eventType: \[RESOURCE_FAILED\]": "its own race",
    r"ProcfsBasedProcessTree: Error reading the stream": "a process ended while the NodeManager looked at it",
    r"Failed to get \S+AppPlacementAllocator": "an ask is taken back while the scheduler, in another thread, looks at it",
    r"JvmPauseMonitor: Detected pause": "the machine is busy",
    r"ContainerCleanup: (\S+ exception trying to reap container|Exception when trying to cleanup container \S+: java.io.FileNotFoundException)":
        "it was gone before it was stopped, or its pid file",
}
THEIR_OWN = re.compile("|".join(ALLOWED))


def wait_until(condition, what, limit=180.0, pause=0.05):
    """Waits until condition() returns a true value, and returns that. At the deadline the test fails with the text
    `what`."""
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"within {limit} s: {what}"
        time.sleep(pause)


class Cluster:
    def __init__(self, directory):
        self.dir = pathlib.Path(directory)
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self.guard = None
        self.usual = []  # settings for a whole module

    # ---- the daemons ----

    def call(self, command, *args, timeout=900):
        done = subprocess.run([str(FIXTURE / "hadoop-cluster"), command, "--dir", str(self.dir), *map(str, args)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
        assert done.returncode == 0, f"hadoop-cluster {command} {args}: exit {done.returncode}\n{done.stdout}"
        return done.stdout

    def start(self, *args):
        self.guard = subprocess.Popen([str(FIXTURE / "hadoop-cluster"), "guard", "--dir", str(self.dir), "--pid", str(os.getpid())],
                                      start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
        return self.call("start", *args)

    def stop(self):
        self.call("stop")
        if self.guard:
            self.guard.kill()
            self.guard.wait()

    @property
    def state(self):
        return daemons.load(str(self.dir))

    def names(self):
        return daemons.names(self.state)

    def pid(self, daemon):
        return self.state["procs"][daemon]["pid"]

    def signal(self, daemon, name="KILL"):
        self.call("signal", daemon, name)

    def up(self, *args):
        self.call("up", *args)

    def restart(self, *which, settings=(), wait=True):
        self.call("restart", *([] if wait else ["--no-wait"]), *[x for s in [*self.usual, *settings] for x in ("--set", s)], *which)

    @contextlib.contextmanager
    def usually(self, *settings, restart):
        """For settings that several tests share: restarts the daemons that `restart` names with them, and without
        them at the end."""
        self.usual = list(settings)
        try:
            self.restart(*restart)
            yield self
        finally:
            self.usual = []
            self.restart(*restart)

    @contextlib.contextmanager
    def changed(self, *settings, restart, wait=True):
        """Restarts the daemons that `restart` names with these settings, and without them at the end."""
        try:
            self.restart(*restart, settings=settings, wait=wait)
            yield self
        finally:
            self.restart(*restart)

    def broken(self):
        """
        Is a daemon dead or stopped, the ResourceManager at its other address, or a setting not the usual one?
        """
        st, bad = self.state, []
        for name in daemons.names(st):
            entry = st["procs"].get(name)
            if not procs.alive(entry):
                bad.append(name)
            elif pathlib.Path("/proc", str(entry["pid"]), "stat").read_text().rpartition(")")[2].split()[0] in "tT":
                bad.append(name)
        if st["rm_at"] != 1 or st["changed"] != self.usual:
            bad.append("rm")
        return bad

    def repair(self):
        """
        Restores the state at the start, except for the files in HDFS. Returns a message about the repairs.
        """
        bad, st = self.broken(), self.state
        if not bad:
            return bad
        for name in bad:
            procs.send(st["procs"].get(name), signal.SIGCONT)
        if st["rm_at"] != 1:
            with contextlib.suppress(AssertionError):
                self.signal("rm")
        if st["changed"] != self.usual:
            files = {setting.partition(":")[0] for setting in set(st["changed"]) ^ set(self.usual)}
            self.restart(*[name for name in self.names() if files & {"core", "hdfs"} or name == "rm" and files & {"capacity", "yarn"}
                           or name.startswith("nm") and files & {"nm", "yarn"}])
        self.up("--rm-at", "1")
        return bad

    # ---- its REST interface ----

    def get(self, url):
        with self.opener.open(urllib.request.Request(url, headers={"Accept": "application/json"}), timeout=ANSWER_S) as answer:
            return answer.read().decode(errors="replace")

    def rm(self, path):
        """The JSON of the ResourceManager's /ws/v1/cluster/<path>."""
        return json.loads(self.get(f"{daemons.rm_web(self.state)}/ws/v1/cluster/{path}"))

    def jmx(self, daemon, query):
        port = {"nn": "nn_http", "dn": "dn_http", "rm": "rm_http"}.get(daemon, daemon + "_http")
        return json.loads(self.get(f"http://127.0.0.1:{self.state['ports'][port]}/jmx?qry={query}"))["beans"]

    def nm(self, daemon, path):
        return json.loads(self.get(f"http://127.0.0.1:{self.state['ports'][daemon + '_http']}/ws/v1/node/{path}"))

    def apps(self, **filters):
        query = urllib.parse.urlencode({"deSelects": "resourceRequests", **filters})
        return (self.rm("apps?" + query).get("apps") or {}).get("app", [])

    def app(self, app):
        return self.rm("apps/" + app)["app"]

    def live_apps(self):
        return [a["id"] for a in self.apps(states=",".join(LIVE))]

    def attempts(self, app):
        return self.rm(f"apps/{app}/appattempts")["appAttempts"]["appAttempt"]

    def await_app(self, app, *states, limit=180):
        return wait_until(lambda: (lambda a: a if a["state"] in states else None)(self.app(app)), f"{app} in {states}", limit, 0.05)

    def kill_app(self, app):
        request = urllib.request.Request(f"{daemons.rm_web(self.state)}/ws/v1/cluster/apps/{app}/state?user.name=root", method="PUT",
                                         data=b'{"state":"KILLED"}', headers={"Content-Type": "application/json"})
        with contextlib.suppress(urllib.error.HTTPError), self.opener.open(request, timeout=ANSWER_S):
            pass

    def nodes(self):
        return (self.rm("nodes").get("nodes") or {}).get("node", [])

    def containers(self, app=None):
        """Containers that the NodeManagers have not finished, by id; of one application, or all."""
        found = {}
        for nm in self.names()[3:]:
            with contextlib.suppress(OSError, ValueError):
                for c in (self.nm(nm, "containers").get("containers") or {}).get("container", []):
                    if app is None or app.partition("_")[2] in c["id"]:
                        found[c["id"]] = {**c, "nm": nm}
        return found

    def processes(self):
        """{pid: command line} of all processes in containers."""
        st = self.state
        own = {entry["pid"] for entry in st["procs"].values()}
        found = {}
        for pid in procs.belonging_to(st["dir"]):
            with contextlib.suppress(OSError):
                line = pathlib.Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if pid not in own and line:
                    found[pid] = line
        return found

    def environ(self, pid):
        """The environment with which a process was started; empty if it has ended."""
        with contextlib.suppress(OSError):
            pairs = pathlib.Path("/proc", str(pid), "environ").read_bytes().decode(errors="replace").split("\0")
            return dict(pair.partition("=")[::2] for pair in pairs if "=" in pair)
        return {}

    def scripts(self, app):
        """The launch script of each live container of an application, by container id."""
        return {path.parent.name: path.read_text(errors="replace")
                for path in sorted(self.dir.glob(f"nm/nm*/local/usercache/*/appcache/{app}/container_*/launch_container.sh"))}

    def container_log(self, app, name, container="*"):
        """
        The text of each file with this name in the log directories of an application's containers, by
        container id.
        """
        return {path.parent.name: path.read_text(errors="replace")
                for path in sorted(self.dir.glob(f"nm/nm*/logs/{app}/{container}/{name}"))}

    # ---- its logs ----

    def mark(self):
        """The present sizes of the logs, for complaints()."""
        return {name: (self.dir / "logs" / f"{name}.log").stat().st_size for name in self.names()}

    def log_since(self, mark, daemon):
        with open(self.dir / "logs" / f"{daemon}.log", "rb") as f:
            f.seek(mark.get(daemon, 0))
            return f.read().decode(errors="replace").splitlines()

    def complaints(self, mark, but=""):
        """
        Warnings and errors of ResourceManager and NodeManagers since then, without those that they log
        without tony, those about applications that were there before, and those in `but`.
        """
        with open(self.dir / "logs" / "rm.log", "rb") as f:
            before = set(re.findall(rb"application_(\d+_\d+)", f.read(mark.get("rm", 0))))

        def is_older(line):
            m = re.search(r"(?:application|appattempt|container_e\d+|container)_(\d+_\d+)", line)
            return m and m[1].encode() in before

        found = []
        for name in self.names():
            if name.startswith(("rm", "nm")):
                found += [f"{name}: {line}" for line in self.log_since(mark, name)
                          if re.match(r"\S+ \S+ (WARN|ERROR|FATAL) ", line) and not THEIR_OWN.search(line)
                          and not is_older(line) and not (but and re.search(but, line))]
        return found

    # ---- HDFS ----

    def hdfs(self, op, path, method="GET", user="root", data=None, **query):
        """A WebHDFS call. Returns the JSON of the answer, or its text."""
        query = urllib.parse.urlencode({"op": op, "user.name": user, **query})
        url = f"http://127.0.0.1:{self.state['ports']['nn_http']}/webhdfs/v1{urllib.parse.quote(path)}?{query}"
        if op == "CREATE":
            url = json.loads(self.get_with(url + "&noredirect=true", "PUT"))["Location"]
        text = self.get_with(url, method, data)
        try:
            return json.loads(text)
        except ValueError:
            return text

    def get_with(self, url, method, data=None):
        with self.opener.open(urllib.request.Request(url, method=method, data=data), timeout=ANSWER_S) as answer:
            return answer.read().decode(errors="replace")

    def exists(self, path):
        try:
            return self.hdfs("GETFILESTATUS", path)["FileStatus"]
        except urllib.error.HTTPError as e:
            if e.code == 404:
                return None
            raise

    def ls(self, path):
        """{name: status} of the directory's entries; empty if it does not exist."""
        if not self.exists(path):
            return {}
        return {s["pathSuffix"]: s for s in self.hdfs("LISTSTATUS", path)["FileStatuses"]["FileStatus"]}

    def tree(self, path):
        """All files below `path`, by their relative paths."""
        found = {}
        for name, status in self.ls(path).items():
            if status["type"] == "DIRECTORY":
                found.update({f"{name}/{k}": v for k, v in self.tree(f"{path}/{name}").items()})
            else:
                found[name] = status
        return found

    def read(self, path):
        return self.hdfs("OPEN", path)

    def make_home(self, user):
        """Makes a home directory, as an administrator would."""
        self.hdfs("MKDIRS", f"/user/{user}", "PUT", permission="755")
        self.hdfs("SETOWNER", f"/user/{user}", "PUT", owner=user)

    def put(self, path, data, user="root", **query):
        self.hdfs("CREATE", path, "PUT", user, data, overwrite="true", **query)

    def remove(self, path):
        self.hdfs("DELETE", path, "DELETE", recursive="true")
