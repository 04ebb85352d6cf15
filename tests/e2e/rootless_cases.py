# SPDX-License-Identifier: Apache-2.0
"""
The tests of real containers once more, by podman of an ordinary user. test_images.py runs this file in a mount
namespace that is prepared for podman (lib_images.ROOTLESS).
"""

import lib_images
import pytest
from conftest import NOBODY
from lib_jobs import make_lab  # noqa: F401 (fixtures)
from test_images import (real, test_exit_codes_and_a_missing_image, test_in_a_real_container,  # noqa: F401
                         test_mounts_of_a_real_container, test_processes_die_around_a_real_container)


@pytest.fixture
def lab(make_lab):  # noqa: F811
    return make_lab(as_nobody=True)


@pytest.fixture(scope="module")
def podman():
    base, why = lib_images.real(NOBODY)
    assert base, why
    yield why
    lib_images.remove(base)
