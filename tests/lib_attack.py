# SPDX-License-Identifier: Apache-2.0
"""
What another user of the machine tries against a job: a program, the plan that it reads, and programs that hold what
tony or its tasks want to have. They need only the modules of Debian's python3-minimal.
"""

import ast

# Runs as the other user. Its standard input is a plan (plan_text()). Prints all that worked, as a list of sentences;
# nothing should work.
ATTACK = r'''
import ast, os, socket, subprocess, sys
plan = ast.literal_eval(sys.stdin.read())
worked = []

def attempt(what, do):
    try:
        found = do()
    except (OSError, subprocess.SubprocessError):
        return
    if found:
        worked.append(f"{what}: {found!r}")

def read(path):
    with open(path, "rb") as f:
        return f.read(100) or "empty"

def read_all(path):
    with open(path, "rb") as f:
        return f.read()

def append(path):
    with open(path, "ab") as f:
        return "opened"

def link(path):
    os.link(path, f"/tmp/linked-{os.getpid()}")
    os.unlink(f"/tmp/linked-{os.getpid()}")
    return "linked"

def unix(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(path)
        s.sendall(b'{"step":4711,"total":4711}\n')
        return s.recv(100)

def tcp(port, text):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.sendall(text)
        return s.recv(100)

def steal(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", port))
        s.listen()
        return "bound"

for directory in plan["directories"]:
    attempt(f"list {directory}", lambda: os.listdir(directory))
    attempt(f"make a file in {directory}", lambda: append(os.path.join(directory, "mine")))
for path in plan["files"]:
    attempt(f"read {path}", lambda: read(path))
    attempt(f"write {path}", lambda: append(path))
    attempt(f"remove {path}", lambda: os.unlink(path) or "removed")
    attempt(f"link {path}", lambda: link(path))
for path in plan["writes"]:
    attempt(f"write {path}", lambda: append(path))
for path in plan["sockets"]:
    attempt(f"connect {path}", lambda: unix(path))
for name in plan["abstract"]:
    attempt(f"connect @{name}", lambda: unix("\0" + name))
for port in plan["ports"]:
    for text in plan["texts"]:
        attempt(f"connect {port}", lambda: tcp(port, text.encode()))
    attempt(f"bind {port}", lambda: steal(port))
for pid in plan["pids"]:
    for file in ("environ", "mem", "maps"):
        attempt(f"/proc/{pid}/{file}", lambda: read(f"/proc/{pid}/{file}"))
    attempt(f"/proc/{pid}/fd", lambda: os.listdir(f"/proc/{pid}/fd"))
    for signal in (1, 9, 15):
        attempt(f"kill -{signal} {pid}", lambda: os.kill(pid, signal) or "sent")
    attempt(f"secrets in the command line of {pid}",
            lambda: [word for word in plan["secrets"] if word.encode() in read_all(f"/proc/{pid}/cmdline")])
for argv in plan["commands"]:
    r = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if r.returncode == 0 or plan["application"] in r.stdout:
        worked.append(f"{argv}: {r.returncode} {r.stdout} {r.stderr}")
print(repr(worked))
'''

KEYS = ("directories", "files", "writes", "sockets", "abstract", "ports", "texts", "pids", "secrets", "commands")


def plan_text(**plan):
    """The input of ATTACK. writes: files that others may read, but not write."""
    return repr({**{key: [] for key in KEYS}, "application": "application_", **plan})


def worked(output):
    """What ATTACK has printed, as a list."""
    return ast.literal_eval(output)


# The first bytes that an attacker may send to a rendezvous server.
PUT = "PUT /s/k HTTP/1.1\r\nContent-Length: 5\r\n\r\nwrong"
GET = "GET /s/k HTTP/1.1\r\n\r\n"
FIRST_BYTES = [PUT, GET, "DELETE /s/k HTTP/1.1\r\n\r\n", "cmd=initack pmiid=0\n", "\x00\x01\x00\x00\x00\x00\x00\x00\x00k"]

# A rank of the job: puts a key, and gets it. $1: the port of the server.
OWN = """
import socket, sys
for text in ("PUT /s/k HTTP/1.1\\r\\nContent-Length: 5\\r\\n\\r\\nright", "GET /s/k HTTP/1.1\\r\\n\\r\\n"):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) as s:
        s.sendall(text.encode())
        print(s.makefile().read())
"""

# Locks a file as a claim on a GPU. $1: the index of the GPU, $2: the directory of claims. Prints its pid.
CLAIM = """
import fcntl, os, sys, time
with open(f"{sys.argv[2]}/tony-gpu-{sys.argv[1]}-0123456789abcdef", "w") as f:
    fcntl.flock(f, fcntl.LOCK_EX)
    print(os.getpid(), flush=True)
    time.sleep(100000)
"""

# Listens at a port that another user has reserved. $1: the port. Prints a line for each connection, with what it sent.
LISTEN = """
import socket, sys
with socket.socket() as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", int(sys.argv[1])))
    s.listen()
    print("bound", flush=True)
    while True:
        c, _ = s.accept()
        print("connected", c.recv(100), flush=True)
        c.sendall(b"welcome")
        c.close()
"""
