# SPDX-License-Identifier: Apache-2.0
"""Containers run in a root directory without a libc; see lib_bare.py."""

import json
import shutil
import subprocess

import pytest
from lib_bare import bare_root
from lib_tony import APP, BIN, BUILD, floor


@pytest.fixture(autouse=True)
def static_programs():
    """Builds with sanitizers cannot be linked statically."""
    options = {o["name"]: o["value"] for o in json.loads((BUILD / "meson-info" / "intro-buildoptions.json").read_text())}
    if options["b_sanitize"] != "none" or not options["static_node"]:
        pytest.skip("build: it links dynamically")


@pytest.mark.slow
@pytest.mark.takes(28)
def test_a_job_in_a_bare_root(tony, cluster, base):
    with bare_root(cluster, base) as root:
        assert sorted(p.name for p in root.iterdir()) == sorted(["bin", "proc", "tmp", "dev"])
        # Proves that the root has no libc: a dynamically linked program does not run.
        shutil.copy("/bin/true", root / "bin" / "dynamic")
        done = floor(cluster, "/bin/dynamic")
        assert done.returncode == 1 and "ended with 127" in done.stderr
        r = tony.run("run", tony.workers("/bin/ls /", n=2))
        assert r.returncode == 0, r.stderr
        app = APP.search(r.stdout).group()
        assert [x.split() for x in cluster.container_log(app, "stdout").values() if x] == [["bin", "dev", "proc", "tmp"]] * 2


@pytest.mark.parametrize("name", ["tony-master", "tony-executor"])
def test_programs_need_no_loader(name):
    """The file names no interpreter: the kernel alone starts it."""
    headers = subprocess.run(["readelf", "--wide", "--program-headers", "--dynamic", str(BIN / name)], capture_output=True, text=True,
                             check=True).stdout
    assert "INTERP" not in headers and "NEEDED" not in headers
