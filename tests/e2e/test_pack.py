# SPDX-License-Identifier: Apache-2.0
"""The program tony-pack: the result for valid archives, and the refusals for bad ones."""

import gzip
import io
import json
import os
import stat
import subprocess
import tarfile
import zipfile

import pytest

from conftest import BIN

PACK = BIN / "tony-pack"


@pytest.fixture
def out(tmp_path):
    directory = tmp_path / "out"
    directory.mkdir()
    return directory


def unpack(archive, directory, timeout=60):
    r = subprocess.run([str(PACK), "unpack", str(archive), str(directory)], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=timeout)
    return r.returncode, json.loads(r.stdout)


def member(name, text=b"x", mode=0o644, **fields):
    info = tarfile.TarInfo(name)
    info.mode = mode
    info.size = len(text) if fields.get("type", tarfile.REGTYPE) == tarfile.REGTYPE else 0
    for key, value in fields.items():
        setattr(info, key, value)
    return info, io.BytesIO(text)


def make_tar(path, members, mode="w"):
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as tar:
        for info, text in members:
            text.seek(0)
            tar.addfile(info, text)
    return path


GOOD = [
    member("top/", b"", 0o755, type=tarfile.DIRTYPE),
    member("top/run.sh", b"#!/bin/sh\n", 0o755),
    member("top/secret", b"s", 0o600),
    member("top/set-id", b"s", 0o6755),
    member("top/empty/", b"", 0o700, type=tarfile.DIRTYPE),
    member("./top/dot", b"dot"),
    member("implied/dir/file", b"deep"),
    member("top/link", b"", type=tarfile.SYMTYPE, linkname="run.sh"),
    member("top/python", b"", type=tarfile.SYMTYPE, linkname="/usr/bin/python3"),
    member("top/hard", b"", type=tarfile.LNKTYPE, linkname="top/run.sh"),
    member("\u00fcmlaut \u4e2d", b"name"),
    member("l" * 200 + "/" + "n" * 200, b"long"),
]


def check_good(out):
    assert (out / "top/run.sh").read_bytes() == b"#!/bin/sh\n"
    assert stat.S_IMODE((out / "top/run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((out / "top/secret").stat().st_mode) == 0o600
    assert stat.S_IMODE((out / "top/set-id").stat().st_mode) == 0o755
    assert stat.S_IMODE((out / "top/empty").stat().st_mode) == 0o700
    assert os.readlink(out / "top/link") == "run.sh"
    assert os.readlink(out / "top/python") == "/usr/bin/python3"
    assert (out / "top/hard").read_bytes() == b"#!/bin/sh\n"
    assert (out / "implied/dir/file").read_bytes() == b"deep"
    assert (out / "\u00fcmlaut \u4e2d").read_bytes() == b"name"
    assert (out / ("l" * 200) / ("n" * 200)).read_bytes() == b"long"


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_tar(tmp_path, out, kind):
    mode = "w:" + (kind.split(".")[1] if "." in kind else "")
    archive = make_tar(tmp_path / f"good.{kind}", GOOD, mode)
    code, answer = unpack(archive, out)
    assert code == 0, answer
    assert answer == {"bytes": sum(len(t.getvalue()) for i, t in GOOD if i.isreg()), "files": 10}
    check_good(out)


def test_zip(tmp_path, out):
    archive = tmp_path / "good.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as z:
        info = zipfile.ZipInfo("top/run.sh")
        info.external_attr = (stat.S_IFREG | 0o755) << 16
        z.writestr(info, "#!/bin/sh\n")
        link = zipfile.ZipInfo("top/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        z.writestr(link, "run.sh")
        z.writestr("\u00fc", "name")
    code, answer = unpack(archive, out)
    assert code == 0, answer
    assert stat.S_IMODE((out / "top/run.sh").stat().st_mode) == 0o755
    assert os.readlink(out / "top/link") == "run.sh"
    assert (out / "\u00fc").read_text() == "name"


REFUSED = {
    "dotdot": ([member("a/../../evil")], "leads out of the directory"),
    "absolute": ([member("/tmp/evil-tony-pack")], "leads out of the directory"),
    "hard link out": ([member("h", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd")], "link to outside"),
    "hard link up": ([member("h", b"", type=tarfile.LNKTYPE, linkname="../evil")], "link to outside"),
    "through a link": ([member("d", b"", type=tarfile.SYMTYPE, linkname="../evil-dir"), member("d/file")], "d/file"),
    "hard link through a link": ([member("d", b"", type=tarfile.SYMTYPE, linkname=".."),
                                  member("h", b"", type=tarfile.LNKTYPE, linkname="d/outside")], "h"),
    "pipe": ([member("p", b"", type=tarfile.FIFOTYPE)], "neither a file"),
    "device": ([member("null", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=3)], "neither a file"),
    "depth": ([member("/".join("d" * 300))], "too deep"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsafe_archives_are_refused(tmp_path, out, name):
    members, says = REFUSED[name]
    (tmp_path / "evil-dir").mkdir()
    (tmp_path / "outside").write_text("outside")
    archive = make_tar(tmp_path / "bad.tar", members)
    code, answer = unpack(archive, out)
    assert code == 1 and answer["errno"] > 0
    assert says in answer["message"] and str(archive) in answer["message"], answer
    assert list((tmp_path / "evil-dir").iterdir()) == [] and not (tmp_path / "evil").exists()
    assert (tmp_path / "outside").stat().st_nlink == 1
    assert not os.path.exists("/tmp/evil-tony-pack")


def test_a_small_archive_of_huge_content_is_refused(tmp_path, out):
    """
    1600 MB of zeros in 1.6 MB. tony-pack stops soon after the first GB: no useful archive is packed that
    small.
    """
    archive = tmp_path / "bomb.tar.gz"
    info = tarfile.TarInfo("zeros")
    info.size = 1600 << 20
    chunk = gzip.compress(b"\0" * (16 << 20))
    archive.write_bytes(gzip.compress(info.tobuf()) + chunk * 100)
    code, answer = unpack(archive, out, timeout=100)
    assert code == 1 and "times its size" in answer["message"], answer
    (out / "zeros").unlink()


DAMAGED = {
    "empty": b"",
    "text": b"this is no archive\n" * 50,
    "gz of text": None,
    "cut zip": b"PK\x03\x04" + b"\0" * 40,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_archives_are_refused(tmp_path, out, name):
    archive = tmp_path / "damaged"
    archive.write_bytes(DAMAGED[name] if DAMAGED[name] is not None else gzip.compress(b"text" * 100))
    code, answer = unpack(archive, out)
    assert code == 1 and str(archive) in answer["message"], answer


def test_cut_tar(tmp_path, out):
    archive = make_tar(tmp_path / "cut.tar.gz", GOOD, "w:gz")
    archive.write_bytes(archive.read_bytes()[:-60])
    code, answer = unpack(archive, out)
    assert code == 1 and str(archive) in answer["message"]


def test_missing_and_misuse(tmp_path, out):
    code, answer = unpack(tmp_path / "none.zip", out)
    assert code == 1 and "none.zip" in answer["message"]
    assert subprocess.run([str(PACK)], capture_output=True).returncode == 2
    assert subprocess.run([str(PACK), "--help"], capture_output=True).returncode == 0
