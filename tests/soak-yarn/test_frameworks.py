# SPDX-License-Identifier: Apache-2.0
"""The examples with their real frameworks, as in tests/frameworks, on a real Hadoop."""

import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "frameworks"))
from lib_frameworks import EXAMPLES, EXAMPLES_LEARN, environment, results  # noqa: E402
from test_torch import python_of, train  # noqa: E402

LIMIT_S = 600  # on a busy machine a container of TensorFlow or Ray starts slowly


def run(tony, bin_dir, job, *args):
    """The nodes do not know the Python environment: the tasks find its programs through PATH."""
    path = ("--shell_env", f"PATH={bin_dir}:/usr/bin:/bin") if bin_dir else ()
    r = tony.run("run", job, *path, *args, timeout=LIMIT_S)
    r.app = re.search(r"application_\d+_\d+", r.stdout + r.stderr)[0]
    r.logs = tony.run("logs", r.app, timeout=LIMIT_S).stdout
    assert r.returncode == 0, (r.stdout + r.stderr + r.logs)[-8000:]
    return r


@pytest.mark.parametrize("job, python, least", EXAMPLES_LEARN)
def test_the_digits_are_learned(tony, job, python, least):
    r = run(tony, python and environment(python), job)
    found = [float(x) for x in re.findall(r"accuracy (0\.\d+)", r.logs)]
    assert found and min(found) >= least, r.logs[-6000:]
    assert set(results(tony, r.app).values()) <= {"SUCCEEDED", "FINISHED"}


def test_mxnet(tony):
    r = run(tony, environment("mxnet"), EXAMPLES / "mxnet/job.yaml")
    assert len(re.findall(r"largest error of a weight 0\.0", r.logs)) == 2, r.logs
    assert set(results(tony, r.app).values()) == {"SUCCEEDED"}


@pytest.mark.parametrize("name", ["debian", "torch"])
def test_rank_0_of_pytorch_dies(tony, name):
    """Rank 0's executor serves the store to the next generation, in the older and in the newer protocol."""
    app = train(tony, python_of(name), 12, die=[(0, 5)])
    last = [tony.ok("logs", app, f"worker:{rank // 2}", "--rank", rank % 2, "--stdout").splitlines()[-1] for rank in range(4)]
    assert [line.split()[1] for line in last] == ["1", "2", "1", "2"] and len({line.split(" weights ")[1] for line in last}) == 1, last


def test_horovod(tony):
    r = run(tony, environment("horovod"), EXAMPLES / "horovod/job.yaml")
    assert float(re.search(r"accuracy (0\.\d+)", r.logs)[1]) >= 0.93, r.logs
    assert sorted(re.findall(r"rank (\d) of 2, local (\d) of 2", r.logs)) == [("0", "0"), ("1", "1")]
