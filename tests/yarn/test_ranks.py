# SPDX-License-Identifier: Apache-2.0
"""
Several ranks in a container, and the store through which they find each other. It runs in the container of
rank 0.
"""

import re

from lib_tony import ROOT

PROGRAM = """
import os, signal, sys
sys.path.insert(0, {lib!r})
from lib_store import Older, Store
rank, size, again = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"))
print("at", os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"], "rank", rank, "again", again, flush=True)
s = (Older if rank % 2 else Store)()
assert s.add(f"come/{{rank}}") == 1
s.barrier("up", size)
if rank == again == 0:
    os.kill(os.getpid(), signal.SIGKILL)
if again == 0:
    signal.pause()
s.barrier("done", size)
"""


def test_ranks_meet_also_when_rank_0_was_killed(tony, base):
    """They meet again in the same containers, with a new and empty store. Each rank has its own log."""
    (base / "program.py").write_text(PROGRAM.format(lib=str(ROOT / "tests" / "e2e")))
    role = {"ranks": 2, "memory": "200m", "restart": "on-failure"}
    app = tony.submit(tony.workers(f"/usr/bin/python3 -S {base}/program.py", n=2, framework="pytorch", role=role))
    tony.run("wait", app)
    doc = tony.status(app)
    assert (doc["state"], doc["generation"]) == ("SUCCEEDED", 2), doc
    said = {rank: tony.ok("logs", app, f"worker:{rank // 2}", "--rank", rank % 2, "--stdout") for rank in range(4)}
    places = {re.match(r"at (\S+) rank \d again 1\n$", text)[1] for text in said.values()}
    assert len(places) == 1 and [text.split()[3] for text in said.values()] == ["0", "1", "2", "3"]
    first = next(t for t in doc["tasks"] if t["task"] == "worker:0")
    assert first["address"] in places and first["ranks"] == 2
    assert "local rank 0 of 2" in str(doc["failures"])
