# SPDX-License-Identifier: Apache-2.0
"""Secrets, and the call at the end of a job, on Slurm."""

import base64
import json
import os
import pathlib

from lib_slurm import wait_until

VALUE = "Zk3-from-a-file-6620"
CHECK = f'test "$A_TOKEN" = "$(echo {base64.b64encode(VALUE.encode()).decode()} | base64 -d)" || exit 8; '


def holding(*roots):
    found = []
    for root in roots:
        for top, _, names in os.walk(root):
            for name in names:
                path = pathlib.Path(top, name)
                try:
                    if path.is_file() and VALUE.encode() in path.read_bytes():
                        found.append(path)
                except OSError:  # it was removed meanwhile
                    continue
    return found


def test_secrets_and_the_call_at_the_end(tony, slurm):
    """The value is in one file of mode 0600 of the job's directory, and in nothing that Slurm keeps or shows."""
    secret = tony.base / "token"
    secret.write_text(VALUE + "\n")
    secret.chmod(0o600)
    os.chown(secret, tony.base.stat().st_uid, tony.base.stat().st_gid)
    path = tony.job_file(CHECK + f"while [ ! -e {tony.base}/go ]; do sleep 0.1; done")
    doc = json.loads(path.read_text())
    doc.update({"secrets": {"A_TOKEN": {"file": "token"}}, "on-end": f'cat > {tony.base}/status; echo "$TONY_DELIVERY" >> {tony.base}/calls'})
    path.write_text(json.dumps(doc))
    app = tony("submit", path).stdout.strip()
    tony.await_running(app, 3)
    files = [p for p in holding(tony.home, slurm.dir) if p != secret]
    assert [p.relative_to(tony.home) for p in files] == [pathlib.Path("jobs", app, "secrets")] and files[0].stat().st_mode & 0o777 == 0o600
    number = tony.number(app)
    for command in (("scontrol", "show", "job", number), ("squeue", "-o", "%all"), ("scontrol", "write", "batch_script", number, "-")):
        assert VALUE not in slurm.run(*command).stdout, command
    (tony.base / "go").touch()
    assert tony("wait", app).returncode == 0
    wait_until(lambda: (tony.base / "calls").exists() and (tony.base / "calls").read_text(), "the call")
    assert json.loads((tony.base / "status").read_text())["state"] == "SUCCEEDED"
    assert set((tony.base / "calls").read_text().split()) == {f"{app}.end"}
    assert not holding(tony.home, slurm.dir)
