# SPDX-License-Identifier: Apache-2.0
"""
The original's end-to-end tests with its files and options, on the pool. test_rules.py tests its rules in more
combinations.
"""

import zipfile

import pytest
from lib_jobs import lab, make_lab  # noqa: F401 (fixtures)

SCRIPTS = {
    "exit_0.py": "",
    "exit_1.py": "import sys; sys.exit(1)",
    "exit_0_check_env.py": "import os, sys; sys.exit(os.environ['ENV_CHECK'] != 'ENV_CHECK')",
    "check_env_and_venv.py": "import os, sys; sys.exit(not (os.path.exists('venv/123.xml') and os.environ['ENV_CHECK'] == 'ENV_CHECK'))",
    "check_pytorchenv.py": "import os; print(os.environ['RANK'], os.environ['WORLD'], os.environ['INIT_METHOD'])",
    "sleep_30.py": "import time; time.sleep(1000)",
}
ENV = ("--shell_env", "ENV_CHECK=ENV_CHECK")


class Original:
    def __init__(self, lab):
        self.lab = lab
        self.src = lab.base / "scripts"
        self.src.mkdir()
        for name, text in SCRIPTS.items():
            (self.src / name).write_text(text + "\n")
        with zipfile.ZipFile(lab.base / "test.zip", "w") as z:
            z.writestr("123.xml", "<a/>")

    def __call__(self, script, *args, keys=(), python="python3"):
        keys = {"tony.application.security.enabled": "false", "tony.am.memory": "64m", **dict(keys)}
        for role in [k.split(".")[1] for k in keys if k.endswith(".instances")]:
            keys.setdefault(f"tony.{role}.memory", "64m")
        rows = "".join(f"<property><name>{k}</name><value>{v}</value></property>\n" for k, v in keys.items())
        (self.lab.base / "tony.xml").write_text(f"<configuration>\n{rows}</configuration>\n")
        more = ("--python_binary_path", python) if python else ()
        r = self.lab.run("run", "--src_dir", self.src, "--executes", script, "--conf_file", self.lab.base / "tony.xml",
                         "--container_env", "SKIP_HADOOP_PATH=true", *more, *args)
        self.app = next((w for w in r.stdout.split() if w.startswith("application_")), None)
        return r


@pytest.fixture
def original(lab):
    return Original(lab)


ONE = {"tony.worker.instances": 1}
PAIR = {"tony.ps.instances": 1, "tony.worker.instances": 1}


@pytest.mark.parametrize("script, args, keys, python, code", [
    ("exit_0_check_env.py", ENV, {}, "python3", 0),
    ("exit_1.py", (), {}, "python3", 1),
    ("python3 check_env_and_venv.py", (*ENV, "--python_venv", "{base}/test.zip"), ONE, None, 0),
    ("exit_1.py", (), PAIR, "python3", 1),
    ("exit_0.py", (), {**ONE, "tony.application.framework": "standalone"}, "python3", 0),
    ("exit_0.py", (), {**ONE, "tony.slave.instances": 1, "tony.application.framework": "standalone"}, "python3", 2),
    ("sleep_30.py", (), {"tony.worker.instances": 100, "tony.worker.memory": "2g", "tony.container.allocation.timeout": 1000}, "python3", 2),
    ("exit_0.py", (), {"tony.chief.instances": 1, "tony.worker.instances": 2, "tony.worker.command": "python3 sleep_30.py",
                       "tony.application.group.A": "chief", "tony.application.dependency.worker.timeout.after.A": 1}, "python3", 1),
], ids=["single node", "single node fails", "venv", "workers fail", "standalone", "standalone of two", "more than there is", "group limit"])
def test_the_result_is_that_of_the_original(lab, original, script, args, keys, python, code):
    r = original(script, *(a.format(base=lab.base) for a in args), keys=keys, python=python)
    assert r.returncode == code, r.stdout + r.stderr


def test_pytorch(lab, original):
    r = original("check_pytorchenv.py", keys={"tony.worker.instances": 2, "tony.application.framework": "pytorch"})
    assert r.returncode == 0, r.stderr
    said = [lab.log(original.app, f"worker:{i}").split() for i in range(2)]
    address = lab.status(original.app)["tasks"][0]["address"]
    assert said == [["0", "2", f"tcp://{address}"], ["1", "2", f"tcp://{address}"]]


def test_servers_are_finished_workers_have_succeeded(lab, original):
    r = original("python3 check_env_and_venv.py", *ENV, "--python_venv", lab.base / "test.zip", python=None,
                 keys={**PAIR, "tony.ps.command": "python3 sleep_30.py"})
    assert r.returncode == 0, r.stderr
    assert {t["task"]: t["result"] for t in lab.status(original.app)["tasks"]} == {"ps:0": "FINISHED", "worker:0": "SUCCEEDED"}


def test_the_final_configuration(lab, original):
    r = original("ls", "--shell_env", "TEST1=1", "--container_env", "TEST2=2", "--conf", f"tony.containers.resources={lab.base}/tony.xml",
                 python=None, keys={**ONE, "tony.worker.command": "cat exit_0.py", "tony.containers.resources": f"{lab.base}/test.zip"})
    assert r.returncode == 0, r.stderr
    text = (lab.dir(original.app) / "job.conf").read_text()
    assert all(w in text for w in ('"ls"', "TEST1=1", "TEST2=2", "cat exit_0.py", "/test.zip", "/tony.xml")), text
