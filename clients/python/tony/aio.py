# SPDX-License-Identifier: Apache-2.0
"""The functions of the package for asyncio: each runs in a thread, and the event loop goes on.

    job = await tony.aio.submit("job.yaml")
    async for event in job.events():
        ...
    status = await job.wait()
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, AsyncGenerator, Callable, Mapping, Sequence, TypeVar

from . import _job, _program, _run

R = TypeVar("R")
_LOOK = "look"  # among the lines of events(), which are JSON: it is time to look at the steps of the tasks


class Job:
    """As tony.Job; its methods are coroutines, and events() is an asynchronous iterator."""

    def __init__(self, application_id: str, cluster: str | None = None):
        self.sync = _job.Job(application_id, cluster)

    @property
    def application_id(self) -> str:
        return self.sync.application_id

    def __repr__(self) -> str:
        return f"tony.aio.Job({self.application_id!r})"

    async def events(self, interval: float = _job.LOOK_S) -> AsyncGenerator[_job.Event, None]:
        """As Job.events(): all that has happened, and happens until the end."""
        # No asyncio.wait_for() here: before Python 3.12 it loses a cancellation that comes together with a line, and
        # then the caller would wait for the end of the job.
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[str | None] = asyncio.Queue()
        follow = ["events", self.application_id, "--follow", *self.sync._where]

        def put(line: str | None) -> None:
            loop.call_soon_threadsafe(lines.put_nowait, line)

        with _program.following(follow, put) as check:
            steps: dict[str, int] = {}
            timer = loop.call_later(interval, lines.put_nowait, _LOOK)
            try:
                while (line := await lines.get()) is not None:
                    if line != _LOOK:
                        yield _job._event(json.loads(line))
                        continue
                    for event in _job.progress(steps, await self.status()):
                        yield event
                    timer = loop.call_later(interval, lines.put_nowait, _LOOK)
            finally:
                timer.cancel()
            await asyncio.to_thread(check)

    async def wait(self, timeout: float | None = None, check: bool = True) -> _job.Status:
        """As Job.wait()."""
        final = asyncio.ensure_future(self._final())
        try:
            await asyncio.wait({final}, timeout=timeout)
            if not final.done():
                raise TimeoutError(f"job {self.application_id} is not over after {timeout} s")
            status = final.result()
        finally:
            final.cancel()  # without effect if it is done
            await asyncio.wait({final})
        if check and status.state != "SUCCEEDED":
            raise _job.JobFailed(status)
        return status

    async def _final(self) -> _job.Status:
        events = self.events()
        try:
            async for _ in events:
                pass
        finally:
            await events.aclose()  # a wait that is given up leaves no process behind
        return await self.status()

    async def status(self) -> _job.Status:
        """As Job.status()."""
        return await asyncio.to_thread(self.sync.status)

    async def why(self) -> Mapping[str, Any]:
        """As Job.why()."""
        return await asyncio.to_thread(self.sync.why)

    async def logs(self, task: str | None = None, *, stderr: bool = False, lines: int | None = None, attempt: int | None = None) -> str:
        """As Job.logs()."""
        return await asyncio.to_thread(self.sync.logs, task, stderr=stderr, lines=lines, attempt=attempt)

    async def metrics(self, *tasks: str, name: str | None = None) -> Any:
        """As Job.metrics()."""
        return await asyncio.to_thread(self.sync.metrics, *tasks, name=name)

    async def resize(self, **roles: int) -> Mapping[str, Any]:
        """As Job.resize()."""
        return await asyncio.to_thread(self.sync.resize, **roles)

    async def stop(self, checkpoint: bool = False) -> None:
        """As Job.stop()."""
        await asyncio.to_thread(self.sync.stop, checkpoint)

    async def kill(self) -> None:
        """As Job.kill()."""
        await asyncio.to_thread(self.sync.kill)


async def submit(job: str | os.PathLike[str] | Mapping[str, Any], *, conf: Mapping[str, Any] | None = None,
                 cluster: str | None = None) -> Job:
    """As tony.submit()."""
    submitted = await asyncio.to_thread(_job.submit, job, conf=conf, cluster=cluster)
    return Job(submitted.application_id, cluster)


async def run(fn: Callable[..., R], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *, workers: int = 1,
              memory: str = "1g", vcores: int = 1, gpus: int = 0, framework: str = "generic", python: str = sys.executable,
              name: str | None = None, env: Mapping[str, str] | None = None, conf: Mapping[str, Any] | None = None,
              cluster: str | None = None) -> list[R]:
    """As tony.run(). If it is cancelled, the job is killed."""
    submitting = asyncio.ensure_future(asyncio.to_thread(
        _run.submit, fn, args, kwargs, workers=workers, memory=memory, vcores=vcores, gpus=gpus, framework=framework, python=python,
        name=name, env=env, conf=conf, cluster=cluster))
    try:
        job = await asyncio.shield(submitting)
        status = await Job(job.application_id, cluster).wait(check=False)
    except asyncio.CancelledError:
        await asyncio.to_thread((await submitting).kill)
        raise
    return await asyncio.to_thread(_run.results, job, status)
