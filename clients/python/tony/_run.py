# SPDX-License-Identifier: Apache-2.0
"""tony.run(): call a Python function as the tasks of a job."""

from __future__ import annotations

import base64
import json
import pickle
import shutil
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence, TypeVar

from . import _job, _program, _worker

R = TypeVar("R")


class RemoteError(Exception):
    """The function raised an exception in a task. `task` names it, `traceback` is its text there."""

    def __init__(self, task: str, message: str, traceback: str):
        super().__init__(f"{task}: {message}")
        self.task, self.traceback = task, traceback


def _read_result(text: str, task: str) -> Any:
    """The result between the marks in the output of a task."""
    begin = text.rfind(_worker.BEGIN)
    end = text.find(_worker.END, begin)
    if begin < 0 or end < 0:
        raise RemoteError(task, "it has ended without a result", "")
    packed = "".join(text[begin + len(_worker.BEGIN):end].split())
    return pickle.loads(zlib.decompress(base64.b64decode(packed)))


def run(fn: Callable[..., R], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *, workers: int = 1,
        memory: str = "1g", vcores: int = 1, gpus: int = 0, framework: str = "generic", python: str = sys.executable,
        name: str | None = None, env: Mapping[str, str] | None = None, conf: Mapping[str, Any] | None = None,
        cluster: str | None = None) -> list[R]:
    """Call fn(*args, **kwargs) in each of `workers` tasks, and return their results in the order of the tasks.

    Each task has the environment of `framework`: with "pytorch" RANK, WORLD_SIZE and so on. The function and its
    arguments travel by cloudpickle, which must be installed here; it is sent along. `python` is the interpreter
    of the tasks; it must have the version of this one. A result travels through the task's standard output: it
    may have some MiB. Larger ones belong into files. What the function prints before is in job.logs().

    Raises RemoteError if the function raised, with the traceback of the task that failed first; JobFailed if the
    job failed otherwise; TonyError if it was refused."""
    job = submit(fn, args, kwargs, workers=workers, memory=memory, vcores=vcores, gpus=gpus, framework=framework, python=python,
                 name=name, env=env, conf=conf, cluster=cluster)
    try:
        status = job.wait(check=False)
    except BaseException:  # Ctrl-C: nobody waits for the results any more
        job.kill()
        raise
    return results(job, status)


def submit(fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *, workers: int = 1,
           memory: str = "1g", vcores: int = 1, gpus: int = 0, framework: str = "generic", python: str = sys.executable,
           name: str | None = None, env: Mapping[str, str] | None = None, conf: Mapping[str, Any] | None = None,
           cluster: str | None = None) -> _job.Job:
    """Submit the job that run() describes."""
    import cloudpickle  # type: ignore[import-untyped,import-not-found,unused-ignore]

    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    # Each result counts, so each failed task is a failure of the call.
    conf = {"tony.application.fail-on-worker-failure-enabled": True, **(conf or {})}
    with tempfile.TemporaryDirectory(prefix="tony-run-") as folder:
        src = Path(folder, "src")
        src.mkdir()
        shutil.copy(_worker.__file__, src / "tony_worker.py")
        shutil.copytree(Path(cloudpickle.__file__).parent, src / "cloudpickle", ignore=shutil.ignore_patterns("__pycache__"))
        (src / "call.pickle").write_bytes(cloudpickle.dumps((fn, tuple(args), dict(kwargs or {}))))
        command = json.dumps(python) + " tony_worker.py"
        role = {"instances": workers, "memory": memory, "vcores": vcores, "gpus": gpus}
        spec = {"name": name or getattr(fn, "__name__", "function"), "framework": framework, "src": str(src), "command": command,
                "roles": {"worker": role}}
        if env:
            spec["env"] = dict(env)
        return _job.submit(spec, conf=conf, cluster=cluster)


def results(job: _job.Job, status: _job.Status) -> list[Any]:
    """What run() returns or raises when the job has ended."""
    if status.state != "SUCCEEDED":
        _raise(job, status)
    values = []
    for task in status.tasks:
        if task.role == "worker":
            value = _read_result(job.logs(task.name), task.name)
            if isinstance(value, _worker.Raised):  # conf may let a job succeed although a task has failed
                raise RemoteError(task.name, value.message, value.traceback) from _job.JobFailed(status)
            values.append(value)
    return values


def _raise(job: _job.Job, status: _job.Status) -> None:
    task = status.cause.task if status.cause else None
    if task:
        try:
            error = _read_result(job.logs(task), task)
        except (RemoteError, _program.TonyError):
            error = None
        if isinstance(error, _worker.Raised):
            raise RemoteError(task, error.message, error.traceback) from _job.JobFailed(status)
    raise _job.JobFailed(status)
