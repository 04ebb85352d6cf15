# SPDX-License-Identifier: Apache-2.0
"""`make install`, `make deb` and `make tarball`: what they install runs a job, also on a bare Debian."""

import os
import pathlib
import shutil
import stat
import subprocess

import pytest
from conftest import BIN, ROOT
from lib_pages import Block, blocks, paste, to_paste

# in one process: two tests use the same system, and all the same builds
pytestmark = pytest.mark.xdist_group("packages")

HELLO = """\
command: echo "I am $JOB_NAME:$TASK_INDEX of $TASK_NUM"
framework: generic
roles:
  worker: {instances: 3, memory: 64m}
"""
# What README.md tells a new user to type after the installation.
README = "\n".join(line for line in next(b for b in blocks("README.md") if b.kind() == "packages").text.splitlines()
                   if line.startswith("tony"))
# Runs as an ordinary user of the bare Debian. --cluster is not needed, nor is any setting.
AS_USER = f"""\
set -e
cd /home/u
{README}
tony version
tony run hello.yaml
tony logs last worker:2
tony tasks last
"""
# The program of docs/libtony.md, compiled as the page says.
C_PROGRAM = (ROOT / "docs/libtony.md").read_text().partition("```c\n")[2].partition("```")[0]
COMPILED = f"""\
set -e
mkdir c && cd c
cp ../hello.yaml job.yaml
cat > jobs.c <<'END'
{C_PROGRAM}END
cc jobs.c -o jobs $(pkg-config --cflags --libs tony)
./jobs
tony status last | grep SUCCEEDED
cc jobs.c -o jobs-static $(pkg-config --cflags tony) $(pkg-config --variable=libdir tony)/libtony.a \
    $(pkg-config --static --libs-only-l --libs-only-other tony | sed s/-ltony//)
./jobs-static
cd .. && rm -r c
"""
COMPANIONS = ["tony-exact", "tony-executor", "tony-gpu", "tony-master", "tony-pack", "tony-pool"]


def run(*argv, limit=600, **kw):
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=limit, **kw)
    assert r.returncode == 0, (argv, r.returncode, r.stdout[-4000:], r.stderr[-4000:])
    return r.stdout


def test_an_installed_tony_finds_its_companions(own_tony, tmp_path):
    tony = own_tony()
    run("meson", "install", "-C", BIN.parent, "--no-rebuild", "--quiet", env={**os.environ, "DESTDIR": str(tmp_path)})
    [program] = tmp_path.glob("**/bin/tony")
    prefix = program.parent.parent
    assert sorted(p.name for p in (prefix / "libexec/tony").iterdir()) == COMPANIONS
    assert sorted(p.name for p in (prefix / "bin").iterdir()) == ["tony"]
    for path in ("share/bash-completion/completions/tony", "share/zsh/site-functions/_tony", "share/fish/vendor_completions.d/tony.fish",
                 "share/doc/tony/docs/job-files.md", "share/doc/tony/LICENSE", "share/tony/python/tony_task.py",
                 "share/man/man1/tony.1", "share/man/man1/tony-run.1", "share/man/man5/tony-job.5", "share/man/man7/tony-yarn.7"):
        assert (prefix / path).is_file(), path
    commands = [line.split()[0] for line in tony.ok("help").partition("\nCommands\n")[2].partition("\n\n")[0].splitlines()]
    assert {f"tony-{name}.1" for name in commands} | {"tony.1"} == {p.name for p in (prefix / "share/man/man1").iterdir()}
    for example in sorted((prefix / "share/doc/tony/examples").glob("*/job.yaml")):
        tony.ok("plan", example)
    shutil.move(prefix, tmp_path / "elsewhere")
    link = tmp_path / "tony"  # found through a symbolic link, too
    link.symlink_to(tmp_path / "elsewhere/bin/tony")
    job = tmp_path / "hello.yaml"
    job.write_text(HELLO)
    env = {**tony.env, "PATH": "/usr/bin:/bin"}
    r = subprocess.run([link, "run", job], env=env, capture_output=True, text=True, timeout=60)
    assert r.returncode == 0 and "SUCCEEDED" in r.stdout, (r.stdout, r.stderr)
    assert not [line for line in tony.processes().values() if "/../" in line]
    assert "/../" not in subprocess.run([link, "doctor", "--json"], env=env, capture_output=True, text=True, timeout=60, check=False).stdout


