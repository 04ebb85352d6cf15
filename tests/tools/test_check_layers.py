# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/check-layers with small source trees: each has one thing right or wrong."""
import pathlib
import subprocess

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check-layers"

CASES = [
    # file, its line, the text that the tool must print (None: nothing is wrong)
    ("job/a.c", '#include "base/err.h"', None),
    ("job/a.c", '#include "job/job.h"', None),
    ("job/a.c", '#include "job_int.h"', None),
    ("job/a.c", "#include <stdio.h>", None),
    ("loop/a.c", "#include <uv.h>", None),
    ("codec/mbed.h", "#include <mbedtls/md.h>", None),
    ("codec/a.c", '  #  include <yaml.h>', None),
    ("codec/a.c", '#include "proto/tony.pb-c.h"', None),
    ("loop/a.c", '#include "codec/frame.h"', None),
    ("codec/a.c", '#include "loop/loop.h"', "codec (level 1) must not include loop (level 1)"),
    ("base/err.c", '#include "codec/frame.h"', "base (level 0) must not include codec (level 1)"),
    ("job/job.h", '#include "storage/storage.h"', "job (level 3) must not include storage (level 3)"),
    ("master/a.c", '#include "executor/executor.h"', "master (level 5) must not include executor (level 5)"),
    ("master/a.c", "#include <uv.h>", "<uv.h> may be included only in src/loop/"),
    ("codec/a.c", "#include <mbedtls/md.h>", "<mbedtls/md.h> may be included only in src/codec/mbed.h"),
    ("conf/a.c", "#include <expat.h>", "<expat.h> may be included only in src/codec/"),
    ("client/a.c", "#include <archive.h>", "<archive.h> may be included only in src/main/tony-pack.c"),
    ("client/a.c", '#include "cluster/cluster.h"', None),
    ("client/show/a.c", '#include "cluster/link.h"', "client may include only cluster/cluster.h of cluster"),
    ("client/show/a.c", '#include "cluster/yarn/table.h"', "client may include only cluster/cluster.h of cluster"),
    ("client/show/a.c", '#include "hadoop/yarn.h"', "client may include nothing of hadoop"),
    ("client/a.c", '#include "slurm/slurm.h"', "client may include nothing of slurm"),
    ("client/a.c", '#include "scheduler/scheduler.h"', "client may include nothing of scheduler"),
    ("master/yarn/a.c", '#include "hadoop/ids.h"', None),
    ("master/archive.c", '#include "hadoop/webhdfs.h"', "master may include nothing of hadoop"),
    ("executor/link_tls.c", '#include "hadoop/token.h"', "executor may include nothing of hadoop"),
    ("cluster/slurm/a.c", '#include "hadoop/site.h"', "cluster may include nothing of hadoop"),
    ("cluster/yarn/a.c", '#include "client/client_int.h"', "cluster (level 4) must not include client (level 5)"),
    ("job/a.c", '#include "other.h"', '"other.h" must be named by its directory'),
    ("job/a.c", '#include "job/../storage/storage.h"', "climbs out of its directory"),
    ("job/a.c", '#include "newdir/x.h"', "directory newdir has no level"),
    ("newdir/a.c", "int x;", "directory newdir has no level"),
]


@pytest.mark.parametrize("name, line, words", CASES)
def test_one_edge(tmp_path, name, line, words):
    path = tmp_path / "src" / name
    path.parent.mkdir(parents=True)
    (path.parent / "job_int.h").write_text("")
    path.write_text(f"/* first line */\n{line}\n")
    result = subprocess.run([TOOL, tmp_path], capture_output=True, text=True, timeout=30)
    if words is None:
        assert (result.returncode, result.stdout) == (0, "")
    else:
        assert result.returncode == 1
        assert words in result.stdout
        assert f"src/{name}:{1 if name.startswith('newdir') else 2}: " in result.stdout


def test_a_tree_without_sources_is_an_error(tmp_path):
    assert subprocess.run([TOOL, tmp_path], capture_output=True, timeout=30).returncode == 2


@pytest.mark.parametrize("n, words", [(25, None), (26, "src/cluster/yarn:1: 26 files; the limit is 25")])
def test_a_directory_of_the_client_has_few_files(tmp_path, n, words):
    (tmp_path / "src" / "cluster" / "yarn").mkdir(parents=True)
    for i in range(n):
        (tmp_path / "src" / "cluster" / "yarn" / f"a{i}.c").write_text("int x;\n")
    result = subprocess.run([TOOL, tmp_path], capture_output=True, text=True, timeout=30)
    assert (result.returncode, result.stdout.strip()) == ((1, words) if words else (0, ""))
