# SPDX-License-Identifier: Apache-2.0
"""What surrounds a command: variables for the commands of Slurm, limits of the shell, a directory that is gone."""

import json
import os
import resource
import subprocess

import pytest
from lib_slurm import as_user, wait_until
from test_slurm import LONG, app_of

# Variables with which the commands of Slurm do something else, or ask a question.
CHANGING = {"SBATCH_ARRAY_INX": "0-2", "SBATCH_TIMELIMIT": "1", "SBATCH_EXPORT": "ALL", "SBATCH_OPEN_MODE": "truncate", "SBATCH_REQUEUE": "1",
            "SBATCH_JOB_NAME": "theirs", "SBATCH_OUTPUT": "/dev/null", "SBATCH_WAIT": "1", "SBATCH_SIGNAL": "KILL@60", "SBATCH_MEM_PER_NODE": "1",
            "SQUEUE_FORMAT": "%j", "SQUEUE_FORMAT2": "jobid:|", "SQUEUE_PARTITION": "high", "SQUEUE_STATES": "PENDING", "SQUEUE_USERS": "root",
            "SINFO_FORMAT": "%P", "SINFO_PARTITION": "none", "SCANCEL_INTERACTIVE": "1", "SCANCEL_PARTITION": "high", "SCANCEL_STATE": "PENDING",
            "SLURM_TIME_FORMAT": "relative", "SLURM_CLUSTERS": "elsewhere", "SLURM_EXIT_ERROR": "77", "SLURM_WAIT": "1", "SLURM_KILL_BAD_EXIT": "1"}


def test_variables_for_the_commands_of_slurm(tony, slurm):
    """The job is the one that the plan shows, and the clients find and stop it."""
    tony.env.update(CHANGING)
    path = tony.job_file(LONG)
    planned = [x for x in tony("plan", path).stdout.splitlines() if x.startswith("#SBATCH") and "APPLICATION_ID" not in x]
    app = tony("submit", path).stdout.strip()
    tony.await_running(app, 3)
    number = tony.number(app)
    assert slurm.job(number, "%j|%l|%P|%K") == "tony-x|UNLIMITED|all|N/A"
    script = (tony.home / "jobs" / app / "script").read_text()
    assert [x for x in script.splitlines() if x.startswith("#SBATCH") and app not in x] == planned
    row = json.loads(tony("list", "--cluster", "slurm", "--json").stdout)["jobs"][0]
    assert row["slurm_state"] == "RUNNING", row
    tony("stop", app)
    wait_until(lambda: not slurm.jobs(), "nothing is left")
    assert tony.status(app)["state"] == "KILLED"


def test_a_waiting_job_with_such_variables_is_found_and_cancelled(tony, slurm):
    tony.env.update(CHANGING)
    app = tony("submit", tony.job_file("true", conf={"tony.slurm.extra-arguments": "--hold"})).stdout.strip()
    assert tony.status(app)["slurm_state"] == "PENDING"
    tony("stop", app)
    wait_until(lambda: not slurm.jobs(), "nothing is left")


def test_accounts_and_partitions_that_users_set_for_sbatch_are_defaults(tony, slurm):
    """The plan shows them; a key of the job wins."""
    tony.env.update({"SBATCH_ACCOUNT": "lab7", "SBATCH_PARTITION": "short", "SBATCH_QOS": "fast", "SBATCH_CONSTRAINT": "a&b"})
    path = tony.job_file("true", conf={"tony.slurm.qos": "slow"})
    shown = tony("plan", path).stdout
    for line in ("--account=lab7", "--partition=short", "--qos=slow", "--constraint=a&b"):
        assert f"#SBATCH {line}\n" in shown, shown
    del tony.env["SBATCH_CONSTRAINT"], tony.env["SBATCH_QOS"]
    app = app_of(tony("run", tony.job_file("true")))
    assert slurm.job(tony.number(app), "%P|%a") == "short|lab7"


def test_a_job_is_submitted_in_an_allocation(tony, slurm):
    """As in a shell of salloc, which has the variables of that allocation. The job gets its own."""
    line = f"{tony.program} run {tony.job_file('env | grep ^SLURM; hostname', conf={'tony.slurm.nodes': 2}, instances=2)}; echo rc $?"
    done = slurm.run("salloc", "-N1", "--cpus-per-task=1", "--mem-per-cpu=50", "srun", "--overlap", "-N1", "-n1", "sh", "-c", line,
                     user=tony.user, env=tony.env, cwd=tony.base)
    assert "rc 0" in done.stdout, done.stdout + done.stderr + tony.logs()
    app = app_of(done)
    assert "SLURM" not in tony("logs", app).stdout
    assert len({t["node"] for t in tony.status(app)["tasks"]}) == 2


def test_the_directory_of_the_submission_is_removed(tony):
    """Also while the client stands in it."""
    here = tony.base / "gone"
    here.mkdir()
    (here / "word").write_text("shipped\n")
    path = tony.job_file("sleep 1; cat word")
    subprocess.run(["chown", "-R", tony.user, here], check=True)
    client = subprocess.Popen([*as_user(tony.user), str(tony.program), "run", "--src_dir", str(here), str(path)], cwd=here,
                              env={**tony.slurm.environment(), **tony.env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
    wait_until(lambda: list((tony.home / "jobs").glob("application_*")), "the job is submitted")
    subprocess.run(["rm", "-r", here], check=True)
    out = client.communicate(timeout=60)[0]
    assert client.returncode == 0 and out.count("shipped") == 3, out
    done = subprocess.run([*as_user(tony.user), "sh", "-c", f"mkdir {here}; cd {here}; rmdir {here}; exec {tony.program} run {path} --src_dir {tony.base}/bin"],
                          env={**tony.slurm.environment(), **tony.env}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert "cat: word" in done.stderr, done.stdout + done.stderr


def test_small_limits_of_the_shell(tony):
    """Slurm hands them on to the job. The master and the keepers raise that of open files."""
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    path = tony.job_file("ulimit -n; ulimit -c", instances=24, memory="16m")
    done = tony("run", path, preexec_fn=limit)
    app = app_of(done)
    assert tony("logs", app, "worker:5", "--stdout").stdout.split() == ["64", "0"]


@pytest.mark.parametrize("closed", ["<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors(tony, slurm, closed):
    """As under some daemons."""
    path = tony.job_file("true")
    done = tony.slurm.run("sh", "-c", f"exec {tony.program} submit {path} {closed}", user=tony.user, env=tony.env, cwd=tony.base)
    assert done.returncode == (4 if ">&-" in closed else 0), done.stderr  # it cannot tell the id
    app, = [p.name for d in ("jobs", "history") for p in (tony.home / d).glob("application_*")]
    assert tony("wait", app).returncode == 0


def test_the_umask_and_strange_variables(tony):
    """Tasks get the umask of the shell, and variables with line breaks and quotes as they are."""
    value = "a\n#SBATCH --array=0-9\n'b' \"c\" $d `e` \\ é\n"
    path = tony.job_file('printf "%s" "$WORD"; umask; printf "%s" "$LC_ALL" >&2')
    path.write_text(json.dumps({**json.loads(path.read_text()), "env": {"WORD": value}}))
    tony.env["LD_LIBRARY_PATH"] = "/it's/a \"dir\"\n#SBATCH --array=0-9"
    old = os.umask(0o027)
    try:
        app = app_of(tony("run", path))
    finally:
        os.umask(old)
    assert tony("logs", app, "worker:1", "--stdout").stdout == value + "0027\n"
