# SPDX-License-Identifier: Apache-2.0
"""The operator: submits a job, waits for its end, and reports to Airflow how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Sequence

import tony
from airflow.configuration import conf as airflow_conf
from airflow.exceptions import AirflowException
from airflow.models import BaseOperator

from .triggers import TonyTrigger

if TYPE_CHECKING:
    from airflow.utils.context import Context


class TonyOperator(BaseOperator):
    """Runs a job of tony.

    job           the path of a job file, or a dict with the content of one; templated
    conf          further keys, which win over the file; templated
    cluster       "local", "yarn" or "slurm"; None: what the job file or the site says
    deferrable    wait in the triggerer instead of occupying a worker
    log_lines     so many last lines of each task's output go to the log of Airflow's task; 0 = none
    stop_on_kill  stop the job if Airflow ends the task before the job is over

    XComs: `application_id`, `verdict` (the state, message and cause of the job), `metrics` (the last value of each
    metric of each task); the result is the state. A job that does not succeed fails the task.
    """

    template_fields: Sequence[str] = ("job", "conf", "cluster")
    template_fields_renderers = {"job": "json", "conf": "json"}
    ui_color = "#e0ecf4"

    def __init__(self, *, job: str | Mapping[str, Any], conf: Mapping[str, Any] | None = None, cluster: str | None = None,
                 deferrable: bool | None = None, log_lines: int = 100, stop_on_kill: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.job, self.conf, self.cluster = job, conf, cluster
        self.deferrable = airflow_conf.getboolean("operators", "default_deferrable", fallback=False) if deferrable is None else deferrable
        self.log_lines, self.stop_on_kill = log_lines, stop_on_kill
        self.running: tony.Job | None = None

    def execute(self, context: Context) -> str:
        self.running = tony.submit(self.job, conf=self.conf, cluster=self.cluster)
        self.log.info("submitted job %s", self.running.application_id)
        context["ti"].xcom_push(key="application_id", value=self.running.application_id)
        if self.deferrable:
            self.defer(trigger=TonyTrigger(self.running.application_id, self.cluster, self.stop_on_kill), method_name="execute_complete")
        for event in self.running.events():
            self.log.info("%s", describe(event))
        return self.finish(context, self.running)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> str:
        """The trigger has fired."""
        if event.get("error"):
            raise AirflowException(f"job {event['application_id']}: {event['error']}")
        return self.finish(context, tony.Job(event["application_id"], self.cluster))

    def finish(self, context: Context, job: tony.Job) -> str:
        status = job.status()
        self.show_logs(job, status)
        verdict = {"state": status.state, "exit_code": status.exit_code, "message": status.message,
                   "cause": dict(status.raw.get("cause") or {})}
        context["ti"].xcom_push(key="verdict", value=verdict)
        context["ti"].xcom_push(key="metrics", value={t.name: dict(t.raw["metrics"]) for t in status.tasks if t.raw.get("metrics")})
        self.log.info("job %s %s: %s", job.application_id, status.state, status.message)
        if status.state != "SUCCEEDED":
            raise AirflowException(f"job {job.application_id} {status.state}: {status.message}")
        return status.state

    def show_logs(self, job: tony.Job, status: tony.Status) -> None:
        for task in status.tasks if self.log_lines else ():
            for stderr in (False, True):
                try:
                    text = job.logs(task.name, stderr=stderr, lines=self.log_lines)
                except tony.TonyError as error:  # the task never started, or its log is gone
                    self.log.debug("no log of %s: %s", task.name, error)
                    continue
                for line in text.splitlines():
                    self.log.info("%s %s | %s", task.name, "stderr" if stderr else "stdout", line)

    def on_kill(self) -> None:
        if self.running and self.stop_on_kill:
            self.log.info("stopping job %s", self.running.application_id)
            self.running.kill()


def describe(event: tony.Event) -> str:
    if event.kind == "progress":
        return f"{event.task} step {event.step}" + (f" of {event.total}" if event.total else "")
    return " ".join(str(x) for x in (event.kind, event.task, event.state, event.message) if x)
