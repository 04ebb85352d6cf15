# SPDX-License-Identifier: Apache-2.0
"""What tasks write, while they write it: by way of the master. And the record of submitted jobs."""

import os
import pathlib
import re

import pytest
from lib_cluster import wait_until
from lib_tony import APP


def app_of(done):
    return re.search(rf"^job ({APP.pattern}) ", done.stdout, re.M).group(1)


def test_run_shows_what_the_tasks_write(tony):
    """`tony run` also shows the output of tasks that end before the client has reached the master: it reads their
    logs at the end."""
    done = tony.run("run", tony.workers("echo out $TASK_INDEX; echo err $TASK_INDEX >&2", n=2))
    assert done.returncode == 0
    assert sorted(x for x in done.stdout.splitlines() if " | " in x) == ["worker:0 | out 0", "worker:1 | out 1"]
    assert sorted(x for x in done.stderr.splitlines() if " | " in x) == ["worker:0 | err 0", "worker:1 | err 1"]
    assert re.match(r"job application_\S+ SUCCEEDED in ", done.stdout.splitlines()[2])


def test_a_flood_is_shown_in_part_and_counted(tony):
    flood = "for i in 1 2 3 4 5 6 7 8 9 10; do head -c 10000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo; sleep 0.2; done"
    done = tony.run("run", tony.workers(flood))
    shown = sum(1 for x in done.stdout.splitlines() if " | " in x and "left out" not in x)
    left = sum(int(n.replace(",", "")) for n in re.findall(r"\[([\d,]+) lines? \([^)]*\) left out", done.stdout))
    assert done.returncode == 0 and shown + left == 10 * (10000000 // 99 + 1) and len(done.stdout) < 8 << 20


def test_several_tasks_are_followed_through_a_restart(tony, base):
    command = (f'echo run $TONY_RESTART_COUNT of $TASK_INDEX; while [ ! -e {base}/go ]; do sleep 0.1; done; '
               '[ "$TASK_INDEX$TONY_RESTART_COUNT" != 10 ]')
    app = tony.submit(tony.workers(command, n=2, conf={"tony.worker.restart": "on-failure", "tony.worker.max-restarts": "1",
                                                       "tony.worker.restart-scope": "task",
                                                       "tony.application.distributed-mode": "FCFS"}))
    with open(base / "out", "w") as out:
        follower = tony.start("logs", app, "-f", "worker:0", "worker:1", "--stdout", stdout=out)
        wait_until(lambda: (base / "out").read_text().count("run 0") == 2, "both tasks have written")
        (base / "go").touch()
        _, err = follower.communicate(timeout=300)
    assert follower.returncode == 0, err
    assert sorted((base / "out").read_text().splitlines()) == ["worker:0 | run 0 of 0", "worker:1 | run 0 of 1", "worker:1 | run 1 of 1"]
    assert sorted(tony.ok("logs", app, "--stdout", "--grep", "of 1$").splitlines()) == ["worker:1 | run 1 of 1"]


def test_the_list_has_the_end_that_run_has_told(tony):
    """And `last` means the job that was submitted last, whether it is on YARN or on this machine."""
    job = tony.workers("true")
    for _ in range(3):
        app = app_of(tony.run("run", job))
        row = next(x for x in tony.json("list")["jobs"] if x["application_id"] == app)
        assert (row["state"], row["live"]) == ("SUCCEEDED", False)
        assert tony.json("status", "last")["application_id"] == app
    local = tony.ok("submit", "--cluster", "local", tony.workers("true")).strip()
    try:
        assert tony.json("status", "last")["application_id"] == local
        assert tony.json("status", "last", "--cluster", "yarn")["application_id"] == app
    finally:
        tony.ok("wait", local)
        tony.run("pool", "stop")


def test_filters_of_the_list(tony):
    for name, command, code in (("filter-1", "true", 0), ("filter-2", "exit 3", 1)):
        assert tony.run("run", tony.workers(command, name=name)).returncode == code

    def names(*options):
        return [job["name"] for job in tony.json("list", "--name", "filter-*", *options)["jobs"]]

    assert names() == ["filter-2", "filter-1"]
    assert names("--state", "failed") == ["filter-2"] and names("--state", "succeeded") == ["filter-1"] and names("--state", "running") == []
    assert names("--since", "1h") == ["filter-2", "filter-1"] and names("--since", "1ms") == []
    assert names("--user", "nobody-of-that-name") == [] and names("--cluster", "yarn", "-n", "1") == ["filter-2"]
    assert names("--cluster", "local") == []


# Writes 10, 11 and 12 lines after the files go-1 to go-3. Before the last ones it opens its log again, as a daemon does
# when logrotate tells it to. (A text of the length of the truncated one is noticed when it becomes longer.)
WRITER = """log=$(readlink /proc/$$/fd/1); n=0
for turn in 1 2 3; do
    while [ ! -e {base}/go-$turn ]; do sleep 0.1; done
    if [ $turn = 3 ]; then exec >> "$log"; fi
    for i in $(seq $((9 + turn))); do n=$((n + 1)); echo "line $n"; done
done"""


@pytest.mark.parametrize("how", ["create", "copytruncate"])
def test_following_logs_that_are_rotated(tony, cluster, base, how):
    """A log in the directory of the NodeManager is rotated, by a rename or by copytruncate. No line is lost, and
    none comes twice."""
    app = tony.submit(tony.workers(WRITER.replace("{base}", str(base)), n=1))
    with open(base / "out", "w") as out:
        follower = tony.start("logs", app, "-f", "worker:0", "--stdout", stdout=out)
        for turn, last in ((1, 10), (2, 21), (3, 33)):
            (base / f"go-{turn}").touch()
            wait_until(lambda: f"line {last}\n" in (base / "out").read_text(), f"turn {turn} is shown", 120)  # pylint: disable=cell-var-from-loop
            if turn == 3:
                break
            if turn == 1:
                log = next(p for p in pathlib.Path(cluster.dir, "nm").glob(f"*/logs/{app}/*/stdout") if "line 1" in p.read_text())
            for old in sorted(log.parent.glob("stdout.?"), reverse=True):
                old.rename(old.with_name(f"stdout.{int(old.name[-1]) + 1}"))
            if how == "copytruncate":
                (log.parent / "stdout.1").write_bytes(log.read_bytes())
                os.truncate(log, 0)
            else:
                log.rename(log.parent / "stdout.1")
                log.touch(0o640)
        _, err = follower.communicate(timeout=300)
    assert follower.returncode == 0, err
    assert (base / "out").read_text().splitlines() == [f"line {n + 1}" for n in range(33)]
