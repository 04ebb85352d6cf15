# SPDX-License-Identifier: Apache-2.0
"""Jobs of real frameworks: finding the Python that has the framework, and running a job with it."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tony" / "frameworks"
EXAMPLES = ROOT / "examples"
# Examples that print the accuracy on new images: the job, the environment whose Python runs it, and the least
# accuracy.
RAY_IS_ALONE = pytest.mark.alone("Ray gives up if its node needs more than 30 s to start")
MARKS = {"ray/job": [RAY_IS_ALONE, pytest.mark.slow], "tensorflow/job-mirrored": [pytest.mark.slow],
         "tensorflow/job": [pytest.mark.slow]}
EXAMPLES_LEARN = [pytest.param(EXAMPLES / f"{job}.yaml", "main", least, id=job.replace("/job-", "-").replace("/job", ""),
                               marks=MARKS.get(job, [])) for job, least in (
    ("jax/job", 0.93), ("mpi/job", 0.93), ("xgboost/job", 0.90), ("lightgbm/job", 0.90), ("dask/job", 0.90), ("ray/job", 0.90),
    ("tensorflow/job", 0.90), ("tensorflow/job-mirrored", 0.90))]
RUN_LIMIT_S = 900  # on a shared machine the imports alone take nearly a minute


def environment(name, optional=False):
    """
    The bin directory of an environment of tools/install-frameworks. A missing one is a failure: a skipped
    framework would look like a passed test. optional: `make check` does not install it.
    """
    if optional and not (CACHE / name / ".complete").exists():
        pytest.skip(f"optional: no {name} (several gigabytes): tools/install-frameworks {name}")
    if not (CACHE / name / ".complete").exists():
        pytest.fail(f"there is no {CACHE / name}: tools/install-frameworks {name} makes it, or says why it cannot", pytrace=False)
    return CACHE / name / "bin"


def run(tony, bin_dir, job, *args, limit=RUN_LIMIT_S):
    """
    Runs a job to its end with that Python first in PATH. Returns its exit code, its id, and the output of its
    tasks.
    """
    path = f"{bin_dir}:{tony.env['PATH']}" if bin_dir else tony.env["PATH"]
    r = tony.run("run", job, *args, env={"PATH": path}, timeout=limit)
    app = re.search(r"application_\d+_\d+", r.stdout + r.stderr)
    assert app, r.stdout + r.stderr
    r.app = app[0]
    logs = tony.run("logs", r.app)
    r.logs = logs.stdout
    r.said = r.stdout + r.stderr + r.logs + logs.stderr
    return r


def results(tony, app):
    return {t["task"]: t["result"] for t in tony.json("tasks", app)["tasks"]}


# An MPI program: its ranks meet, and rank 1 may abort or die. With a second argument all wait until that file exists.
MPI_PROGRAM = r"""
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int rank, size;
    const char *what = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long mine = rank + 1, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d sum %ld\n", rank, size, sum);
    fflush(stdout);
    const char *again = getenv("TONY_GENERATION");
    while (argc > 2 && access(argv[2], F_OK))
        usleep(20000);
    if (rank == 1 && !strcmp(what, "abort"))
        MPI_Abort(MPI_COMM_WORLD, 42);
    if (rank == 1 && (!strcmp(what, "die") || (!strcmp(what, "once") && !strcmp(again, "1"))))
        raise(SIGKILL);
    MPI_Barrier(MPI_COMM_WORLD); /* the others would spin here for ever */
    MPI_Finalize();
    return 0;
}
"""


def mpicc(source, out):
    """Compiles an MPI program with Debian's MPICH."""
    compiler = next((c for c in ("/usr/bin/mpicc.mpich", "/usr/bin/mpicc") if os.access(c, os.X_OK)), None)
    if not compiler or not pathlib.Path("/usr/include/x86_64-linux-gnu/mpich/mpi.h").exists():
        pytest.fail("there is no mpicc of MPICH: tools/install-deps check", pytrace=False)
    subprocess.run([compiler, "-x", "c", "-", "-o", str(out)], input=source, text=True, check=True, timeout=300)
    return out
