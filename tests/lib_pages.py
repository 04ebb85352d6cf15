# SPDX-License-Identifier: Apache-2.0
"""
The blocks of the pages that a reader pastes into a terminal, and a terminal to paste them into.

A page begins, below its title, with a block of the language `sh`. A reader can paste every such block of a page,
from the top to the bottom, into one terminal. Blocks of other languages, and indented ones, are not pasted. A
comment in the line above a block says where it runs:

    <!-- test: yarn -->                      on a real Hadoop (tests/yarn)
    <!-- test: slurm -->                     on a real Slurm (tests/slurm)
    <!-- test: packages -->                  a test of tests/e2e/test_packages.py does the same
    <!-- test: slow -->                      only in the slow tests
    <!-- test: interrupt after TEXT -->      it runs until Ctrl-C; it is interrupted when it has printed TEXT
"""

import os
import pathlib
import re
import signal
import subprocess
import threading
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARK = re.compile(r"<!-- test: (.*) -->")
KINDS = ("yarn", "slurm", "packages", "slow")

# These pages are for people who change tony, or explain and list; there is nothing to paste.
WITHOUT_EXAMPLE = {
    "docs/add-a-backend.md": "developers",
    "docs/add-a-framework.md": "developers",
    "docs/architecture.md": "developers",
    "docs/job-states.md": "developers",
    "docs/schedulers.md": "other schedulers; tests/frameworks/test_airflow.py and tests/e2e/test_azkaban.py",
    "docs/libtony.md": "C; tests/e2e/test_libtony.py compiles a program",
    "docs/large-jobs.md": "figures",
    "docs/launch.md": "figures; a benchmark",
    "docs/licences.md": "a list",
}


@dataclass
class Block:
    page: str
    line: int
    marks: list
    text: str

    def kind(self):
        """Where the block runs: one of KINDS besides `slow`, or "" for the pool."""
        return next((m for m in self.marks if m in KINDS and m != "slow"), "")

    def until(self):
        """The text after which the block is interrupted, or None."""
        return next((m.removeprefix("interrupt after ") for m in self.marks if m.startswith("interrupt after ")), None)


def pages():
    return ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md"))]


def begins_with_example(page):
    """Is the first thing below the title a block of the language sh?"""
    lines = [line for line in (ROOT / page).read_text().splitlines() if line.strip()]
    return lines[0].startswith("# ") and next(line for line in lines[1:] if not MARK.fullmatch(line)) == "```sh"


def blocks(page):
    found, fence, mark = [], None, ""
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        if fence is None and line.startswith("```"):
            fence, begin, text = line[3:].strip(), number, []
        elif fence is not None and line == "```":
            marks = [m.strip() for m in mark.split(",")] if mark else []
            assert all(m in KINDS or m.startswith("interrupt after ") for m in marks), f"{page}:{begin}: unknown mark in {marks}"
            if fence == "sh":
                found.append(Block(page, begin, marks, "\n".join(text)))
            fence, mark = None, ""
        elif fence is not None:
            text.append(line)
        else:
            comment = MARK.fullmatch(line)
            mark = comment[1] if comment else ""
    assert fence is None, f"{page}: a block is not closed"
    return found


def to_paste(kind="", slow=False):
    """{page: the blocks that run there}. A page is slow if one of its blocks is."""
    found = {page: [b for b in blocks(page) if b.kind() == kind] for page in pages()}
    return {page: bs for page, bs in found.items() if bs and any("slow" in b.marks for b in bs) == slow}


def paste(bs, env, cwd, wrap=(), limit=240, **kw):
    """
    Pastes the blocks into one shell, which ends at the first command that fails. Returns the output. A block that has
    to be interrupted is the last one.
    """
    until = bs[-1].until()
    assert not any(b.until() for b in bs[:-1]), "nothing can follow a block that runs until Ctrl-C"
    script = "\n".join(b.text for b in bs)
    p = subprocess.Popen([*wrap, "bash", "-e", "-o", "pipefail", "-c", script], env=env, cwd=cwd, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **kw)
    timer = threading.Timer(limit, os.killpg, (p.pid, signal.SIGKILL))
    timer.start()
    said = []
    try:
        for line in p.stdout:
            said.append(line)
            if until and until in line:
                os.killpg(p.pid, signal.SIGINT)
                until = None
        status = p.wait()
    finally:
        timer.cancel()
    out = "".join(said)
    assert status == 0, f"{bs[0].page}, from line {bs[0].line}: exit status {status}\n{script}\n----\n{out[-6000:]}"
    assert until is None, f"{bs[0].page}: it never printed '{until}'\n{out[-6000:]}"
    return out
