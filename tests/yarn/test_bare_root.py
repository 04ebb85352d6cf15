"""A node that has nothing: the containers run in a root directory without a libc. See lib_bare.py for how, and for what is there."""

import json
import shutil
import subprocess

import pytest
from lib_bare import bare_root
from lib_tony import BIN, BUILD, floor


@pytest.fixture(autouse=True)
def static_programs():
    """Sanitizers do not go together with static linking."""
    options = {o["name"]: o["value"] for o in json.loads((BUILD / "meson-info" / "intro-buildoptions.json").read_text())}
    if options["b_sanitize"] != "none" or not options["static_node"]:
        pytest.skip("this build links dynamically")


def said(cluster, command, n=2):
    """What n containers have written that ran this command, by the application that has nothing of ours."""
    before = {app["id"] for app in cluster.apps()}
    done = floor(cluster, command, n)
    assert done.returncode == 0, done.stderr
    app, = [app["id"] for app in cluster.apps() if app["id"] not in before]
    return [text for text in cluster.container_log(app, "stdout").values() if text]


def test_a_root_that_is_bare(cluster, base):
    with bare_root(cluster, base) as root:
        assert sorted(p.name for p in root.iterdir()) == sorted(["bin", "proc", "tmp", "dev"])
        assert [text.split() for text in said(cluster, "/bin/ls /")] == [["bin", "dev", "proc", "tmp"]] * 2
        # Without this the rest would prove nothing: a program that needs a libc does not run.
        shutil.copy("/bin/true", root / "bin" / "dynamic")
        done = floor(cluster, "/bin/dynamic")
        assert done.returncode == 1 and "ended with 127" in done.stderr
        for name in ("tony-master", "tony-executor"):
            shutil.copy(BIN / name, root / "bin" / name)
            assert all(text.startswith(name + " ") for text in said(cluster, f"/bin/{name} --version"))


@pytest.mark.parametrize("name", ["tony-master", "tony-executor"])
def test_programs_need_no_loader(name):
    """No interpreter in the file: the kernel alone starts it."""
    headers = subprocess.run(["readelf", "--wide", "--program-headers", "--dynamic", str(BIN / name)], capture_output=True, text=True,
                             check=True).stdout
    assert "INTERP" not in headers and "NEEDED" not in headers
