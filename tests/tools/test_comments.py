# SPDX-License-Identifier: Apache-2.0
"""
A comment or a page that names a function, a constant or a file of tony names one that exists. Such names are the part
of a comment that a program can check: a renamed constant leaves wrong comments behind in other files.
"""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Names of the kernel, of libraries and of other programs, and names of examples. Names that the code itself uses need
# no entry.
FOREIGN = set(
    """
    CONFIG_PROC_CHILDREN PF_EXITING PF_KTHREAD MAX_ARG_STRLEN BINPRM_BUF_SIZE CAP_SYS_RESOURCE SCM_RIGHTS BOOT_FAIL
    TF_GRPC_REUSE_PORT TB_SERVER_REUSE_PORT METRICS_RPC_PORT
    cgroup_css_set_fork cgroup_post_fork clone3 uv_spawn
    include/linux/sched.h sys/param.h uv.h stdio.h kernel/cgroup/cgroup.c launch_container.sh
    HOOK_KEY MINE_ROLE MINE_INDEX EV_DECIDED_ TONY_E
    d/tony.sh fix.py hello.py prepare.py resume.py rootless.sh run.sh serve.py tell.sh who.py tests/unit/test_x.c
    """.split()
)
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def names_of_files():
    out = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, check=False)
    if out.returncode != 0:
        pytest.skip("optional: this is not a clone of the repository")
    return [n for n in out.stdout.decode().split("\0") if n]


def read_all():
    texts = {}
    for name in names_of_files():
        try:
            texts[name] = (ROOT / name).read_text()
        except (UnicodeDecodeError, OSError):
            continue  # data, or a file that was removed from the working tree
    return texts


def names_of(texts):
    """All identifiers of the code, and the names of all files."""
    words = set()
    for name, text in texts.items():
        if name.endswith(".md") or name == "tests/tools/test_comments.py":
            continue
        words.update(re.findall(r"\w+", COMMENT.sub(" ", text) if name.endswith((".c", ".h")) else text))
    return words, {os.path.basename(n) for n in texts}


def unknown(text, words, files):
    for pattern, known in (
        (r"(?<![\w.])([a-z][a-z0-9_]+)\(\)", words),  # function()
        (r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b", words),  # CONSTANT_NAME
        (r"\b([a-z0-9_/]+\.(?:c|h|py|sh))\b", files),  # file.c
    ):
        for m in re.finditer(pattern, text):
            name = m.group(1)
            if (os.path.basename(name) if known is files else name) not in known and name not in FOREIGN:
                yield m.start(), name


def test_the_names_exist():
    texts = read_all()
    words, files = names_of(texts)
    wrong = []
    for name, text in texts.items():
        if name.endswith((".c", ".h")):
            parts = [(m.start(), m.group()) for m in COMMENT.finditer(text)]
        elif name.endswith(".md") and name != "NEWS.md":
            parts = [(0, text)]
        else:
            continue
        for at, part in parts:
            wrong += [f"{name}:{text.count(chr(10), 0, at + i) + 1}: {n}" for i, n in unknown(part, words, files)]
    assert not wrong, "these names are nowhere in the code:\n" + "\n".join(wrong)


def test_a_wrong_name_is_found():
    words, files = {"open_it", "LIMIT_MS"}, {"open.c"}
    text = "open_it() waits LIMIT_MS (open.c); close_it() waits PAUSE_MS (src/base/close.c)"
    assert [n for _, n in unknown(text, words, files)] == ["close_it", "PAUSE_MS", "src/base/close.c"]


# ---- the lists of files in headers ----

NAME = r"[\w/]+\*?\.[ch]"  # "resize*.c": several files


def listed(header):
    """The names in the list of files at the top of a header. At least four lines that begin with a name make a
    list."""
    comments = COMMENT.findall(header)
    top = comments[1] if len(comments) > 1 else ""
    return re.findall(NAME, top) if len(re.findall(rf"^ \*\s{{1,4}}{NAME}[ ,]", top, re.M)) > 3 else []


def unlisted(header, texts):
    """
    The sources that the list of a header lacks: all of its directory if the header is named like it, as pool_int.h is;
    of keeper_int.h, the files keeper*.c. A file may be listed by the header of its own name.
    """
    directory, stem = os.path.dirname(header), os.path.basename(header)[:-2].removesuffix("_int")
    known = [re.compile(os.path.basename(n)[:-2].replace("*", ".*")) for n in listed(texts[header])]
    whole = os.path.basename(directory).startswith(stem)
    own = [n for n in texts if os.path.dirname(n) == directory and n.endswith(".c") and (whole or os.path.basename(n).startswith(stem))]
    return [n for n in own if known and not any(k.fullmatch(os.path.basename(n)[:-2]) for k in known)]


def test_the_list_of_a_header_is_complete():
    texts = read_all()
    headers = [n for n in texts if n.startswith("src/") and n.endswith(".h")]
    assert sum(bool(listed(texts[n])) for n in headers) > 9, "no lists are found"
    wrong = [f"{h} does not list {n}" for h in headers for n in unlisted(h, texts)]
    assert not wrong, "\n".join(wrong)


def test_an_unlisted_file_is_found():
    header = "/* SPDX */\n/*\n * a.c, b.c  one\n * c*.c      two\n * d.h       three\n * e.c       four\n */\n"
    texts = {"src/pool/pool_int.h": header} | {f"src/pool/{n}.c": "" for n in ("a", "b", "c", "c_far", "d", "e", "x")}
    assert unlisted("src/pool/pool_int.h", texts) == ["src/pool/x.c"]