class Bare:
    """A bare Debian in a directory, with an ordinary user `u`."""

    def __init__(self, root, suite):
        self.root, self.suite = pathlib.Path(root), suite
        sites = run("apt-get", "indextargets", "--format", "$(SITE)").split()  # the mirror that this machine uses
        site = next(s for s in sites if s.rstrip("/").endswith("/debian"))
        run("debootstrap", "--variant=minbase", suite, root, site, limit=1800)
        (self.root / "etc/apt/sources.list").write_text(f"deb {site} {suite} main\n")
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        for proxy in pathlib.Path("/etc/apt/apt.conf.d").glob("*proxy*"):
            shutil.copy(proxy, self.root / "etc/apt/apt.conf.d")
        self.sh("useradd --create-home u")
        (self.root / "home/u/hello.yaml").write_text(HELLO)

    def sh(self, script, user="root", limit=600):
        """Run a script in it. Its processes have namespaces of their own, and end with it."""
        inside = f"mount -t proc proc /proc; mount -t tmpfs tmpfs /dev/shm 2>/dev/null; exec su - {user} -c \"$SCRIPT\""
        return run("unshare", "--mount", "--pid", "--fork", "--kill-child", "chroot", self.root, "/bin/sh", "-c", inside, limit=limit,
                   env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SCRIPT": script, "DEBIAN_FRONTEND": "noninteractive"})


class WithoutLibc(Bare):
    """A Linux that has a static busybox and nothing else: no C library, no bash, as a small container image."""

    def __init__(self, root):  # pylint: disable=super-init-not-called
        self.root, self.suite = pathlib.Path(root), "busybox"
        for folder in ("bin", "dev", "etc", "home/u", "opt", "proc", "root", "tmp"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "tmp").chmod(0o1777)
        shutil.copy("/bin/busybox", self.root / "bin")
        for name in run("/bin/busybox", "--list").split():
            if name != "busybox":
                (self.root / "bin" / name).symlink_to("busybox")
        for name, mode in (("null", 3), ("zero", 5), ("urandom", 9)):
            os.mknod(self.root / "dev" / name, 0o666 | stat.S_IFCHR, os.makedev(1, mode))
            (self.root / "dev" / name).chmod(0o666)
        (self.root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nu:x:1000:1000::/home/u:/bin/sh\n")
        (self.root / "etc/group").write_text("root:x:0:\nu:x:1000:\n")
        (self.root / "home/u/hello.yaml").write_text(HELLO)
        os.chown(self.root / "home/u", 1000, 1000)


@pytest.fixture(scope="module")
def systems():
    """The bare Debians that were made so far, by suite: two tests use the same one."""
    made = {}
    yield made
    for one in made.values():
        shutil.rmtree(one.root, ignore_errors=True)


@pytest.fixture(scope="module")
def debian(request, systems, tmp_path_factory):
    # made here, because a test has a time limit
    if request.param not in systems:
        systems[request.param] = Bare(tmp_path_factory.mktemp(request.param) / "root", request.param)
    return systems[request.param]


@pytest.fixture(scope="module")
def reader(request, tmp_path_factory):
    """A bare Debian of a reader of the pages, who has installed tony as README.md says: (system, the directory of tony)."""
    suite, package = request.param
    path = request.getfixturevalue(package)
    system = Bare(tmp_path_factory.mktemp("pages-" + suite) / "root", suite)
    wanted = "python3 man-db"  # the pages name both
    if package == "deb":
        shutil.copy(path, system.root / "tmp/tony.deb")
        wanted += " /tmp/tony.deb"
    else:
        run("tar", "-C", system.root / "opt", "-xf", path)
    system.sh(f"apt-get -q update && apt-get -q install -y --no-install-recommends {wanted}", limit=900)
    [program] = system.root.glob("usr/bin/tony" if package == "deb" else "opt/*/bin/tony")
    yield system, "/" + str(program.parent.relative_to(system.root))
    shutil.rmtree(system.root, ignore_errors=True)


# Built here and not in the tests, which have a time limit.
@pytest.fixture(scope="module")
def deb():
    return ROOT / run("make", "--no-print-directory", "deb", cwd=ROOT, limit=1800).split()[-1]


@pytest.fixture(scope="module")
def tarball():
    return ROOT / run("make", "--no-print-directory", "tarball", cwd=ROOT, limit=1800).split()[-1]


# The unit tests of what uses Mbed TLS: TLS sessions, keys, digests, the protocols of Hadoop.
CRYPTO = "tls conn_tls jobkey resizekey sealed storage hadoop_sasl hadoop_rpc hadoop_client"


@pytest.fixture(scope="module")
def built_on_trixie(tmp_path_factory):
    """A Debian 13 with the sources of this project, on which `make deb` and these tests were built (with Mbed TLS
    3.6)."""
    system = Bare(tmp_path_factory.mktemp("build-trixie") / "root", "trixie")
    copy_sources(system.root / "root/tony")
    system.sh("apt-get -q update && apt-get -q install -y --no-install-recommends make libcmocka-dev", limit=900)
    system.sh("cd tony && make deb", limit=3600)
    programs = " ".join(f"tests/unit/test_{name}" for name in CRYPTO.split())
    system.sh(f"cd tony && meson configure build -Dtests=enabled && ninja -C build --quiet {programs}", limit=3600)
    yield system
    shutil.rmtree(system.root, ignore_errors=True)


def copy_sources(to):
    """The files that git knows or that are new, in their present state."""
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for name in names:
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def says_the_right_things(out):
    assert "SUCCEEDED" in out and "I am worker:2 of 3" in out, out


# The package is for Debian 12 and 13; the tarball is tried on the oldest and the newest Debian.
@pytest.mark.slow
@pytest.mark.takes(120)
@pytest.mark.parametrize("debian", ["bookworm", "trixie"], indirect=True)
def test_the_debian_package_on_a_bare_debian(debian, deb):
    shutil.copy(deb, debian.root / "tmp/tony.deb")
    debian.sh("apt-get -q update && apt-get -q install -y --no-install-recommends /tmp/tony.deb")
    says_the_right_things(debian.sh(AS_USER, user="u"))
    if debian.suite == "trixie":  # on Debian 12, where libtony is built, test_libtony.py does it
        debian.sh("apt-get -q install -y --no-install-recommends gcc libc6-dev pkg-config")
        debian.sh(COMPILED, user="u")
    debian.sh("apt-get -q remove -y tony")
    assert not list((debian.root / "usr").glob("**/*tony*"))


# Runs a program as the user `u` of a bare system, in $HOME. Its processes have namespaces of their own, and end with it.
ENTER = """\
mount -t proc proc /proc; mount -t tmpfs tmpfs /dev/shm
cd "$HOME"; setpriv --reuid u --regid u --clear-groups "$@" """


@pytest.mark.slow
@pytest.mark.takes(10)
@pytest.mark.parametrize("reader", [("bookworm", "deb"), ("trixie", "tarball")], ids=["package", "tarball"], indirect=True)
@pytest.mark.parametrize("page", ["README.md", *to_paste()])
def test_paste_on_a_bare_debian(reader, page):
    """The examples of each page work on a bare Debian that has tony, Python and manual pages, and nothing else."""
    system, programs = reader
    home = "home/u/" + page.replace("/", "-")
    (system.root / home).mkdir()
    os.chown(system.root / home, 1000, 1000)
    env = {"HOME": "/" + home, "USER": "u", "PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin"}
    wrap = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "chroot", str(system.root), "/bin/sh", "-c", ENTER, "sh")
    if page == "README.md":
        out = paste([Block(page, 1, [], README)], env, "/", wrap)
        assert "I am task 2 of 3" in out, out
    else:
        paste(to_paste()[page], env, "/", wrap)


@pytest.mark.slow
@pytest.mark.takes(300)
@pytest.mark.xdist_group("a package made elsewhere")  # the compiler runs for minutes, beside the other tests of this file
def test_a_package_made_on_debian_13(built_on_trixie):
    built_on_trixie.sh("dpkg-query -W libmbedtls-dev | grep -w 3.6")
    built_on_trixie.sh(f"cd tony && meson test -C build --no-rebuild --timeout-multiplier 5 {CRYPTO}")
    built_on_trixie.sh("apt-get -q install -y --no-install-recommends ./tony/dist/tony_*.deb")
    says_the_right_things(built_on_trixie.sh(AS_USER, user="u"))


@pytest.mark.slow
@pytest.mark.takes(120)
@pytest.mark.parametrize("debian", ["trixie", "bullseye"], indirect=True)
def test_the_tarball_on_an_older_and_a_newer_debian(debian, tarball):
    run("tar", "-C", debian.root / "opt", "-xf", tarball)
    [folder] = (debian.root / "opt").iterdir()
    paths = f"export PATH=/opt/{folder.name}/bin:$PATH\n"
    says_the_right_things(debian.sh(paths + AS_USER, user="u"))
    if debian.suite == "trixie":  # libtony needs the glibc of Debian 12 or a newer one
        paths += f"export PKG_CONFIG_PATH=/opt/{folder.name}/lib/pkgconfig LD_LIBRARY_PATH=/opt/{folder.name}/lib\n"
        debian.sh("apt-get -q update && apt-get -q install -y --no-install-recommends gcc libc6-dev pkg-config")
        debian.sh(paths + COMPILED, user="u")


@pytest.mark.slow
@pytest.mark.takes(60)
def test_the_tarball_on_a_linux_without_a_c_library(tarball, tmp_path):
    """Nothing of the machine is used: so the tarball also runs where the C library is another one (musl, on Alpine)."""
    system = WithoutLibc(tmp_path / "root")
    run("tar", "-C", system.root / "opt", "-xf", tarball)
    [folder] = (system.root / "opt").iterdir()
    says_the_right_things(system.sh(f"export PATH=/opt/{folder.name}/bin:/bin\n" + AS_USER, user="u"))
