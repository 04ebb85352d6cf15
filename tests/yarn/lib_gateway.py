# SPDX-License-Identifier: Apache-2.0
"""
A gateway: a network namespace that reaches the daemons of the cluster, and no master. Each daemon's port is
relayed by two processes, one on each side, through a unix socket, which does not belong to a namespace.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading

from lib_cluster import wait_until

DAEMONS = ("rm", "nn", "nn_http", "dn_http")


def copy(from_, to):
    with contextlib.suppress(OSError):
        while data := from_.recv(65536):
            to.sendall(data)
    with contextlib.suppress(OSError):
        to.shutdown(socket.SHUT_WR)


def relay(listener, connect):
    """Accepts connections for ever, and copies the bytes of each to and from a new connection that connect()
    makes."""
    with contextlib.suppress(OSError):
        while True:
            near, _ = listener.accept()
            far = connect()
            for pair in ((near, far), (far, near)):
                threading.Thread(target=copy, args=pair, daemon=True).start()


def to_unix(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    return s


def full_listener(port):
    """
    A listener that never accepts, and has no room for another connection: the kernel drops each further SYN, as a firewall
    that drops packets does. Returns what has to stay open.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(0)
    waiting = [socket.socket() for _ in range(3)]
    for s in waiting:
        s.setblocking(False)
        s.connect_ex(("127.0.0.1", port))
    return [listener, *waiting]


def serve(folder, ports, dark):
    """The gateway's side of the relays. Runs inside of the namespace."""
    kept = [full_listener(port) for port in dark]
    for port in ports:
        listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=relay, args=(listener, lambda p=port: to_unix(f"{folder}/{p}")), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    del kept


def can_gateway():
    return os.geteuid() == 0 and shutil.which("ip") and shutil.which("nsenter")


@contextlib.contextmanager
def gateway(cluster, folder, dark=()):
    """
    Yields the words before a command that is to run on the gateway. dark: ports to which it sends packets without an answer;
    other ports refuse connections.
    """
    ports = [cluster.state["ports"][name] for name in DAEMONS]
    folder.mkdir()
    listeners = []
    for port in ports:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/{port}")
        listener.listen(64)
        listeners.append(listener)
        threading.Thread(target=relay, args=(listener, lambda p=port: socket.create_connection(("127.0.0.1", p))), daemon=True).start()
    inside = subprocess.Popen(["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$0" "$@"', sys.executable, __file__,
                               str(folder), ",".join(map(str, dark)), *map(str, ports)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert wait_until(inside.stdout.readline, "the gateway") == "ready\n"
        yield ["nsenter", "-t", str(inside.pid), "-n"]
    finally:
        inside.stdin.close()
        inside.wait()
        for listener in listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()


if __name__ == "__main__":
    serve(sys.argv[1], [int(p) for p in sys.argv[3:]], [int(p) for p in sys.argv[2].split(",") if p])
