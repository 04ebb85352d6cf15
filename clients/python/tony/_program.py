# SPDX-License-Identifier: Apache-2.0
"""Calls the program `tony`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import threading
from typing import Any, Callable, Iterator, Sequence

# Exit codes of tony that say how a job ended, not that the command failed (docs/exit-codes.md).
JOB_ENDED = (0, 1, 3)


class TonyError(Exception):
    """tony could not do what it was asked. `code` is its exit code: 2 for a refused job or wrong use, 4 if
    the pool, the cluster or the machine has failed. `hint` says what to try, and may be empty."""

    def __init__(self, message: str, code: int, hint: str = ""):
        super().__init__(f"{message} ({hint})" if hint else message)
        self.message, self.code, self.hint = message, code, hint


def program() -> str:
    found = os.environ.get("TONY_PROGRAM") or shutil.which("tony")
    if not found:
        raise TonyError("cannot find the program 'tony'", 4, "install it, or set TONY_PROGRAM to its path")
    return found


def error_of(stderr: str, code: int) -> TonyError:
    """The last message on stderr, which is `tony: SENTENCE` and perhaps a line with a hint."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    starts = [i for i, line in enumerate(lines) if line.startswith("tony: ")]
    if not starts:
        return TonyError(lines[-1].strip() if lines else f"tony ended with exit code {code}", code)
    last = starts[-1]
    return TonyError(lines[last].removeprefix("tony: "), code, " ".join(line.strip() for line in lines[last + 1:]))


def text(args: Sequence[str], timeout: float | None = None, ended: Sequence[int] = (0,)) -> str:
    """Runs `tony ARGS` and returns what it prints. Raises TonyError for an exit code that is not in `ended`.
    TimeoutError: it took longer than `timeout` seconds; the command was killed, the job was not."""
    try:
        done = subprocess.run([program(), *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"'tony {args[0]}' took longer than {timeout} s") from None
    if done.returncode not in ended:
        raise error_of(done.stderr.decode(errors="replace"), done.returncode)
    return done.stdout.decode(errors="replace")


def document(args: Sequence[str], timeout: float | None = None, ended: Sequence[int] = (0,)) -> Any:
    return json.loads(text([*args, "--json"], timeout, ended))


@contextlib.contextmanager
def following(args: Sequence[str], put: Callable[[str | None], None]) -> Iterator[Callable[[], None]]:
    """Run `tony ARGS`, and put each line that it prints, then None. The value is a function that raises TonyError
    if the command has failed. The command is ended with the context."""
    p = subprocess.Popen([program(), *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout and p.stderr  # both are pipes
    stdout, stderr = p.stdout, p.stderr
    said: list[bytes] = []

    def read() -> None:
        for line in stdout:
            put(line.decode(errors="replace"))
        put(None)

    readers = [threading.Thread(target=read, daemon=True), threading.Thread(target=lambda: said.append(stderr.read()), daemon=True)]

    def check() -> None:
        if p.wait() != 0:
            readers[1].join()
            raise error_of(b"".join(said).decode(errors="replace"), p.returncode)

    try:
        for reader in readers:
            reader.start()
        yield check
    finally:
        p.kill()
        p.wait()
        for reader in readers:
            reader.join()
        stdout.close()
        stderr.close()


def version() -> str:
    """The version of the program."""
    return str(document(["version"])["version"])
