# SPDX-License-Identifier: Apache-2.0
"""
A container engine for the tests. If podman works here, it runs an image made of this machine's files.
Otherwise a stand-in only records its calls.
"""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

IMAGE = "localhost/tony-test:1"
PROGRAMS = ("sh", "bash", "cat", "sleep", "env", "id", "touch", "ls", "test")
# runs the command directly, and records its own arguments
FAKE = r"""#!/bin/bash
{ /usr/bin/flock 9; printf '%s\0' "$@"; printf '\n'; } 9>> "$0.calls" >&9  # two may be called at once
env > "$0.env"
[ "$1" = run ] || exit 0
while [ "${1#--}" != "$1" ] || [ "$1" = run ]; do case $1 in --workdir=*) cd "${1#*=}";; esac; shift; done
export FAKE_IMAGE=$1; shift
exec "$@"
"""


def fake(directory, name="podman"):
    path = pathlib.Path(directory, name)
    path.write_text(FAKE)
    path.chmod(0o755)
    return path


def calls(path):
    return [call.split("\0") for call in pathlib.Path(f"{path}.calls").read_text().split("\0\n") if call]


def settings(base):
    """Settings files with which podman works without its own file system; returns their variables."""
    base = pathlib.Path(base)
    (base / "storage.conf").write_text(f'[storage]\ndriver = "vfs"\nrunroot = "{base}/r"\ngraphroot = "{base}/g"\n')
    (base / "containers.conf").write_text('[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\nruntime = "crun"\n'
                                          f'tmp_dir = "{base}/t"\n[containers]\ndefault_sysctls = []\n')
    return {"CONTAINERS_STORAGE_CONF": str(base / "storage.conf"), "CONTAINERS_CONF": str(base / "containers.conf")}


def root_of_image(root):
    """A root directory with a few programs and the libraries that they need."""
    for name in ("bin", "etc", "tmp", "proc", "dev", "sys"):
        (root / name).mkdir(parents=True)
    (root / "etc/mark").write_text("of the image\n")
    for name in PROGRAMS:
        found = shutil.which(name)
        shutil.copy2(os.path.realpath(found), root / "bin" / name)
        for lib in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", found], capture_output=True, text=True).stdout):
            (root / lib[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(lib), root / lib[1:])


@functools.cache
def real():
    """A directory for podman's settings with the image in it; or the reason why podman does not work here."""
    if not shutil.which("podman"):
        return None, "optional: there is no podman"
    base = pathlib.Path(tempfile.mkdtemp(prefix="tp-", dir="/tmp"))
    env = {**os.environ, **settings(base)}
    root_of_image(base / "root")
    with subprocess.Popen(["tar", "c", "-C", base / "root", "."], stdout=subprocess.PIPE) as tar:
        r = subprocess.run(["podman", "import", "-", IMAGE], stdin=tar.stdout, capture_output=True, text=True, env=env, timeout=100)
    if r.returncode == 0:
        r = subprocess.run(["podman", "run", "--rm", "--network=host", "--ipc=host", "--cgroups=disabled", "--ulimit=nofile=1024:1024",
                            "--ulimit=nproc=500:500", IMAGE, "cat", "/etc/mark"], capture_output=True, text=True, env=env, timeout=100)
    if r.returncode or r.stdout != "of the image\n":
        remove(base)
        return None, f"hardware: podman cannot run on this machine: {r.stderr[-300:]}"
    return base, settings(base)


def remove(base):
    shutil.rmtree(base, ignore_errors=True)
