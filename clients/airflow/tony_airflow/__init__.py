# SPDX-License-Identifier: Apache-2.0
"""Apache Airflow: an operator that runs a job of tony.

    from tony_airflow import TonyOperator

    train = TonyOperator(task_id="train", job="/home/ada/train/job.yaml", conf={"tony.worker.instances": 4})
"""

from .operators import TonyOperator
from .triggers import TonyTrigger

__all__ = ["TonyOperator", "TonyTrigger", "get_provider_info"]


def get_provider_info() -> dict:
    return {
        "package-name": "apache-airflow-providers-tony",
        "name": "tony",
        "description": "Runs distributed machine-learning jobs on one machine, YARN or Slurm.",
        "versions": ["0.2.0"],
    }
