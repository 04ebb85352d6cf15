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
from typing import Any, AsyncIterator

from . import _job, _program, _run

_LOOK = object()  # among the lines of events(): it is time to look at the steps of the tasks


class Job:
    """As tony.Job; its methods are coroutines, and events() is an asynchronous iterator."""

    def __init__(self, application_id: str, cluster: str | None = None):
        self.sync = _job.Job(application_id, cluster)

    @property
    def application_id(self) -> str:
        return self.sync.application_id

    def __repr__(self) -> str:
        return f"tony.aio.Job({self.application_id!r})"

    async def events(self, interval: float = _job.LOOK_S) -> AsyncIterator[_job.Event]:
        """As Job.events(): all that has happened, and happens until the end."""
        # No asyncio.wait_for() here: before Python 3.12 it loses a cancellation that comes together with a line, and
        # then the caller would wait for the end of the job.
        loop, lines = asyncio.get_running_loop(), asyncio.Queue()
        follow = ["events", self.application_id, "--follow", *self.sync._where]
        with _program.following(follow, lambda line: loop.call_soon_threadsafe(lines.put_nowait, line)) as check:
            steps: dict[str, int] = {}
            timer = loop.call_later(interval, lines.put_nowait, _LOOK)
            try:
                while (line := await lines.get()) is not None:
                    if line is not _LOOK:
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


def _coroutine(name: str):
    async def call(self: Job, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(getattr(self.sync, name), *args, **kwargs)

    call.__name__, call.__doc__ = name, getattr(_job.Job, name).__doc__
    return call


for _name in ("status", "why", "logs", "metrics", "resize", "stop", "kill"):
    setattr(Job, _name, _coroutine(_name))


async def submit(*args: Any, **kwargs: Any) -> Job:
    job = await asyncio.to_thread(_job.submit, *args, **kwargs)
    return Job(job.application_id, kwargs.get("cluster"))


async def run(*args: Any, **kwargs: Any) -> list[Any]:
    """As tony.run(). If it is cancelled, the job is killed."""
    submitting = asyncio.ensure_future(asyncio.to_thread(_run.submit, *args, **kwargs))
    try:
        job = await asyncio.shield(submitting)
        status = await Job(job.application_id, kwargs.get("cluster")).wait(check=False)
    except asyncio.CancelledError:
        await asyncio.to_thread((await submitting).kill)
        raise
    return await asyncio.to_thread(_run.results, job, status)
