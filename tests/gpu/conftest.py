# SPDX-License-Identifier: Apache-2.0
"""The tests with a real GPU use what the end-to-end tests use."""

from e2e_fixtures import *  # noqa: F403
