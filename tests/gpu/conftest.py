# SPDX-License-Identifier: Apache-2.0
"""The tests with a real GPU use what the end-to-end tests use."""

import importlib.util
import pathlib
import sys

E2E = pathlib.Path(__file__).resolve().parents[1] / "e2e"
sys.path.insert(0, str(E2E))
_spec = importlib.util.spec_from_file_location("e2e_conftest", E2E / "conftest.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
_module.TEST_LIMIT_S = 0  # no time limit: these tests run as long as they need
globals().update({name: value for name, value in vars(_module).items() if not name.startswith("__")})
