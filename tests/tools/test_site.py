# SPDX-License-Identifier: Apache-2.0
"""The links of the pages, and the web site of `make docs`."""

import html.parser
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TONY_BUILD", ROOT / "build"))
loader = importlib.machinery.SourceFileLoader("make_docs", str(ROOT / "tools/make-docs"))  # its name has no suffix
site = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_docs", loader))
loader.exec_module(site)


def slug(heading):
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"`|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")


def text_of(path):
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)


@pytest.mark.parametrize("page", [str(p.relative_to(ROOT)) for p in site.pages()])
def test_the_links_of_a_page(page):
    """Each link leads to a file or directory of this repository, and its anchor to a heading there."""
    path = ROOT / page
    for _, target in site.LINK.findall(re.sub(r"`[^`\n]+`", "", text_of(path))):
        name, _, anchor = target.partition("#")
        if re.match(r"\w+:", target):
            continue
        there = (path.parent / name).resolve() if name else path
        assert there.exists(), f"{page}: there is no '{name}'"
        if anchor:
            assert anchor in [slug(h) for h in re.findall(r"^#+ (.*)$", text_of(there), re.M)], f"{page}: '{target}' has no such heading"


def test_each_page_is_in_the_contents():
    """docs/README.md lists every page of docs/."""
    listed = set(re.findall(r"\(([\w-]+\.md)\)", (ROOT / "docs/README.md").read_text()))
    assert listed == {p.name for p in (ROOT / "docs").glob("*.md")} - {"README.md"}


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[a] for a in ("id", "name") if a in attrs}
        self.links += [attrs[a] for a in ("href", "src") if attrs.get(a)]


@pytest.mark.slow
@pytest.mark.takes(30)
def test_the_site(tmp_path):
    """Sphinx makes it without a warning, each link on it works, it needs no other site, and its search knows its words."""
    for name in ("bin",):
        (tmp_path / name).symlink_to(BUILD / name)
    done = subprocess.run(["/usr/bin/python3", str(ROOT / "tools/make-docs"), str(tmp_path)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    home = pathlib.Path(done.stdout.strip())
    pages = {path: Page(path) for path in home.parent.rglob("*.html")}
    assert len(pages) > 60 and home in pages
    for path, page in pages.items():
        for link in page.links:
            name, _, anchor = link.partition("#")
            if re.match(r"(https?|data|mailto):", link):
                assert not re.search(r"\.(js|css|woff2?)$", name), f"{path.name}: needs {link}"
                continue
            there = pathlib.Path(os.path.normpath(path.parent / name.partition("?")[0])) if name else path
            there = there / "index.html" if there.is_dir() else there
            assert there.exists(), f"{path.name}: there is no '{link}'"
            if anchor and there in pages:
                assert anchor in pages[there].ids, f"{path.name}: no '{link}'"
    index = (home.parent / "searchindex.js").read_text()
    assert "torchrun" in index and "tensorboard" in index
