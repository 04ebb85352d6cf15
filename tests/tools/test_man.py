# SPDX-License-Identifier: Apache-2.0
"""man/make-pages: manual pages from the help of commands and from Markdown."""

import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TONY_BUILD", ROOT / "build"))
TONY = str(BUILD / "bin/tony")
loader = importlib.machinery.SourceFileLoader("make_pages", str(ROOT / "man/make-pages"))  # its name has no suffix
make = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_pages", loader))
loader.exec_module(make)


def roff(text):
    return subprocess.run(["scdoc"], input=text, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("markdown, scdoc", [
    ("two\nlines", "two lines"),
    ("`a_b` and **bold `x`** and *em*", r"_a\_b_ and *bold x* and _em_"),
    ("``a ` b``", r"_a \` b_"),
    ("- one\n  goes on\n  - inner\n- two", "- one goes on\n\t- inner\n- two"),
    ("1. one\n2. two", ". one\n. two"),
    ("```sh\ntony run -- x\n```", "```\ntony run -- x\n```"),
    ("    a \\ b", "```\na \\\\ b\n```"),
    ("| a | b |\n|---|---|\n| 1 | `x` |", "[[ *a*\n:< *b*\n|  1\n:  _x_"),
    ("see [job-files.md](job-files.md#yaml)", "see *tony-job(5)*"),
    ("see [the order](job-files.md#order)", "see the order (*tony-job(5)*)"),
    ("see [that](other.md) and [web](http://x.y)", "see that and web (http://x.y)"),
    ("-v is an option", r"\-v is an option"),
    ("<!-- test: yarn -->", "")])
def test_markdown(markdown, scdoc):
    out = make.tidy(make.body(markdown.split("\n"), {"job-files.md": "tony-job(5)"})).strip()
    assert out == scdoc
    roff("x(1)\n\n# NAME\n\n" + out + "\n")


@pytest.mark.parametrize("name", [name for name, _ in make.commands(TONY)])
def test_the_page_of_a_command_has_its_help(name):
    text = make.command(TONY, name)
    help_text = subprocess.run([TONY, "help", name], capture_output=True, text=True, check=True).stdout
    for option in re.findall(r"^  (?:-\w, )?(--[\w-]+)", help_text, re.M):
        assert f"*{make.escaped(option)}*" in text
    out = roff(text)
    assert f".TH \"tony-{name}\"" in out and ".SH OPTIONS" in out


def test_the_overview_names_each_page():
    pages = re.findall(r"^    \['([\w.-]+)\((\d)\)',", (ROOT / "man/meson.build").read_text(), re.M)
    overview = (ROOT / "man/tony.1.scd.in").read_text()
    assert len(pages) > 20
    assert [name for name, section in pages if f"*{name}*({section})" not in overview] == []
