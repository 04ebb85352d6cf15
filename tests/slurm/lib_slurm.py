# SPDX-License-Identifier: Apache-2.0
"""
A real Slurm with several nodes on this machine: munged, slurmctld, and a slurmd for each node in its own pid and mount
namespaces, with its own port. So a node can lose its power: its pid namespace is killed, and all its processes with it. The
configuration of the machine in /etc is neither read nor changed. Needs root and the packages of `tools/install-deps check`.
"""

import os
import pathlib
import pwd
import random
import signal
import socket
import subprocess
import time

LIMIT_S = 60
USER = "nobody"  # an ordinary user who exists on each machine
# Slurm's own limits on silence are minutes; tests need seconds.
CONF = {
    "ClusterName": "tony", "SlurmUser": "root", "SlurmdUser": "root", "AuthType": "auth/munge", "CredType": "cred/munge",
    "MpiDefault": "none", "SwitchType": "switch/none", "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none",
    "JobAcctGatherType": "jobacct_gather/none", "AccountingStorageType": "accounting_storage/none",
    "SelectType": "select/cons_tres", "SelectTypeParameters": "CR_Core_Memory", "SlurmdParameters": "config_overrides",
    "GresTypes": "gpu", "MaxTasksPerNode": "4096", "ReturnToService": "2", "SlurmctldTimeout": "10", "SlurmdTimeout": "8",
    "BatchStartTimeout": "10", "MessageTimeout": "10", "KillWait": "5", "MinJobAge": "30", "InactiveLimit": "0",
    "SchedulerParameters": "batch_sched_delay=0", "MailProg": "/bin/true",
    # jobs of the partition `high` take the nodes of the others, which get a notice
    "PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE", "SlurmctldParameters": "preempt_send_user_signal",
}
GRACE_S = 20  # of a preemption


def wait_until(condition, what, limit=LIMIT_S, pause=0.05):
    """Wait for the first true value of the condition, and return it."""
    deadline = time.monotonic() + limit
    while not (value := condition()):
        assert time.monotonic() < deadline, f"within {limit} s: {what}"
        time.sleep(pause)
    return value


