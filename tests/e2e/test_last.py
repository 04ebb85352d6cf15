# SPDX-License-Identifier: Apache-2.0
"""`last`, and numbers of jobs: the record of what this user has submitted, and to which cluster."""

import concurrent.futures
import os
import socket

from conftest import app_of
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)


def record(tony):
    return [x.split() for x in (tony.home / "submitted").read_text().splitlines()]


def test_the_record_of_a_job(lab):
    app = lab.submit(lab.workers("true"))
    (line,) = record(lab)
    assert line[0] == "submitted" and line[2:] == ["local", app, socket.gethostname(), "-"]
    assert (lab.home / "submitted").stat().st_mode & 0o777 == 0o600


def test_many_clients_at_once_lose_no_record(lab):
    job = lab.workers("true")
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        apps = list(pool.map(lambda _: lab.submit(job), range(24)))
    assert sorted(x[3] for x in record(lab)) == sorted(apps)


def test_a_torn_record_and_a_foreign_machine_are_passed_over(lab):
    app = lab.submit(lab.workers("true"))
    with open(lab.home / "submitted", "a") as f:
        f.write("submitted 1795523432618 local application_1_0099 another-machine -\nsubmitted 17955234326")
    assert lab.json("status", "last")["application_id"] == app
    second = lab.submit(lab.workers("true"))
    assert lab.json("status", "last")["application_id"] == second
    assert [x[3] for x in record(lab) if len(x) == 6] == [app, "application_1_0099", second]


def test_the_record_has_a_limit(lab):
    lab.submit(lab.workers("true"))
    with open(lab.home / "submitted", "a") as f:
        for i in range(1000):
            f.write(f"submitted 1795523432618 local application_1_{i:04} elsewhere {'x' * 40}\n")
    app = lab.submit(lab.workers("true"))
    assert (lab.home / "submitted").stat().st_size < 64 << 10
    assert lab.json("status", "last")["application_id"] == app
    assert not os.path.exists(lab.home / "submitted.new")


def test_a_job_that_was_removed_is_not_the_last(lab):
    first = app_of(lab.run("run", lab.workers("true")))
    with open(lab.home / "submitted", "a") as f:
        f.write(f"submitted 1795523432618 local application_1_0099 {socket.gethostname()} -\n")
    assert lab.json("status", "last")["application_id"] == first


def test_without_a_record_last_is_the_newest_job_here(lab):
    app = app_of(lab.run("run", lab.workers("true")))
    (lab.home / "submitted").unlink()
    assert lab.json("status", "last")["application_id"] == app


def test_a_record_that_cannot_be_written_does_not_stop_the_job(lab):
    (lab.home / "submitted").mkdir(parents=True)
    r = lab.run("run", lab.workers("true"))
    assert r.returncode == 0 and "'last' will not mean it" in r.stderr
