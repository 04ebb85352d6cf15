# SPDX-License-Identifier: Apache-2.0
"""
The tests of real containers once more, by podman of an ordinary user. test_images.py runs this file in a mount
namespace that is prepared for podman (lib_images.ROOTLESS).
"""

import os

import lib_images
import pytest
from conftest import NOBODY, wait_until
from lib_jobs import make_lab  # noqa: F401 (fixtures)
from test_images import (real, test_exit_codes_and_a_missing_image, test_in_a_real_container,  # noqa: F401
                         test_mounts_of_a_real_container, test_processes_die_around_a_real_container)


@pytest.fixture
def lab(make_lab):  # noqa: F811
    return make_lab(as_nobody=True)


def test_the_groups_of_the_user(lab, real, tmp_path):
    """A task may read files that only a group of the user may read, such as shared data."""
    lab.user["extra_groups"] = [54321]
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "file").write_text("for the group\n")
    os.chown(shared, 0, 54321)
    shared.chmod(0o750)
    for path in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        path.chmod(0o755)
    app = lab.submit(real("cat /shared/file; sleep 1000", {"tony.docker.containers.mount": f"{shared}:/shared:ro"}))
    wait_until(lambda: lab.log_so_far(app, "worker:0") + lab.log_so_far(app, "worker:0", "stderr") if lab.n_running(app) else False, "it has read")
    assert lab.log(app, "worker:0") == "for the group\n"
    assert lab.ok("exec", app, "worker:0", "--", "cat", "/shared/file") == "for the group\n"
    lab.ok("kill", app)
    lab.settled()


@pytest.fixture(scope="module")
def podman():
    base, why = lib_images.real(NOBODY)
    assert base, why
    yield why
    lib_images.remove(base)
