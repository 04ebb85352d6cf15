# SPDX-License-Identifier: Apache-2.0
"""Waits for a job in Airflow's triggerer, where many tasks wait in one process."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator

from airflow.models.taskinstance import TaskInstance
from airflow.triggers.base import BaseTrigger, TriggerEvent
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from tony import aio


class TonyTrigger(BaseTrigger):
    """Fires when the job is over. stop_on_kill: stop the job if Airflow's task ends before, because somebody has
    marked it as failed or cleared it."""

    def __init__(self, application_id: str, cluster: str | None = None, stop_on_kill: bool = True):
        super().__init__()
        self.application_id, self.cluster, self.stop_on_kill = application_id, cluster, stop_on_kill

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return ("tony_airflow.triggers.TonyTrigger",
                {"application_id": self.application_id, "cluster": self.cluster, "stop_on_kill": self.stop_on_kill})

    def is_given_up(self) -> bool:
        """Has Airflow given up the task? A triggerer that ends cancels its triggers as well, and another one takes
        them over: the task is still deferred then."""
        ti = getattr(self, "task_instance", None)
        if ti is None:
            return False
        with create_session() as session:
            now = session.query(TaskInstance).filter_by(dag_id=ti.dag_id, task_id=ti.task_id, run_id=ti.run_id,
                                                        map_index=ti.map_index).one_or_none()
            return now is None or now.state != TaskInstanceState.DEFERRED

    async def run(self) -> AsyncIterator[TriggerEvent]:
        job = aio.Job(self.application_id, self.cluster)
        try:
            status = await job.wait(check=False)
        except asyncio.CancelledError:
            if self.stop_on_kill and await asyncio.shield(asyncio.to_thread(self.is_given_up)):
                self.log.info("Airflow has given up the task: stopping job %s", self.application_id)
                await asyncio.shield(job.kill())
            raise
        except Exception as error:  # the trigger must fire: otherwise the task would wait for ever
            yield TriggerEvent({"application_id": self.application_id, "error": str(error)})
            return
        yield TriggerEvent({"application_id": self.application_id, "state": status.state, "message": status.message})