def free_ports(n):
    """Ports below the range from which the kernel takes those of outgoing connections: nobody takes them meanwhile."""
    ports = []
    while len(ports) < n:
        port = random.randrange(10000, 20000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


class Slurm:
    def __init__(self, directory, nodes=3, cpus=8, memory=4000, gpus=0, **conf):
        self.dir = pathlib.Path(directory)
        self.names = [f"n{i + 1}" for i in range(nodes)]
        self.procs = {}
        self.configure(cpus, memory, gpus, {**CONF, **conf})

    # ---- files ----

    def configure(self, cpus, memory, gpus, conf):
        d, host = self.dir, socket.gethostname().partition(".")[0]
        for name, mode in (("munge", 0o711), ("state", 0o700), *((f"spool.{n}", 0o755) for n in self.names)):
            (d / name).mkdir(parents=True, exist_ok=True)
            (d / name).chmod(mode)  # every user has to reach the socket of munged
        d.chmod(0o755)
        (d / "munge/key").write_bytes(os.urandom(128))
        (d / "munge/key").chmod(0o400)
        ctld, *ports = free_ports(1 + len(self.names))
        conf = {**conf, "SlurmctldHost": f"{host}(127.0.0.1)", "SlurmctldPort": ctld, "AuthInfo": f"socket={d}/munge/socket",
                "StateSaveLocation": d / "state", "SlurmdSpoolDir": f"{d}/spool.%n", "SlurmctldPidFile": d / "slurmctld.pid",
                "SlurmdPidFile": f"{d}/slurmd.%n.pid", "SlurmctldLogFile": d / "slurmctld.log", "SlurmdLogFile": f"{d}/slurmd.%n.log"}
        gres = f" Gres=gpu:{gpus}" if gpus else ""
        lines = [f"{key}={value}" for key, value in conf.items()]
        lines += [f"NodeName={n} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={memory} State=UNKNOWN{gres}"
                  for n, port in zip(self.names, ports)]
        lines += [f"PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP GraceTime={GRACE_S}",
                  "PartitionName=short Nodes=ALL MaxTime=10 State=UP", "PartitionName=high Nodes=ALL PriorityTier=10 State=UP"]
        (d / "slurm.conf").write_text("\n".join(lines) + "\n")
        for i in range(gpus):  # a null device passes for a GPU
            if not (d / f"gpu{i}").exists():
                os.mknod(d / f"gpu{i}", 0o666 | 0o020000, os.makedev(1, 3))
        (d / "gres.conf").write_text(f"NodeName={','.join(self.names)} Name=gpu File={d}/gpu[0-{gpus - 1}]\n" if gpus else "")
        (d / "cgroup.conf").write_text("")

    # ---- daemons ----

    def environment(self):
        return {**os.environ, "SLURM_CONF": str(self.dir / "slurm.conf")}

    def launch(self, name, *argv):
        with open(self.dir / f"{name}.out", "ab") as out:
            self.procs[name] = subprocess.Popen(argv, env=self.environment(), cwd=self.dir, stdin=subprocess.DEVNULL, stdout=out,
                                                stderr=out, start_new_session=True)

    def end(self, name, sig=signal.SIGKILL):
        if process := self.procs.pop(name, None):
            process.send_signal(sig)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def power_on(self, node):
        """slurmd is the first process of the pid namespace's shell; the namespace dies with its first process."""
        self.launch(node, "unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child=KILL", "sh", "-c",
                    f"slurmd -D -N {node} -f {self.dir}/slurm.conf; trap : TERM; while :; do sleep 1000; done")

    def power_off(self, node):
        self.end(node)
        self.end(f"slurmd.{node}")

    def slurmd_off(self, node):
        """Stop only slurmd: the steps on the node run on."""
        pid = next(p for p in self.processes(node) if pathlib.Path(f"/proc/{p}/comm").read_text() == "slurmd\n")
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: pid not in self.processes(node), "slurmd has ended")

    def slurmd_on(self, node):
        first = self.processes(node)[0]  # the shell with which the namespace ends
        self.launch(f"slurmd.{node}", "nsenter", f"--target={first}", "--pid", "--mount", "slurmd", "-D", "-N", node, "-f",
                    str(self.dir / "slurm.conf"))

    def controller_on(self):
        self.launch("slurmctld", "slurmctld", "-D", "-f", str(self.dir / "slurm.conf"))

    def controller_off(self):
        self.end("slurmctld", signal.SIGTERM)  # it saves its state: after a KILL it would not know a job of the last seconds

    def munged_on(self):
        m = self.dir / "munge"
        (m / "socket").unlink(missing_ok=True)
        self.launch("munged", "munged", "--foreground", "--force", f"--key-file={m}/key", f"--socket={m}/socket",
                    f"--pid-file={m}/pid", f"--log-file={m}/log", f"--seed-file={m}/seed")
        wait_until((m / "socket").exists, "munged listens", pause=0.01)

    def start(self):
        self.munged_on()
        self.controller_on()
        for node in self.names:
            self.power_on(node)
        wait_until(self.is_idle, f"all nodes are idle; see {self.dir}/*.log")
        return self

    def reconfigure(self, **changes):
        """Other settings of slurm.conf; without arguments, the first ones again."""
        path = self.dir / "slurm.conf"
        self.first_conf = getattr(self, "first_conf", path.read_text())
        lines = [line for line in self.first_conf.splitlines() if line.partition("=")[0] not in changes]
        path.write_text("\n".join([f"{key}={value}" for key, value in changes.items()] + lines) + "\n")
        done = self.run("scontrol", "reconfigure")
        assert done.returncode == 0, done.stderr

    def stop(self):
        for node in self.names:
            self.power_off(node)
        self.end("slurmctld", signal.SIGTERM)
        self.end("munged", signal.SIGTERM)

    def repair(self):
        """All daemons run again, and all nodes take jobs."""
        if "munged" not in self.procs:
            self.munged_on()
        if "slurmctld" not in self.procs:
            self.controller_on()
        for node in self.names:
            if node not in self.procs:
                self.power_on(node)
        wait_until(lambda: not self.jobs() and self.is_idle(), f"all nodes are idle; see {self.dir}/*.log")

    # ---- questions ----

    def run(self, *argv, user=None, **kw):
        kw = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 120, **kw}
        return subprocess.run([*as_user(user), *map(str, argv)], env={**self.environment(), **kw.pop("env", {})}, **kw)

    def states(self):
        return self.run("sinfo", "-h", "-N", "-p", "all", "-o", "%t").stdout.split()

    def is_idle(self):
        return self.states() == ["idle"] * len(self.names)

    def job(self, number, what="%T"):
        """A field of `squeue`; "" if Slurm has forgotten the job."""
        return self.run("squeue", "-h", "-t", "all", "-j", str(number), "-o", what).stdout.strip()

    def jobs(self, *states):
        """The numbers of the jobs that have not ended, or of those in these states."""
        return self.run("squeue", "-h", *(["-t", ",".join(states)] if states else []), "-o", "%i").stdout.split()

    def processes(self, node):
        """The pids of all processes of a node, as this namespace sees them."""
        first = f"/proc/{self.procs[node].pid}"
        below, found = [first], []
        while below:
            at = below.pop()
            try:
                children = pathlib.Path(at, "task", at.rpartition("/")[2], "children").read_text().split()
            except OSError:
                continue
            found += map(int, children)
            below += [f"/proc/{c}" for c in children]
        return found


def as_user(user):
    if not user:
        return []
    entry = pwd.getpwnam(user)
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
