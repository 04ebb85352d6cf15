# SPDX-License-Identifier: Apache-2.0
"""The messages of a task to tony: progress, checkpoints, and the question whether to stop.

This is one file without dependencies: copy it beside your program. Outside of tony all calls do nothing, so the
program runs anywhere. No call waits for tony, or raises an exception because of it.

    import tony_task
    tony = tony_task.connect()
    for step in range(tony_task.resume_step(), total):
        ...
        tony.progress(step + 1, total)
        tony.metrics(loss=loss, lr=1e-3)    # any numbers, at most 256 names
        if tony.should_stop():              # save a checkpoint now, and end: tony waits for it
            ...
            break
    tony.checkpoint(step, "/data/run/step-120.pt")      # when it is complete: after its rename

From a shell: python3 tony_task.py progress 120 1000; python3 tony_task.py checkpoint 120 /data/run/step-120.pt;
python3 tony_task.py ready; python3 tony_task.py metrics loss=0.31 lr=0.001
"""
import json
import math
import os
import socket
import sys
from typing import Any, Mapping, Optional, SupportsFloat, Union


def resume_path() -> Optional[str]:
    """The path of the checkpoint to resume from, or None."""
    return os.environ.get("TONY_CHECKPOINT")


def resume_step() -> int:
    """The step of that checkpoint, or 0."""
    return int(os.environ.get("TONY_CHECKPOINT_STEP", "0"))


class Task:
    def __init__(self, name: Optional[str]) -> None:
        self._socket: Optional[socket.socket] = None
        self._heard = b""
        self._unsaid = b""  # the report of a checkpoint that the socket did not accept
        self._stop = False
        if not name or not name.startswith("@"):
            return
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.connect(b"\0" + os.fsencode(name[1:]))
            self._socket.setblocking(False)
        except OSError:
            self._socket = None

    def _say(self, **words: Any) -> None:
        if not self._socket:
            return
        line = json.dumps(words).encode() + b"\n"
        try:
            self._socket.send(self._unsaid + line)
            self._unsaid = b""
        except BlockingIOError:  # the buffer is full: send a checkpoint again with the next message
            if "checkpoint" in words:
                self._unsaid = line
        except OSError:
            self._socket = None

    def _listen(self) -> None:
        while self._socket:
            try:
                data = self._socket.recv(4096)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self._socket = None
                break
            self._heard += data
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            self._stop = self._stop or json.loads(line).get("stop", False)

    def progress(self, step: int, total: Optional[int] = None) -> None:
        self._say(step=step, **({} if total is None else {"total": total}))

    def checkpoint(self, step: int, path: Union[str, "os.PathLike[str]"], parts: Optional[int] = None) -> None:
        """Call it when the checkpoint is complete. parts: how many tasks must report their part of it."""
        self._say(step=step, checkpoint=os.path.abspath(path), **({} if parts is None else {"parts": parts}))

    def metrics(self, values: Optional[Mapping[str, SupportsFloat]] = None, **more: SupportsFloat) -> None:
        """Numbers about the training: metrics(loss=0.31), or metrics({"val/loss": 0.31}) for names with other characters."""
        numbers = {name: float(value) for name, value in {**(values or {}), **more}.items()}
        # JSON has no infinity and no NaN
        numbers = {name: value for name, value in numbers.items() if math.isfinite(value)}
        if numbers:
            self._say(metrics=numbers)

    def tensorboard(self, url: str) -> None:
        self._say(tensorboard=url)

    def ready(self) -> None:
        """This task is ready: tasks of roles that wait for it may start."""
        self._say(ready=True)

    def should_stop(self) -> bool:
        """Has tony asked this task to save a checkpoint and end? Costs one system call."""
        self._listen()
        return self._stop


def connect() -> Task:
    return Task(os.environ.get("TONY_TASK_SOCKET"))


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["progress"] and len(words) in (2, 3):
        connect().progress(*map(int, words[1:]))
    elif words[:1] == ["checkpoint"] and len(words) == 3:
        connect().checkpoint(int(words[1]), words[2])
    elif words[:1] == ["metrics"] and len(words) > 1 and all("=" in word for word in words[1:]):
        connect().metrics({name: float(value) for name, value in (word.split("=", 1) for word in words[1:])})
    elif words == ["ready"]:
        connect().ready()
    else:
        sys.exit("usage: tony_task.py progress STEP [TOTAL] | checkpoint STEP PATH | ready | metrics NAME=NUMBER ...")
