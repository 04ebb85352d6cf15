# SPDX-License-Identifier: Apache-2.0
"""What keys of a job become in Slurm, also with blanks, quotes and signs that sbatch reads in its own way."""

import contextlib
import json

import pytest
from lib_slurm import wait_until
from test_slurm import LONG, app_of


def conf(**keys):
    return {f"tony.slurm.{key.replace('_', '-')}": value for key, value in keys.items()}


def submitted(tony, slurm, what, **keys):
    """What squeue shows of a job with these keys, which stays in the queue."""
    app = tony("submit", tony.job_file("true", conf=conf(**keys))).stdout.strip()
    shown = slurm.job(json.loads((tony.home / "jobs" / app / "slurm.json").read_text())["job"], what)
    tony("stop", app)
    return shown


@pytest.mark.parametrize("item, comment", [
    ("--comment=two words", "two words"), ('--comment="two  words" --hold', "two  words"), ("--comment='it is'", "it is"),
    ("--comment=it's #1", "it's #1"), (r"--comment=a\ b", "a b"), ("--comment two", "two")])
def test_extra_arguments(tony, slurm, item, comment):
    assert submitted(tony, slurm, "%k", extra_arguments=f"{item},--hold") == comment


@pytest.mark.parametrize("item, words", [
    ("-a0-3", "one allocation"), ("--arr=0-3", "one allocation"), ("--hold --array=0-1", "one allocation"), ("--no-requ", "one allocation"),
    ("--clusters=other", "one allocation"), ("--help", "one allocation"), ("comment=x", "begin with '-'")])
def test_extra_arguments_that_are_refused(tony, slurm, item, words):
    for command in ("submit", "plan"):
        done = tony(command, tony.job_file("true", conf=conf(extra_arguments=item)), ok=False)
        assert done.returncode == 2 and words in done.stdout + done.stderr, done.stdout + done.stderr
    assert not slurm.jobs()


@pytest.mark.parametrize("key", ["tony.slurm.account", "tony.slurm.partition", "tony.slurm.extra-arguments", "tony.worker.node-label"])
def test_a_line_break_in_a_value_is_refused(tony, key):
    """It was dropped: the job ran in another partition than its file names."""
    done = tony("submit", tony.job_file("true", conf={key: "--comment=x\n#SBATCH --array=0-2"}), ok=False)
    assert done.returncode == 2 and f"the value of {key} contains a line break" in done.stderr, done.stderr


def test_values_with_blanks_and_signs(tony, slurm):
    shown = submitted(tony, slurm, "%a|%k", account="lab #7 it's", extra_arguments="--hold")
    assert shown == "lab #7 it's|(null)"


@contextlib.contextmanager
def node_state(slurm, node, state):
    assert slurm.run("scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=test").returncode == 0
    try:
        yield
    finally:
        slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        wait_until(slurm.is_idle, "the node is back")


@pytest.mark.parametrize("state", ["DRAIN", "DOWN"])
def test_nodes_that_are_away_now(tony, slurm, state):
    """Slurm takes a job that needs them, and starts it when they return. So does tony, and says so."""
    path = tony.job_file("true")
    with node_state(slurm, "n2", state):
        shown = tony("plan", path)
        assert "1 of the 3 nodes of the partition are down, drained or booting" in shown.stdout, shown.stdout
        done = tony("submit", path)
        assert "Slurm starts it when they return" in done.stderr, done.stderr
        app = done.stdout.strip()
        assert tony.status(app)["state"] == "WAITING"
        two = tony("run", tony.job_file("true", instances=2, conf={"tony.slurm.nodes": 2}))
        assert "drained" not in two.stdout + two.stderr, "it needs only the others"
    assert tony("wait", app).returncode == 0
    assert tony.status(app)["state"] == "SUCCEEDED"


def test_excluded_nodes(tony, slurm):
    """They do not count for the size of the job."""
    for keys, words in (({"exclude": "n[1-3]"}, "tony.slurm.exclude leaves no node of the default partition"),
                        ({"exclude": "n1", "nodes": 3}, "cannot hold 3 containers")):
        done = tony("submit", tony.job_file("true", conf=conf(**keys)), ok=False)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    app = app_of(tony("run", tony.job_file("true", instances=2, conf=conf(exclude="n[1-2]", nodes=0))))
    assert {t["node"] for t in tony.status(app)["tasks"]} == {"n3"}


def test_a_list_of_nodes_that_is_longer_than_the_job_needs(tony, slurm):
    """The allocation contains all of them, as the key says."""
    path = tony.job_file(LONG, instances=1, conf=conf(nodelist="n[1-2]", nodes=0))
    assert "#SBATCH --nodes=2\n" in tony("plan", path).stdout
    app = tony("submit", path).stdout.strip()
    tony.await_running(app, 1)
    assert slurm.job(tony.number(app), "%N") == "n[1-2]"
    tony("stop", app)


@pytest.mark.parametrize("keys, role, words", [
    ({"partition": "nosuch"}, {}, "the partition 'nosuch' does not exist"),
    ({"reservation": "nosuch"}, {}, "reservation"), ({"licenses": "nosuch:3"}, {}, "license"),
    ({"nodelist": "n9"}, {}, "node name"), ({"gpu_type": "h100"}, {"gpus": 1}, "h100"),
    ({}, {"gpus": 3}, "cannot hold 3 containers"), ({"extra_arguments": "--no-such-option=1"}, {}, "no-such-option")])
def test_what_does_not_exist_is_named(tony, slurm, keys, role, words):
    done = tony("submit", tony.job_file("true", conf=conf(**keys), **role), ok=False)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert "hint:" in done.stderr, done.stderr
    assert not slurm.jobs() and not list((tony.home / "jobs").glob("*"))


def test_partitions_that_run_no_jobs(tony, slurm):
    """A partition that is down takes jobs, and starts them later; one that is drained takes none."""
    try:
        slurm.run("scontrol", "update", "PartitionName=short", "State=DOWN")
        app = tony("submit", tony.job_file("true", conf=conf(partition="short"))).stdout.strip()
        assert wait_until(lambda: "PartitionDown" in str(tony.status(app)["message"]), "the reason is known")
        slurm.run("scontrol", "update", "PartitionName=short", "State=UP")
        assert tony("wait", app).returncode == 0
        slurm.run("scontrol", "update", "PartitionName=short", "State=DRAIN")
        done = tony("submit", tony.job_file("true", conf=conf(partition="short")), ok=False)
        assert done.returncode == 2 and "partition not available (inactive or drain)" in done.stderr, done.stderr
    finally:
        slurm.run("scontrol", "update", "PartitionName=short", "State=UP")


def test_ports_in_a_range(tony, slurm):
    """Keepers, executors and clients connect to the master in the range, and tasks get ports there."""
    from test_other_user import of_job, ports
    path = tony.job_file(f"echo $CLUSTER_SPEC; {LONG}", conf={"tony.port-range": "21000-21099"})
    done = tony("submit", path)
    assert "no effect" not in done.stderr, done.stderr
    app = done.stdout.strip()
    tony.await_running(app, 3)
    assert ports(of_job(tony)) and all(21000 <= p <= 21099 for p in ports(of_job(tony))), ports(of_job(tony))
    spec = json.loads(tony("logs", app, "worker:0", "--stdout").stdout)
    assert all(21000 <= int(x.rpartition(":")[2]) <= 21099 for x in spec["worker"]), spec
    tony("stop", app)
