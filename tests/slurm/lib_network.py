# SPDX-License-Identifier: Apache-2.0
"""
A Slurm whose nodes have network namespaces, host names and addresses of their own, as machines have. They hang on a switch; the
controller and the clients are on it as well. The cable of a node can be pulled: then nothing tells its peers.
"""

import os
import subprocess

from lib_slurm import Slurm, as_user

NET = "10.77.0"
SWITCH_HOST = 254  # the last byte of the address of the controller and of the clients
PORT = 6818
# Run the words in this namespace, with these names of hosts. The mount is this process's own.
INSIDE = 'mount --bind "$0" /etc/hosts && exec "$@"'


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


class NetworkSlurm(Slurm):
    def __init__(self, directory, **kw):
        self.switch = f"ts{os.getpid()}"
        super().__init__(directory, **kw)

    def address(self, node):
        return f"{NET}.{self.names.index(node) + 1}"

    def namespace(self, node):
        return f"{self.switch}-{node}"

    def configure(self, cpus, memory, gpus, conf):
        super().configure(cpus, memory, gpus, conf)
        path, lines = self.dir / "slurm.conf", []
        for line in path.read_text().splitlines():
            if line.startswith("SlurmctldHost="):
                line = line.replace("127.0.0.1", f"{NET}.{SWITCH_HOST}")
            if line.startswith("NodeName="):
                node = line.split()[0].partition("=")[2]
                words = [w for w in line.split()[1:] if w.partition("=")[0] not in ("NodeHostname", "NodeAddr", "Port")]
                line = " ".join([f"NodeName={node} NodeHostname={node} NodeAddr={self.address(node)} Port={PORT}", *words])
            lines.append(line)
        path.write_text("\n".join(lines) + "\n")
        host = os.uname().nodename
        (self.dir / "hosts").write_text("127.0.0.1 localhost\n" + f"{NET}.{SWITCH_HOST} {host}\n" +
                                        "".join(f"{self.address(n)} {n}\n" for n in self.names))

    # ---- the network ----

    def start(self):
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "set", "lo", "up")
        ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
        ip("-n", self.switch, "address", "add", f"{NET}.{SWITCH_HOST}/24", "dev", "switch")
        ip("-n", self.switch, "link", "set", "switch", "up")
        for node in self.names:
            space = self.namespace(node)
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", self.switch, "link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("-n", self.switch, "link", "set", node, "master", "switch", "up")
            ip("-n", space, "address", "add", f"{self.address(node)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
        return super().start()

    def stop(self):
        super().stop()
        for space in [self.switch, *map(self.namespace, self.names)]:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)

    def pull(self, node):
        ip("-n", self.switch, "link", "set", node, "down")

    def plug_in(self, node):
        ip("-n", self.switch, "link", "set", node, "up")

    # ---- processes ----

    def inside(self, space, *words):
        return ["nsenter", f"--net=/run/netns/{space}", "unshare", "--mount", "sh", "-c", INSIDE, str(self.dir / "hosts"), *map(str, words)]

    def controller_on(self):
        self.launch("slurmctld", *self.inside(self.switch, "slurmctld", "-D", "-f", self.dir / "slurm.conf"))

    def power_on(self, node):
        script = (f"hostname {node}; mount --bind {self.dir}/hosts /etc/hosts; slurmd -D -N {node} -f {self.dir}/slurm.conf; "
                  "trap : TERM; while :; do sleep 1000; done")
        self.launch(node, "nsenter", f"--net=/run/netns/{self.namespace(node)}", "unshare", "--pid", "--fork", "--mount", "--mount-proc",
                    "--uts", "--kill-child=KILL", "sh", "-c", script)

    def run(self, *argv, user=None, **kw):
        return super().run(*self.inside(self.switch, *as_user(user), *argv), **kw)
