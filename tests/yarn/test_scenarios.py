# SPDX-License-Identifier: Apache-2.0
"""The scenarios of tests/scenarios.py on the cluster `yarn`."""

import pytest
import scenarios
from scenarios import *  # noqa: F403: its tests


@pytest.fixture
def on(tony):
    return scenarios.On(tony.run, tony.base, "yarn")
