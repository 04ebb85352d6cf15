# SPDX-License-Identifier: Apache-2.0
"""docs/troubleshooting.md quotes messages as they are printed: each in bold at the beginning of an item of a list."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
OF_THE_SYSTEM = {"Read-only file system", "No space left on device"}


def strings():
    """The text of all string literals of src/; adjacent ones are one text."""
    texts = []
    for path in sorted((ROOT / "src").rglob("*.c")):
        code = re.sub(r"/\*.*?\*/|#include[^\n]*", "", path.read_text(), flags=re.S)
        texts += [re.sub(r'"\s*"', "", m.group()) for m in re.finditer(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', code)]
    return "\n".join(texts)


SOURCES = strings()
ITEMS = re.findall(r"^- (\*\*.*?)(?::\s|$)", PAGE, flags=re.M | re.S)
MESSAGES = sorted({" ".join(m.split()) for item in ITEMS for m in re.findall(r"\*\*(.*?)\*\*", item, flags=re.S)} - OF_THE_SYSTEM)


def test_there_are_messages():
    assert len(MESSAGES) > 25


@pytest.mark.parametrize("message", MESSAGES)
def test_the_message_exists(message):
    """Each quoted message is in the sources. Words in capitals and in quotes, numbers and "..." in it stand for
    text that differs."""
    parts = re.split(r"'[^']*'|\b[A-Z]+\b(?!-)|\d+|\.\.\.", message)
    for part in (p.strip() for p in parts):
        assert part in SOURCES, f"no message has '{part}'"
