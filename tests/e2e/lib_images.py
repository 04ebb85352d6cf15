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
import signal
import subprocess
import tempfile

IMAGE = "localhost/tony-test:1"
PROGRAMS = ("sh", "bash", "cat", "sleep", "env", "id", "touch", "ls", "test", "tr", "head")
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
    """The arguments of all calls of the stand-in so far. The file appears with the first call."""
    made = pathlib.Path(f"{path}.calls")
    return [call.split("\0") for call in made.read_text().split("\0\n") if call] if made.exists() else []


def settings(base):
    """Settings files with which podman works without its own file system; returns their variables."""
    base = pathlib.Path(base)
    (base / "storage.conf").write_text(f'[storage]\ndriver = "vfs"\nrunroot = "{base}/r"\ngraphroot = "{base}/g"\n'
                                       f'rootless_storage_path = "{base}/g"\n')
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


def wrap(base):
    """
    crun refuses a machine that mounts control groups of both versions. So podman sees only those of version 1,
    which limit memory there. Returns the PATH with this podman in front.
    """
    (base / "bin").mkdir()
    wrapper = base / "bin/podman"
    hide = 'umount -l /sys/fs/cgroup/unified && exec "$@"' if os.path.ismount("/sys/fs/cgroup/unified") else 'exec "$@"'
    wrapper.write_text(f"#!/bin/sh\nexec unshare -m sh -c '{hide}' sh {shutil.which('podman')} \"$@\"\n")
    wrapper.chmod(0o755)
    return f"{base}/bin:{os.environ['PATH']}"


# Prepares a mount namespace for podman of the user nobody, who has no ids for its containers, and runs a command.
ROOTLESS = """set -e
if mountpoint -q /sys/fs/cgroup/unified; then umount -l /sys/fs/cgroup/unified; fi
echo nobody:100000:65536 > "$1"
mount --bind "$1" /etc/subuid; mount --bind "$1" /etc/subgid
mkdir -p /dev/mqueue; mountpoint -q /dev/mqueue || mount -t mqueue none /dev/mqueue
shift; exec "$@"
"""


@functools.cache
def real(uid=None):
    """
    A directory for podman's settings with the image in it; or the reason why podman does not work here. uid: of the
    user who runs podman.
    """
    if not shutil.which("podman"):
        return None, "optional: there is no podman"
    base = pathlib.Path(tempfile.mkdtemp(prefix="tp-", dir="/tmp"))
    env = {**os.environ, **settings(base)}
    user = {}
    if uid is not None:
        user = {"user": uid, "group": uid, "extra_groups": []}
        (base / "run").mkdir(mode=0o700)
        env.update(HOME=str(base), XDG_RUNTIME_DIR=f"{base}/run")
    elif os.geteuid() == 0:
        env["PATH"] = wrap(base)
    root_of_image(base / "root")
    for path in (base, *base.glob("*")) if user else ():
        os.chown(path, uid, uid)
    with subprocess.Popen(["tar", "c", "--owner=0", "--group=0", "-C", base / "root", "."], stdout=subprocess.PIPE) as tar:
        r = subprocess.run(["podman", "import", "-", IMAGE], stdin=tar.stdout, capture_output=True, text=True, env=env, timeout=100,
                           cwd=base, **user)
    if r.returncode == 0:
        r = subprocess.run(["podman", "run", "--rm", "--network=host", "--ipc=host", "--cgroups=disabled", "--ulimit=nofile=1024:1024",
                            "--ulimit=nproc=500:500", IMAGE, "cat", "/etc/mark"], capture_output=True, text=True, env=env, timeout=100,
                           cwd=base, **user)
    if r.returncode or r.stdout != "of the image\n":
        remove(base)
        return None, f"hardware: podman cannot run on this machine: {r.stderr[-300:]}"
    return base, {**settings(base), "PATH": env["PATH"]}


def remove(base):
    for path in base.rglob("pause.pid"):  # a process that keeps the namespaces of an ordinary user
        try:
            os.kill(int(path.read_text()), signal.SIGKILL)
        except (OSError, ValueError):
            pass
    shutil.rmtree(base, ignore_errors=True)
