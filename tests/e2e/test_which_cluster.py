# SPDX-License-Identifier: Apache-2.0
"""Where a job runs: the option, then the job file, then the site file. Commands without a job file follow the same order."""

import pytest

XML = """<configuration>
  <property><name>tony.worker.instances</name><value>1</value></property>
  <property><name>tony.worker.memory</name><value>64m</value></property>
  <property><name>tony.containers.command</name><value>true</value></property>{}
</configuration>"""


def prop(value, final=""):
    return f"<property><name>tony.cluster</name><value>{value}</value>{final}</property>"


def plan(tony, base, job, site=None, *options):
    (base / "site").mkdir(exist_ok=True)
    (base / "site/tony-site.xml").write_text(f"<configuration>{site or ''}</configuration>")
    (base / "tony.xml").write_text(XML.format(job))
    env = {"TONY_CONF_DIR": str(base / "site"), "HADOOP_CONF_DIR": str(base / "nothing")}
    return tony.run("plan", "--conf_file", base / "tony.xml", *options, env=env)


def says_yarn(r):
    """Does the command choose YARN? There is no Hadoop, so a command that chooses YARN complains about its missing
    site files."""
    return r.returncode != 0 and "has no core-site.xml" in r.stderr


@pytest.mark.parametrize("job, site, options, yarn", [
    ("", None, [], False),
    (prop("yarn"), None, [], True),
    ("", prop("yarn"), [], True),
    (prop("local"), prop("yarn"), [], False),
    ("", prop("yarn"), ["--cluster", "local"], False),
    (prop("local"), None, ["--cluster", "yarn"], True)])
def test_the_option_the_file_and_the_site(tony, tmp_path, job, site, options, yarn):
    r = plan(tony, tmp_path, job, site, *options)
    assert says_yarn(r) if yarn else r.returncode == 0, r.stderr


def test_a_final_value_of_the_site(tony, tmp_path):
    site = prop("local", "<final>true</final>")
    assert plan(tony, tmp_path, "", site).returncode == 0
    r = plan(tony, tmp_path, prop("yarn"), site)
    assert r.returncode == 2 and "tony-site.xml" in r.stderr and "tony.cluster" in r.stderr, r.stderr


def test_commands_without_a_job(tony, tmp_path):
    """HADOOP_CONF_DIR alone means YARN; a site file that says `local` wins over it."""
    (tmp_path / "tony-site.yaml").write_text("conf: {tony.cluster: local}\n")
    hadoop = {"HADOOP_CONF_DIR": str(tmp_path / "nothing")}
    assert tony.run("list", env=hadoop).returncode != 0
    r = tony.run("list", env={**hadoop, "TONY_CONF_DIR": str(tmp_path)})
    assert r.returncode == 0, r.stderr


@pytest.mark.parametrize("option, site, words", [
    ("slurm", "", ("'sinfo' failed: no controller", "scontrol ping")),
    ("local", "", ("'local'", "the pool divides this machine itself", "tony pool set policy=dorm")),
    (None, prop("slurm"), ("'sinfo' failed: no controller", "scontrol ping")),
    ("cloud", "", ("there is no cluster 'cloud'",)),
    ("yarn", prop("slurm"), ("has no core-site.xml",)),
    (None, "", ("has no core-site.xml",))])
def test_the_cluster_of_an_arbiter(tony, tmp_path, option, site, words):
    (tmp_path / "tony-site.xml").write_text(f"<configuration>{site}</configuration>")
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho 'no controller' >&2; exit 1\n")
    (tmp_path / "sinfo").chmod(0o755)
    r = tony.run("arbiter", "start", "--queue", "ml", *(["--cluster", option] if option else []),
                 env={"TONY_CONF_DIR": str(tmp_path), "HADOOP_CONF_DIR": str(tmp_path / "nothing"),
                      "PATH": f"{tmp_path}:{tony.env['PATH']}"})
    assert r.returncode == (4 if "core-site" in words[0] or "sinfo" in words[0] else 2), r.stderr
    assert all(word in r.stderr for word in words) and "without effect" not in r.stderr, r.stderr
