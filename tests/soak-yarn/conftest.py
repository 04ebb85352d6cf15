# SPDX-License-Identifier: Apache-2.0
"""The soak tests on a real Hadoop use what tests/yarn uses."""

import importlib.util
import pathlib
import sys

YARN = pathlib.Path(__file__).resolve().parents[1] / "yarn"
sys.path.insert(0, str(YARN))
_spec = importlib.util.spec_from_file_location("yarn_conftest", YARN / "conftest.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
_module.TEST_LIMIT_S = 0  # no time limit: a soak test runs as long as it is told to
globals().update({name: value for name, value in vars(_module).items() if not name.startswith("__")})
