# SPDX-License-Identifier: Apache-2.0
"""The soak tests use what the end-to-end tests use."""

from e2e_fixtures import *  # noqa: F403
