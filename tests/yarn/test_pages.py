# SPDX-License-Identifier: Apache-2.0
"""What the pages tell readers to paste on a machine with a Hadoop client configuration."""

import pytest
from lib_pages import paste, to_paste


@pytest.mark.takes(15)
@pytest.mark.parametrize("page", to_paste("yarn"))
def test_paste(tony, base, page):
    out = paste(to_paste("yarn")[page], tony.env, base)
    if page == "docs/on-yarn.md":
        assert "worker:0 runs on" in out and "worker:1 runs on" in out
