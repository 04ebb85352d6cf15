# SPDX-License-Identifier: Apache-2.0
"""What the pages tell readers to paste on the login node of a Slurm."""

import pytest
from lib_pages import paste, to_paste
from lib_slurm import as_user


SAYS = {"docs/slurm.md": ["worker:0 runs on", "worker:1 runs on"], "docs/arbiter.md": ["has no job that can be resized"]}


@pytest.mark.takes(15)
@pytest.mark.parametrize("page", to_paste("slurm"))
def test_paste(tony, slurm, page):
    env = {**slurm.environment(), **tony.env}
    env["PATH"] = f"{tony.program.parent}:{env['PATH']}"
    out = paste(to_paste("slurm")[page], env, tony.base, wrap=as_user(tony.user))
    assert all(words in out for words in SAYS[page]), out
