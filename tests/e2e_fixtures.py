# SPDX-License-Identifier: Apache-2.0
"""All names of tests/e2e/conftest.py, for groups that use its fixtures, but have no time limit: their tests take long."""

import importlib.util
import pathlib
import sys

E2E = pathlib.Path(__file__).resolve().parent / "e2e"
sys.path.insert(0, str(E2E))
_spec = importlib.util.spec_from_file_location("e2e_conftest", E2E / "conftest.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
_module.TEST_LIMIT_S = 0
globals().update({name: value for name, value in vars(_module).items() if not name.startswith("__")})
__all__ = [name for name in vars(_module) if not name.startswith("__")]
