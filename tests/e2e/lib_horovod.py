# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for Horovod's ranks, and for a driver of the user."""

# A rank: it puts its data, waits for the data of the others, and prints what it found.
RANK = r'''
import os, sys, time, urllib.error, urllib.request
e = os.environ
url = "http://%s:%s" % (e["HOROVOD_GLOO_RENDEZVOUS_ADDR"], e["HOROVOD_GLOO_RENDEZVOUS_PORT"])
rank, size = int(e["HOROVOD_RANK"]), int(e["HOROVOD_SIZE"])
def ask(method, key, body=None):
    try:
        return urllib.request.urlopen(urllib.request.Request(url + key, data=body, method=method), timeout=30).read()
    except urllib.error.HTTPError as error:
        assert error.code == 404, error
        return None
stale = ask("GET", "/global/left-over")
ask("PUT", "/global/%d" % rank, b"\0rank %d" % rank)
while "GATE" in e and not os.path.exists(e["GATE"]):
    time.sleep(0.02)
for other in range(size):
    while (said := ask("GET", "/global/%d" % other)) is None:
        time.sleep(0.01)
    assert said == b"\0rank %d" % other, said
ask("PUT", "/global/left-over", b"x")
print("rank", rank, "of", size, "local", e["HOROVOD_LOCAL_RANK"], e["HOROVOD_LOCAL_SIZE"], "cross", e["HOROVOD_CROSS_RANK"],
      e["HOROVOD_CROSS_SIZE"], "stale", stale, flush=True)
ask("PUT", "/global/done-%d" % rank, b"1")
while any(ask("GET", "/global/done-%d" % other) is None for other in range(size)):
    time.sleep(0.01)
if rank == 1 and e["TONY_GENERATION"] == "1" and "AGAIN" in e:
    sys.exit(3)
if "AGAIN" in e and e["TONY_GENERATION"] == "1":
    time.sleep(1000)  # it would fail by its peer's end
'''

# A user's driver as the original allows it: it runs its own server, and writes the plan into a file beside
# it.
DRIVER = r'''
import http.server, json, os, threading
store = {}
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, code, body=b""):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(200, store[self.path]) if self.path in store else self.answer(404)
    def do_PUT(self):
        store[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200)
    def log_message(self, *a):
        pass
server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler)
print("workers", os.environ["CLUSTER_WORKER_LIST"], flush=True)
(host, n), = [x.split(":") for x in os.environ["CLUSTER_WORKER_LIST"].split(",")]
n = int(n)
# not the order that we would have given: the plan is the driver's; numbers may be strings, as in the original's own driver
plan = [{"hostname": host, "rank": str(n - 1 - i), "localRank": i, "crossRank": 0, "size": n, "localSize": n, "crossSize": 1}
        for i in range(n)]
path = os.path.join(os.environ["DRIVER_OUTPUT_PATH"], "%d____HOROVOD_RENDEZVOUS_SERVER____" % server.server_port)
with open(path, "w") as f:
    json.dump(plan, f)
server.serve_forever()
'''
