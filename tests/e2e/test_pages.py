# SPDX-License-Identifier: Apache-2.0
"""What the pages of docs/ and README.md tell readers to paste works, with the installed programs and a new TONY_HOME."""

import os
import re
import subprocess

import pytest
from conftest import BIN
from lib_pages import ROOT, WITHOUT_EXAMPLE, begins_with_example, blocks, pages, paste, to_paste

# in one process, which installs the programs once
pytestmark = pytest.mark.xdist_group("pages")
WIDTH = 110
EXAMPLES = [str(p.relative_to(ROOT)) for p in (ROOT / "examples").rglob("*.md")]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The directory `bin` of an installation."""
    where = tmp_path_factory.mktemp("installed")
    subprocess.run(["meson", "install", "-C", str(BIN.parent), "--no-rebuild", "--quiet"], env={**os.environ, "DESTDIR": str(where)},
                   check=True, timeout=240)
    [program] = where.glob("**/bin/tony")
    return program.parent


@pytest.mark.parametrize("page", pages())
def test_a_page_begins_with_an_example(page):
    assert begins_with_example(page) != (page in WITHOUT_EXAMPLE)
    assert all(b.text for b in blocks(page))


def test_each_page_without_an_example_exists():
    assert set(WITHOUT_EXAMPLE) <= set(pages())


@pytest.mark.parametrize("page", [*pages(), "HACKING.md", "NEWS.md", *EXAMPLES])
def test_a_page_is_at_most_110_columns_wide(page):
    """Exceptions are tables and pictures, whose lines cannot be broken, and URLs."""
    fenced = False
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        fenced ^= line.startswith("```")
        free = line.startswith("|") or any(c in line for c in "│┌└─") or re.search(r"\S{60}", line)
        assert fenced and "sh" not in line or free or len(line) <= WIDTH, f"{page}:{number}: {len(line)} columns"


def commands_on(page):
    """The calls of tony that a page shows, as (command, options): in blocks, indented lines and inline code."""
    text = (ROOT / page).read_text()
    code = [line.strip() for line in text.splitlines() if line.startswith("    ") or "tony " in line and not "`" in line]
    code += [" ".join(words.split()) for words in re.findall(r"`(tony [^`]*)`", text)]
    for line in code:
        line = re.sub(r"\"[^\"]*\"|'[^']*'", "x", line)
        for call in re.findall(r"(?:^|[;&|(] *|\$\()tony ([a-z]+)([^;&|()#`]*)", line):
            yield call[0], re.findall(r"(?<=\s)--[a-z][\w-]*(?![\w.-])", re.split(r"\s--(?:\s|$)| --set ", call[1])[0])


@pytest.mark.parametrize("page", [*pages(), "NEWS.md", *EXAMPLES])
def test_each_command_and_option_on_a_page_exists(tony, page):
    known = {}
    for name, options in commands_on(page):
        if not options:
            continue
        if name not in known:
            known[name] = set(re.findall(r"(?:^  |, )(--[\w-]+)", tony.ok("help", name).replace("_", "-"), re.M))
        missing = [o for o in options if o.replace("_", "-") not in known[name]]
        assert not missing, f"{page}: tony {name} has no {missing}"


def test_commands_on_pages_are_found():
    found = [(name, o) for page in pages() for name, options in commands_on(page) for o in options]
    assert len(found) > 100 and ("run", "--cluster") in found and ("stop", "--checkpoint") in found and ("init", "--from-torchrun") in found


def user(tony, installed):
    """The environment of a user who has installed tony, and has no other settings."""
    return {**tony.env, "PATH": f"{installed}:/usr/bin:/bin"}


@pytest.mark.takes(10)
@pytest.mark.parametrize("page", to_paste())
def test_paste(own_tony, installed, page):
    tony = own_tony()
    out = paste(to_paste()[page], user(tony, installed), tony.base)
    if page == "docs/ten-minutes.md":
        assert "I am task 2 of 3" in out and "a_module_that_is_missing" in out
        assert re.search(r"resuming after step (9|10)\n", out), out
    elif page == "docs/from-tony.md":
        assert "rank 1 of 2 meets at tcp://" in out and "without effect" not in out


@pytest.mark.slow
@pytest.mark.takes(120)
@pytest.mark.parametrize("page", to_paste(slow=True))
def test_paste_slowly(own_tony, installed, page):
    tony = own_tony()
    out = paste(to_paste(slow=True)[page], user(tony, installed), tony.base)
    if page == "docs/from-torchrun.md":
        assert "rank 3 of 4, local rank 1: sum 6" in out
