# SPDX-License-Identifier: Apache-2.0
"""The benchmarks that count instructions and bytes, in a small size: they run, and their goals are met."""

import subprocess

from conftest import BIN, ROOT


def bench(name, *args):
    r = subprocess.run([ROOT / "bench" / name, "--build", BIN.parent, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, timeout=3600)
    assert r.returncode == 0, r.stdout
    assert " 0 missed" in r.stdout, r.stdout


def test_work_for_each_event():
    bench("scale", "--sizes", "200,1000")


def test_a_long_job():
    bench("long", "--tasks", "200", "--days", "3")
