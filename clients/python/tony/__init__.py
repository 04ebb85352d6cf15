# SPDX-License-Identifier: Apache-2.0
"""Run distributed machine-learning jobs from Python.

    import tony

    job = tony.submit("job.yaml")            # or a dict with the same content
    for event in job.events():
        print(event)
    status = job.wait()                      # raises tony.JobFailed if it did not succeed
    print(job.logs("worker:0"))

    results = tony.run(train, args=(0.1,), workers=4, memory="2g")   # train(0.1) as four tasks

The package calls the program `tony` (environment variable TONY_PROGRAM, else PATH) with --json. All
settings of the program hold: TONY_HOME, TONY_CONF_DIR, and for clusters HADOOP_CONF_DIR.
`tony.aio` has the same functions for asyncio.
"""

from typing import TYPE_CHECKING, Any

from ._job import Cause, Event, Job, JobFailed, Role, Status, Task, jobs, submit
from ._program import TonyError, version
from ._run import RemoteError, run

if TYPE_CHECKING:
    from . import aio as aio


def __getattr__(name: str) -> Any:
    """tony.aio without an import of its own. Programs without asyncio do not pay for it."""
    if name == "aio":
        import importlib
        return importlib.import_module(".aio", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Cause", "Event", "Job", "JobFailed", "RemoteError", "Role", "Status", "Task", "TonyError", "aio", "jobs", "run",
           "submit", "version"]
