# SPDX-License-Identifier: Apache-2.0
"""What the pages tell readers to paste on a machine with a Hadoop client configuration."""

import subprocess

import pytest
from lib_pages import paste, to_paste
from lib_tony import APP


@pytest.mark.takes(15)
@pytest.mark.parametrize("page", to_paste("yarn"))
def test_paste(tony, base, page):
    out = paste(to_paste("yarn")[page], tony.env, base)
    if page == "docs/on-yarn.md":
        assert "worker:0 runs on" in out and "worker:1 runs on" in out


def test_the_site_sends_a_tony_xml_to_yarn(tony, cluster, base):
    """docs/from-tony.md: with tony.cluster in the site file, an unchanged tony.xml needs no --cluster."""
    (base / "site/tony-site.yaml").write_text("conf: {tony.cluster: yarn, tony.application.num-client-rm-connect-retries: 60}\n")
    rows = {"tony.worker.instances": "1", "tony.worker.memory": "128m", "tony.application.framework": "generic",
            "tony.containers.command": "echo container $CONTAINER_ID"}
    (base / "tony.xml").write_text("<configuration>" + "".join(
        f"<property><name>{k}</name><value>{v}</value></property>" for k, v in rows.items()) + "</configuration>")
    r = subprocess.run([tony.bin / "tony", "run"], env=tony.env, cwd=base, capture_output=True, text=True, timeout=240)
    assert r.returncode == 0, r.stdout + r.stderr
    app = APP.search(r.stderr).group()
    cluster.await_app(app, "FINISHED")  # the client ends a moment before
    assert cluster.app(app)["finalStatus"] == "SUCCEEDED"
