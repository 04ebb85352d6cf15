# SPDX-License-Identifier: Apache-2.0
"""
A machine of its own for tests: Debian with systemd, login sessions and control groups v2, in QEMU. Without
hardware help it is some ten times slower than this machine: good for what is true, not for how fast.

The image is made once with debootstrap, in ~/.cache/tony/vm (root is needed for that). It has two ordinary
users, `user` and `other`. The machine reaches no network; ssh comes in through a port of loopback.
"""

import hashlib
import inspect
import os
import pathlib
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import time

SUITE = os.environ.get("TONY_VM_SUITE", "bookworm")
CACHE = pathlib.Path(os.environ.get("TONY_VM_CACHE") or pathlib.Path.home() / ".cache/tony/vm")
NEEDED = ("debootstrap", "setpriv", "qemu-system-x86_64", "qemu-img", "mke2fs", "ssh", "ssh-keygen")
PACKAGES = ("systemd-sysv", "dbus", "libpam-systemd", "openssh-server", "iproute2", "procps", "python3-minimal",
            "linux-image-cloud-amd64", "kmod", "netbase")
# podman and docker, also of ordinary users; dockerd does not start at boot
ENGINES = ("podman", "crun", "uidmap", "fuse-overlayfs", "dbus-user-session", "docker.io", "apparmor", "iptables", "rootlesskit", "slirp4netns",
           *(() if SUITE == "bookworm" else ("docker-cli",)))  # in bookworm it is a part of docker.io
USERS = {"root": 0, "user": 1000, "other": 1001}
PROGRAMS = ("tony", "tony-pool", "tony-master", "tony-executor", "tony-pack", "tony-gpu")
DISK = "6G"
BOOT_S = 900  # so long because a machine beside other tests on a busy host is slow: this limit is for one that hangs

# Runs at each boot: the address that QEMU's network expects.
NETWORK = """[Unit]
DefaultDependencies=no
After=systemd-remount-fs.service systemd-udev-settle.service
Wants=systemd-udev-settle.service
Before=network-pre.target ssh.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'for d in /sys/class/net/e*; do ip addr add 10.0.2.15/24 dev $${d##*/}; ip link set $${d##*/} up; done'
[Install]
WantedBy=multi-user.target
"""


def run(*argv, **kw):
    """A command that must succeed; its output is shown only if it fails."""
    r = subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)
    if r.returncode:
        raise RuntimeError(f"{argv[0]}: exit {r.returncode}\n{r.stdout[-4000:]}")
    return r.stdout


def missing():
    """What this machine lacks for running the tests' machine; "" = nothing."""
    lacks = [name for name in NEEDED if not shutil.which(name)]
    if lacks:
        return f"not installed: {', '.join(lacks)} (tools/install-deps vm)"
    if os.geteuid() != 0 and not (image_dir(()) / "ready").exists():
        return "only root can make the image"
    return ""


# ---- the image ----

def image_dir(packages):
    """The directory of the image. Its name depends on everything that makes the image, so a change leads to
    another image."""
    made_of = [NETWORK, DISK, *PACKAGES, *packages, *USERS, *map(inspect.getsource, (add_users, install, make_image))]
    return CACHE / f"{SUITE}-{hashlib.sha256(' '.join(made_of).encode()).hexdigest()[:12]}"


def mirror():
    """The place from which this machine gets its packages."""
    for path in pathlib.Path("/etc/apt/sources.list.d").glob("*.sources"):
        for line in path.read_text().splitlines():
            if line.startswith("URIs:"):
                return [line.split()[1]]
    return []


def add_users(root, directory):
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / "key")
    for name, uid in USERS.items():
        if uid:
            run("chroot", root, "useradd", "-m", "-u", uid, "-s", "/bin/bash", name)
        home = root / ("home/" + name if uid else "root") / ".ssh"
        home.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(directory / "key.pub", home / "authorized_keys")
        for path in (home, home / "authorized_keys"):
            os.chown(path, uid, uid)


def install(root, packages):
    """With apt, since debootstrap does not understand all dependencies. The settings of apt are this machine's."""
    where = mirror() or ["http://deb.debian.org/debian"]
    (root / "etc/apt/sources.list").write_text(f"deb {where[0]} {SUITE} main\n")
    run("cp", "-r", "/etc/apt/apt.conf.d/.", root / "etc/apt/apt.conf.d/")
    run("cp", "-r", "/etc/ssl/certs", root / "etc/ssl/")
    for name in ("resolv.conf", "hosts"):
        shutil.copy(f"/etc/{name}", root / "etc" / name)
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")  # start no service
    policy.chmod(0o755)
    run("mount", "--bind", "/proc", root / "proc")
    try:
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        run("chroot", root, "apt-get", "update", env=env)
        run("chroot", root, "apt-get", "install", "-y", "--no-install-recommends", *packages, env=env)
    finally:
        run("umount", root / "proc")
    policy.unlink()
    run("chroot", root, "systemctl", "disable", "docker.service", "docker.socket", "containerd.service")


