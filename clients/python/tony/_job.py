# SPDX-License-Identifier: Apache-2.0
"""Jobs: submits a job, follows it, and reads its state."""

from __future__ import annotations

import json
import os
import queue
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, Mapping

from . import _program

ENDED = ("SUCCEEDED", "FAILED", "KILLED")
LOOK_S = 2.0  # between two looks of events() at the steps of tasks


@dataclass(frozen=True)
class Task:
    """A task as `tony tasks` shows it. Times are milliseconds since the submission; None: not known yet."""

    name: str
    role: str
    index: int
    state: str
    result: str | None
    attempt: int
    exit_code: int | None
    signal: int | None
    reason: str | None
    address: str | None
    gpus: str | None
    step: int | None
    total: int | None
    started_ms: int | None
    ended_ms: int | None
    raw: Mapping[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Role:
    name: str
    instances: int
    running: int
    succeeded: int
    failed: int
    step: int | None
    total: int | None
    raw: Mapping[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Cause:
    """The task that failed first, and how."""

    task: str
    exit_code: int | None
    signal: int | None
    reason: str
    stderr_tail: str


@dataclass(frozen=True)
class Status:
    """A job as `tony status --json` shows it (docs/json.md); `raw` is that document."""

    application_id: str
    name: str
    state: str
    exit_code: int | None
    message: str | None
    restarts: int
    ran_ms: int
    cause: Cause | None
    roles: tuple[Role, ...]
    tasks: tuple[Task, ...]
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True)
class Event:
    """Something that has happened. `kind` is one of those of docs/events.md, or "progress":

    job         `state` is the new state of the job, `message` the sentence of its end, or None
    task        `task` has the new `state`; at its end `message` is its result, such as "SUCCEEDED"
    checkpoint  the checkpoint of `step` is whole
    progress    `task` has reported `step` of `total`

    `raw` is the document of `tony events`; of "progress" it is empty.
    """

    kind: str
    state: str | None = None
    task: str | None = None
    message: str | None = None
    step: int | None = None
    total: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


class JobFailed(Exception):
    """The job has ended, but did not succeed. `status` is its final status."""

    def __init__(self, status: Status):
        super().__init__(f"job {status.application_id} {status.state}: {status.message}")
        self.status = status


def _task(t: Mapping[str, Any]) -> Task:
    return Task(t["task"], t["role"], t["index"], t["state"], t.get("result"), t.get("attempt") or 0, t.get("exit_code"),
                t.get("signal"), t.get("reason"), t.get("address"), t.get("gpus"), t.get("step"), t.get("total"),
                t.get("started_ms"), t.get("ended_ms"), t)


def _role(r: Mapping[str, Any]) -> Role:
    return Role(r["name"], r["instances"], r.get("running", 0), r.get("succeeded", 0), r.get("failed", 0), r.get("step"),
                r.get("total"), r)


def _status(doc: Mapping[str, Any]) -> Status:
    c = doc.get("cause")
    cause = c and Cause(c["task"], c.get("exit_code"), c.get("signal"), c["reason"], c.get("stderr_tail") or "")
    return Status(doc["application_id"], doc.get("name", ""), doc["state"], doc.get("exit_code"), doc.get("message"),
                  doc.get("restarts") or 0, doc.get("ran_ms") or 0, cause, tuple(map(_role, doc.get("roles") or ())),
                  tuple(map(_task, doc.get("tasks") or ())), doc)


def _event(e: Mapping[str, Any]) -> Event:
    return Event(e["event"], state=e.get("state"), task=e.get("task"), message=e.get("result") or e.get("message"),
                 step=e.get("step"), raw=e)


def progress(steps: dict[str, int], status: Status) -> list[Event]:
    """The tasks whose step has changed. steps: the last ones, which are brought up to date."""
    new = [t for t in status.tasks if t.step is not None and steps.get(t.name) != t.step]
    steps.update((t.name, t.step or 0) for t in new)
    return [Event("progress", task=t.name, step=t.step, total=t.total) for t in new]


class Job:
    """A job that was submitted, now or earlier. The constructor does not look whether it exists."""

    def __init__(self, application_id: str, cluster: str | None = None):
        self.application_id = application_id
        self._where = ["--cluster", cluster] if cluster else []

    def __repr__(self) -> str:
        return f"tony.Job({self.application_id!r})"

    def _ask(self, command: str, *args: str, timeout: float | None = None) -> Any:
        return _program.document([command, self.application_id, *args, *self._where], timeout)

    def status(self) -> Status:
        return _status(self._ask("status"))

    def why(self) -> Mapping[str, Any]:
        """What went wrong first and what to do, or what the job waits for (docs/json.md, "why")."""
        doc: Mapping[str, Any] = self._ask("why")
        return doc

    def wait(self, timeout: float | None = None, check: bool = True) -> Status:
        """Wait until the job is over, and return its final status. check: raise JobFailed if it did not succeed.
        TimeoutError: it is not over after `timeout` seconds; it continues."""
        doc = _program.document(["wait", self.application_id, *self._where], timeout, _program.JOB_ENDED)
        status = _status(doc)
        if check and status.state != "SUCCEEDED":
            raise JobFailed(status)
        return status

    def events(self, interval: float = LOOK_S) -> Iterator[Event]:
        """All that has happened in the job, and goes on to happen until its end (`tony events -f`). Steps that
        tasks report are seen every `interval` seconds."""
        lines: queue.Queue[str | None] = queue.Queue()
        with _program.following(["events", self.application_id, "--follow", *self._where], lines.put) as check:
            steps: dict[str, int] = {}
            due = time.monotonic() + interval
            while True:
                try:
                    line = lines.get(timeout=max(due - time.monotonic(), 0))
                except queue.Empty:
                    yield from progress(steps, self.status())
                    due = time.monotonic() + interval
                    continue
                if line is None:
                    check()
                    return
                event = _event(json.loads(line))
                if event.kind == "job" and event.state in ENDED:
                    yield from progress(steps, self.status())
                yield event

    def logs(self, task: str | None = None, *, stderr: bool = False, lines: int | None = None, attempt: int | None = None) -> str:
        """What a task has written to stdout, or to stderr. Without `task`: that of all tasks, with headings."""
        args = ["logs", self.application_id, *([task] if task else []), "--stderr" if stderr else "--stdout"]
        args += ["-n", str(lines)] if lines is not None else []
        args += ["--attempt", str(attempt)] if attempt is not None else []
        return _program.text(args + self._where)

    def metrics(self, *tasks: str, name: str | None = None) -> Any:
        """The series of the job's metrics, as `tony metrics --json` prints them."""
        return self._ask("metrics", *tasks, *(["--name", name] if name else []))

    def resize(self, **roles: int) -> Mapping[str, Any]:
        """job.resize(worker=8): ask for another number of tasks."""
        doc: Mapping[str, Any] = self._ask("resize", *(f"{role}={n}" for role, n in roles.items()))
        return doc

    def stop(self, checkpoint: bool = False) -> None:
        """Stop the job and wait for its end. checkpoint: its tasks may save a checkpoint first."""
        args = ["stop", self.application_id, *(["--checkpoint"] if checkpoint else [])]
        _program.text(args + self._where, ended=_program.JOB_ENDED)

    def kill(self) -> None:
        _program.text(["kill", self.application_id, *self._where], ended=_program.JOB_ENDED)


def submit(job: str | os.PathLike[str] | Mapping[str, Any], *, conf: Mapping[str, Any] | None = None, cluster: str | None = None) -> Job:
    """Submit a job file, or a dict with the content of one. conf: further keys, which win over the file.

    In a dict, relative paths begin at the current directory. Without a name, the job is called like it. TonyError with code 2: the job was
    refused, and its message says why."""
    options = [word for key, value in (conf or {}).items() for word in ("--conf", f"{key}={_value(value)}")]
    options += ["--cluster", cluster] if cluster else []
    if not isinstance(job, Mapping):
        doc = _program.document(["submit", os.fspath(job), *options])
    else:
        spec = _absolute(job)
        if "name" not in spec and "tony.application.name" not in (conf or {}):
            spec["name"] = Path.cwd().name or "job"
        with tempfile.TemporaryDirectory(prefix="tony-") as folder:
            path = Path(folder, "job.yaml")
            path.write_text(json.dumps(spec, default=os.fspath))  # JSON is also YAML
            doc = _program.document(["submit", str(path), *options])
    return Job(doc["application_id"], cluster)


def _absolute(job: Mapping[str, Any]) -> dict[str, Any]:
    """The dict of a job or of a role with absolute paths: those of a file would begin at the directory of the file."""
    def path(text: Any) -> Any:
        text = os.fspath(text) if isinstance(text, (str, os.PathLike)) else text
        return text if not isinstance(text, str) or not text or "://" in text else os.path.join(os.getcwd(), text)

    def secret(source: Any) -> Any:
        home = isinstance(source, Mapping) and str(source.get("file", "~/")).startswith("~/")
        return source if home or not isinstance(source, Mapping) else {**source, "file": path(source["file"])}

    spec = dict(job)
    for key in ("src", "venv"):
        if key in spec:
            spec[key] = path(spec[key])
    if isinstance(spec.get("resources"), (list, tuple)):
        spec["resources"] = [path(x) for x in spec["resources"]]
    if isinstance(spec.get("secrets"), Mapping):
        spec["secrets"] = {name: secret(source) for name, source in spec["secrets"].items()}
    if isinstance(spec.get("roles"), Mapping):
        spec["roles"] = {name: _absolute(role) if isinstance(role, Mapping) else role for name, role in spec["roles"].items()}
    return spec


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def jobs(n: int = 20, cluster: str | None = None) -> list[Job]:
    """The newest jobs, live and finished."""
    doc = _program.document(["list", "-n", str(n), *(["--cluster", cluster] if cluster else [])])
    rows = doc["jobs"] if isinstance(doc, Mapping) else doc
    return [Job(row["application_id"], cluster) for row in rows]
