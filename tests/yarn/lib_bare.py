# SPDX-License-Identifier: Apache-2.0
"""
A root directory that contains only a static shell and /proc. NodeManagers run their containers in it.

Once a priority is configured, the DefaultContainerExecutor starts a container as `nice -n 0 bash SCRIPT`, and
looks for `nice` in its PATH. The `nice` of this file is first there. It changes the root in a new mount
namespace and continues with SCRIPT. So the NodeManager's own scripts also run inside; they are the only
reason for the shell. It is Debian's static bash, with busybox for mv, ln, setsid and others. There is no
libc, no dynamic loader, no /etc, no /usr, and of tony only the files that the NodeManager localizes.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess

import pytest

SETTINGS = ["nm:yarn.nodemanager.container-executor.os.sched.priority.adjustment=0",
            "nm:yarn.nodemanager.log-container-debug-info.enabled=false"]  # busybox has no `find -ls`
APPLETS = ("cat", "chmod", "cp", "env", "find", "id", "ln", "ls", "mkdir", "mv", "rm", "setsid", "sh", "sleep", "touch", "true")

NICE = """#!/bin/sh
# in place of nice: nice -n 0 bash SCRIPT
exec unshare {flags} /bin/sh -c '
set -e
mount --rbind "{shared}" "{root}{shared}"
mount --rbind /proc "{root}/proc"
exec /usr/sbin/chroot "{root}" /bin/sh -c '\\''cd "$1" && exec /bin/bash "$2"'\\'' sh "$PWD" "$1"' sh "$4"
"""


def can_unshare():
    """The way to get a mount namespace here; None if there is none."""
    for flags in (["--mount"], ["--map-root-user", "--mount"]):
        if subprocess.run(["unshare", *flags, "mount", "--bind", "/proc", "/mnt"], capture_output=True).returncode == 0:
            return " ".join(flags)
    return None


def make_root(root, shared, flags):
    """
    Makes the directory, and beside it bin/nice. `shared`: directories that the NodeManagers share with their
    containers.
    """
    (root / "bin").mkdir(parents=True)
    for name in ("proc", "tmp", "dev"):
        (root / name).mkdir()
    (root / str(shared).lstrip("/")).mkdir(parents=True)
    shutil.copy("/bin/bash-static", root / "bin" / "bash")
    shutil.copy("/bin/busybox", root / "bin" / "busybox")
    for name in APPLETS:
        (root / "bin" / name).symlink_to("busybox")
    with contextlib.suppress(PermissionError):
        os.mknod(root / "dev" / "null", 0o20666, os.makedev(1, 3))
    nice = root.parent / "bin" / "nice"
    nice.parent.mkdir()
    nice.write_text(NICE.format(flags=flags, shared=shared, root=root))
    nice.chmod(0o755)
    return nice.parent


@contextlib.contextmanager
def bare_root(cluster, base):
    """Until the end of the block, containers of the cluster run in a bare root. Yields its path."""
    flags = can_unshare()
    if not flags:
        pytest.skip("no mount namespace can be had here: run as root, or allow user namespaces")
    root = pathlib.Path(base) / "bare"
    path = make_root(root, cluster.dir / "nm", flags)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{path}:{before}"  # the daemons inherit it
    try:
        cluster.restart("nm1", "nm2", settings=SETTINGS)
    finally:
        os.environ["PATH"] = before
    try:
        yield root
    finally:
        cluster.restart("nm1", "nm2")