def make_image(packages=()):
    """The directory of the image: kernel, initrd, root.img and the key for ssh."""
    directory = image_dir(packages)
    if (directory / "ready").exists():
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    root = directory / "root"
    run("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, root, *mirror())
    if packages:
        install(root, packages)
    add_users(root, directory)
    (root / "etc/fstab").write_text("/dev/vda / ext4 defaults 0 1\n/dev/vdb /tony ext4 ro,nofail 0 0\n")
    (root / "tony").mkdir()
    (root / "etc/hostname").write_text("vm\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost vm\n")
    (root / "etc/systemd/system/vm-network.service").write_text(NETWORK)
    (root / "etc/environment").write_text("PATH=/tony:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n")
    run("chroot", root, "systemctl", "enable", "vm-network.service", "ssh.service")
    run("chroot", root, "systemctl", "mask", "serial-getty@ttyS0.service", "apt-daily.timer", "apt-daily-upgrade.timer", "man-db.timer")
    for name, glob in (("kernel", "vmlinuz-*"), ("initrd", "initrd.img-*")):
        shutil.copy(sorted((root / "boot").glob(glob))[-1], directory / name)
    run("mke2fs", "-q", "-F", "-t", "ext4", "-d", root, directory / "root.img", DISK)
    shutil.rmtree(root)
    (directory / "ready").touch()
    return directory


# ---- the machine ----

class OnTerminal:
    """A command on a terminal of a machine. What it shows is in `text`; expect() forgets what it has found."""

    def __init__(self, argv):
        self.p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.text = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.kill()
        self.p.communicate()

    def send(self, data):
        self.p.stdin.write(data)
        self.p.stdin.flush()

    def say(self, line):
        self.send(line.encode() + b"\n")

    def expect(self, pattern, limit=300):
        until = time.monotonic() + limit
        while not (found := re.search(pattern, self.text, re.DOTALL)):
            assert select.select([self.p.stdout], [], [], max(until - time.monotonic(), 0))[0], f"within {limit} s: {pattern} in {self.text}"
            data = os.read(self.p.stdout.fileno(), 65536)
            assert data, f"it ended before {pattern}: {self.text}"
            self.text += data
        self.text = self.text[found.end():]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Machine:
    """One machine. Its disk lives as long as `directory`, also when it loses its power."""

    def __init__(self, directory, programs, memory_mib=1024, packages=(), files=()):
        """packages: Debian's, in addition. files: these are in /tony beside the programs."""
        self.directory = pathlib.Path(directory)
        self.image = make_image(packages)
        self.port = free_port()
        self.memory_mib = memory_mib
        self.process = None
        share = self.directory / "programs"
        share.mkdir()
        for name in PROGRAMS:
            run("strip", "-o", share / name, pathlib.Path(programs) / name)
        for path in files:
            shutil.copy(path, share)
        run("mke2fs", "-q", "-F", "-t", "ext4", "-d", share, self.directory / "programs.img", "256M")
        run("qemu-img", "create", "-q", "-f", "qcow2", "-b", self.image / "root.img", "-F", "raw", self.directory / "disk.qcow2")
        try:
            self.boot()
        except BaseException:
            self.stop()
            raise

    def boot(self):
        """Start the machine, and wait until it accepts logins."""
        hardware = ["-accel", "kvm", "-cpu", "host"] if os.environ.get("TONY_VM_KVM") else ["-accel", "tcg,thread=multi"]
        # On a busy machine the disk with the programs appears late. The first option is for Debian 12, the second for 13.
        patience = f"systemd.default_timeout_start_sec={BOOT_S} systemd.default_device_timeout_sec={BOOT_S}"
        options = f"root=/dev/vda rw console=ttyS0 quiet {patience}"
        # The machine ends with this process, also if that is killed.
        argv = ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", *hardware, "-m", self.memory_mib, "-smp", 2, "-display", "none",
                "-kernel", self.image / "kernel", "-initrd", self.image / "initrd", "-append", options,
                "-drive", f"file={self.directory}/disk.qcow2,if=virtio", "-drive", f"file={self.directory}/programs.img,if=virtio,format=raw,snapshot=on",
                "-serial", f"file:{self.directory}/console", "-netdev", f"user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22",
                "-device", "virtio-net-pci,netdev=n"]
        with open(self.directory / "qemu.log", "a") as log:
            self.process = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + BOOT_S
        while self.ssh("root", "systemctl is-system-running --wait || true", check=False).returncode:
            assert time.monotonic() < until and self.process.poll() is None, f"the machine does not answer; see {self.directory}"
            time.sleep(0.5)

    def lose_power(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def reboot(self):
        """Reboots with systemctl, so all services are stopped."""
        self.ssh("root", "systemctl poweroff", check=False)
        self.process.wait(timeout=BOOT_S)
        self.boot()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.lose_power()

    def ssh_argv(self, user, command, *options):
        argv = ["ssh", *options, "-i", self.image / "key", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=20", "-o", "IdentitiesOnly=yes", "-p", self.port, f"{user}@127.0.0.1", command]
        return [str(a) for a in argv]

    def on_terminal(self, user, command):
        """A login session with a terminal."""
        return OnTerminal(self.ssh_argv(user, command, "-tt"))

    def ssh(self, user, command, check=True, timeout=120):
        """A login session of its own, which ends with the command."""
        r = subprocess.run(self.ssh_argv(user, command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout)
        assert not check or r.returncode == 0, f"{user}$ {command}\nexit {r.returncode}\n{r.stdout}\n{r.stderr}"
        return r

    def out(self, user, command, **kw):
        return self.ssh(user, command, **kw).stdout.strip()

    def write(self, user, path, text):
        self.ssh(user, f"printf %s {shlex.quote(text)} > {shlex.quote(str(path))}")
