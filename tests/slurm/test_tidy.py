# SPDX-License-Identifier: Apache-2.0
"""On Slurm no pool removes old content and old history: a submission has them removed, once a day."""

import fcntl
import os
import shutil
import time

from lib_slurm import wait_until
from test_slurm import app_of

DAY = 24 * 3600


def age(path, days):
    then = time.time() - days * DAY
    os.utime(path, (then, then), follow_symlinks=False)


def test_a_submission_has_old_things_removed(tony, slurm):
    (tony.base / "src").mkdir()
    (tony.base / "src/word").write_text("shipped\n")
    shutil.chown(tony.base / "src", tony.user)
    app = app_of(tony("run", "--src_dir", tony.base / "src", tony.job_file("cat word")))
    entry = next((tony.home / "store").glob("d-*"))
    tidied = tony.home / "pool/tidied"
    wait_until(tidied.exists, "the first run has done it")
    programs = next((tony.home / "programs").iterdir())
    old_build = programs.with_name("0.0.1-of-another-build")
    shutil.copytree(programs, old_build)
    for path in (entry, old_build, tony.history(app) / "summary"):
        age(path, 60)

    tony("run", tony.job_file("true"))
    assert entry.exists() and old_build.exists(), "it was done less than a day ago"

    # A process that does it, and has not ended; it may be killed, so nothing counts as done.
    age(tidied, 2)
    with open(tidied, "rb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        tony("run", tony.job_file("true"))
        assert tidied.stat().st_mtime < time.time() - DAY and entry.exists()

    later = app_of(tony("run", tony.job_file("true")))
    wait_until(lambda: not entry.exists() and not old_build.exists() and not (tony.home / "history" / app).exists(), "all is removed")
    wait_until(lambda: tidied.stat().st_mtime > time.time() - DAY, "it counts as done")
    assert programs.exists() and tony.history(later)
