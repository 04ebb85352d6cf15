# SPDX-License-Identifier: Apache-2.0
"""The functions of the package for asyncio: each runs in a thread, and the event loop goes on.

    job = await tony.aio.submit("job.yaml")
    async for event in job.events():
        ...
    status = await job.wait()
"""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator

from . import _job, _run


class Job:
    """As tony.Job; its methods are coroutines, and events() is an asynchronous iterator."""

    def __init__(self, application_id: str, cluster: str | None = None):
        self.sync = _job.Job(application_id, cluster)

    @property
    def application_id(self) -> str:
        return self.sync.application_id

    def __repr__(self) -> str:
        return f"tony.aio.Job({self.application_id!r})"

    async def events(self, interval: float = _job.LOOK_MAX_S) -> AsyncIterator[_job.Event]:
        last, pause = None, _job.LOOK_MIN_S
        while True:
            now = await self.status()
            new = _job.changes(last, now)
            for event in new:
                yield event
            if now.ended:
                return
            pause = _job.LOOK_MIN_S if new else min(2 * pause, interval)
            last = now
            await asyncio.sleep(pause)

    async def wait(self, timeout: float | None = None, check: bool = True) -> _job.Status:
        """As Job.wait(). It looks at the job instead of blocking a thread for as long as the job runs."""
        try:
            status = await asyncio.wait_for(self._final(), timeout)
        except asyncio.TimeoutError:
            raise TimeoutError(f"job {self.application_id} is not over after {timeout} s") from None
        if check and status.state != "SUCCEEDED":
            raise _job.JobFailed(status)
        return status

    async def _final(self) -> _job.Status:
        async for _ in self.events():
            pass
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
    return await asyncio.to_thread(_run.run, *args, **kwargs)
