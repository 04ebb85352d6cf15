# SPDX-License-Identifier: Apache-2.0
"""The filters of `tony list`."""

import pytest
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)


def test_filters(lab):
    apps = {}
    for name, command, code in (("train-1", "true", 0), ("train-2", "exit 3", 1), ("other", "true", 0)):
        apps[name] = lab.submit(lab.workers(command, name=name))
        assert lab.run("wait", apps[name]).returncode == code

    def names(*options):
        return [job["name"] for job in lab.json("list", *options)["jobs"]]

    assert names() == ["other", "train-2", "train-1"]
    assert names("--state", "failed") == ["train-2"]
    assert names("--state", "SUCCEEDED,Killed") == ["other", "train-1"]
    assert names("--name", "train*") == ["train-2", "train-1"]
    assert names("--name", "train") == []
    assert names("--name", "train*", "--state", "succeeded") == ["train-1"]
    assert names("--since", "1h") == ["other", "train-2", "train-1"] and names("--since", "1ms") == []
    user = lab.json("list")["jobs"][0]["user"]
    assert len(names("--user", user)) == 3 and names("--user", "nobody-of-that-name") == []
    assert names("-n", "1", "--state", "succeeded") == ["other"]  # the newest job that matches, not the newest of all
    assert names("-n", "1", "--state", "failed") == ["train-2"]
    r = lab.run("list", "--name", "nothing")
    assert r.returncode == 0 and "no job matches" in r.stderr and r.stdout == ""


@pytest.mark.parametrize("options, word", [(["--state", "runing"], "RUNNING"), (["--since", "yesterday"], "--since")])
def test_wrong_filters_are_refused(lab, options, word):
    r = lab.run("list", *options)
    assert r.returncode == 2 and word in r.stderr
