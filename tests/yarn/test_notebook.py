# SPDX-License-Identifier: Apache-2.0
"""
`tony notebook` on a real Hadoop, with a real JupyterLab. These tests run where chromium is installed (tools/install-deps
browser), and not in CI, whose time is short: tests/e2e runs a kernel there.
"""

import re
import signal
import sys

import pytest
from lib_tony import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from lib_notebook import environment, need_browser, start, use  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.takes(60)]


def test_a_kernel_computes_and_the_notebook_ends_when_it_is_idle(tony, cluster):
    need_browser()
    p, url = start(tony, "--cluster", "yarn", "--memory", "1g", "--idle", "10s", *environment())
    assert use("kernel", url, "print(6 * 7)") == "42\n"
    _, err = p.communicate(timeout=600)
    assert p.returncode == 0, err
    assert cluster.await_app(re.search(r"application_\d+_\d+", err).group(), "FINISHED")["finalStatus"] == "SUCCEEDED"


def test_a_real_browser(tony, cluster):
    """It opens the printed URL, runs a cell and sees the result; then Ctrl-C ends the notebook."""
    need_browser()
    p, url = start(tony, "--cluster", "yarn", "--memory", "1g", *environment())
    assert use("browser", url, "print(6 * 7)").strip() == "42"
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=300)
    assert p.returncode == 0, err
    # The master ends the job, so YARN calls the application finished.
    assert cluster.await_app(re.search(r"application_\d+_\d+", err).group(), "FINISHED")["finalStatus"] == "KILLED"
