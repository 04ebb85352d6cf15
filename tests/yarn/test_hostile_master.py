# SPDX-License-Identifier: Apache-2.0
"""
A master that lies to the arbiter over a valid key. eve's programs contain a master (tests/hostile/share.c) that answers
the arbiter as a file tells it. Her job is registered, so the arbiter asks it. Only her own job may suffer.
"""

import contextlib
import json
import shutil
import time

import pytest
from lib_cluster import wait_until
from lib_tony import BIN, BUILD, Tony
from test_arbiter import WAIT, arbiter, elastic, running, site, until  # noqa: F401 (a fixture)

HOSTILE = BUILD / "tests" / "hostile" / "tony-master"
SITE = """
conf:
  tony.application.num-client-rm-connect-retries: 60
  tony.pool.policy: drf
  tony.pool.policy.interval: 200
  tony.pool.policy.resize-limit: 20000
"""
# The false answers, by what the arbiter does with them: it leaves the job alone, or believes the master. While it waits for
# one of HOLDS_UP, the jobs of others must not have to wait for longer than resize-limit.
LEFT_ALONE = ("more", "huge", "none", "elsewhere", "negative", "overflow", "real", "text", "screen", "list", "twice", "changes",
              "silent", "nomem", "many", "deep", "large")
BELIEVED = ("less", "times", "waits")
HOLDS_UP = ("waits", "changes", "agrees", "refuses", "silent")


@pytest.fixture
def users(tony, site, tmp_path_factory):  # noqa: F811
    """ada, with the programs of all; eve, with her own master. Both register their jobs for this user's arbiter."""
    key = tony.ok("arbiter", "key", "--queue", "default").strip()
    (tony.base / "site" / "tony-site.yaml").write_text(SITE)
    found = []
    for name in ("ada", "eve"):
        base = tmp_path_factory.mktemp(name)
        user = Tony(base, tony.cluster, HADOOP_USER_NAME=name)
        (base / "site" / "tony-site.yaml").write_text(SITE + f"  tony.yarn.arbiter-keys: {json.dumps(key)}\n")
        tony.cluster.make_home(name)
        found.append(user)
    programs = found[1].base / "bin"
    programs.mkdir()
    for program in BIN.iterdir():
        if program.is_file():
            shutil.copy(HOSTILE if program.name == "tony-master" else program, programs / program.name)
    found[1].bin = programs
    return found


class Liar:
    """eve's job: 2 workers, 1 to 4 of them."""

    def __init__(self, eve):
        self.file = eve.base / "lie"
        role = {"memory": "1g", "min-instances": 1, "max-instances": 4, "resize": "live"}
        self.app = eve.submit(eve.workers(f": LIES={self.file} ; {WAIT}", n=2, role=role))
        wait_until(lambda: running(eve, self.app) == 2, "eve's job runs")

    def say(self, lie):
        """Tells the master its next answer. The file is replaced by a rename, so that the master never reads half
        of it."""
        new = self.file.with_suffix(".new")
        new.write_text(lie)
        new.replace(self.file)


def look(tony):
    """{application: (containers that it has, containers that the arbiter would give it)}."""
    began = time.monotonic()
    r = tony.run("arbiter", "run", "--queue", "default", "--once", "--dry-run", "--json")
    assert r.returncode == 0, r.stderr
    assert "\033" not in r.stdout + r.stderr
    assert time.monotonic() - began < 60, "the arbiter waits for a hostile master for 6 s at most"
    return {j["application_id"]: (j["has"], j["target"]) for j in json.loads(r.stdout)["jobs"]}


@contextlib.contextmanager
def a_lie(liar, word):
    liar.say(word)
    try:
        yield
    except AssertionError as e:
        raise AssertionError(f"eve's master says '{word}': {e}") from None


@pytest.mark.slow
@pytest.mark.skipif(not HOSTILE.exists(), reason="the tests are not built")
def test_only_the_liar_suffers(tony, users):
    """Each lie, seen by an arbiter that has just started: ada's job is decided on as if eve's job were any other application."""
    ada, eve = users
    honest = elastic(ada, 4, 2, 8)
    wait_until(lambda: running(ada, honest) == 4, "ada's job runs")
    liar = Liar(eve)
    assert look(tony) == {honest: (4, 8), liar.app: (2, 4)}
    for word in LEFT_ALONE:
        with a_lie(liar, word):
            assert look(tony) == {honest: (4, 8)}
    for word in BELIEVED:
        with a_lie(liar, word):
            assert look(tony)[honest] == (4, 8)

    # An arbiter that runs: eve's job cannot keep ada's from growing for longer than resize-limit.
    for word in HOLDS_UP:
        with a_lie(liar, word), arbiter(tony):
            until(tony, lambda: running(ada, honest) == 8, "ada's job grows")
        assert running(eve, liar.app) >= 1
        ada.ok("resize", honest, "worker=4")
        wait_until(lambda: running(ada, honest) == 4 and "resize" not in ada.status(honest), "ada's job is small again")
    assert "\033" not in (tony.base / "arbiter.err").read_text()

    # Nor can it keep a job from starting for which ada's job has to shrink.
    liar.say("")
    with arbiter(tony):
        until(tony, lambda: running(ada, honest) == 8, "ada's job grows")
    with a_lie(liar, "refuses"), arbiter(tony):
        mine = elastic(tony, 6, 5, 8)
        until(tony, lambda: running(tony, mine) >= 5, "a third job starts")
        assert running(ada, honest) >= 2
    for user, app in ((tony, mine), (ada, honest), (eve, liar.app)):
        user.ok("kill", app)
