# SPDX-License-Identifier: Apache-2.0
"""A root directory with nothing in it but a static shell and /proc, in which NodeManagers run their containers.

The DefaultContainerExecutor starts a container as `nice -n 0 bash SCRIPT` once a priority is configured, and looks for `nice` in its PATH. Ours
stands first there: it changes the root in a mount namespace of its own and goes on with SCRIPT, so that the NodeManager's own scripts run
inside, too. They are why there is a shell at all; it is Debian's static bash, with busybox for mv, ln, setsid and the like. There is no libc, no
dynamic loader, no /etc, no /usr, and no file of ours but what the NodeManager localizes.
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
    """How a mount namespace can be had here; None if it cannot."""
    for flags in (["--mount"], ["--map-root-user", "--mount"]):
        if subprocess.run(["unshare", *flags, "mount", "--bind", "/proc", "/mnt"], capture_output=True).returncode == 0:
            return " ".join(flags)
    return None


def make_root(root, shared, flags):
    """The directory, and beside it bin/nice. `shared`: what the NodeManagers share with their containers."""
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
    """Containers of the cluster run in a bare root meanwhile. Gives the root's path."""
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
