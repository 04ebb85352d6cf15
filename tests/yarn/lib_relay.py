# SPDX-License-Identifier: Apache-2.0
"""
A proxy for WebHDFS on which uploads stop half way. So tests of an interrupted upload do not depend on its
speed.
"""

import contextlib
import http.client
import http.server
import shutil
import socket
import threading

HALT = 1 << 20  # the number of bytes after which the proxy forwards no more of a connection


class NameNode(http.server.BaseHTTPRequestHandler):
    """Forwards all requests. Redirects to the DataNode are changed, so that they lead through the proxy."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        nn, dn, detour = self.server.ports
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        to = http.client.HTTPConnection("127.0.0.1", nn)
        to.request(self.command, self.path, body)
        answer = to.getresponse()
        text = answer.read().replace(f":{dn}/".encode(), f":{detour}/".encode())
        self.send_response(answer.status)
        for name in ("Content-Type", "Location"):
            if value := answer.headers.get(name):
                self.send_header(name, value.replace(f":{dn}/", f":{detour}/"))
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        to.close()

    do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, *args):
        pass


def copy(from_, to, most=None):
    with contextlib.suppress(OSError):
        while (most is None or most > 0) and (data := from_.recv(65536 if most is None else min(most, 65536))):
            to.sendall(data)
            most = most and most - len(data)


@contextlib.contextmanager
def halting(cluster, folder):
    """
    A client configuration in the new directory `folder`. With it no upload of more than HALT bytes completes.
    """
    ports, held = cluster.state["ports"], []

    def serve(listener):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                node = socket.create_connection(("127.0.0.1", ports["dn_http"]))
                held.extend((client, node))
                threading.Thread(target=copy, args=(client, node, HALT), daemon=True).start()
                threading.Thread(target=copy, args=(node, client), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener, http.server.ThreadingHTTPServer(("127.0.0.1", 0), NameNode) as server:
        server.ports = (ports["nn_http"], ports["dn_http"], listener.getsockname()[1])
        for target, args in ((serve, (listener,)), (server.serve_forever, ())):
            threading.Thread(target=target, args=args, daemon=True).start()
        shutil.copytree(cluster.dir / "conf", folder)
        site = folder / "hdfs-site.xml"
        site.write_text(site.read_text().replace(f"127.0.0.1:{ports['nn_http']}", f"127.0.0.1:{server.server_port}"))
        try:
            yield folder
        finally:
            server.shutdown()
            for s in (listener, *held):  # wakes waiting threads
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
